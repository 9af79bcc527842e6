//! The rate limit of repeated packets (section III.C.3).

/// The rate of repeated packets as a function of N. The paper does not specify the unit, the scope
/// and the window of N. Here, N is the number of bytes that were requested and not yet repeated,
/// over all flows of the port.
///
/// The sender is paused when N exceeds `low_bytes`, and resumes when N is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The rate of the port, in bits a second. Repeats use this rate while N is at most
    /// `low_bytes`.
    pub line_bps: u64,
    /// `K_l`. Section IV of the paper exchanges the values of `K_l` and `K_h`, which contradicts
    /// its formula.
    pub low_bytes: u64,
    /// `K_h`.
    pub high_bytes: u64,
    /// Percent of the line rate just above `low_bytes` (`R_a^max`).
    pub most_percent: u64,
    /// Percent of the line rate from `high_bytes` on (`R_a^min`).
    pub least_percent: u64,
    /// Upper limit of N. In the paper, N cannot exceed a bandwidth-delay product, because this is
    /// the size of the pool. With a larger pool, one request for 129 packets could otherwise slow
    /// the repeats down to `least_percent`.
    pub most_bytes: u64,
}

impl RateLimit {
    /// The values of the paper: 20 KB, 100 KB, 50% and 1%.
    #[must_use]
    pub fn new(line_bps: u64, most_bytes: u64) -> Self {
        Self {
            line_bps,
            most_bytes,
            low_bytes: 20_000,
            high_bytes: 100_000,
            most_percent: 50,
            least_percent: 1,
        }
    }

    /// The rate for N, in bits a second, at least 1.
    #[must_use]
    pub fn rate_bps(&self, requested_bytes: u64) -> u64 {
        let counts = requested_bytes.min(self.most_bytes);
        let over = counts.saturating_sub(self.low_bytes);
        if over == 0 {
            return self.line_bps.max(1);
        }
        let share = |percent: u64| u128::from(self.line_bps) * u128::from(percent) / 100;
        let (most, least) = (share(self.most_percent), share(self.least_percent));
        let width = self.high_bytes.saturating_sub(self.low_bytes).max(1);
        let fall = most.saturating_sub(least) * u128::from(over) / u128::from(width);
        let rate = most.saturating_sub(fall).max(least);
        u64::try_from(rate).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_from_half_to_a_hundredth_of_the_line() {
        let limit = RateLimit::new(10_000_000_000, 200_000);
        for (requested_bytes, mbps) in [
            (0, 10_000),
            (20_000, 10_000),
            (60_000, 2_550),
            (100_000, 100),
            (u64::MAX, 100),
        ] {
            assert_eq!(limit.rate_bps(requested_bytes), mbps * 1_000_000);
        }
        let limit = RateLimit::new(10_000_000_000, 60_000);
        assert_eq!(limit.rate_bps(u64::MAX), 2_550_000_000);
        let just_above = limit.rate_bps(20_001);
        assert!((4_999_000_000..=5_000_000_000).contains(&just_above));
    }

    #[test]
    fn odd_limits_give_a_rate() {
        for (low_bytes, high_bytes) in [(100, 20), (u64::MAX, 0), (0, 0)] {
            let limit = RateLimit {
                low_bytes,
                high_bytes,
                ..RateLimit::new(0, 0)
            };
            assert_eq!(limit.rate_bps(50), 1);
        }
    }
}
