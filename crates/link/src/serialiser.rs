//! The bottleneck: one datagram after the other, each for as long as its bytes take at the rate.

use crate::schedule::Schedule;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Sends bits at a rate, without rounding: instants are kept as nanoseconds and a remainder in units
/// of 1 / rate nanoseconds.
#[derive(Clone, Debug)]
pub struct Serialiser {
    rate_bps: Schedule<u64>,
    /// When the last bit accepted so far is out: `free_ns + free_remainder / rate`.
    free_ns: u64,
    free_remainder: u64,
}

impl Serialiser {
    /// A sender that is free. `rate_bps` lies in 1 to [`MAX_RATE_BPS`](crate::MAX_RATE_BPS); 0
    /// counts as 1.
    #[must_use]
    pub fn new(rate_bps: u64) -> Self {
        Self::scheduled(Schedule::constant(rate_bps.max(1)))
    }

    /// A sender that is free and whose rate changes. No rate is 0.
    pub(crate) fn scheduled(rate_bps: Schedule<u64>) -> Self {
        Self {
            rate_bps,
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
        let mut work = bytes
            .saturating_mul(8 * NS_PER_SECOND)
            .saturating_add(self.free_remainder);
        loop {
            let (rate_bps, until_ns) = self.rate_bps.at(self.free_ns);
            // What can be sent before the rate changes. The last rate holds for ever.
            let room = if until_ns == u64::MAX {
                u64::MAX
            } else {
                rate_bps.saturating_mul(until_ns - self.free_ns)
            };
            if work < room || until_ns == u64::MAX {
                self.free_ns = self.free_ns.saturating_add(work / rate_bps);
                self.free_remainder = work % rate_bps;
                break;
            }
            work -= room;
            self.free_ns = until_ns;
        }
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
        if self.free_ns < now_ns {
            return 0;
        }
        let mut work = u128::from(self.free_remainder);
        let mut from_ns = now_ns;
        while from_ns < self.free_ns {
            let (rate_bps, until_ns) = self.rate_bps.at(from_ns);
            let until_ns = until_ns.min(self.free_ns);
            work += u128::from(until_ns - from_ns) * u128::from(rate_bps);
            from_ns = until_ns;
        }
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
