//! System calls on files that the standard library and rustix do not have.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};

use rustix::io::{Errno, try_close};

/// Makes the file system store what was written to a file, as `close` does, and returns the result.
/// A network file system may report only now that it has no room for the bytes or lost them.
///
/// The file stays open and keeps its lock, because this closes a second descriptor of it.
pub(super) fn store(file: &File) -> io::Result<()> {
    let second = file.try_clone()?.into_raw_fd();
    // SAFETY: `into_raw_fd` gave up the descriptor, which is open, so nothing else uses or closes
    // it.
    let closed = unsafe { try_close(second) };
    match closed {
        // Linux has closed the descriptor even when a signal interrupts the call.
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the kernel start to write bytes of a file to its disk, without waiting for the end of it.
/// A later `fsync` then has less to do, and reports all errors.
pub(super) fn start_writing(file: &File, offset: u64, bytes: u64) {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
        return;
    };
    // SAFETY: the call gets numbers only, and the descriptor is open.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE);
    }
}
