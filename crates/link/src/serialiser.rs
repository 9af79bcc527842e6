//! The serialiser of the bottleneck: sends one datagram after the other at the rate of the link.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::DeliveryTrace;
use crate::schedule::Schedule;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Sends bits at a rate, without rounding errors: a time is stored as nanoseconds plus a remainder
/// in units of 1 / rate nanoseconds. Or sends bytes at the opportunities of a trace.
#[derive(Clone, Debug)]
pub struct Serialiser {
    rate_bps: Schedule<u64>,
    /// The last accepted bit is sent at `free_ns + free_remainder / rate`.
    free_ns: u64,
    free_remainder: u64,
    /// Replaces the rate. Boxed, because few serialisers have a trace, and ports of simulated
    /// networks should be short.
    traced: Option<Box<Traced>>,
}

/// A place in a trace.
#[derive(Clone, Debug)]
struct Traced {
    trace: Arc<DeliveryTrace>,
    /// The opportunity that the last accepted byte uses, or the next byte.
    opportunity: u64,
    /// Bytes of it that nothing uses yet.
    left_bytes: u64,
}

impl Serialiser {
    /// An idle serialiser. `rate_bps` must be 1 to [`MAX_RATE_BPS`](crate::MAX_RATE_BPS); 0 counts
    /// as 1.
    #[must_use]
    pub fn new(rate_bps: u64) -> Self {
        Self::scheduled(Schedule::constant(rate_bps.max(1)))
    }

    /// An idle serialiser that sends bytes at the opportunities of a trace.
    #[must_use]
    pub fn traced(trace: Arc<DeliveryTrace>) -> Self {
        let left_bytes = trace.opportunity_bytes();
        Self {
            traced: Some(Box::new(Traced {
                trace,
                opportunity: 0,
                left_bytes,
            })),
            ..Self::new(1)
        }
    }

    /// An idle serialiser with a changing rate. No rate may be 0.
    pub(crate) fn scheduled(rate_bps: Schedule<u64>) -> Self {
        Self {
            rate_bps,
            free_ns: 0,
            free_remainder: 0,
            traced: None,
        }
    }

    /// Sends `bytes` from `now_ns` on, or after all bytes accepted before. Returns when their last
    /// bit has been sent, rounded up to a nanosecond.
    pub fn accept(&mut self, now_ns: u64, bytes: u64) -> u64 {
        if now_ns > self.free_ns {
            self.free_ns = now_ns;
            self.free_remainder = 0;
            if let Some(traced) = &mut self.traced {
                traced.skip_to(now_ns);
            }
        }
        self.append(bytes)
    }

    /// Sends `bytes` directly after all bytes accepted before, independent of the current time.
    /// Returns when their last bit has been sent, rounded up to a nanosecond. The exact fraction of
    /// the nanosecond is kept, so a caller that appends at each returned time sends at exactly the
    /// rate.
    pub fn append(&mut self, bytes: u64) -> u64 {
        if let Some(traced) = &mut self.traced {
            self.free_ns = self.free_ns.max(traced.take(bytes));
            return self.free_ns;
        }
        // This saturates only for payloads of gigabytes, and IP datagrams are shorter.
        let mut work = bytes
            .saturating_mul(8 * NS_PER_SECOND)
            .saturating_add(self.free_remainder);
        loop {
            let (rate_bps, until_ns) = self.rate_bps.at(self.free_ns);
            // Work that can be done before the rate changes. The last rate applies forever.
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

    /// When all accepted bytes have been sent, rounded up to a nanosecond.
    #[must_use]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
            .saturating_add(u64::from(self.free_remainder > 0))
    }

    /// Accepted bytes that have not been sent. A partly sent byte counts as a whole.
    #[must_use]
    pub fn backlog_bytes(&self, now_ns: u64) -> u64 {
        if self.free_ns < now_ns {
            return 0;
        }
        if let Some(traced) = &self.traced {
            return traced.backlog_bytes(now_ns);
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

    /// Drops all accepted bytes.
    pub fn clear(&mut self) {
        self.free_ns = 0;
        self.free_remainder = 0;
        if let Some(traced) = &mut self.traced {
            traced.skip_to(0);
        }
    }
}

impl Traced {
    /// Wastes the opportunities before `now_ns`.
    fn skip_to(&mut self, now_ns: u64) {
        self.opportunity = self.trace.first_from(now_ns);
        self.left_bytes = self.trace.opportunity_bytes();
    }

    /// Sends `bytes`. Returns when the last one is sent; 0 for no bytes.
    fn take(&mut self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let each_bytes = self.trace.opportunity_bytes();
        let missing_bytes = bytes.saturating_sub(self.left_bytes);
        let more = missing_bytes.div_ceil(each_bytes);
        self.opportunity = self.opportunity.saturating_add(more);
        self.left_bytes = (self.left_bytes + more.saturating_mul(each_bytes)).saturating_sub(bytes);
        self.trace.at_ns(self.opportunity)
    }

    /// Accepted bytes that are sent after `now_ns`.
    fn backlog_bytes(&self, now_ns: u64) -> u64 {
        let next = self.trace.first_from(now_ns.saturating_add(1));
        let ahead = self.opportunity.saturating_add(1).saturating_sub(next);
        let capacity = ahead.saturating_mul(self.trace.opportunity_bytes());
        capacity.saturating_sub(self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times returned are rounded up. A caller that appends at these times must not lose the
    /// fractions.
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
