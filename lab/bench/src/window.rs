//! Limits how far a sending thread may be ahead of the receiving one. The sender sleeps while it
//! waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longest delay of packets over loopback.
pub(crate) const STALL: Duration = Duration::from_millis(20);
/// Value of `wake_at` while the sender does not sleep.
const AWAKE: u64 = u64::MAX;

/// The bytes in flight between a sending and a receiving thread.
///
/// Neither end spins: a spinning thread would add processor time without work, and the full stack
/// sleeps at the same point.
pub(crate) struct Window {
    bytes: u64,
    /// After this time without an arrival, the bytes in flight count as lost.
    stall: Duration,
    sender: Thread,
    arrived: AtomicU64,
    /// Bytes that were sent and never arrived.
    lost: AtomicU64,
    /// Bytes that must have arrived before the sender is woken.
    wake_at: AtomicU64,
    sender_done: AtomicBool,
}

impl Window {
    /// A window of this number of bytes. The calling thread is the sender.
    pub(crate) fn new(bytes: u64, stall: Duration) -> Self {
        Self {
            bytes,
            stall,
            sender: thread::current(),
            arrived: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            wake_at: AtomicU64::new(AWAKE),
            sender_done: AtomicBool::new(false),
        }
    }

    /// Sender: waits until the bytes from `at` on may be sent. It sleeps until half the window is
    /// free, so that one wake-up serves several batches.
    pub(crate) fn wait(&self, at: u64) {
        let lost = self.lost.load(Ordering::Relaxed);
        if at <= self.arrived.load(Ordering::SeqCst) + lost + self.bytes {
            return;
        }
        let wanted = at - lost - self.bytes / 2;
        let mut latest = self.arrived.load(Ordering::SeqCst);
        let mut since = Instant::now();
        loop {
            self.wake_at.store(wanted, Ordering::SeqCst);
            // The receiver writes `arrived` and then reads `wake_at`, so at least one of the
            // threads sees the other's write.
            let arrived = self.arrived.load(Ordering::SeqCst);
            if arrived >= wanted {
                break;
            }
            if arrived != latest {
                (latest, since) = (arrived, Instant::now());
            } else if since.elapsed() >= self.stall {
                self.lost.store(at - arrived, Ordering::Relaxed);
                break;
            }
            thread::park_timeout(self.stall);
        }
        self.wake_at.store(AWAKE, Ordering::SeqCst);
    }

    /// Receiver: sets the total number of bytes that have arrived.
    pub(crate) fn arrive(&self, bytes: u64) {
        self.arrived.store(bytes, Ordering::SeqCst);
        if self.wake_at.load(Ordering::SeqCst) <= bytes {
            self.wake_at.store(AWAKE, Ordering::SeqCst);
            self.sender.unpark();
        }
    }

    /// Bytes that have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Sender: no more bytes follow.
    pub(crate) fn end(&self) {
        self.sender_done.store(true, Ordering::Release);
    }

    /// Receiver: whether the sender has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.sender_done.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_is_ahead_waits_for_the_receiver() {
        let window = Window::new(100, Duration::from_secs(60));
        thread::scope(|scope| {
            scope.spawn(|| {
                for bytes in 1..=200 {
                    window.arrive(bytes);
                }
                // The bytes for which the sender waits have not arrived yet.
                thread::sleep(Duration::from_millis(2));
                window.arrive(950);
            });
            window.wait(100);
            window.wait(1_000);
            assert!(window.arrived() >= 950);
        });
    }

    #[test]
    fn what_does_not_arrive_counts_as_lost() {
        let window = Window::new(100, Duration::from_millis(1));
        window.arrive(50);
        window.wait(500);
        assert_eq!(window.arrived(), 50);
        // The 450 lost bytes free the same room in the window.
        window.wait(600);
        assert_eq!(window.lost.load(Ordering::Relaxed), 450);
    }
}
