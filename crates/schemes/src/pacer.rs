//! When how many bytes may leave: a fixed rate, bounded by what the receiver takes in (P5.5).

use farwrite_wire::control::Credit;
use farwrite_wire::timing::Timing;

/// What one byte costs, in bits times nanoseconds a second: the unit in which nothing is rounded.
const BYTE: i128 = 8_000_000_000;

/// Lowest pace to which credit brings a sender, in bits a second: enough to hear from the receiver.
const FLOOR_BPS: u64 = 1_000_000;

/// Share of the time of recovery that one credit may make good for, at most: a long break proves
/// nothing.
const MAX_CREDIT_SHARE: u64 = 50;

/// A token bucket in exact integers.
///
/// A sender may take a batch while the allowance is positive, and go into debt with it: the debt is
/// worked off before the next, so the rate holds in the long run whatever the batches are.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate_bps: u64,
    pace_bps: u64,
    burst: i128,
    /// Time in which the pace would grow from nothing to the fixed rate.
    recovery_ns: u64,
    /// What may leave, in units of [`BYTE`]; negative: debt.
    tokens: i128,
    filled_ns: u64,
    credit: Credit,
    credit_ns: u64,
}

impl Pacer {
    /// Paces at `rate_bps` bits a second on the wire (0 counts as 1), with at most `burst_bytes`
    /// at once after a pause (0 counts as 1). Time lost beyond what the burst makes up for is lost: it
    /// should cover the lateness of the timers that call. Of `timing` counts the time in which a
    /// pace recovers.
    pub fn new(rate_bps: u64, burst_bytes: u64, timing: &Timing) -> Self {
        let burst = i128::from(burst_bytes.max(1)) * BYTE;
        Self {
            rate_bps: rate_bps.max(1),
            pace_bps: rate_bps.max(1),
            burst,
            recovery_ns: timing.pace_recovery_ns.max(1),
            tokens: burst,
            filled_ns: 0,
            credit: Credit::default(),
            credit_ns: 0,
        }
    }

    /// Bytes that may leave now, headers included.
    pub fn allowance(&self, now_ns: u64) -> u64 {
        let bytes = self.tokens_at(now_ns).max(0) / BYTE;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Bytes left, headers included; more than the allowance is a debt.
    pub fn consume(&mut self, now_ns: u64, wire_bytes: u64) {
        self.fill(now_ns);
        self.tokens = self.tokens.saturating_sub(i128::from(wire_bytes) * BYTE);
    }

    /// When the allowance is one byte or more; `now_ns` if it is already.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let short = BYTE - self.tokens_at(now_ns);
        if short <= 0 {
            return now_ns;
        }
        let wait_ns = short.unsigned_abs().div_ceil(u128::from(self.pace_bps));
        now_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }

    /// Bits a second at which bytes may leave now.
    pub fn pace_bps(&self) -> u64 {
        self.pace_bps
    }

    /// The receiver told how fast it takes bytes in. Drops since its last word bring the pace below
    /// that; none let it grow again towards the fixed rate.
    pub fn handle_credit(&mut self, now_ns: u64, credit: &Credit) {
        // Overtaken by a later one on the way.
        if credit.received_packets < self.credit.received_packets
            || credit.dropped_packets < self.credit.dropped_packets
        {
            return;
        }
        self.fill(now_ns);
        if credit.dropped_packets > self.credit.dropped_packets {
            self.pace_bps = self.below(credit.drain_bps);
        } else {
            let most_ns = self.recovery_ns / MAX_CREDIT_SHARE;
            let gap_ns = now_ns.saturating_sub(self.credit_ns).min(most_ns);
            let growth = u128::from(self.rate_bps) * u128::from(gap_ns);
            let growth = growth / u128::from(self.recovery_ns);
            let growth = u64::try_from(growth).unwrap_or(u64::MAX);
            self.pace_bps = self.pace_bps.saturating_add(growth).min(self.rate_bps);
        }
        self.credit = *credit;
        self.credit_ns = now_ns;
    }

    /// Nine tenths of the drain rate, but at least half of the present pace: a rate measured over a
    /// moment when little was sent is no measure of what the receiver can take.
    fn below(&self, drain_bps: u64) -> u64 {
        let target_bps = (drain_bps - drain_bps / 10).max(self.pace_bps / 2);
        let floor_bps = FLOOR_BPS.min(self.rate_bps);
        target_bps.clamp(floor_bps, self.pace_bps.max(floor_bps))
    }

    fn tokens_at(&self, now_ns: u64) -> i128 {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        // Below 2^127: both factors are below 2^63 or the sum is past any burst.
        let earned = i128::from(self.pace_bps).saturating_mul(i128::from(elapsed_ns));
        self.tokens.saturating_add(earned).min(self.burst)
    }

    fn fill(&mut self, now_ns: u64) {
        self.tokens = self.tokens_at(now_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn credit(received_packets: u64, drain_bps: u64, dropped_packets: u64) -> Credit {
        Credit {
            received_packets,
            received_bytes: received_packets * 1_000,
            drain_bps,
            dropped_packets,
            ..Credit::default()
        }
    }

    /// Sends `batch` bytes whenever allowed until `end_ns`.
    fn drive(pacer: &mut Pacer, start_ns: u64, end_ns: u64, batch: u64) -> u64 {
        let (mut now_ns, mut bytes) = (start_ns, 0);
        loop {
            now_ns = pacer.next_ns(now_ns);
            if now_ns >= end_ns {
                return bytes;
            }
            assert!(pacer.allowance(now_ns) >= 1);
            pacer.consume(now_ns, batch);
            bytes += batch;
        }
    }

    #[test]
    fn an_hour_at_an_odd_rate_drifts_by_less_than_a_batch() {
        let rate_bps = 7_777_777_777;
        let mut pacer = Pacer::new(rate_bps, 1 << 16, &Timing::wide_area());
        let bytes = drive(&mut pacer, 0, 3_600 * SECOND, 1 << 20);
        let exact = rate_bps / 8 * 3_600;
        assert!(bytes.abs_diff(exact) < 2 << 20, "{bytes} {exact}");
    }

    #[test]
    fn a_pause_saves_up_no_more_than_the_burst() {
        let mut pacer = Pacer::new(1_000_000_000, 10_000, &Timing::wide_area());
        assert_eq!(pacer.allowance(0), 10_000);
        pacer.consume(0, 10_000);
        assert_eq!(pacer.allowance(0), 0);
        assert_eq!(pacer.next_ns(0), 8);
        assert_eq!(pacer.allowance(8), 1);
        assert_eq!(pacer.allowance(40_000), 5_000);
        assert_eq!(pacer.allowance(3_600 * SECOND), 10_000);
        assert_eq!(pacer.allowance(u64::MAX), 10_000);
    }

    #[test]
    fn drops_bring_the_pace_below_the_drain_and_quiet_restores_it() {
        let mut pacer = Pacer::new(10_000_000_000, 1, &Timing::wide_area());
        pacer.handle_credit(0, &credit(10, 8_000_000_000, 5));
        assert_eq!(pacer.pace_bps(), 7_200_000_000);
        // The same word again, and one that was overtaken, change nothing to the worse.
        pacer.handle_credit(1, &credit(10, 8_000_000_000, 5));
        pacer.handle_credit(2, &credit(9, 1_000, 6));
        assert_eq!(pacer.pace_bps(), 7_200_000_001);
        let before = pacer.pace_bps();
        pacer.handle_credit(100_000_002, &credit(11, 7_000_000_000, 5));
        assert_eq!(pacer.pace_bps(), before + 100_000_001);
        for i in 0..100 {
            pacer.handle_credit(SECOND * (i + 1), &credit(12 + i, 0, 5));
        }
        assert_eq!(pacer.pace_bps(), 10_000_000_000);
    }

    #[test]
    fn a_pace_recovers_in_the_time_of_the_timing() {
        for timing in [Timing::wide_area(), Timing::datacenter()] {
            let mut pacer = Pacer::new(10_000_000_000, 1, &timing);
            pacer.handle_credit(0, &credit(1, 0, 1));
            assert_eq!(pacer.pace_bps(), 5_000_000_000);
            // A credit each fiftieth of that time, and half of the rate to make good.
            let step_ns = timing.pace_recovery_ns / 50;
            for i in 1..=25 {
                assert!(pacer.pace_bps() < 10_000_000_000, "{timing}, {i}");
                pacer.handle_credit(i * step_ns, &credit(1 + i, 0, 1));
            }
            assert_eq!(pacer.pace_bps(), 10_000_000_000, "{timing}");
        }
    }

    #[test]
    fn no_credit_brings_the_pace_below_the_floor() {
        let mut pacer = Pacer::new(10_000_000_000, 1, &Timing::wide_area());
        for dropped in 1..100 {
            let before = pacer.pace_bps();
            pacer.handle_credit(dropped, &credit(0, 0, dropped));
            assert!(pacer.pace_bps() >= before / 2);
        }
        assert_eq!(pacer.pace_bps(), FLOOR_BPS);
        let mut slow = Pacer::new(64_000, 1, &Timing::wide_area());
        slow.handle_credit(0, &credit(0, 0, 1));
        assert_eq!(slow.pace_bps(), 64_000);
    }

    #[test]
    fn a_new_pace_holds_from_its_beginning() {
        let mut pacer = Pacer::new(8_000_000_000, 1_000_000, &Timing::wide_area());
        pacer.consume(0, 1_000_000);
        pacer.handle_credit(1_000, &credit(1, 4_000_000_000, 1));
        assert_eq!(pacer.pace_bps(), 4_000_000_000);
        assert_eq!(pacer.allowance(3_000), 1_000 + 1_000);
    }

    proptest! {
        #[test]
        fn the_rate_is_never_exceeded_by_more_than_burst_and_batch(
            rate_bps in 1u64..400_000_000_000,
            burst in 1u64..1_000_000,
            batches in prop::collection::vec((1u64..100_000, 0u64..1_000_000), 1..200),
        ) {
            let mut pacer = Pacer::new(rate_bps, burst, &Timing::wide_area());
            let (mut now_ns, mut sent, mut largest) = (0u64, 0u128, 0u128);
            for (batch, pause_ns) in batches {
                now_ns = pacer.next_ns(now_ns + pause_ns);
                pacer.consume(now_ns, batch);
                sent += u128::from(batch);
                largest = largest.max(u128::from(batch));
                let earned = u128::from(rate_bps) * u128::from(now_ns) / 8_000_000_000;
                prop_assert!(sent <= earned + u128::from(burst) + largest);
            }
        }

        #[test]
        fn any_credit_is_survived(
            credits in prop::collection::vec(any::<(u64, u64, u64, u64, u64)>(), 1..50),
        ) {
            let mut pacer = Pacer::new(1_000_000_000, 1_000, &Timing::wide_area());
            for (now_ns, received_packets, received_bytes, drain_bps, dropped_packets) in credits {
                let credit = Credit {
                    received_packets,
                    received_bytes,
                    drain_bps,
                    dropped_packets,
                    ..Credit::default()
                };
                pacer.handle_credit(now_ns, &credit);
                prop_assert!((FLOOR_BPS..=1_000_000_000).contains(&pacer.pace_bps()));
                let _ = pacer.next_ns(now_ns);
            }
        }
    }
}
