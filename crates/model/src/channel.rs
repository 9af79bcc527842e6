//! The channel of the sampler: which transmissions are lost.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::loss::Loss;

/// Loss and departure of a state of the chain, for each packet.
#[derive(Clone, Copy, Debug)]
struct ChannelState {
    /// `ln(1 - p)` of the probability that a packet is lost.
    kept_log: f64,
    /// `ln(1 - p)` of the probability that the chain leaves the state after a packet.
    stay_log: f64,
}

impl ChannelState {
    fn new(loss: f64, leave: f64) -> Self {
        Self {
            kept_log: (-loss).ln_1p(),
            stay_log: (-leave).ln_1p(),
        }
    }
}

/// Draws which chunks are lost. A draw costs time for each lost packet and each change of state, not
/// for each chunk.
#[derive(Debug)]
pub(crate) struct Channel {
    rng: ChaCha8Rng,
    states: [ChannelState; 2],
    /// Packets of a chunk.
    packets: f64,
    /// Whether the receiver keeps the packets of a chunk of which other packets were lost.
    keeps_packets: bool,
    /// Packets of the last lost chunk that are still missing.
    missing: f64,
    /// The long-run probability of the bad state, and the correlation of successive packets.
    share: f64,
    memory: f64,
    /// The state at the next packet, the packets that the chain still stays in it, and the slot of
    /// that packet's chunk.
    bad: bool,
    stay: f64,
    slot: f64,
    /// Random numbers and losses so far.
    work: u64,
}

impl Channel {
    /// The channel to a receiver that keeps the packets of chunks that are missing.
    pub(crate) fn keeping_packets(loss: &Loss, seed: u64) -> Self {
        Self {
            keeps_packets: true,
            ..Self::new(loss, seed)
        }
    }

    /// The channel for chunks that must arrive whole.
    pub(crate) fn new(loss: &Loss, seed: u64) -> Self {
        let (states, packets, [to_bad, to_good]) = match *loss {
            // One state that is never left. The loss was checked.
            Loss::Iid {
                packets_per_chunk, ..
            } => {
                let loss_packet = loss.loss_packet().unwrap_or_default();
                let packets = f64::from(packets_per_chunk);
                (
                    [ChannelState::new(loss_packet, 0.0); 2],
                    packets,
                    [0.0, 1.0],
                )
            }
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
                packets_per_chunk,
            } => (
                [
                    ChannelState::new(loss_good, p_good_to_bad),
                    ChannelState::new(loss_bad, p_bad_to_good),
                ],
                f64::from(packets_per_chunk),
                [p_good_to_bad, p_bad_to_good],
            ),
        };
        let mut channel = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            states,
            packets,
            keeps_packets: false,
            missing: 0.0,
            share: to_bad / (to_bad + to_good),
            memory: 1.0 - to_bad - to_good,
            bad: false,
            stay: 0.0,
            slot: 0.0,
            work: 0,
        };
        channel.rest();
        channel
    }

    /// Random numbers and losses so far, as a measure of time. Most losses of a burst need no random
    /// number, but their simulation takes as much time.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// A pause so long that the chain forgets its state. Slots restart at 0.
    pub(crate) fn rest(&mut self) {
        self.slot = f64::NEG_INFINITY;
    }

    /// Whether the chunk sent in this slot is lost. Slots must not decrease.
    pub(crate) fn loses(&mut self, slot: f64) -> bool {
        self.next_loss(slot, slot).is_some()
    }

    /// Whether a single packet, sent at the begin of this slot, is lost.
    pub(crate) fn loses_packet(&mut self, slot: f64) -> bool {
        self.reach(slot);
        let lost = self.run(1.0).is_some();
        self.work += u64::from(lost);
        self.skip(self.packets - 1.0);
        self.slot = slot + 1.0;
        lost
    }

    /// The first loss in the slots `from..=to`, with one transmission in each. The following slots
    /// are after it.
    pub(crate) fn next_loss(&mut self, from: f64, to: f64) -> Option<f64> {
        if to < from {
            return None;
        }
        self.reach(from);
        let Some(lost) = self.run((to - from + 1.0) * self.packets) else {
            self.slot = to + 1.0;
            return None;
        };
        self.work += 1;
        let chunk = (lost / self.packets).floor();
        let rest = (chunk + 1.0) * self.packets - (lost + 1.0);
        if self.keeps_packets {
            self.missing = 1.0 + self.count_lost(rest);
        } else {
            self.missing = self.packets;
            self.skip(rest);
        }
        self.slot = from + chunk + 1.0;
        Some(from + chunk)
    }

    /// Returns how many packets of the last lost chunk are still missing.
    pub(crate) fn missing(&self) -> f64 {
        self.missing
    }

    /// Sends a chunk again, of which a number of packets is missing. Returns how many still are.
    pub(crate) fn repeat(&mut self, slot: f64, missing: f64) -> f64 {
        if !self.keeps_packets {
            return if self.loses(slot) { missing } else { 0.0 };
        }
        // The packets that a burst took follow one another. So it hardly matters which ones these
        // are, and here they are the first ones.
        self.reach(slot);
        let lost = self.count_lost(missing);
        self.skip(self.packets - missing);
        self.slot = slot + 1.0;
        lost
    }

    /// Sends packets, and counts those that are lost.
    fn count_lost(&mut self, packets: f64) -> f64 {
        let (mut left, mut lost) = (packets, 0.0);
        while let Some(before) = self.run(left) {
            self.work += 1;
            left -= before + 1.0;
            lost += 1.0;
            if self.states[usize::from(self.bad)].kept_log == f64::NEG_INFINITY {
                // The state loses all packets of its stay.
                let here = self.stay.min(left);
                self.spend(here);
                left -= here;
                lost += here;
            }
        }
        lost
    }

    /// Sends at most this number of packets, up to the first that is lost. Returns the number of
    /// packets before it.
    fn run(&mut self, packets: f64) -> Option<f64> {
        let mut sent = 0.0;
        while sent < packets {
            let here = self.stay.min(packets - sent);
            let kept = self.gap(self.states[usize::from(self.bad)].kept_log);
            if kept < here {
                self.spend(kept + 1.0);
                return Some(sent + kept);
            }
            self.spend(here);
            sent += here;
        }
        None
    }

    /// Uses up packets of the stay in the state.
    fn spend(&mut self, packets: f64) {
        self.stay -= packets;
        if self.stay < 1.0 {
            self.enter(!self.bad);
        }
    }

    fn enter(&mut self, bad: bool) {
        self.bad = bad;
        self.stay = 1.0 + self.gap(self.states[usize::from(bad)].stay_log);
    }

    /// Advances the chain to a slot.
    fn reach(&mut self, slot: f64) {
        let pause = (slot - self.slot).round().max(0.0);
        if pause == f64::INFINITY {
            let bad = self.uniform() < self.share;
            self.enter(bad);
        } else {
            self.skip(pause * self.packets);
        }
    }

    /// Advances the chain by packets that are not sent, or do not matter.
    fn skip(&mut self, packets: f64) {
        if packets < self.stay {
            self.stay -= packets;
            return;
        }
        // The chain has left the state when the stay is over.
        let beyond = packets - self.stay;
        let was = if self.bad { 0.0 } else { 1.0 };
        // With negative correlation, the sign alternates: it is negative for an odd number.
        let odd = self.memory < 0.0 && beyond % 2.0 == 1.0;
        let left = self.memory.abs().powf(beyond) * if odd { -1.0 } else { 1.0 };
        let bad = self.uniform() < self.share + (was - self.share) * left;
        self.enter(bad);
    }

    /// The number of trials before the first success, where `ln(1 - p)` of a trial is given.
    fn gap(&mut self, failure_log: f64) -> f64 {
        if failure_log == 0.0 {
            return f64::INFINITY;
        }
        if failure_log == f64::NEG_INFINITY {
            return 0.0;
        }
        ((1.0 - self.uniform()).ln() / failure_log).floor()
    }

    /// Uniform over `[0, 1)`, in steps of 2^-53.
    pub(crate) fn uniform(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        self.work += 1;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds")]
        let whole = (self.rng.next_u64() >> 11) as f64;
        whole * STEP
    }
}
