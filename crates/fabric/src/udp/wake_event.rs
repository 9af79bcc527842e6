//! Wakes a thread that waits for sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use super::socket::poll;
use crate::contract::{FabricError, Waker};

/// The owner is awake, and nobody has woken it.
const AWAKE: u8 = 0;
/// The owner sleeps, or is about to sleep.
const ASLEEP: u8 = 1;
/// Somebody has woken the owner since its last sleep.
const WOKEN: u8 = 2;

/// Wakes one thread, its owner. Waking it costs a system call only while the owner sleeps.
#[derive(Debug)]
pub struct WakeEvent {
    /// Readable when the sleeping owner must wake. It may become readable after the owner has woken
    /// for another reason; then a later sleep ends early.
    event: OwnedFd,
    state: AtomicU8,
}

impl WakeEvent {
    /// Creates an event.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the system gives no event counter.
    pub fn new() -> Result<Arc<Self>, FabricError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|e| FabricError::Io {
            what: "making an event counter to wake threads by".into(),
            source: e.into(),
        })?;
        let state = AtomicU8::new(AWAKE);
        Ok(Arc::new(Self { event, state }))
    }

    /// A waker that ends sleeps of the owner.
    pub fn waker(self: &Arc<Self>) -> Waker {
        let wake_event = Arc::clone(self);
        Waker::new(move || wake_event.wake())
    }

    fn wake(&self) {
        // Release: the owner sees everything done before.
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            // This fails only if the event counter is at its maximum, and then the descriptor is
            // readable already.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until the owner is woken, or returns at once if it was woken since the last sleep. Also
    /// ends when one of `sockets` is ready, after `at_most`, or early after a signal. Only the
    /// owner calls this.
    ///
    /// # Errors
    /// [`FabricError::Io`].
    pub fn sleep<'a>(
        &'a self,
        sockets: impl Iterator<Item = PollFd<'a>>,
        at_most: Duration,
    ) -> Result<(), FabricError> {
        let slept = self
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed)
            .map_or(Ok(()), |_| self.poll(sockets, at_most));
        // Acquire: pairs with the release in `wake`. Later calls end the next sleep.
        self.state.swap(AWAKE, Ordering::Acquire);
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

    fn sleep(wake_event: &WakeEvent, at_most: Duration) -> Duration {
        let start = Instant::now();
        wake_event.sleep(std::iter::empty(), at_most).unwrap();
        start.elapsed()
    }

    #[test]
    fn a_sleep_without_a_wake_ends_on_time() {
        assert!(sleep(&WakeEvent::new().unwrap(), SHORT) >= SHORT);
    }

    #[test]
    fn wakes_before_a_sleep_end_that_sleep_only() {
        let wake_event = WakeEvent::new().unwrap();
        let waker = wake_event.waker();
        for _ in 0..3 {
            (0..1000).for_each(|_| waker.wake());
            assert!(sleep(&wake_event, LONG) < LONG);
            assert!(sleep(&wake_event, SHORT) >= SHORT);
        }
    }

    #[test]
    fn a_wake_ends_a_long_sleep() {
        let wake_event = WakeEvent::new().unwrap();
        let waker = wake_event.waker();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| sleep(&wake_event, LONG));
            while wake_event.state.load(Ordering::Relaxed) != ASLEEP {
                thread::yield_now();
            }
            waker.wake();
            assert!(sleeper.join().unwrap() < LONG);
        });
    }

    /// Every wake ends a sleep, whether it comes before, during or after one.
    #[test]
    fn no_wake_is_lost() {
        let (ping, pong) = (WakeEvent::new().unwrap(), WakeEvent::new().unwrap());
        let (to_ping, to_pong) = (ping.waker(), pong.waker());
        let turn = AtomicU8::new(0);
        let play = |wake_event: &WakeEvent, other: &Waker, mine: u8| {
            for _ in 0..2000 {
                while turn.load(Ordering::Relaxed) != mine {
                    assert!(sleep(wake_event, LONG) < LONG);
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
