//! Clock and waiting for sockets.
#![allow(unsafe_code)]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{UdpFabric, UdpRx};
use crate::contract::{FabricError, RealTime, RealTimeRx, RxWorker, Waker};
use crate::nic::NicRx;

/// The fabric's clock.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither part can be negative (POSIX clock_gettime).
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl RealTime for UdpFabric {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn wait(&mut self, at_most: Duration, workers: &[NicRx<UdpRx>]) -> Result<(), FabricError> {
        let carrier = self.carrier();
        let workers = workers.iter().map(NicRx::carrier);
        if workers.clone().any(UdpRx::is_stale) {
            return Ok(());
        }
        let workers = workers.flat_map(UdpRx::when_readable);
        let sockets = workers.chain(carrier.when_not_full());
        carrier.bell().sleep(sockets, at_most)
    }

    fn waker(&self) -> Waker {
        self.carrier().bell().waker()
    }
}

// SAFETY: `NicRx` enters an epoch with each batch, and `Closings` reports a window only when all
// workers have left the epochs that they were in.
unsafe impl RealTimeRx for NicRx<UdpRx> {
    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError> {
        self.end_batch();
        let carrier = self.carrier();
        if carrier.is_stale() {
            return Ok(());
        }
        carrier.bell().sleep(carrier.when_readable(), at_most)
    }

    fn waker(&self) -> Waker {
        self.carrier().bell().waker()
    }
}
