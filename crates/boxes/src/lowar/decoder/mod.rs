//! Data and repair packets that come out of the long path.

mod block;
mod shared;
mod singles;
mod stream;

use alloc::vec;
use alloc::vec::Vec;

use self::shared::Shared;
use self::singles::Singles;
use self::stream::Stream;
use super::coding::{Pool, Shape};
use super::config::Config;
use super::counters::Counters;
use super::format::{Body, Message, Report};
use crate::frame::View;
use crate::message::{Seal, Stamp};
use crate::packets::{Data, Space};
use crate::reorder::Room;
use crate::streams::{Key, Table};
use crate::timers::Timers;

/// The receiving half of the box. It keeps streams only that a message of the other box is about.
#[derive(Debug)]
pub(crate) struct Decoder {
    streams: Table<Peer>,
    shared: Shared,
    /// The latest report.
    stamp: Stamp,
}

#[derive(Debug)]
struct Peer {
    /// The latest question of the other box.
    heard: Stamp,
    packets: Packets,
}

#[derive(Debug)]
enum Packets {
    Ordered(Stream),
    Singles(Singles),
}

impl Decoder {
    pub(crate) fn new(config: &Config, boot: u64) -> Self {
        Self {
            streams: Table::new(config.max_streams, config.idle_ns),
            shared: Shared {
                pool: Pool::new(config.max_units),
                deadlines: Timers::default(),
                hold_ns: config.hold_ns,
                counters: Counters::default(),
                room: Room::new(config.max_held),
            },
            stamp: Stamp { boot, serial: 0 },
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let room = &self.shared.room;
        Counters {
            held: room.kept,
            peak_held: room.peak,
            held_full: room.refused,
            ..self.shared.counters
        }
    }

    /// Units that no block uses.
    pub(crate) fn free_units(&self) -> usize {
        self.shared.pool.free()
    }

    /// Frames held back now.
    pub(crate) fn held(&self) -> usize {
        self.shared.room.frames()
    }

    /// When [`hold_ended`](Self::hold_ended) has something to do.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.shared.deadlines.next_ns()
    }

    /// Takes in a data packet. Returns what goes to the NIC.
    pub(crate) fn handle(&mut self, now_ns: u64, frame: Vec<u8>, data: Data) -> Vec<Vec<u8>> {
        let Some(view) = View::parse(&frame) else {
            return vec![frame];
        };
        let key = Key::new(&view, data.qpn, data.space);
        let Some(peer) = self.streams.get(now_ns, &key) else {
            return vec![frame];
        };
        if !view.icrc_holds() {
            self.shared.counters.damaged += 1;
            return vec![frame];
        }
        let mut out = Vec::new();
        match &mut peer.packets {
            Packets::Ordered(stream) => {
                stream.handle(now_ns, data, frame, &mut self.shared, &mut out);
            }
            Packets::Singles(singles) => {
                singles.note(&data, &view, &mut self.shared);
                out.push(frame);
            }
        }
        out
    }

    /// Takes in an acknowledgement. Returns what goes to the NIC.
    pub(crate) fn handle_ack(&mut self, now_ns: u64, frame: Vec<u8>, key: Key) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        match self.streams.get(now_ns, &key).map(|peer| &mut peer.packets) {
            Some(Packets::Ordered(stream)) => {
                stream.handle_ack(now_ns, frame, &mut self.shared, &mut out);
            }
            _ => out.push(frame),
        }
        out
    }

    /// Takes in a message of the other box. Returns what goes to the NIC, and the answer to the
    /// other box.
    pub(crate) fn handle_message(
        &mut self,
        now_ns: u64,
        view: &View<'_>,
        message: &Message<'_>,
        seal: &Seal,
    ) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let key = Key::new(view, message.qpn, message.space);
        let mut out = Vec::new();
        if self.streams.get(now_ns, &key).is_none() {
            self.add(now_ns, key, message.shape, &mut out);
        }
        let Some(peer) = self.streams.get(now_ns, &key) else {
            self.shared.counters.streams_full += 1;
            return (out, None);
        };
        let (shape, shared) = (message.shape, &mut self.shared);
        match message.body {
            Body::Repair(repair, unit) => {
                shared.counters.repairs_received += 1;
                let repair = (&repair, unit);
                match &mut peer.packets {
                    Packets::Ordered(stream) => {
                        stream.repair(now_ns, shape, repair, view, shared, &mut out);
                    }
                    Packets::Singles(singles) => {
                        out.extend(singles.repair(shape, repair, view, shared));
                    }
                }
                return (out, None);
            }
            Body::Report(..) => return (out, None),
            Body::Probe(stamp) | Body::Announce(stamp, _) if stamp <= peer.heard => {
                return (out, None);
            }
            Body::Probe(stamp) => peer.heard = stamp,
            Body::Announce(stamp, base) => {
                peer.heard = stamp;
                match &mut peer.packets {
                    Packets::Ordered(stream) => stream.announce(base, shape, shared, &mut out),
                    Packets::Singles(singles) => singles.announce(base, shape, shared),
                }
            }
        }
        self.stamp.serial += 1;
        shared.counters.reports_sent += 1;
        let report = Report {
            answers: peer.heard,
            ..peer.report()
        };
        let report = Message::about(&key, shape, Body::Report(self.stamp, report));
        let answer = seal.wrap(&view.envelope().reversed(), report.emit());
        (out, answer)
    }

    /// Ends the wait of frames whose hold time is over. Returns what goes to the NIC.
    pub(crate) fn hold_ended(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(key) = self.shared.deadlines.pop_due(now_ns) {
            let peer = self.streams.peek(&key);
            if let Some(Packets::Ordered(stream)) = peer.map(|peer| &mut peer.packets) {
                stream.hold_ended(now_ns, &mut self.shared, &mut out);
            }
        }
        out
    }

    fn add(&mut self, now_ns: u64, key: Key, shape: Shape, out: &mut Vec<Vec<u8>>) {
        let packets = match key.space {
            Space::Request | Space::Response => Packets::Ordered(Stream::new(key, shape)),
            Space::Singles => Packets::Singles(Singles::new(key, shape)),
        };
        let heard = Stamp::default();
        let removed = self.streams.insert(now_ns, key, Peer { heard, packets });
        for (_, peer) in removed {
            match peer.packets {
                Packets::Ordered(stream) => out.extend(stream.release(&mut self.shared)),
                Packets::Singles(mut singles) => singles.close(&mut self.shared),
            }
        }
    }
}

impl Peer {
    fn report(&self) -> Report {
        match &self.packets {
            Packets::Ordered(stream) => stream.report,
            Packets::Singles(singles) => singles.report,
        }
    }
}
