//! A token bucket: when bytes may be sent, and how many.

/// Tokens of one byte. A token is one bit per second times one nanosecond, so that nothing is
/// rounded.
const BYTE: i128 = 8_000_000_000;

/// A token bucket in exact integers.
///
/// A sender may take a batch while the allowance is positive, and go into debt with it. The debt is
/// paid before the next batch, so the long-term pace is exact for any sizes of batches.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    pace_bps: u64,
    burst: i128,
    /// Available tokens, [`BYTE`] of them per byte. A negative value is a debt.
    tokens: i128,
    filled_ns: u64,
}

impl TokenBucket {
    /// Paces at `pace_bps` bits a second on the wire (0 counts as 1), with at most `burst_bytes` at
    /// once after a pause (0 counts as 1). The burst should cover the lateness of the sender's
    /// timers: time beyond the burst is lost. Times are whole nanoseconds, so a bucket always holds
    /// what the pace earns in one of them.
    pub fn new(pace_bps: u64, burst_bytes: u64) -> Self {
        let burst = i128::from(burst_bytes.max(1)) * BYTE;
        Self {
            pace_bps: pace_bps.max(1),
            burst,
            tokens: burst,
            filled_ns: 0,
        }
    }

    /// Changes the pace from `now_ns` on (0 counts as 1).
    pub fn set_pace(&mut self, now_ns: u64, pace_bps: u64) {
        self.fill(now_ns);
        self.pace_bps = pace_bps.max(1);
    }

    /// Changes the burst, from `now_ns` on (0 counts as 1).
    pub fn set_burst(&mut self, now_ns: u64, burst_bytes: u64) {
        self.fill(now_ns);
        self.burst = i128::from(burst_bytes.max(1)) * BYTE;
        self.tokens = self.tokens.min(self.room());
    }

    /// The current pace in bits a second.
    pub fn pace_bps(&self) -> u64 {
        self.pace_bps
    }

    /// Bytes that may leave now, headers included.
    pub fn allowance(&self, now_ns: u64) -> u64 {
        let bytes = self.tokens_at(now_ns).max(0) / BYTE;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Records that bytes were sent, headers included. Bytes beyond the allowance become a debt.
    pub fn consume(&mut self, now_ns: u64, wire_bytes: u64) {
        self.fill(now_ns);
        self.tokens = self.tokens.saturating_sub(i128::from(wire_bytes) * BYTE);
    }

    /// Drops what is saved up beyond `bytes`.
    pub fn keep_at_most(&mut self, now_ns: u64, bytes: u64) {
        self.fill(now_ns);
        let most = (i128::from(bytes) * BYTE).max(BYTE + i128::from(self.pace_bps));
        self.tokens = self.tokens.min(most);
    }

    /// When the allowance is at least one byte; `now_ns` if it already is.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        self.next_bytes_ns(now_ns, 1)
    }

    /// When the allowance is at least `bytes`, if they are no more than the burst; `now_ns` if it already is.
    pub fn next_bytes_ns(&self, now_ns: u64, bytes: u64) -> u64 {
        let wanted = i128::from(bytes).saturating_mul(BYTE);
        let short = wanted.saturating_sub(self.tokens_at(now_ns));
        if short <= 0 {
            return now_ns;
        }
        let wait_ns = short.unsigned_abs().div_ceil(u128::from(self.pace_bps));
        now_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }

    fn tokens_at(&self, now_ns: u64) -> i128 {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        let earned = i128::from(self.pace_bps).saturating_mul(i128::from(elapsed_ns));
        self.tokens.saturating_add(earned).min(self.room())
    }

    /// The most that the bucket holds. A sender that waits for the first byte has up to one
    /// nanosecond's worth more than this byte when its timer fires.
    fn room(&self) -> i128 {
        self.burst.max(BYTE + i128::from(self.pace_bps))
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

    #[test]
    fn an_hour_at_an_odd_pace_drifts_by_less_than_a_batch() {
        let (pace_bps, batch) = (7_777_777_777, 1 << 20);
        let mut bucket = TokenBucket::new(pace_bps, 1 << 16);
        let (mut now_ns, mut bytes) = (0, 0);
        loop {
            now_ns = bucket.next_ns(now_ns);
            if now_ns >= 3_600 * SECOND {
                break;
            }
            assert!(bucket.allowance(now_ns) >= 1);
            bucket.consume(now_ns, batch);
            bytes += batch;
        }
        let exact = pace_bps / 8 * 3_600;
        assert!(bytes.abs_diff(exact) < 2 * batch, "{bytes} {exact}");
    }

    #[test]
    fn a_burst_of_a_byte_keeps_the_fractions_of_nanoseconds() {
        // 1086 bytes take 21.72 ns.
        let mut bucket = TokenBucket::new(400 * SECOND, 1);
        let mut now_ns = 0;
        for _ in 0..100_000 {
            bucket.consume(now_ns, 1_086);
            now_ns = bucket.next_ns(now_ns);
        }
        assert!(now_ns.abs_diff(2_172_000) <= 1, "{now_ns}");
    }

    #[test]
    fn a_pause_saves_up_no_more_than_the_burst() {
        let mut bucket = TokenBucket::new(SECOND, 10_000);
        assert_eq!(bucket.allowance(0), 10_000);
        bucket.consume(0, 10_000);
        assert_eq!(bucket.allowance(0), 0);
        assert_eq!(bucket.next_ns(0), 8);
        assert_eq!(bucket.allowance(8), 1);
        assert_eq!(bucket.allowance(40_000), 5_000);
        assert_eq!(bucket.allowance(u64::MAX), 10_000);
    }

    #[test]
    fn a_new_pace_holds_from_its_beginning() {
        let mut bucket = TokenBucket::new(8 * SECOND, 1_000_000);
        bucket.consume(0, 1_000_000);
        bucket.set_pace(1_000, 4 * SECOND);
        assert_eq!(bucket.allowance(3_000), 1_000 + 1_000);
    }

    #[test]
    fn a_new_burst_bounds_what_was_saved_up() {
        let mut bucket = TokenBucket::new(8 * SECOND, 1_000);
        bucket.set_burst(0, 200);
        assert_eq!(bucket.allowance(0), 200);
        bucket.set_burst(10, 5_000);
        assert_eq!(bucket.allowance(10), 200);
        assert_eq!(bucket.allowance(10_000), 5_000);
    }

    proptest! {
        #[test]
        fn the_pace_is_exceeded_by_no_more_than_burst_and_batch(
            pace_bps in 1u64..400_000_000_000,
            burst in 1u64..1_000_000,
            batches in prop::collection::vec((1u64..100_000, 0u64..1_000_000), 1..200),
        ) {
            let mut bucket = TokenBucket::new(pace_bps, burst);
            let (mut now_ns, mut sent, mut largest) = (0u64, 0u128, 0u128);
            for (batch, pause_ns) in batches {
                now_ns = bucket.next_ns(now_ns + pause_ns);
                bucket.consume(now_ns, batch);
                sent += u128::from(batch);
                largest = largest.max(u128::from(batch));
                let earned = |ns: u64| u128::from(pace_bps) * u128::from(ns) / 8_000_000_000;
                let room = u128::from(burst).max(2 + earned(1));
                prop_assert!(sent <= earned(now_ns) + room + largest);
            }
        }

        #[test]
        fn extremes_are_survived(
            calls in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..50),
        ) {
            let mut bucket = TokenBucket::new(u64::MAX, u64::MAX);
            for (now_ns, pace_bps, bytes) in calls {
                bucket.set_pace(now_ns, pace_bps);
                bucket.consume(now_ns, bytes);
                prop_assert!(bucket.next_ns(now_ns) >= now_ns);
                prop_assert!(bucket.pace_bps() >= 1);
            }
        }
    }
}
