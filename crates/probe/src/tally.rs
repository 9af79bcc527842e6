//! What the responder notes of a trial, and counts from that.

use std::collections::VecDeque;

use crate::message::{Counts, Trial};

/// Records that are kept of each flow to judge late packets by. A packet that is later than these
/// reach has at least their extent.
const RECORDS: usize = 64;

/// The packets of one trial, as they arrive.
#[derive(Clone, Debug)]
pub struct Tally {
    trial: Trial,
    /// One bit a packet: it arrived.
    arrived: Vec<u64>,
    flows: Vec<Flow>,
    counts: Counts,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its place in the trial.
    pub sequence: u32,
    /// When, in nanoseconds of the responder's clock.
    pub at_ns: u64,
    /// Its two ECN bits.
    pub ecn_bits: u8,
}

/// The order of one flow.
#[derive(Clone, Debug, Default)]
struct Flow {
    received: u32,
    /// Packets that had the highest number so far when they arrived.
    records: VecDeque<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    sequence: u32,
    /// Packets of the flow that had arrived before.
    place: u32,
    at_ns: u64,
}

impl Tally {
    /// Of a trial of which nothing arrived yet.
    #[must_use]
    pub fn new(trial: Trial) -> Self {
        let words = trial.packets.div_ceil(64) as usize;
        Self {
            arrived: vec![0; words],
            flows: vec![Flow::default(); usize::from(trial.flows.max(1))],
            counts: Counts {
                id: trial.id,
                ..Counts::default()
            },
            trial,
        }
    }

    /// The trial.
    #[must_use]
    pub fn trial(&self) -> Trial {
        self.trial
    }

    /// Notes an arrival; false for one that arrived before, and for one that the trial does not
    /// have.
    pub fn note(&mut self, arrival: Arrival) -> bool {
        let sequence = arrival.sequence;
        if sequence >= self.trial.packets {
            return false;
        }
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if self.arrived[word] & bit != 0 {
            self.counts.duplicates = self.counts.duplicates.saturating_add(1);
            return false;
        }
        self.arrived[word] |= bit;
        if self.counts.received == 0 {
            self.counts.first = (sequence, arrival.at_ns);
        }
        if sequence >= self.counts.last.0 {
            self.counts.last = (sequence, arrival.at_ns);
        }
        self.counts.received += 1;
        self.counts.ecn[usize::from(arrival.ecn_bits & 3)] += 1;
        let flow = sequence as usize % self.flows.len();
        if let Some((packets, ns)) = self.flows[flow].note(sequence, arrival.at_ns) {
            self.counts.reordered += 1;
            self.counts.extent_packets = self.counts.extent_packets.max(packets);
            self.counts.extent_ns = self.counts.extent_ns.max(ns);
        }
        true
    }

    /// Notes packets that the socket had no room for.
    pub fn note_drops(&mut self, drops: u64) {
        self.counts.socket_drops += drops;
    }

    /// What arrived.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        let mut run = 0;
        for sequence in 0..self.trial.packets {
            let has_arrived = self.arrived[(sequence / 64) as usize] >> (sequence % 64) & 1 == 1;
            if has_arrived {
                run = 0;
                continue;
            }
            counts.bursts += u32::from(run == 0);
            run += 1;
            counts.longest_burst = counts.longest_burst.max(run);
        }
        counts.flows = self.flows.iter().map(|flow| flow.received).collect();
        counts
    }
}

impl Flow {
    /// Notes an arrival; the extent of its reordering in packets and in nanoseconds, if it came
    /// behind a later one.
    fn note(&mut self, sequence: u32, at_ns: u64) -> Option<(u32, u64)> {
        let place = self.received;
        self.received += 1;
        if self
            .records
            .back()
            .is_none_or(|last| sequence > last.sequence)
        {
            if self.records.len() == RECORDS {
                self.records.pop_front();
            }
            self.records.push_back(Record {
                sequence,
                place,
                at_ns,
            });
            return None;
        }
        // The earliest arrival with a higher number was a record.
        let first = self
            .records
            .partition_point(|record| record.sequence < sequence);
        let first = self.records.get(first)?;
        Some((place - first.place, at_ns.saturating_sub(first.at_ns)))
    }
}
