//! Clock and waiting.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::time::Duration;

use farwrite_fabric::contract::{FabricError, RealTime, RealTimeRx, RxWorker, Waker};
use farwrite_fabric::udp::now_ns;
use rustix::event::{PollFd, PollFlags};

use crate::fabric::VerbsFabric;
use crate::rx::VerbsRx;

/// How long a sleep is at most while the port may be gone.
const BETWEEN_CHECKS: Duration = Duration::from_secs(1);

fn when_readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

impl RealTime for VerbsFabric {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn wait(&mut self, at_most: Duration, workers: &[VerbsRx]) -> Result<(), FabricError> {
        self.wait_among(at_most, workers.iter())
    }

    fn waker(&self) -> Waker {
        self.own_waker()
    }
}

impl VerbsFabric {
    /// As [`RealTime::wait`], with workers that need not lie in one slice.
    pub(crate) fn wait_among<'a>(
        &'a mut self,
        at_most: Duration,
        mut workers: impl Iterator<Item = &'a VerbsRx> + Clone,
    ) -> Result<(), FabricError> {
        for worker in workers.clone() {
            if !worker.prepare_to_sleep()? {
                return Ok(());
            }
        }
        for port in self.shared_ports() {
            if !port.sending.prepare_to_sleep()? {
                return Ok(());
            }
        }
        let (device, wake_event) = self.parts();
        let arrivals = workers.clone().map(VerbsRx::events);
        let departures = self.shared_ports().map(|port| port.sending.events());
        let events = arrivals.chain(departures).chain([device.events()]);
        let most = match device.is_port_in_doubt() {
            true => at_most.min(BETWEEN_CHECKS),
            false => at_most,
        };
        let shortest = workers
            .clone()
            .fold(most, |most, worker| worker.sleep_at_most(most));
        wake_event.sleep(events.map(when_readable), shortest)?;
        workers.by_ref().for_each(VerbsRx::woke);
        self.shared_ports().for_each(|port| port.sending.woke());
        let broken = device.take_events();
        device.check_port(self.device_port());
        self.mend(&broken)
    }
}

// SAFETY: `VerbsRx` enters an epoch with each batch, and `Windows` reports a window only when all
// workers have left the epochs that they were in.
unsafe impl RealTimeRx for VerbsRx {
    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError> {
        self.end_batch();
        if !self.prepare_to_sleep()? {
            return Ok(());
        }
        let events = std::iter::once(when_readable(self.events()));
        self.wake_event()
            .sleep(events, self.sleep_at_most(at_most))?;
        self.woke();
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.wake_event().waker()
    }
}
