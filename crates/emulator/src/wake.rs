//! A descriptor that wakes the threads of an emulator.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

/// Becomes readable when a thread must check what its handle asks for.
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    pub(crate) fn wake(&self) {
        // This fails only if the event counter is at its maximum, and then the descriptor is
        // readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub(crate) fn reset(&self) {
        // The value of the event counter does not matter; reading it resets it.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
