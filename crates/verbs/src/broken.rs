//! When to try again to connect a queue pair that the device has broken.
//!
//! A device breaks a queue pair for reasons that pass: its interface was down, or a stranger sent what
//! no receive request can hold. Until the queue pair is connected again, its packets count as lost on
//! the path, where other losses are repaired.

use std::time::{Duration, Instant};

/// The shortest time between two attempts.
const SHORTEST: Duration = Duration::from_millis(50);
/// An attempt waits for the link address of the peer, so attempts take at most this part of the time.
const SHARE: u32 = 10;

/// A queue pair that does not work at the moment.
#[derive(Debug)]
pub(crate) struct Broken {
    next_try: Instant,
}

impl Broken {
    /// A queue pair that may be tried at once.
    pub(crate) fn new() -> Self {
        Self {
            next_try: Instant::now(),
        }
    }

    /// Tries again, unless it is too early. Returns whether it worked.
    pub(crate) fn retry<E>(&mut self, attempt: impl FnOnce() -> Result<(), E>) -> bool {
        let start = Instant::now();
        if start < self.next_try {
            return false;
        }
        if attempt().is_ok() {
            return true;
        }
        let now = Instant::now();
        self.next_try = now + SHORTEST.max((now - start) * SHARE);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_fail_keep_a_distance() {
        let mut broken = Broken::new();
        let mut attempts = 0;
        for _ in 0..100 {
            assert!(!broken.retry(|| {
                attempts += 1;
                Err(())
            }));
        }
        assert_eq!(attempts, 1);
        broken.next_try = Instant::now();
        assert!(broken.retry(|| Ok::<_, ()>(())));
    }
}
