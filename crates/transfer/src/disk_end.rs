//! The end of a transfer that has failed: its thread of the disk may be stuck in the operating system.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After a failure, the time for the disk's thread to end and to remove files without a final name.
/// A thread that takes longer is stuck in the operating system, and this end stops waiting for it.
pub(crate) const DISK_END: Duration = Duration::from_secs(2);

/// Gives the thread of this end's disk time to end, after the rest of the transfer has ended.
pub(crate) fn wait_for_disk(thread: &JoinHandle<()>) {
    let start = Instant::now();
    while !thread.is_finished() && start.elapsed() < DISK_END {
        thread::sleep(Duration::from_millis(5));
    }
}
