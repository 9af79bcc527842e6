//! A train: a short burst of packets that measures the rate of the path.

use super::constants::{
    DOUBTFUL, FIRST_NS, FIRST_PACKETS, MIN_PACKETS, NOISY_SHARE, REPEATS, SLOWEST_NS, STEP,
    TRAIN_SHARE,
};
use super::path::Sample;
use crate::Start;
use crate::math::{bytes_in, mul_div, rate_of, time_of};

/// A train that is being sent or reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    rate_bps: u64,
    /// Whether the path is expected to carry the rate. Then no faster train follows.
    expected: bool,
    /// Whether little was in flight before the train: a queue that was there is that of others.
    ignores_queue: bool,
    /// Highest rate that a doubtful train measured, in bits a second; 0: none did.
    doubted_bps: u64,
    repeats: u32,
    rtt_ns: u64,
    train_bytes: u64,
    packet_bytes: u64,
    /// Bytes sent, and bytes received, before the train.
    sent_bytes: u64,
    received_bytes: u64,
    first_ns: Option<u64>,
    /// Whether the sender had no data for a time within the train. Then the train measures nothing.
    interrupted: bool,
    shortest_ns: Option<u64>,
    latest: Option<Sample>,
    /// Bytes of the train up to the first packet that gave a sample.
    first_sample_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrainResult {
    /// The path carries the train's rate.
    Carried,
    /// The path carries only this rate, in bits a second. It is lower than the train's rate.
    Limited(u64),
    /// As `Limited`, but the delay may be noise.
    Doubtful(u64),
    /// Too few reports arrived: a queue may have formed before the first of them.
    Unclear,
}

impl Probe {
    /// The first train on an unknown path.
    pub(super) fn first(packet_bytes: u64, max_rate_bps: u64) -> Self {
        let train_bytes = FIRST_PACKETS * packet_bytes;
        Self {
            rate_bps: rate_of(train_bytes, FIRST_NS).min(max_rate_bps),
            expected: false,
            ignores_queue: false,
            doubted_bps: 0,
            repeats: 0,
            rtt_ns: u64::MAX,
            train_bytes,
            packet_bytes,
            sent_bytes: 0,
            received_bytes: 0,
            first_ns: None,
            interrupted: false,
            shortest_ns: None,
            latest: None,
            first_sample_bytes: None,
        }
    }

    /// The number of trains that find a rate, if no result is in doubt: each is [`STEP`] times as
    /// fast as the one before, and the last one is faster than the path.
    pub(super) fn search_trains(packet_bytes: u64, rate_bps: u64) -> u32 {
        let first_bps = Self::first(packet_bytes, u64::MAX).rate_bps.max(1);
        let rates = core::iter::successors(Some(first_bps), |bps| bps.checked_mul(STEP));
        let slower = rates.take_while(|bps| *bps < rate_bps).count();
        u32::try_from(slower + 1).unwrap_or(u32::MAX)
    }

    /// A train that tests the expected rate of a path. Delays of up to `jitter_ns` are noise.
    pub(super) fn expecting(start: Start, packet_bytes: u64, jitter_ns: u64) -> Self {
        let train_ns = (start.rtt_ns / TRAIN_SHARE).max(jitter_ns.saturating_mul(4));
        Self::lasting(start, train_ns, packet_bytes)
    }

    /// A train that tests a rate that may be too high for the path.
    pub(super) fn searching(start: Start, packet_bytes: u64, jitter_ns: u64) -> Self {
        // Noisy hosts need longer trains, but the queue may be much shorter than the path.
        let clear_ns = jitter_ns.saturating_mul(4).min(start.rtt_ns / NOISY_SHARE);
        let least_ns = clear_ns.max(jitter_ns.saturating_mul(5) / 4);
        let train_ns = (start.rtt_ns / TRAIN_SHARE).max(least_ns);
        Self {
            expected: false,
            ..Self::lasting(start, train_ns, packet_bytes)
        }
    }

    /// This train, before which little is in flight: a queue that is there is that of others.
    pub(super) fn ignoring_queue(self) -> Self {
        Self {
            ignores_queue: true,
            ..self
        }
    }

    /// A train at the rate of `start` that lasts `train_ns`. No faster train follows.
    fn lasting(start: Start, train_ns: u64, packet_bytes: u64) -> Self {
        let train_bytes = bytes_in(start.rate_bps, train_ns);
        Self {
            rate_bps: start.rate_bps,
            expected: true,
            rtt_ns: start.rtt_ns,
            train_bytes: train_bytes.max(MIN_PACKETS * packet_bytes),
            ..Self::first(packet_bytes, u64::MAX)
        }
    }

    /// The next, faster train, unless the rate was expected or is the highest.
    pub(super) fn faster(&self, rtt_ns: u64, max_rate_bps: u64, jitter_ns: u64) -> Option<Self> {
        if self.expected || self.rate_bps >= max_rate_bps {
            return None;
        }
        let start = Start {
            rate_bps: self.rate_bps.saturating_mul(STEP).min(max_rate_bps),
            rtt_ns,
        };
        Some(Self {
            ignores_queue: self.ignores_queue,
            doubted_bps: self.doubted_bps,
            repeats: self.repeats,
            ..Self::searching(start, self.packet_bytes, jitter_ns)
        })
    }

    /// Another train, after this one measured `limited_bps` and the reason may be noise. It tests
    /// twice the result, but at most the same rate. `None` if another train measured about the same.
    pub(super) fn doubted(&self, limited_bps: u64, rtt_ns: u64, jitter_ns: u64) -> Option<Self> {
        let confirmed = self.doubted_bps > limited_bps / 4 * 3;
        if self.expected || self.repeats >= REPEATS || confirmed {
            return None;
        }
        let start = Start {
            rate_bps: limited_bps.saturating_mul(2).min(self.rate_bps),
            rtt_ns,
        };
        Some(Self {
            doubted_bps: self.doubted_bps.max(limited_bps),
            repeats: self.repeats + 1,
            ..Self::searching(start, self.packet_bytes, jitter_ns)
        })
    }

    /// The highest rate that this train, which measured `limited_bps`, or a doubtful one measured.
    pub(super) fn best_bps(&self, limited_bps: u64) -> u64 {
        limited_bps.max(self.doubted_bps)
    }

    /// Another train at half the rate, after no packet of this one was reported. Faster trains
    /// follow it, because a silence does not measure the rate.
    pub(super) fn slower(&self) -> Self {
        let least_bytes = MIN_PACKETS * self.packet_bytes;
        let least_bps = rate_of(least_bytes, SLOWEST_NS).min(self.rate_bps);
        Self {
            rate_bps: (self.rate_bps / 2).max(least_bps).max(1),
            expected: false,
            train_bytes: (self.train_bytes / 2).max(least_bytes),
            ..*self
        }
    }

    /// Another train after this one had too little data, or after a silence. Its rate is at least
    /// that of a first train, so that the rate of [`Probe::slower`] does not stay.
    pub(super) fn restored(&self, max_rate_bps: u64) -> Self {
        let first = Self::first(self.packet_bytes, max_rate_bps);
        if self.expected || self.rate_bps >= first.rate_bps {
            return *self;
        }
        Self {
            rtt_ns: self.rtt_ns,
            ..first
        }
    }

    /// Another train at half the rate, after this one measured the round trip but not the queue. It
    /// is as long as other trains: a short one would measure the queues of others. Three quarters of
    /// this one are reported, so its queue is nearly gone, and a queue that stays is that of others.
    pub(super) fn repeated(&self, rtt_ns: u64, jitter_ns: u64) -> Self {
        let start = Start {
            rate_bps: (self.rate_bps / 2).max(1),
            rtt_ns,
        };
        Self::searching(start, self.packet_bytes, jitter_ns).ignoring_queue()
    }

    /// The same train before its first packet, with the numbers of bytes sent and received before
    /// it.
    pub(super) fn after(self, sent_bytes: u64, received_bytes: u64) -> Self {
        Self {
            sent_bytes,
            received_bytes,
            first_ns: None,
            interrupted: false,
            shortest_ns: None,
            latest: None,
            first_sample_bytes: None,
            ..self
        }
    }

    /// This train with at most `most_bytes`.
    pub(super) fn within(self, most_bytes: u64) -> Self {
        let most_bytes = most_bytes.max(MIN_PACKETS * self.packet_bytes);
        Self {
            train_bytes: self.train_bytes.min(most_bytes),
            ..self
        }
    }

    /// Whether the rate comes from a description or from an earlier transfer.
    pub(super) fn is_expected(&self) -> bool {
        self.expected
    }

    pub(super) fn train_bytes(&self) -> u64 {
        self.train_bytes
    }

    pub(super) fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    pub(super) fn note_sent(&mut self, now_ns: u64) {
        self.first_ns.get_or_insert(now_ns);
    }

    /// Records that the sender has data again, after it had none.
    pub(super) fn note_resumed(&mut self) {
        self.interrupted |= self.first_ns.is_some();
    }

    /// Whether a packet of the train that left once only was reported.
    pub(super) fn has_sample(&self) -> bool {
        self.latest.is_some()
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The train as if it had been planned with the bytes that were sent, because the sender had no
    /// more data. `None` if they are less than half of the train.
    pub(super) fn shortened(&self, sent_bytes: u64) -> Option<Self> {
        let train_bytes = sent_bytes.saturating_sub(self.sent_bytes);
        let least_bytes = (self.train_bytes / 2).max(MIN_PACKETS * self.packet_bytes);
        (train_bytes >= least_bytes).then_some(Self {
            train_bytes: train_bytes.min(self.train_bytes),
            ..*self
        })
    }

    /// Adds the sample of the packet that ends at `reported_bytes` sent bytes.
    pub(super) fn note(&mut self, sample: Sample, reported_bytes: u64) {
        let bytes = reported_bytes.saturating_sub(self.sent_bytes);
        self.first_sample_bytes.get_or_insert(bytes);
        let shortest_ns = self
            .shortest_ns
            .map_or(sample.rtt_ns, |ns| ns.min(sample.rtt_ns));
        self.shortest_ns = Some(shortest_ns);
        self.latest = Some(sample);
    }

    /// Bytes sent when the whole train has left.
    pub(super) fn end_bytes(&self) -> u64 {
        self.sent_bytes.saturating_add(self.train_bytes)
    }

    /// The rate in bits a second at which the arrived part of a train arrived, of a train whose end was
    /// lost. The latest of it was reported at `arrived_ns`, with `received_bytes` received in all; the
    /// round trip is `rtt_ns`. `None` if less than a quarter arrived.
    pub(super) fn arrived_bps(
        &self,
        received_bytes: u64,
        arrived_ns: u64,
        rtt_ns: u64,
    ) -> Option<u64> {
        let arrived_bytes = received_bytes.saturating_sub(self.received_bytes);
        let elapsed_ns = arrived_ns.saturating_sub(self.first_ns?).max(rtt_ns);
        let arrived_bps = rate_of(arrived_bytes, elapsed_ns);
        (arrived_bytes >= self.train_bytes / 4).then_some(arrived_bps.clamp(1, self.rate_bps))
    }

    /// The result of the train when `sent_bytes` are reported, of which `received_bytes` arrived.
    /// `None` until three quarters of the train are reported. A delay of up to `jitter_ns` plus an
    /// eighth of the train's length does not count as a queue.
    pub(super) fn verdict(
        &self,
        sent_bytes: u64,
        received_bytes: u64,
        jitter_ns: u64,
    ) -> Option<TrainResult> {
        let all = sent_bytes >= self.end_bytes();
        let sent_bytes = sent_bytes.saturating_sub(self.sent_bytes);
        // Packets in flight before the train may have arrived since, so count at most the train's
        // bytes.
        let received_bytes = received_bytes.saturating_sub(self.received_bytes);
        let received_bytes = received_bytes.min(sent_bytes);
        let few = received_bytes < sent_bytes / 8 * 7;
        let Some(latest) = self.latest else {
            // Packets that were sent twice give no sample.
            let rate_bps = if few {
                self.rate_bps / 2
            } else {
                self.rate_bps
            };
            return all.then_some(TrainResult::Limited(rate_bps.max(1)));
        };
        if !all && sent_bytes < self.train_bytes / 4 * 3 {
            return None;
        }
        let from_start = self.first_sample_bytes? <= self.train_bytes / 2;
        if self.rtt_ns == u64::MAX && !from_start {
            return Some(TrainResult::Unclear);
        }
        // The time between the first and the latest packet does not include the sending of the
        // first one.
        let nominal_ns = time_of(sent_bytes, self.rate_bps).max(1);
        let length_ns = latest.departed_ns.saturating_sub(self.first_ns?);
        let length_ns = length_ns.max(nominal_ns / 8 * 7).max(1);
        // A packet after a pause is reported at once, so it shows the queue before the train.
        let early = self.ignores_queue && self.first_sample_bytes? <= self.train_bytes / 4;
        let shortest_ns = self.shortest_ns?;
        let before_ns = if early {
            shortest_ns
        } else {
            shortest_ns.min(self.rtt_ns)
        };
        let queue_ns = latest.rtt_ns.saturating_sub(before_ns);
        // The sender was slower than the rate of the train.
        let late = length_ns / 2 > nominal_ns;
        if queue_ns <= (length_ns / 8).saturating_add(jitter_ns) && !few && !late {
            return Some(TrainResult::Carried);
        }
        let paced_ns = if late { nominal_ns } else { length_ns };
        let whole_ns = length_ns.saturating_add(queue_ns);
        let carried_bps = mul_div(self.rate_bps, paced_ns, whole_ns);
        let arrived_bps = mul_div(carried_bps, received_bytes, sent_bytes);
        let limited_bps = arrived_bps.clamp(1, self.rate_bps);
        // Two lost packets of the first train are one part in eight.
        let by_chance = few && self.train_bytes <= FIRST_PACKETS * self.packet_bytes;
        if queue_ns <= jitter_ns.saturating_mul(DOUBTFUL) && (!few || by_chance) {
            return Some(TrainResult::Doubtful(limited_bps));
        }
        Some(TrainResult::Limited(limited_bps))
    }
}
