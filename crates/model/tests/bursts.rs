//! Compares the sampler under losses in bursts with simulations that share no code with it: chunk by
//! chunk, slot by slot.

use std::collections::VecDeque;

use farwrite_model::{Loss, Setting, Variant, chunk_loss};
use farwrite_rng::SplitMix;

const BANDWIDTH_BPS: f64 = 40e9;
const SLOT_S: f64 = 4096.0 * 8.0 / BANDWIDTH_BPS;

/// A chain that loses all chunks in its bad state.
fn in_bursts(loss: f64, mean_burst: f64) -> Loss {
    in_bursts_of_packets(loss, mean_burst, 1)
}

fn in_bursts_of_packets(loss: f64, mean_burst: f64, packets_per_chunk: u32) -> Loss {
    Loss::Markov {
        p_good_to_bad: loss / mean_burst / (1.0 - loss),
        p_bad_to_good: 1.0 / mean_burst,
        loss_good: 0.0,
        loss_bad: 1.0,
        packets_per_chunk,
    }
}

fn setting(scheme: &str, chunks: f64, rtt_slots: f64, loss: Loss) -> Setting {
    let scheme = scheme.parse().unwrap();
    let rtt_s = rtt_slots * SLOT_S;
    let mut setting = Setting::new(scheme, chunks * 4096.0, BANDWIDTH_BPS, rtt_s, 0.0);
    setting.loss = loss;
    setting.variant = Variant::Protocol;
    setting
}

/// The chain, one step for each slot or packet.
struct Walk {
    rng: SplitMix,
    leave: [f64; 2],
    bad: bool,
}

impl Walk {
    fn new(loss: f64, mean_burst: f64, seed: u64) -> Self {
        let leave = [loss / mean_burst / (1.0 - loss), 1.0 / mean_burst];
        let mut rng = SplitMix::new(seed);
        let bad = rng.unit() < loss;
        Self { rng, leave, bad }
    }

    /// Whether the chunk of this slot, or this packet, is lost.
    fn step(&mut self) -> bool {
        let lost = self.bad;
        self.bad ^= self.rng.unit() < self.leave[usize::from(self.bad)];
        lost
    }
}

fn mean_and_error(times: &[f64]) -> (f64, f64) {
    let n = times.len() as f64;
    let mean = times.iter().sum::<f64>() / n;
    let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

#[track_caller]
fn assert_close(one: &[f64], other: &[f64]) {
    let ((one, one_error), (other, other_error)) = (mean_and_error(one), mean_and_error(other));
    let deviation = (one - other).abs() / one_error.hypot(other_error);
    assert!(
        deviation < 3.5,
        "{one} {other}: {deviation} standard errors"
    );
}

/// Slots of a message with `sr-rto`: a timeout that has ended comes before a new chunk.
fn repeated(walk: &mut Walk, chunks: u32, period: u32) -> f64 {
    let (mut slot, mut left, mut last) = (0, chunks, 0);
    let mut due = VecDeque::new();
    while left > 0 || !due.is_empty() {
        slot += 1;
        let is_due = due.front().is_some_and(|at| *at <= slot);
        let lost = walk.step();
        if is_due {
            due.pop_front();
        } else if left > 0 {
            left -= 1;
        } else {
            continue;
        }
        match lost {
            true => due.push_back(slot + period),
            false => last = slot,
        }
    }
    f64::from(last)
}

/// Where bursts last as long as a timeout, a lost chunk is often lost again. The exact evaluation
/// takes repeats as independent, so it is refused, and draws are right.
#[test]
fn bursts_as_long_as_a_timeout_are_drawn() {
    let (loss, burst, rtt) = (0.02, 2000.0, 1200.0);
    let setting = setting("sr-rto", 2560.0, rtt, in_bursts(loss, burst));
    let refused = setting.completion_time().unwrap_err().to_string();
    assert!(
        refused.contains("bursts last as long as the timeout"),
        "{refused}"
    );
    let walked: Vec<f64> = (0..8000)
        .map(|seed| {
            let walk = &mut Walk::new(loss, burst, seed);
            // The end of a message may be lost, with a delay of a quarter of a round trip.
            let late = f64::from(u8::from(walk.rng.unit() < loss));
            repeated(walk, 2560, 3601) + rtt + late * rtt / 4.0
        })
        .collect();
    let drawn = setting.sample(8000, 1).unwrap();
    let drawn: Vec<f64> = drawn.iter().map(|t| t / SLOT_S).collect();
    assert_close(&drawn, &walked);
    // With independent repeats, three transmissions of a chunk are lost with `loss^3`.
    let late = |times: &[f64]| times.iter().filter(|t| **t > 2560.0 + 3.0 * 3601.0).count();
    let [drawn, walked] = [&drawn, &walked].map(|times| late(times));
    assert!(
        drawn > 4 && drawn < 4 * walked && walked < 4 * drawn,
        "{drawn} {walked}"
    );
}

/// Whether a message of two superblocks, each of 32 groups of `ec-mds:32,8`, needs repairs.
fn needs_repairs(walk: &mut Walk) -> bool {
    let mut fails = false;
    for _superblock in 0..2 {
        let (mut lost, mut lost_data) = ([0; 32], [false; 32]);
        for row in 0..40 {
            for group in 0..32 {
                if walk.step() {
                    lost[group] += 1;
                    lost_data[group] |= row < 32;
                }
            }
        }
        fails |= (0..32).any(|group| lost[group] > 8 && lost_data[group]);
    }
    fails
}

/// Groups are interleaved: all 32 of a superblock have a chunk in each row.
#[test]
fn groups_of_a_superblock_share_bursts() {
    for (loss, burst) in [(0.02, 100.0), (0.05, 20.0), (0.02, 1000.0)] {
        let count = 2000;
        let walked = (0..count).filter(|seed| {
            let walk = &mut Walk::new(loss, burst, *seed);
            needs_repairs(walk)
        });
        let walked = walked.count() as f64 / count as f64;
        let rtt = 1e6;
        let setting = setting("ec-mds:32,8", 2048.0, rtt, in_bursts(loss, burst));
        let drawn = setting.sample(2000, 1).unwrap();
        // Repairs take a round trip, and a lost end of the message a quarter of one.
        let is_late = |t: &&f64| **t / SLOT_S > 2560.0 + 1.9 * rtt;
        let drawn = drawn.iter().filter(is_late).count() as f64 / count as f64;
        let error = (2.0 * walked * (1.0 - walked) / count as f64).sqrt();
        assert!(
            (drawn - walked).abs() < 3.5 * error + 1e-3,
            "{loss} {burst}: {drawn} {walked}"
        );
    }
}

/// Whether a message of chunks of eight packets with `sr-nack` needs a second repair. One NACK reports all losses, and the
/// repairs are sent so much later that the chain has forgotten its state.
fn needs_second_repair(walk: &mut Walk, loss: f64, chunks: usize) -> bool {
    let mut chunk = || [(); 8].map(|()| walk.step());
    let mut missing: Vec<[bool; 8]> = (0..chunks).map(|_| chunk()).collect();
    missing.retain(|lost| lost.contains(&true));
    if missing.is_empty() {
        return false;
    }
    let report_is_lost = walk.rng.unit() < loss;
    walk.bad = walk.rng.unit() < loss;
    for packets in &mut missing {
        for packet in packets {
            *packet &= walk.step();
        }
    }
    report_is_lost || missing.iter().flatten().any(|packet| *packet)
}

/// A repeated chunk needs only the packets that are missing.
#[test]
fn packets_that_have_arrived_need_no_repair() {
    for (loss, burst) in [(0.01, 3.0), (0.01, 12.0), (0.03, 1.2)] {
        let count = 4000;
        let walked = (0..count).filter(|seed| {
            let walk = &mut Walk::new(loss, burst, *seed);
            needs_second_repair(walk, loss, 100)
        });
        let walked = walked.count() as f64 / count as f64;
        let rtt = 1e6;
        let losses = in_bursts_of_packets(loss, burst, 8);
        let drawn = setting("sr-nack", 100.0, rtt, losses)
            .sample(4000, 1)
            .unwrap();
        let is_late = |t: &&f64| **t / SLOT_S > 100.0 + 2.9 * rtt;
        let drawn = drawn.iter().filter(is_late).count() as f64 / count as f64;
        let error = (2.0 * walked * (1.0 - walked) / count as f64).sqrt();
        assert!(
            (drawn - walked).abs() < 3.5 * error + 2e-3,
            "{loss} {burst}: {drawn} {walked}"
        );
    }
}

/// A chain whose states are alike has independent losses, for which the model is exact.
#[test]
fn without_bursts_draws_agree_with_the_exact_rounds() {
    for scheme in ["sr-nack", "ec-mds:32,8", "ec-mds:32,4", "ec-xor:32,8"] {
        for (loss_packet, packets_per_chunk, chunks) in [
            (1e-3, 1, 5000.0),
            (1e-2, 1, 5000.0),
            (1e-2, 1, 100.0),
            (2e-3, 16, 500.0),
            (5e-3, 16, 100.0),
        ] {
            let alike = Loss::Markov {
                p_good_to_bad: 0.3,
                p_bad_to_good: 0.3,
                loss_good: loss_packet,
                loss_bad: loss_packet,
                packets_per_chunk,
            };
            let independent = Loss::Iid {
                loss_chunk: chunk_loss(loss_packet, packets_per_chunk).unwrap(),
                packets_per_chunk,
            };
            let exact = setting(scheme, chunks, 3e4, independent);
            let exact = exact.completion_time().unwrap();
            let drawn = setting(scheme, chunks, 3e4, alike).sample(2000, 1).unwrap();
            let (mean, error) = mean_and_error(&drawn);
            // The exact rounds are approximate in the slots of repairs, and in when reports leave.
            let off = (mean - exact.mean()).abs();
            assert!(
                off < 3.0 * error + 0.01 * exact.mean(),
                "{scheme} {loss_packet} {packets_per_chunk} {chunks}: {mean} +- {error}, {}",
                exact.mean()
            );
        }
    }
}

/// Of a long message, only the end is simulated. The rest leaves at the pace of its repairs.
#[test]
fn long_messages_are_drawn_quickly() {
    let chunks = 2f64.powi(36);
    for (scheme, parity) in [("sr-nack", 0.0), ("ec-mds:32,8", 0.25)] {
        let drawn = setting(scheme, chunks, 1000.0, in_bursts(0.1, 20.0)).sample(2, 1);
        let mean = mean_and_error(&drawn.unwrap()).0 / SLOT_S;
        // Each lost chunk of `sr-nack` is repeated, and so are those of failed groups.
        let least = chunks * (1.0 + parity);
        assert!(
            mean > least && mean < least * 1.2,
            "{scheme} {}",
            mean / least
        );
    }
    let loss = in_bursts(1e-12, 20.0);
    let drawn = setting("ec-mds:32,8", chunks, 1000.0, loss)
        .sample(100, 1)
        .unwrap();
    let want = (chunks * 1.25 + 1000.0) * SLOT_S;
    assert!(
        drawn.iter().all(|t| (t / want - 1.0).abs() < 1e-3),
        "{drawn:?}"
    );
}
