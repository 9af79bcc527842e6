//! Drives an endpoint in real time.

use std::time::Duration;

use farwrite_fabric::contract::FabricError;

use crate::coding::CodingThreads;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;
use crate::user_wakes::QpWaker;

pub use farwrite_fabric::contract::RealTime;

/// Maximum wait without a check of the caller's condition. Packets and timers end a wait at once,
/// so the wait delays nothing on the path.
const MAX_WAIT: Duration = Duration::from_millis(20);

impl<F: RealTime> Endpoint<F> {
    /// Creates an endpoint over any fabric of real time. Its keys come from the operating system's
    /// random number generator.
    ///
    /// # Errors
    /// [`Error::Fabric`] when there is no randomness, or the fabric is in use.
    pub fn over(fabric: F) -> Result<Self, Error> {
        Ok(Self::new(fabric, random_bytes()?))
    }

    /// Polls with the current time. See [`Endpoint::poll`].
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric has failed permanently.
    pub fn poll_now(&mut self) -> Result<Option<u64>, Error> {
        self.poll_by(F::now_ns)
    }

    /// As [`Endpoint::work_by`], with the current time.
    pub(crate) fn work_now(&mut self) -> Result<Option<u64>, Error> {
        self.work_by(F::now_ns)
    }

    /// Polls, then sleeps until there is more work, but at most for `at_most`.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric has failed permanently.
    pub fn poll_and_wait(&mut self, at_most: Duration) -> Result<(), Error> {
        let next_ns = self.poll_now()?;
        self.wait_until(next_ns, at_most)
    }

    /// Polls and sleeps until `done` returns true. `done` is called after every poll, before any
    /// sleep.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric has failed permanently.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        loop {
            let next_ns = self.poll_now()?;
            if done(self) {
                return Ok(());
            }
            self.wait_until(next_ns, MAX_WAIT)?;
        }
    }

    /// Sleeps until `next_ns`, as returned by the last poll, but at most for `at_most`. An arrival
    /// or a waker of the fabric ends the sleep early.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric has failed permanently.
    pub fn wait_until(&mut self, next_ns: Option<u64>, at_most: Duration) -> Result<(), Error> {
        let now_ns = self.fabric().now_ns();
        let wait = next_ns.map_or(at_most, |next| {
            Duration::from_nanos(next.saturating_sub(now_ns))
        });
        if !wait.is_zero() {
            self.fabric.wait(wait.min(at_most))?;
        }
        Ok(())
    }

    /// Returns a waker that makes the thread of this endpoint run the tasks of a queue pair, once
    /// [`Endpoint::start_thread`] was called.
    #[must_use]
    pub fn waker_of(&self, qp: QueuePair) -> QpWaker {
        self.user_wakes.waker(qp, self.fabric().waker(), None)
    }

    /// Moves the encoding and rebuilding of chunks to threads, or back to the polls with no threads.
    /// Data leave and arrive meanwhile. Each endpoint has threads of its own. They start when there is
    /// something to compute, and sleep when there is nothing. If the operating system starts none,
    /// polls compute. Each thread has at most four groups whose results the endpoint has not taken, which
    /// limits the memory.
    ///
    /// # Errors
    /// [`Error::Fabric`] if a thread has failed that computed until now.
    pub fn code_on(&mut self, threads: CodingThreads) -> Result<(), Error> {
        let owner = self.fabric().waker();
        Ok(self.coding.start_threads(threads.count(), &owner)?)
    }
}

impl<F: RealTime<Rx: 'static>> Endpoint<F> {
    /// Moves receiving to threads, one for each port of the fabric. The threads place payloads and
    /// set the bits of bitmaps while the owner does other work. The owner must still poll, because
    /// it runs the schemes, control packets and sending. A second call does nothing.
    ///
    /// Queue pairs use as many ports as they have channels
    /// ([`QpConfig::channels`](crate::QpConfig::channels)).
    ///
    /// # Errors
    /// [`Error::Fabric`] when the operating system cannot start a thread. The endpoint then
    /// receives nothing.
    pub fn start_workers(&mut self) -> Result<(), Error> {
        let owner = self.fabric().waker();
        self.receiving.start_threads(&mut self.fabric, &owner)?;
        Ok(())
    }
}

/// Returns bytes of the random number generator of the operating system.
pub(crate) fn random_bytes() -> Result<[u8; 32], FabricError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| FabricError::Io {
        what: "asking the operating system for random bytes".into(),
        source: error.into(),
    })?;
    Ok(bytes)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::{Fabric, QpOptions, SendOptions, UdpConfig};

    /// A clock that was read earlier would date these packets back.
    #[test]
    fn the_clock_is_read_after_the_packets() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let end = || Endpoint::over_udp(&UdpConfig::new(loopback)).expect("sockets");
        let (mut a, mut b) = (end(), end());
        let qa = a.create_qp(QpOptions::default()).expect("a queue pair");
        let qb = b.create_qp(QpOptions::default()).expect("a queue pair");
        let (info_a, info_b) = (a.qp_info(qa).expect("info"), b.qp_info(qb).expect("info"));
        a.connect_qp(qa, &info_b).expect("connected");
        b.connect_qp(qb, &info_a).expect("connected");
        let source = a.register(vec![7; 1000]).expect("registered");
        let _send = a.post_send(qa, source.whole(), SendOptions::default());
        // The offer of the message reaches the other end.
        a.poll_now().expect("a poll");
        b.wait_until(None, Duration::from_secs(60)).expect("a wait");
        let before = b.counters().taken_packets();
        let mut at_the_clock = before;
        b.poll_by(|fabric| {
            at_the_clock = fabric.counters().taken_packets();
            fabric.now_ns()
        })
        .expect("a poll");
        assert!(at_the_clock > before, "{at_the_clock} packets");
    }
}
