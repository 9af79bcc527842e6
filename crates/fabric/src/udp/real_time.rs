//! The clock on the wall, for sockets.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{UdpFabric, wait};
use crate::contract::{FabricError, RealTime};

/// The fabric's clock.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither part is ever negative (POSIX clock_gettime).
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl RealTime for UdpFabric {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError> {
        let waited = wait(self.carrier().sockets(), Some(at_most));
        waited.map(drop).map_err(|source| FabricError::Io {
            what: "waiting for packets".into(),
            source,
        })
    }
}
