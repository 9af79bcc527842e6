//! How any number of workers notify one owner that data arrived.

#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, Ordering};

/// Whether the owner has a notice that it has not handled yet. While this is set, further packets
/// need no further notice.
#[derive(Debug)]
pub(crate) struct Announcement(AtomicBool);

impl Announcement {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Records that a worker set bits. Returns whether the worker must send a notice to the owner.
    pub(crate) fn announce(&self) -> bool {
        // The two swaps have a total order. If this swap comes before the one in `take`, the owner
        // sees the bits. Otherwise the owner gets a notice.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Records that the owner is about to read the bits.
    pub(crate) fn take(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;

    /// The bits, the announcement, and the number of notices that the owner has not taken.
    struct SharedBits {
        bits: AtomicU64,
        announcement: Announcement,
        notices: AtomicU64,
    }

    impl SharedBits {
        fn arrive(&self, bit: u64) {
            self.bits.fetch_or(bit, Ordering::Relaxed);
            if self.announcement.announce() {
                self.notices.fetch_add(1, Ordering::Release);
            }
        }

        /// Handles a notice if there is one. Returns the bits that it read.
        fn act(&self) -> Option<u64> {
            if self.notices.load(Ordering::Acquire) == 0 {
                return None;
            }
            self.notices.fetch_sub(1, Ordering::AcqRel);
            self.announcement.take();
            Some(self.bits.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn no_arrival_is_overlooked() {
        loom::model(|| {
            let shared = Arc::new(SharedBits {
                bits: AtomicU64::new(0),
                announcement: Announcement::new(),
                notices: AtomicU64::new(0),
            });
            let workers = [1, 2].map(|bit| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.arrive(bit))
            });
            let mut seen = shared.act().unwrap_or(0);
            for worker in workers {
                worker.join().unwrap();
            }
            while let Some(bits) = shared.act() {
                seen = bits;
            }
            assert_eq!(seen, 3);
        });
    }
}
