//! Policers: rates that drop, and do not delay.

use crate::config::check_rate;
use crate::{ConfigError, MAX_RATE_BPS, Serialiser};

/// A token bucket without a queue, as operators use it to enforce a rate that was sold. Tokens
/// arrive at `rate_bps` until the bucket holds `burst_bytes`, and it starts full. A datagram takes
/// as many tokens as it has bytes. If there are too few, it is dropped and takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits of IP datagrams a second, 1 to [`MAX_RATE_BPS`](crate::MAX_RATE_BPS).
    pub rate_bps: u64,
    /// Size of the bucket in bytes of IP datagrams. A longer datagram is always dropped.
    pub burst_bytes: u64,
}

impl Policer {
    /// Drops nothing.
    pub const UNLIMITED: Self = Self {
        rate_bps: MAX_RATE_BPS,
        burst_bytes: u64::MAX,
    };

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check_rate(self.rate_bps)
    }
}

/// A running policer. The missing tokens of its bucket are the backlog of a queue that is sent at
/// the same rate, and in which nobody waits.
#[derive(Clone, Debug)]
pub(crate) struct Policing {
    policer: Policer,
    missing: Serialiser,
}

impl Policing {
    /// A policer with a full bucket.
    pub(crate) fn new(policer: Policer) -> Self {
        Self {
            policer,
            missing: Serialiser::new(policer.rate_bps),
        }
    }

    pub(crate) fn policer(&self) -> Policer {
        self.policer
    }

    /// Whether a datagram that comes at `now_ns` passes.
    pub(crate) fn admits(&mut self, now_ns: u64, bytes: u64) -> bool {
        let missing_bytes = self.missing.backlog_bytes(now_ns);
        if missing_bytes.saturating_add(bytes) > self.policer.burst_bytes {
            return false;
        }
        self.missing.accept(now_ns, bytes);
        true
    }
}
