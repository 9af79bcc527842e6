//! The destination half (`DstToR`): packets that come out of the network leave in order.

use alloc::vec;
use alloc::vec::Vec;

use super::config::Config;
use super::counters::Counters;
use super::flow::{Flow, Shared};
use super::format::{Body, Message};
use crate::frame::{Envelope, View};
use crate::message::{Seal, Stamp};
use crate::packets::Data;
use crate::reorder::Room;
use crate::streams::{Key, Table};
use crate::timers::Timers;

#[derive(Debug)]
pub(crate) struct Destination {
    config: Config,
    flows: Table<Peer>,
    shared: Shared,
    timers: Timers,
    seal: Seal,
}

/// A flow, and what its source box said about it.
#[derive(Debug)]
struct Peer {
    flow: Flow,
    /// The latest start or mark.
    heard: Stamp,
    /// The code point of its packets.
    dscp: u8,
    /// The headers of requests.
    envelope: Envelope,
    timer_ns: Option<u64>,
}

/// What a frame or a timeout leads to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Frames for the NIC.
    pub(crate) near: Vec<Vec<u8>>,
    /// A request to the source box.
    pub(crate) far: Option<Vec<u8>>,
}

impl Outcome {
    fn pass(frame: Vec<u8>) -> Self {
        Self {
            near: vec![frame],
            far: None,
        }
    }
}

impl Destination {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            flows: Table::new(config.max_flows, config.idle_ns),
            shared: Shared {
                room: Room::new(config.max_held),
                repair_ns: 0,
                counters: Counters::default(),
            },
            timers: Timers::default(),
            seal: config.seal(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let room = &self.shared.room;
        Counters {
            held: room.kept,
            peak_held: room.peak,
            peak_held_bytes: room.peak_bytes,
            held_full: room.refused,
            ..self.shared.counters
        }
    }

    /// Frames held back now.
    pub(crate) fn held(&self) -> usize {
        self.shared.room.frames()
    }

    /// Bytes of frames held back now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.room.bytes()
    }

    /// When [`due`](Self::due) has something to do.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// Takes in a data packet.
    pub(crate) fn handle(&mut self, now_ns: u64, mut frame: Vec<u8>, data: Data) -> Outcome {
        let Some(view) = View::parse(&frame) else {
            return Outcome::pass(frame);
        };
        let key = Key::new(&view, data.qpn, data.space);
        let Some(peer) = self.flows.get(now_ns, &key) else {
            return Outcome::pass(frame);
        };
        if !view.icrc_holds() {
            self.shared.counters.damaged += 1;
            return Outcome::pass(frame);
        }
        let repeated = view.dscp() == self.config.repeat_dscp;
        if repeated {
            frame = view.with_dscp(peer.dscp);
        }
        let mut near = Vec::new();
        let shared = &mut self.shared;
        peer.flow
            .packet(now_ns, data, frame, repeated, shared, &mut near);
        self.go_on(now_ns, key, near)
    }

    /// Takes in an acknowledgement to the queue pair of a flow.
    pub(crate) fn handle_ack(&mut self, now_ns: u64, frame: Vec<u8>, key: Key) -> Outcome {
        let Some(peer) = self.flows.get(now_ns, &key) else {
            return Outcome::pass(frame);
        };
        let mut near = Vec::new();
        peer.flow.ack(now_ns, frame, &mut self.shared, &mut near);
        self.go_on(now_ns, key, near)
    }

    /// Takes in a message of the source box about a flow.
    pub(crate) fn message(&mut self, now_ns: u64, view: &View<'_>, message: &Message) -> Outcome {
        let key = Key::new(view, message.qpn, message.space);
        let mut near = Vec::new();
        let (stamp, dscp, last) = match message.body {
            Body::Start(stamp, dscp) => (stamp, dscp, None),
            Body::Mark(stamp, dscp, last) => (stamp, dscp, Some(last)),
            Body::Request(_) => return Outcome::default(),
            Body::Notice => {
                if let Some(peer) = self.flows.get(now_ns, &key) {
                    let shared = &mut self.shared;
                    peer.flow.notice(now_ns, message.psn, shared, &mut near);
                }
                return self.go_on(now_ns, key, near);
            }
        };
        let Some(peer) = self.flows.get(now_ns, &key) else {
            self.add(
                now_ns,
                key,
                Peer::new(view, message.psn, stamp, dscp),
                &mut near,
            );
            return Outcome { near, far: None };
        };
        if stamp <= peer.heard {
            return Outcome::default();
        }
        peer.heard = stamp;
        peer.dscp = dscp;
        peer.envelope = view.envelope().reversed();
        match last {
            Some(last) => peer.flow.mark(now_ns, message.psn, last, &self.config),
            None => peer.flow.start(message.psn, &mut self.shared, &mut near),
        }
        self.go_on(now_ns, key, near)
    }

    /// Requests and ends of hold times that are due.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while let Some(key) = self.timers.pop_due(now_ns) {
            if let Some(peer) = self.flows.peek(&key) {
                peer.timer_ns = None;
                outcomes.push(self.go_on(now_ns, key, Vec::new()));
            }
        }
        outcomes
    }

    /// Sends the request that is due, and sets the timer.
    fn go_on(&mut self, now_ns: u64, key: Key, mut near: Vec<Vec<u8>>) -> Outcome {
        let Some(peer) = self.flows.peek(&key) else {
            return Outcome { near, far: None };
        };
        let (config, shared) = (&self.config, &mut self.shared);
        let request = peer.flow.due(now_ns, config, shared, &mut near);
        let next_ns = peer.flow.next_ns(config);
        self.timers.set(key, &mut peer.timer_ns, next_ns);
        let far = request.and_then(|(psn, request)| {
            shared.counters.requests_sent += 1;
            let envelope = peer.envelope.clone().with_dscp(config.repeat_dscp);
            let message = Message::about(&key, psn, Body::Request(request));
            self.seal.wrap(&envelope, message.emit())
        });
        Outcome { near, far }
    }

    fn add(&mut self, now_ns: u64, key: Key, peer: Peer, near: &mut Vec<Vec<u8>>) {
        for (key, mut removed) in self.flows.insert(now_ns, key, peer) {
            self.timers.set(key, &mut removed.timer_ns, None);
            removed.flow.flush(&mut self.shared, near);
        }
        if self.flows.peek(&key).is_none() {
            self.shared.counters.flows_full += 1;
        }
    }
}

impl Peer {
    /// A flow whose next packet has this PSN.
    fn new(view: &View<'_>, psn: u32, heard: Stamp, dscp: u8) -> Self {
        Self {
            flow: Flow::new(psn),
            heard,
            dscp,
            envelope: view.envelope().reversed(),
            timer_ns: None,
        }
    }
}
