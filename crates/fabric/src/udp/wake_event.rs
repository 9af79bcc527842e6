//! Wakes a thread that waits for sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use super::socket::poll;
use crate::contract::{FabricError, Waker};

/// The owner is awake, and nobody has rung.
const QUIET: u8 = 0;
/// The owner sleeps, or is about to sleep.
const ASLEEP: u8 = 1;
/// Somebody has rung since the owner's last sleep.
const RUNG: u8 = 2;

/// Wakes one thread, its owner. Ringing costs a system call only while the owner sleeps.
#[derive(Debug)]
pub(super) struct Bell {
    /// Readable when the sleeping owner must wake. It may become readable after the owner has woken
    /// for another reason; then a later sleep ends early.
    event: OwnedFd,
    state: AtomicU8,
}

impl Bell {
    pub(super) fn new() -> Result<Arc<Self>, FabricError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|e| FabricError::Io {
            what: "making an event counter to wake threads by".into(),
            source: e.into(),
        })?;
        let state = AtomicU8::new(QUIET);
        Ok(Arc::new(Self { event, state }))
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        let bell = Arc::clone(self);
        Waker::new(move || bell.ring())
    }

    fn ring(&self) {
        // Release: the owner sees everything done before.
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            // This fails only if the event counter is at its maximum, and then the descriptor is
            // readable already.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until the bell rings, or returns at once if it has rung since the last sleep. Also
    /// ends when one of `sockets` is ready, after `at_most`, or early after a signal. Only the
    /// owner calls this.
    pub(super) fn sleep<'a>(
        &'a self,
        sockets: impl Iterator<Item = PollFd<'a>>,
        at_most: Duration,
    ) -> Result<(), FabricError> {
        let slept = self
            .state
            .compare_exchange(QUIET, ASLEEP, Ordering::Relaxed, Ordering::Relaxed)
            .map_or(Ok(()), |_| self.poll(sockets, at_most));
        // Acquire: pairs with the release in `ring`. Later rings end the next sleep.
        self.state.swap(QUIET, Ordering::Acquire);
        slept.map_err(|source| FabricError::Io {
            what: "waiting for packets".into(),
            source,
        })
    }

    fn poll<'a>(
        &'a self,
        sockets: impl Iterator<Item = PollFd<'a>>,
        at_most: Duration,
    ) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.event, PollFlags::IN)];
        fds.extend(sockets);
        poll(&mut fds, Some(at_most))?;
        if fds[0].revents().contains(PollFlags::IN) {
            // Reading cannot fail, because the descriptor is readable and only the owner reads it.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// Longer than a test takes.
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    fn sleep(bell: &Bell, at_most: Duration) -> Duration {
        let start = Instant::now();
        bell.sleep(std::iter::empty(), at_most).unwrap();
        start.elapsed()
    }

    #[test]
    fn nobody_rings_and_the_sleep_ends_on_time() {
        assert!(sleep(&Bell::new().unwrap(), SHORT) >= SHORT);
    }

    #[test]
    fn rings_before_a_sleep_end_that_sleep_only() {
        let bell = Bell::new().unwrap();
        let waker = bell.waker();
        for _ in 0..3 {
            (0..1000).for_each(|_| waker.wake());
            assert!(sleep(&bell, LONG) < LONG);
            assert!(sleep(&bell, SHORT) >= SHORT);
        }
    }

    #[test]
    fn a_ring_ends_a_long_sleep() {
        let bell = Bell::new().unwrap();
        let waker = bell.waker();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| sleep(&bell, LONG));
            while bell.state.load(Ordering::Relaxed) != ASLEEP {
                thread::yield_now();
            }
            waker.wake();
            assert!(sleeper.join().unwrap() < LONG);
        });
    }

    /// Every ring ends a sleep, whether it comes before, during or after one.
    #[test]
    fn no_ring_is_lost() {
        let (ping, pong) = (Bell::new().unwrap(), Bell::new().unwrap());
        let (to_ping, to_pong) = (ping.waker(), pong.waker());
        let turn = AtomicU8::new(0);
        let play = |bell: &Bell, other: &Waker, mine: u8| {
            for _ in 0..2000 {
                while turn.load(Ordering::Relaxed) != mine {
                    assert!(sleep(bell, LONG) < LONG);
                }
                turn.store(1 - mine, Ordering::Relaxed);
                other.wake();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(&ping, &to_pong, 0));
            scope.spawn(|| play(&pong, &to_ping, 1));
        });
    }
}
