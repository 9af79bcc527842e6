//! Compares the exact distribution of variant `protocol` with a simulation that shares no code and no formula with
//! the model: it follows the rules of docs/protocol.md (P3.8, P5.2, P5.4) event by event.
//!
//! The sampler of the crate takes its waits and blocks from the model. An error there is in both.

use std::collections::{BTreeMap, BTreeSet};

use farwrite_model::{Loss, Setting, Variant, chunk_loss};
use farwrite_rng::SplitMix;

/// The path: times are in round trips.
#[derive(Clone, Copy, Debug)]
struct Path {
    slot: f64,
    loss_packet: f64,
    packets: u32,
}

/// What happens at a time.
#[derive(Clone, Debug)]
enum Event {
    /// These packets of a chunk arrive.
    Arrives(usize, u64),
    /// A report that asks for these chunks reaches the sender.
    Nack(Vec<usize>),
    /// The receiver reports those of these chunks that are missing.
    Report(Vec<usize>),
    /// The quiet time ends, unless something has arrived since.
    Quiet { round: u32, arrivals: usize },
}

/// One message with `sr-nack`. The timeouts of the sender are left out.
struct Message {
    path: Path,
    rng: SplitMix,
    /// By their time, as ordered bits, and their number.
    events: BTreeMap<(u64, usize), Event>,
    number: usize,
    missing: BTreeSet<usize>,
    /// The packets of each chunk that have arrived.
    arrived: Vec<u64>,
    /// Chunks below this one were passed.
    passed: usize,
    arrivals: usize,
    /// When the sender is free.
    free_at: f64,
}

const REORDERING: f64 = 1.0 / 8.0;
const AGAIN: f64 = 1.0 + REORDERING + 1.0 / 8.0;
const QUIET: f64 = REORDERING + 1.0 / 4.0;

impl Message {
    fn packet_is_lost(&mut self) -> bool {
        self.rng.unit() < self.path.loss_packet
    }

    fn at(&mut self, time: f64, event: Event) {
        self.number += 1;
        self.events.insert((time.to_bits(), self.number), event);
    }

    fn send(&mut self, chunk: usize, now: f64) {
        self.free_at = self.free_at.max(now) + self.path.slot;
        let packets = (0..self.path.packets).filter(|_| !self.packet_is_lost());
        let packets = packets.fold(0, |all, packet| all | 1 << packet);
        self.at(self.free_at + 0.5, Event::Arrives(chunk, packets));
    }

    /// A control message, which is repeated until it arrives; the time after its first transmission.
    fn repeated(&mut self) -> f64 {
        match self.packet_is_lost() {
            true => 1.0 / 32.0 + self.repeated(),
            false => 0.0,
        }
    }

    /// The time until the sender knows that all chunks have arrived.
    fn run(path: Path, chunks: usize, seed: u64) -> f64 {
        let mut message = Self {
            path,
            rng: SplitMix::new(seed),
            events: BTreeMap::new(),
            number: 0,
            missing: (0..chunks).collect(),
            arrived: vec![0; chunks],
            passed: 0,
            arrivals: 0,
            free_at: 0.0,
        };
        let offered = 0.5 + message.repeated();
        message.at(
            offered + QUIET,
            Event::Quiet {
                round: 0,
                arrivals: 0,
            },
        );
        for chunk in 0..chunks {
            message.send(chunk, 0.0);
        }
        let mut now: f64 = 0.0;
        while !message.missing.is_empty() {
            let ((bits, _), event) = message.events.pop_first().expect("the receiver asks again");
            now = f64::from_bits(bits);
            message.happen(event, now.max(offered));
        }
        now.max(offered) + 0.5 + message.repeated()
    }

    fn happen(&mut self, event: Event, now: f64) {
        match event {
            Event::Arrives(chunk, packets) => {
                self.arrived[chunk] |= packets;
                if self.arrived[chunk].count_ones() < self.path.packets {
                    return;
                }
                self.missing.remove(&chunk);
                self.arrivals += 1;
                let arrivals = self.arrivals;
                self.at(now + QUIET, Event::Quiet { round: 0, arrivals });
                let holes = self.missing.range(self.passed..chunk.max(self.passed));
                let holes: Vec<usize> = holes.copied().collect();
                self.passed = self.passed.max(chunk + 1);
                if !holes.is_empty() {
                    self.report_with_others(now, holes);
                }
            }
            Event::Nack(asked) => asked.iter().for_each(|chunk| self.send(*chunk, now)),
            Event::Report(mut chunks) => {
                chunks.retain(|chunk| self.missing.contains(chunk));
                if chunks.is_empty() {
                    return;
                }
                if !self.packet_is_lost() {
                    self.at(now + 0.5, Event::Nack(chunks.clone()));
                }
                self.at(now + AGAIN, Event::Report(chunks));
            }
            Event::Quiet { round, arrivals } if arrivals == self.arrivals => {
                let tail: Vec<usize> = self.missing.range(self.passed..).copied().collect();
                if !tail.is_empty() && !self.packet_is_lost() {
                    self.at(now + 0.5, Event::Nack(tail));
                }
                let next = AGAIN * f64::from(1 << round.min(20));
                self.at(
                    now + next,
                    Event::Quiet {
                        round: round + 1,
                        arrivals,
                    },
                );
            }
            Event::Quiet { .. } => {}
        }
    }

    /// Holes that appear within RTT / 64 may be reported together.
    fn report_with_others(&mut self, now: f64, holes: Vec<usize>) {
        let due = now + REORDERING;
        let first = (due - 1.0 / 64.0).to_bits();
        let others = self.events.range_mut((first, 0)..(due.to_bits(), 0));
        for (_, event) in others {
            if let Event::Report(chunks) = event {
                chunks.extend(holes);
                return;
            }
        }
        self.at(due, Event::Report(holes));
    }
}

/// One message of whole groups of `ec-mds:k,m` in one superblock. The receiver reports all groups that it cannot
/// decode together, when they are over.
fn coded(path: Path, groups: usize, [k, m]: [usize; 2], seed: u64) -> f64 {
    let mut rng = SplitMix::new(seed);
    let mut lost = |packets: usize| {
        let lost = (0..packets).filter(|_| rng.unit() < path.loss_packet);
        lost.count()
    };
    let packets = path.packets as usize;
    let mut now = path.slot * (groups * (k + m)) as f64;
    // Of each group, the packets that each data chunk misses, and the lost parity chunks.
    let mut failed: Vec<(Vec<usize>, usize)> = Vec::new();
    for _ in 0..groups {
        let [data, parity] = [k, m].map(|count| {
            let chunks = (0..count).map(|_| lost(packets));
            chunks
                .filter(|missing| *missing > 0)
                .collect::<Vec<usize>>()
        });
        failed.push((data, parity.len()));
    }
    let is_failed =
        |(data, parity): &(Vec<usize>, usize)| data.len() + parity > m && !data.is_empty();
    failed.retain(is_failed);
    let mut wait = 1.0 + REORDERING;
    while !failed.is_empty() {
        now += wait;
        wait = AGAIN;
        if lost(1) > 0 {
            continue;
        }
        for (data, _) in &mut failed {
            data.iter_mut()
                .for_each(|missing| *missing = lost(*missing));
            data.retain(|missing| *missing > 0);
        }
        failed.retain(is_failed);
    }
    // The receiver needs the offer, and the sender the end.
    let mut repeats = || {
        std::iter::repeat_with(|| lost(1))
            .take_while(|lost| *lost > 0)
            .count() as f64
            / 32.0
    };
    let offered = repeats();
    now.max(offered) + 1.0 + repeats()
}

/// Compares the share of messages that take longer than each of some times, and the mean.
fn compare(scheme: &str, chunks: usize, path: Path, mut draw: impl FnMut(u64) -> f64) {
    const DRAWS: usize = 10_000;
    let loss_chunk = chunk_loss(path.loss_packet, path.packets).unwrap();
    let chunk_bytes = 4096.0 * f64::from(path.packets);
    let (rtt_s, bytes) = (1.0, chunk_bytes * chunks as f64);
    let bandwidth_bps = chunk_bytes * 8.0 / path.slot;
    let mut setting = Setting::new(scheme.parse().unwrap(), bytes, bandwidth_bps, rtt_s, 0.0);
    setting.loss = Loss::Iid {
        loss_chunk,
        packets_per_chunk: path.packets,
    };
    setting.chunk_bytes = chunk_bytes;
    setting.variant = Variant::Protocol;
    let exact = setting.completion_time().unwrap();
    let times: Vec<f64> = (0..DRAWS as u64).map(&mut draw).collect();
    // What the model leaves out has the probability that two of the chunks that matter are lost.
    let left_out = 2.0 * loss_chunk.powi(2);
    let sent = path.slot * chunks as f64;
    for after in [1.015, 1.1, 2.2, 2.3, 2.5, 3.3, 3.45, 3.7] {
        let late = times.iter().filter(|time| **time > sent + after).count();
        let found = late as f64 / DRAWS as f64;
        let want = exact.survival(sent + after).unwrap();
        let chance = 4.5 * (want.max(1e-4) * (1.0 - want) / DRAWS as f64).sqrt();
        assert!(
            (found - want).abs() < chance + left_out,
            "{scheme}, {chunks} chunks, {path:?}: {found} of the messages take more than {after}, model: {want}"
        );
    }
    let mean = times.iter().sum::<f64>() / DRAWS as f64;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / DRAWS as f64;
    let chance = 4.0 * (variance / DRAWS as f64).sqrt();
    assert!(
        (mean - exact.mean()).abs() < chance + 2.0 * left_out + 2e-3,
        "{scheme}, {chunks} chunks, {path:?}: {mean}, model: {}",
        exact.mean()
    );
}

/// Losses of packets, and the packets of a chunk.
const LOSSES: [(f64, u32); 4] = [(1e-2, 1), (5e-2, 1), (1e-3, 16), (1e-3, 64)];

#[test]
fn short_messages_of_selective_repeat() {
    for (loss_packet, packets) in LOSSES {
        for chunks in [1, 2, 3, 32, 200] {
            let path = Path {
                slot: 1e-6,
                loss_packet,
                packets,
            };
            let draw = |seed| Message::run(path, chunks, seed);
            compare("sr-nack", chunks, path, draw);
        }
    }
}

#[test]
fn codes_with_chunks_of_many_packets() {
    for (loss_packet, packets) in [(0.1, 1), (2e-3, 64)] {
        let path = Path {
            slot: 1e-6,
            loss_packet,
            packets,
        };
        let draw = |seed| coded(path, 8, [32, 8], seed);
        compare("ec-mds:32,8", 8 * 32, path, draw);
    }
}
