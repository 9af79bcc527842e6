//! The bottleneck: one datagram after the other, each for as long as its bytes take at the rate.

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Sends bits at a constant rate, without rounding: instants are kept as nanoseconds and a
/// remainder in units of 1 / `rate_bps` nanoseconds.
#[derive(Clone, Debug)]
pub struct Serialiser {
    rate_bps: u64,
    /// When the last bit accepted so far is out: `free_ns + free_remainder / rate_bps`.
    free_ns: u64,
    free_remainder: u64,
}

impl Serialiser {
    /// A sender that is free. `rate_bps` lies in 1 to [`MAX_RATE_BPS`](crate::MAX_RATE_BPS); 0
    /// counts as 1.
    #[must_use]
    pub fn new(rate_bps: u64) -> Self {
        Self {
            rate_bps: rate_bps.max(1),
            free_ns: 0,
            free_remainder: 0,
        }
    }

    /// Sends `bytes` from `now_ns` on, or after what was accepted before, and returns when their
    /// last bit is out, rounded up to a nanosecond.
    pub fn accept(&mut self, now_ns: u64, bytes: u64) -> u64 {
        if now_ns > self.free_ns {
            self.free_ns = now_ns;
            self.free_remainder = 0;
        }
        self.append(bytes)
    }

    /// Sends `bytes` right behind what was accepted before, whatever the time, and returns when
    /// their last bit is out, rounded up to a nanosecond. The exact fraction of that nanosecond is
    /// kept: a caller that appends at each returned instant sends at exactly the rate.
    pub fn append(&mut self, bytes: u64) -> u64 {
        // Saturates for payloads of gigabytes only, which no IP datagram has.
        let work = bytes
            .saturating_mul(8 * NS_PER_SECOND)
            .saturating_add(self.free_remainder);
        self.free_ns = self.free_ns.saturating_add(work / self.rate_bps);
        self.free_remainder = work % self.rate_bps;
        self.free_ns()
    }

    /// When all that was accepted is out, rounded up to a nanosecond.
    #[must_use]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
            .saturating_add(u64::from(self.free_remainder > 0))
    }

    /// Bytes accepted that are not out yet, a started one counted whole.
    #[must_use]
    pub fn backlog_bytes(&self, now_ns: u64) -> u64 {
        let Some(busy_ns) = self.free_ns.checked_sub(now_ns) else {
            return 0;
        };
        let work =
            u128::from(busy_ns) * u128::from(self.rate_bps) + u128::from(self.free_remainder);
        let bytes = work.div_ceil(8 * u128::from(NS_PER_SECOND));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Forgets what has been accepted.
    pub fn clear(&mut self) {
        self.free_ns = 0;
        self.free_remainder = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that learns of a free sender a fraction of a nanosecond late loses nothing by it.
    #[test]
    fn appending_at_each_returned_instant_does_not_drift() {
        // 84 bytes take 1.68 ns.
        let mut serialiser = Serialiser::new(400_000_000_000);
        let mut now_ns = serialiser.accept(5, 84);
        for _ in 1..100_000 {
            now_ns = serialiser.append(84);
        }
        assert_eq!(now_ns, 5 + 168_000);
        assert_eq!(serialiser.free_ns(), now_ns);
    }
}
