//! Observes the queue from one cut of the window to the next.

use super::constants::{
    COLLAPSES, Decline, EXCESS, EXCESS_PACKETS, FAILURE, KEPT, LOW_ROUNDS, PATIENCE, STEADY_PART,
    YIELDED, YOUNG,
};
use super::path::Sample;
use crate::math::mul_div;

/// Observations since the last cut of the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    /// Bytes sent before the cut.
    cut_bytes: u64,
    /// When the first packet left after the cut.
    first_ns: Option<u64>,
    /// The base round trip at the cut.
    base_ns: u64,
    /// Shortest round trip since the cut.
    lowest_ns: Option<u64>,
    /// Shortest standing delay of packets that left up to a round trip after the lowered window.
    quiet_ns: Option<u64>,
    /// The first sample that detected a queue.
    queue: Option<Sample>,
    /// Bytes sent at the start of the current round trip.
    round_bytes: u64,
    /// Number of round trips since the cut.
    rounds: u32,
    /// Whether the base has fallen since the last cut. Then the queue was never empty before.
    fell: bool,
    /// Whether the window was cut without a queue. Then it is possible that the queue was never
    /// empty.
    blind: bool,
    drains: u32,
    failures: u32,
    /// [`FAILURE`] for each failed attempt to drain the queue, minus what successful ones count.
    excess_failures: u32,
    /// Whether the window had fewer than [`EXCESS_PACKETS`] before the last failed attempt.
    is_small: bool,
    /// Window before the first failed attempt to drain.
    held_bytes: u64,
    /// Extremes of the samples since that attempt.
    range: Option<Range>,
    /// Whether more packets than the random loss were lost since that attempt.
    is_lossy: bool,
}

/// Extremes of some samples.
#[derive(Clone, Copy, Debug)]
struct Range {
    shortest_ns: u64,
    longest_ns: u64,
    fewest_bytes: u64,
    most_bytes: u64,
}

impl Range {
    fn of(sample: Sample) -> Self {
        Self {
            shortest_ns: sample.rtt_ns,
            longest_ns: sample.rtt_ns,
            fewest_bytes: sample.in_flight_bytes,
            most_bytes: sample.in_flight_bytes,
        }
    }

    fn with(self, sample: Sample) -> Self {
        Self {
            shortest_ns: self.shortest_ns.min(sample.rtt_ns),
            longest_ns: self.longest_ns.max(sample.rtt_ns),
            fewest_bytes: self.fewest_bytes.min(sample.in_flight_bytes),
            most_bytes: self.most_bytes.max(sample.in_flight_bytes),
        }
    }
}

impl Cycle {
    /// Starts a new cycle: the window was cut after `sent_bytes` had left.
    pub(super) fn start(&mut self, sent_bytes: u64, base_ns: u64, blind: bool) {
        self.blind = blind;
        self.rounds = 0;
        self.fell = base_ns < self.base_ns - self.base_ns / 32;
        self.base_ns = base_ns;
        self.cut_bytes = sent_bytes;
        self.round_bytes = sent_bytes;
        self.first_ns = None;
        self.lowest_ns = None;
        self.quiet_ns = None;
        self.queue = None;
    }

    /// Marks the estimates of the path as uncertain again.
    pub(super) fn forget(&mut self) {
        self.excuse();
        self.drains = 0;
    }

    /// Ignores the packets sent so far, without starting a new cycle.
    pub(super) fn skip_to(&mut self, sent_bytes: u64) {
        self.cut_bytes = sent_bytes;
    }

    pub(super) fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    pub(super) fn note_sent(&mut self, now_ns: u64) {
        self.first_ns.get_or_insert(now_ns);
    }

    /// Returns whether the packet of the sample left after the cut.
    pub(super) fn note_sample(&mut self, sample: Sample) -> bool {
        if self.first_ns.is_none_or(|ns| sample.departed_ns < ns) {
            return false;
        }
        let rtt_ns = sample.rtt_ns;
        self.lowest_ns = Some(self.lowest_ns.map_or(rtt_ns, |ns| ns.min(rtt_ns)));
        self.range = Some(
            self.range
                .map_or(Range::of(sample), |range| range.with(sample)),
        );
        true
    }

    /// Records the standing delay of packets that left up to a round trip after the lowered window.
    pub(super) fn note_quiet(&mut self, delay_ns: u64) {
        let quiet_ns = self.quiet_ns.map_or(delay_ns, |ns| ns.min(delay_ns));
        self.quiet_ns = Some(quiet_ns);
    }

    /// The standing delay after the queue drained.
    pub(super) fn quiet_ns(&self) -> Option<u64> {
        self.quiet_ns
    }

    /// Records a sample that detected a queue.
    pub(super) fn note_queue(&mut self, sample: Sample) {
        self.queue.get_or_insert(sample);
    }

    /// Estimates the equal share: the window that each flow would have if all were equal. It
    /// compares the flow's own growth with the growth of the delay since the first sample with a
    /// queue. `None` if the delay rose by less than `least_ns`.
    ///
    /// A flow with window w grows by g sqrt(w), with the same g for all flows. If N flows are
    /// equal, the path holds N w bytes, and the delay rises by N g sqrt(w) / (N w) round trips. So
    /// w follows from the delay and from g, which the flow knows from its own growth.
    pub(super) fn equal_share(
        &self,
        share_bytes: u64,
        sample: Sample,
        base_ns: u64,
        least_ns: u64,
    ) -> Option<u64> {
        let first = self.queue?;
        let rise_ns = sample.rtt_ns.checked_sub(first.rtt_ns)?;
        let added_bytes = sample.in_flight_bytes.checked_sub(first.in_flight_bytes)?;
        if rise_ns < least_ns.max(1) {
            return None;
        }
        let alone_bytes = mul_div(added_bytes, base_ns, rise_ns);
        Some(mul_div(alone_bytes, alone_bytes, share_bytes))
    }

    /// Whether a round trip has passed since this function last returned `true`.
    pub(super) fn is_round_over(&mut self, reported_bytes: u64, sent_bytes: u64) -> bool {
        let over = reported_bytes > self.round_bytes;
        if over {
            self.round_bytes = sent_bytes;
            self.rounds = self.rounds.saturating_add(1);
        }
        over
    }

    /// Whether the window is still about as low as after the cut. Loss of a later time may be that
    /// of a policer that the flow has reached.
    pub(super) fn is_low(&self) -> bool {
        self.rounds <= LOW_ROUNDS
    }

    /// Whether the window was cut without a queue.
    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Whether the queue was nearly empty at some time since the cut.
    pub(super) fn was_drained(&self, base_ns: u64, threshold_ns: u64) -> bool {
        self.lowest_ns
            .is_none_or(|ns| ns.saturating_sub(base_ns) <= threshold_ns / 2)
    }

    /// Whether the flow has sent at the lowered window for `ns`.
    pub(super) fn has_drained_for(&self, ns: u64, now_ns: u64) -> bool {
        self.first_ns
            .is_some_and(|first_ns| now_ns.saturating_sub(first_ns) >= ns)
    }

    /// Whether the estimates of the path are uncertain.
    pub(super) fn is_young(&self) -> bool {
        self.drains < YOUNG
    }

    /// The window while the queue drains.
    pub(super) fn dip(&self, share_bytes: u64) -> u64 {
        mul_div(share_bytes, KEPT[self.depth()], 256)
    }

    /// How deep the window dips, from 0 to 2.
    fn depth(&self) -> usize {
        let deep = self.fell || self.blind || self.is_young();
        if deep {
            2
        } else {
            self.failures.min(2) as usize
        }
    }

    /// For how long a flow on a short path stops, so that a queue of `queue_ns` becomes empty. Failed attempts make this
    /// time longer, by at most a round trip of `base_ns`.
    pub(super) fn stop_ns(&self, queue_ns: u64, base_ns: u64) -> u64 {
        let more_ns = queue_ns.saturating_mul(self.failures.min(2).into());
        queue_ns.saturating_add(more_ns.min(base_ns))
    }

    /// Records that the queue did not drain. The window was `window_bytes` before the attempt.
    pub(super) fn fail(&mut self, window_bytes: u64, packet_bytes: u64) {
        if self.failures == 0 {
            self.held_bytes = window_bytes;
            self.range = None;
            self.is_lossy = false;
        }
        self.failures = self.failures.saturating_add(1);
        self.excess_failures = self.excess_failures.saturating_add(FAILURE);
        self.is_small = window_bytes < packet_bytes.saturating_mul(EXCESS_PACKETS);
    }

    /// Records that the queue drained.
    pub(super) fn succeed(&mut self) {
        self.drains = self.drains.saturating_add(1);
        let success = if self.is_small { FAILURE } else { 1 };
        self.excess_failures = self.excess_failures.saturating_sub(success);
        self.failures = 0;
        self.range = None;
        self.is_lossy = false;
    }

    /// Records that the failures so far had another reason than other flows.
    pub(super) fn excuse(&mut self) {
        self.succeed();
        self.excess_failures = 0;
    }

    /// Records that other flows filled the queue until now: half of the failures that show it are
    /// enough the next time.
    pub(super) fn suspect(&mut self) {
        self.excess_failures = EXCESS / 2;
    }

    /// Whether to try to drain the queue again. `is_warned`: whether other flows kept it full
    /// shortly before.
    pub(super) fn is_patient(&self, is_warned: bool) -> bool {
        self.failures < PATIENCE[usize::from(is_warned)] && self.excess_failures < EXCESS
    }

    /// Whether the failed attempts left so little, `share_bytes`, that other flows must fill the queue.
    pub(super) fn has_collapsed(&self, share_bytes: u64, packet_bytes: u64) -> bool {
        COLLAPSES
            .iter()
            .any(|decline| self.has_lost(decline, share_bytes, packet_bytes))
    }

    /// Whether the flow gave up most of its window in the failed attempts, and has `share_bytes` left.
    pub(super) fn has_yielded(&self, share_bytes: u64, packet_bytes: u64) -> bool {
        self.has_lost(&YIELDED, share_bytes, packet_bytes)
    }

    fn has_lost(&self, decline: &Decline, share_bytes: u64, packet_bytes: u64) -> bool {
        self.failures >= decline.attempts
            && share_bytes < self.held_bytes / decline.part
            && self.held_bytes >= packet_bytes.saturating_mul(decline.packets)
    }

    /// Window in bytes before the failed attempts.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Records a loss beyond the random loss.
    pub(super) fn note_loss(&mut self) {
        self.is_lossy = true;
    }

    /// Detects a longer path: returns the shortest recent round trip if all recent round trips were
    /// within `spread_ns`.
    ///
    /// A queue that other flows keep at its limit has a steady delay too, but drops packets. Also,
    /// the delay of a queue follows the bytes in flight. The test is valid only if the change of
    /// the bytes in flight would have changed the delay of a queue, on a path of `base_ns` that
    /// holds `path_bytes`, by at least twice the spread.
    ///
    /// In `Compete`, the pace may be above the rate of the path, and packets wait behind those of the same window.
    /// There, a delay is steady too if it changed by at most one part in [`STEADY_PART`] of what that of a queue would
    /// have.
    pub(super) fn steady_ns(
        &self,
        spread_ns: u64,
        base_ns: u64,
        path_bytes: u64,
        competes: bool,
    ) -> Option<u64> {
        let range = self.range.filter(|_| !self.is_lossy)?;
        let moved_bytes = range.most_bytes - range.fewest_bytes;
        let moved_ns = mul_div(moved_bytes, base_ns, path_bytes);
        let waited_ns = if competes { moved_ns / STEADY_PART } else { 0 };
        let is_steady = range.longest_ns - range.shortest_ns <= spread_ns.max(waited_ns);
        let is_tested = moved_ns > spread_ns.saturating_mul(2);
        (is_steady && is_tested).then_some(range.shortest_ns)
    }

    /// Whether a queue is nearly as long as the longest recent one.
    pub(super) fn is_queue_high(&self, queue_ns: u64, base_ns: u64) -> bool {
        let highest_ns = self.range.map_or(0, |range| range.longest_ns);
        queue_ns >= highest_ns.saturating_sub(base_ns) / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A cycle whose second sample has another delay and another number of bytes in flight than the first one.
    fn after_samples(samples: [(u64, u64); 2]) -> Cycle {
        let mut cycle = Cycle::default();
        cycle.note_sent(0);
        cycle.note_loss();
        cycle.succeed();
        for (rtt_ns, in_flight_bytes) in samples {
            cycle.note_sample(Sample {
                departed_ns: MS,
                rtt_ns,
                in_flight_bytes,
            });
        }
        cycle
    }

    #[test]
    fn losses_before_the_queue_drained_do_not_hide_a_longer_path() {
        let mut cycle = after_samples([(40 * MS, 500_000), (40 * MS, 1_000_000)]);
        let steady_ns = |cycle: &Cycle| cycle.steady_ns(MS, 20 * MS, 1_000_000, false);
        assert_eq!(steady_ns(&cycle), Some(40 * MS));
        cycle.note_loss();
        assert_eq!(steady_ns(&cycle), None);
    }

    #[test]
    fn a_flow_that_competes_may_wait_for_its_own_packets_on_a_longer_path() {
        let steady_ns = |longest_ns, competes| {
            let cycle = after_samples([(80 * MS, 500_000), (longest_ns, 2_100_000)]);
            cycle.steady_ns(MS / 5, 20 * MS, 1_000_000, competes)
        };
        assert_eq!(steady_ns(82 * MS, true), Some(80 * MS));
        assert_eq!(steady_ns(82 * MS, false), None);
        // The delay of a queue follows the bytes in flight.
        assert_eq!(steady_ns(112 * MS, true), None);
    }

    #[test]
    fn four_attempts_that_leave_a_sixteenth_of_a_large_window_are_a_collapse() {
        let mut cycle = Cycle::default();
        for attempt in 1..=4 {
            cycle.fail(768_000, 1_500);
            assert_eq!(cycle.has_collapsed(47_000, 1_500), attempt == 4);
        }
        assert!(!cycle.has_collapsed(48_000, 1_500), "a sixteenth is left");
        assert!(
            !cycle.has_collapsed(47_000, 1_501),
            "fewer than 512 packets"
        );
        cycle.succeed();
        assert!(!cycle.has_collapsed(47_000, 1_500), "the queue drained");
    }

    #[test]
    fn seven_attempts_that_leave_less_than_a_quarter_are_a_collapse_too() {
        let mut cycle = Cycle::default();
        for attempt in 1..=7 {
            cycle.fail(384_000, 1_500);
            assert_eq!(cycle.has_collapsed(95_000, 1_500), attempt == 7);
            assert_eq!(cycle.has_yielded(95_000, 1_500), attempt >= 4);
        }
        assert!(!cycle.has_collapsed(96_000, 1_500), "a quarter is left");
        assert!(
            !cycle.has_collapsed(95_000, 1_501),
            "fewer than 256 packets"
        );
    }

    /// Returns after how many attempts a flow concludes that others fill the queue, if two of five
    /// fail.
    fn attempts_beside_others(packets: u64) -> Option<u32> {
        let mut cycle = Cycle::default();
        (1..=200).find(|attempt| {
            match attempt % 5 {
                1 | 3 => cycle.fail(packets * 1_500, 1_500),
                _ => cycle.succeed(),
            }
            !cycle.is_patient(false)
        })
    }

    #[test]
    fn a_queue_that_often_does_not_drain_is_that_of_others() {
        // One more for each five attempts.
        assert_eq!(attempts_beside_others(16), Some(108));
        assert_eq!(attempts_beside_others(15), None, "few packets");
    }

    #[test]
    fn an_unknown_path_gets_all_attempts() {
        let mut cycle = Cycle::default();
        for _ in 0..EXCESS {
            cycle.fail(1_000_000, 1_500);
            cycle.fail(1_000_000, 1_500);
            cycle.succeed();
        }
        cycle.forget();
        for attempt in 1..PATIENCE[0] {
            cycle.fail(1_000_000, 1_500);
            assert!(cycle.is_patient(false), "attempt {attempt}");
        }
    }

    #[test]
    fn failed_attempts_make_a_stop_longer_by_a_round_trip_at_most() {
        let mut cycle = Cycle::default();
        assert_eq!(cycle.stop_ns(3 * MS, 5 * MS), 3 * MS);
        cycle.fail(150_000, 1_500);
        assert_eq!(cycle.stop_ns(3 * MS, 5 * MS), 6 * MS);
        cycle.fail(150_000, 1_500);
        cycle.fail(150_000, 1_500);
        assert_eq!(cycle.stop_ns(3 * MS, 5 * MS), 8 * MS);
    }
}
