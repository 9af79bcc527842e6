//! The responder's records of a trial, and the counts from them.

use std::collections::VecDeque;

use crate::message::{Trial, TrialCounts};

/// A trial stores this many arrivals of each flow, the latest ones. It compares a late packet with them to compute
/// the packet's extent. If the packet is later than all of them, its extent is a lower bound.
const RECORDS: usize = 64;

/// Arrivals of one trial.
#[derive(Clone, Debug)]
pub struct TrialArrivals {
    pub(crate) trial: Trial,
    /// One bit per packet: whether it arrived.
    arrived: Vec<u64>,
    flows: Vec<Flow>,
    counts: TrialCounts,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Index of the packet in the trial.
    pub sequence: u32,
    /// Arrival time, in nanoseconds of the responder's clock.
    pub at_ns: u64,
    /// Its two ECN bits.
    pub ecn_bits: u8,
}

/// Order of the packets of one flow.
#[derive(Clone, Debug, Default)]
struct Flow {
    received: u32,
    /// Packets that had the highest number of the flow so far when they arrived.
    records: VecDeque<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    sequence: u32,
    /// Number of packets of the flow that had arrived before.
    place: u32,
    at_ns: u64,
}

impl TrialArrivals {
    /// Records of a trial without arrivals.
    #[must_use]
    pub fn new(trial: Trial) -> Self {
        let words = trial.packets.div_ceil(64) as usize;
        Self {
            arrived: vec![0; words],
            flows: vec![Flow::default(); usize::from(trial.flows.max(1))],
            counts: TrialCounts {
                id: trial.id,
                ..TrialCounts::default()
            },
            trial,
        }
    }

    /// Records an arrival. Returns false for a duplicate, and for an index that the trial does not
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

    /// Records datagrams that the system dropped because the socket buffer was full.
    pub fn note_drops(&mut self, drops: u64) {
        self.counts.socket_drops += drops;
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> TrialCounts {
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
    /// Records an arrival. If the packet came after a later one, returns its reordering extent in
    /// packets and in nanoseconds.
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
        // The earliest arrival with a higher number is always a record.
        let first = self
            .records
            .partition_point(|record| record.sequence < sequence);
        let first = self.records.get(first)?;
        Some((place - first.place, at_ns.saturating_sub(first.at_ns)))
    }
}
