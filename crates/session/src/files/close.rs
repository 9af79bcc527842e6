//! Closing a file with a look at the answer, which the standard library drops.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;

use rustix::io::{Errno, try_close};

/// Has the file system store what was written to a file, as `close` does, and returns its answer. A
/// network file system can report only now that it has no room for the bytes, or lost them.
///
/// The file stays open, and keeps its lock: what is closed is a second descriptor of it.
pub(super) fn store(file: &File) -> io::Result<()> {
    let second = file.try_clone()?.into_raw_fd();
    // SAFETY: `into_raw_fd` gave up the descriptor, which is open, so nothing else uses or closes it.
    let closed = unsafe { try_close(second) };
    match closed {
        // Linux has closed it also after a signal.
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
