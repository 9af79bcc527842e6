//! A queue pair of Rust, and the events that do the same in hardware.

use std::collections::VecDeque;

use farwrite_rc::xp::{Completion, QueuePair, Receive, Write};
use farwrite_rc::{Memory, Packet};

use crate::record::{Beats, Kind, NOT_LAST, Outcome, Record};
use crate::wire;

/// A queue pair with what is posted, as its host sees it.
pub(crate) struct Pair {
    pub(crate) qpn: u32,
    /// The number of its first message in hardware.
    pub(crate) base: u32,
    pair: QueuePair,
    pub(crate) mtu_bytes: u32,
    receives: VecDeque<Receive>,
    sends: VecDeque<Write>,
    pub(crate) next_receive: u64,
    pub(crate) next_send: u64,
}

fn is_over(deadline_ns: Option<u64>, now_ns: u64) -> bool {
    deadline_ns.is_some_and(|at_ns| at_ns <= now_ns)
}

impl Pair {
    pub(crate) fn new(qpn: u32, base: u32, mtu_bytes: u32, pair: QueuePair) -> Self {
        Self {
            qpn,
            base,
            pair,
            mtu_bytes,
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            next_receive: 0,
            next_send: 0,
        }
    }

    pub(crate) fn receives(&self) -> usize {
        self.receives.len()
    }

    pub(crate) fn sends(&self) -> usize {
        self.sends.len()
    }

    /// The number that its next packet has in Rust, if nothing is lost.
    pub(crate) fn active_receive(&self) -> u64 {
        self.next_receive - self.receives.len() as u64
    }

    /// Words of the hardware: message numbers begin at `base`, and the bytes that Rust leaves zero count what is
    /// posted.
    fn words(&self) -> [u32; 13] {
        let mut words = self.pair.context().words();
        let posted = [self.sends.len(), self.receives.len()];
        for (word, posted) in words[1..3].iter_mut().zip(posted) {
            let posted = u32::try_from(posted).unwrap_or(u32::MAX);
            *word = crate::number(self.base, u64::from(*word)) | posted << 24;
        }
        words
    }

    fn record(&self, kind: Kind, now_ns: u64) -> Record {
        Record {
            context: self.words(),
            ..Record::new(kind, self.qpn, now_ns)
        }
    }

    pub(crate) fn create(&self, peer_qpn: u32) -> Record {
        Record {
            seq: peer_qpn,
            imm: self.base,
            bytes: self.mtu_bytes.trailing_zeros(),
            ..self.record(Kind::Create, 0)
        }
    }

    /// What has ended, without what was posted for it.
    fn completions(&mut self) -> Vec<Completion> {
        let found: Vec<_> = core::iter::from_fn(|| self.pair.poll_completion()).collect();
        for completion in &found {
            match completion {
                Completion::Received { .. } => drop(self.receives.pop_front()),
                Completion::Sent { .. } => drop(self.sends.pop_front()),
            }
        }
        found
    }

    /// The host gives the hardware the deadline of the active receive, if that is a new one and has one.
    fn load(&self, now_ns: u64, out: &mut Vec<Record>) {
        if let Some(deadline_ns) = self.receives.front().and_then(|r| r.deadline_ns) {
            out.push(Record {
                seq: crate::number(self.base, self.active_receive()),
                deadline_ns,
                ..self.record(Kind::Load, now_ns)
            });
        }
    }

    pub(crate) fn post_receive(&mut self, now_ns: u64, deadline_ns: Option<u64>) -> Vec<Record> {
        let id = self.next_receive;
        let receive = Receive { id, deadline_ns };
        self.pair.post_receive(receive).expect("there is room");
        self.receives.push_back(receive);
        self.next_receive += 1;
        let mut out = vec![self.record(Kind::PostReceive, now_ns)];
        if self.receives.len() == 1 {
            self.load(now_ns, &mut out);
        }
        out
    }

    pub(crate) fn post_send(&mut self, now_ns: u64, write: Write) -> Vec<Record> {
        let write = Write {
            id: self.next_send,
            ..write
        };
        self.pair.post_write(write.clone()).expect("there is room");
        self.sends.push_back(write);
        self.next_send += 1;
        vec![self.record(Kind::PostSend, now_ns)]
    }

    /// A packet arrives. Of the receives whose deadline has come, the packet ends one: the hardware knows the next
    /// deadline only after that.
    pub(crate) fn arrive(
        &mut self,
        now_ns: u64,
        packet: &Packet,
        is_marked: bool,
        (beats, bytes): (u32, Beats),
        memory: &mut Memory,
    ) -> Vec<Record> {
        let over = |r: &&Receive| is_over(r.deadline_ns, now_ns);
        let mut out = if self.receives.iter().take(2).filter(over).count() == 2 {
            self.scan(now_ns)
        } else {
            Vec::new()
        };
        let old = self.pair.counters();
        self.pair.handle_packet(now_ns, packet, memory);
        if is_marked && packet.header.reth.is_some() {
            self.pair.notify_congestion();
        }
        let new = self.pair.counters();
        let outcome = match () {
            () if new.placed > old.placed => Outcome::Placed,
            () if new.late > old.late => Outcome::Late,
            () if new.not_posted > old.not_posted => Outcome::NotPosted,
            () if new.refused > old.refused => Outcome::Refused,
            () => Outcome::None,
        };
        let payload_bytes = packet.payload.carried_bytes();
        let place = packet.header.reth.map(|reth| reth.remote_addr);
        let place = place.filter(|_| outcome == Outcome::Placed && payload_bytes > 0);
        let completions = self.completions();
        let ended = !completions.is_empty();
        out.push(Record {
            beats,
            packet: bytes,
            outcome,
            write: place.map(|addr| (addr, payload_bytes, lanes(addr, payload_bytes))),
            completions,
            ..self.record(Kind::Packet, now_ns)
        });
        if ended {
            self.load(now_ns, &mut out);
        }
        out
    }

    /// Handles timers. Rust ends all receives whose deadline has come; a scan ends one.
    pub(crate) fn scan(&mut self, now_ns: u64) -> Vec<Record> {
        let requests: Vec<_> = self.sends.iter().cloned().collect();
        let first = self.active_receive();
        let deadlines: Vec<_> = self.receives.iter().map(|r| r.deadline_ns).collect();
        self.pair.handle_timeout(now_ns);
        let (received, sent): (Vec<_>, Vec<_>) = self
            .completions()
            .into_iter()
            .partition(|completion| matches!(completion, Completion::Received { .. }));
        let mut out = Vec::new();
        for place in 0..received.len().max(1) {
            out.push(Record {
                completions: received.get(place).copied().into_iter().collect(),
                ..self.record(Kind::Scan, now_ns)
            });
            let next = received.get(place).and(deadlines.get(place + 1));
            if let Some(&Some(deadline_ns)) = next {
                out.push(Record {
                    seq: crate::number(self.base, first + place as u64 + 1),
                    deadline_ns,
                    ..self.record(Kind::Load, now_ns)
                });
            }
        }
        for (write, sent) in requests.iter().zip(sent) {
            out.push(Record {
                completions: vec![sent],
                ..self.request(write, now_ns)
            });
        }
        all_but_the_last(&mut out);
        out
    }

    /// The event that brings a work request.
    fn request(&self, write: &Write, now_ns: u64) -> Record {
        Record {
            seq: crate::number(self.base, write.id),
            addr: write.to.addr,
            rkey: write.to.rkey,
            bytes: write.data.carried_bytes(),
            imm: write.imm,
            deadline_ns: write.deadline_ns.unwrap_or(u64::MAX),
            ..self.record(Kind::Send, now_ns)
        }
    }

    /// The next packet of a send, if the pace allows it, with its mark of ECN still to be drawn.
    pub(crate) fn send(&mut self, now_ns: u64) -> (Vec<Record>, Option<Packet>) {
        let requests: Vec<_> = self.sends.iter().cloned().collect();
        let offset = self.pair.context().words()[3];
        let packet = self.pair.poll_transmit(now_ns);
        let mut completions = self.completions().into_iter();
        let mut out = Vec::new();
        let mut ended = 0;
        for write in &requests {
            if !is_over(write.deadline_ns, now_ns) {
                break;
            }
            out.push(Record {
                completions: completions.next().into_iter().collect(),
                ..self.request(write, now_ns)
            });
            ended += 1;
        }
        if let Some(write) = requests.get(ended) {
            // A send that ended left its offset behind.
            let offset = if ended > 0 { 0 } else { offset };
            let transmit = packet.as_ref().map(|packet| {
                let header = wire::roce(packet, packet.header.bth.dest_qp, self.base);
                (header, offset, packet.payload.carried_bytes())
            });
            out.push(Record {
                transmit,
                completions: completions.collect(),
                ..self.request(write, now_ns)
            });
        }
        all_but_the_last(&mut out);
        (out, packet)
    }

    pub(crate) fn notify(&mut self, now_ns: u64) -> (Vec<Record>, Option<Packet>) {
        let packet = self.pair.poll_notification();
        let transmit = packet.as_ref().map(|packet| {
            let header = wire::roce(packet, packet.header.bth.dest_qp, self.base);
            (header, 0, packet.payload.carried_bytes())
        });
        let record = Record {
            transmit,
            ..self.record(Kind::Notify, now_ns)
        };
        (vec![record], packet)
    }
}

/// Rust has done everything in one call, so that only the last event ends with its context.
fn all_but_the_last(records: &mut [Record]) {
    if let Some((_, others)) = records.split_last_mut() {
        for record in others {
            record.flags |= NOT_LAST;
        }
    }
}

/// The lanes of a bus of 64 bytes that the first and the last beat of a payload use, counted byte by byte.
fn lanes(addr: u64, bytes: u32) -> [u64; 2] {
    let payload = addr..=addr + u64::from(bytes) - 1;
    [*payload.start(), *payload.end()].map(|of| {
        let beat = of - of % 64;
        (0..64)
            .filter(|lane| payload.contains(&(beat + lane)))
            .fold(0, |lanes, lane| lanes | 1 << lane)
    })
}
