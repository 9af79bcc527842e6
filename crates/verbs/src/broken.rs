//! When to try again to connect a queue pair that the device has broken.
//!
//! A device breaks a queue pair for reasons that pass: its interface was down, or a stranger sent what
//! no receive request can hold. Until the queue pair is connected again, its packets count as lost on
//! the path, where other losses are repaired.

use std::time::{Duration, Instant};

/// The shortest time after an attempt that has failed.
pub(crate) const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// An attempt waits for the link address of the peer, so attempts take at most this part of the time,
/// also if the queue pair breaks again at once.
const SHARE: u32 = 10;

/// Whether a queue pair is broken, and when to try again.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    is_broken: bool,
    next_try: Option<Instant>,
}

impl Broken {
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The queue pair is broken. Returns whether that is new.
    pub(crate) fn set(&mut self) -> bool {
        !std::mem::replace(&mut self.is_broken, true)
    }

    /// Tries again if it is broken, unless it is too early. Returns whether it worked.
    pub(crate) fn retry<E>(&mut self, attempt: impl FnOnce() -> Result<(), E>) -> bool {
        let start = Instant::now();
        if !self.is_broken || self.next_try.is_some_and(|next| start < next) {
            return false;
        }
        self.is_broken = attempt().is_err();
        let now = Instant::now();
        let shortest = match self.is_broken {
            true => BETWEEN_ATTEMPTS,
            false => Duration::ZERO,
        };
        self.next_try = Some(now + shortest.max((now - start) * SHARE));
        !self.is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_keep_a_distance() {
        let mut broken = Broken::default();
        assert!(!broken.retry(|| Ok::<_, ()>(())), "it is not broken");
        assert!(broken.set() && !broken.set());
        let mut attempts = 0;
        for _ in 0..100 {
            assert!(!broken.retry(|| {
                attempts += 1;
                Err(())
            }));
        }
        assert_eq!(attempts, 1);
        broken.next_try = None;
        let slow = || {
            std::thread::sleep(Duration::from_millis(10));
            Ok::<_, ()>(())
        };
        assert!(broken.retry(slow) && !broken.is_broken());
        // It breaks again at once.
        broken.set();
        assert!(!broken.retry(slow) && broken.is_broken());
    }
}
