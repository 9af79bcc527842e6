//! Clock and waiting for sockets.
#![allow(unsafe_code)]

use std::time::Duration;

use super::{UdpFabric, UdpRx};
use crate::contract::{FabricError, RealTime, RealTimeRx, RxWorker, Waker};
use crate::nic::NicRx;

/// Longest time for which a datagram can have waited in a socket. A longer time means that the
/// real-time clock was set.
const MAX_WAIT_NS: u64 = 1_000_000_000;

/// Nanoseconds of the monotonic clock, which all fabrics of real time use.
pub fn now_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// The C library reads the clock: rustix reads the vDSO of the kernel itself, which ends a program that
/// runs under valgrind.
fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `now`, which is a live value. These clocks always exist.
    unsafe {
        libc::clock_gettime(clock, &raw mut now);
    }
    // Neither part can be negative (POSIX clock_gettime).
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// One instant by both clocks. The kernel says by its real-time clock when it received a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instants {
    fabric_ns: u64,
    real_ns: u64,
}

impl Instants {
    pub(super) fn now() -> Self {
        Self {
            fabric_ns: now_ns(),
            real_ns: read_ns(libc::CLOCK_REALTIME),
        }
    }

    /// Converts a time of the real-time clock to the fabric's clock. Without one, or if the clock
    /// was set in the meantime, it is this instant.
    pub(super) fn arrived_ns(self, received_ns: Option<u64>) -> u64 {
        let waited_ns = received_ns
            .and_then(|ns| self.real_ns.checked_sub(ns))
            .filter(|&ns| ns <= MAX_WAIT_NS);
        self.fabric_ns.saturating_sub(waited_ns.unwrap_or(0))
    }
}

impl UdpFabric {
    /// As [`RealTime::wait`], with workers that need not lie in one slice.
    ///
    /// # Errors
    /// Those of [`RealTime::wait`].
    pub fn wait_among<'a>(
        &'a mut self,
        at_most: Duration,
        workers: impl Iterator<Item = &'a NicRx<UdpRx>> + Clone,
    ) -> Result<(), FabricError> {
        let carrier = self.carrier();
        let workers = workers.map(NicRx::carrier);
        if workers.clone().any(UdpRx::is_stale) {
            return Ok(());
        }
        let at_most = workers
            .clone()
            .fold(at_most, |at_most, worker| worker.longest_wait(at_most));
        let workers = workers.flat_map(UdpRx::when_readable);
        let sockets = workers.chain(carrier.when_not_full());
        carrier.wake_event().sleep(sockets, at_most)
    }
}

impl RealTime for UdpFabric {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn wait(&mut self, at_most: Duration, workers: &[NicRx<UdpRx>]) -> Result<(), FabricError> {
        self.wait_among(at_most, workers.iter())
    }

    fn waker(&self) -> Waker {
        self.carrier().wake_event().waker()
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
        let at_most = carrier.longest_wait(at_most);
        carrier.wake_event().sleep(carrier.when_readable(), at_most)
    }

    fn waker(&self) -> Waker {
        self.carrier().wake_event().waker()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_is_as_long_ago_by_both_clocks() {
        let now = Instants {
            fabric_ns: 5_000_000_000,
            real_ns: 90_000_000_000,
        };
        assert_eq!(now.arrived_ns(Some(89_990_000_000)), 4_990_000_000);
        // The clock was set back or forward, or the kernel gave no time.
        for received_ns in [Some(90_000_000_001), Some(88_000_000_000), None] {
            assert_eq!(now.arrived_ns(received_ns), 5_000_000_000);
        }
    }
}
