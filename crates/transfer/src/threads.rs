//! The threads of a transfer.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Error, ErrorKind};

/// After a failure, the time for the disk's thread to end and to remove files without a final name.
/// A thread that takes longer is stuck in the operating system, and this end stops waiting for it.
pub(crate) const DISK_END: Duration = Duration::from_secs(2);

/// Starts a thread with a name.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|error| Error::caused(ErrorKind::Other, "starting a thread", &error))
}

/// Sleeps until something is `done`, at most for this time.
pub(crate) fn wait_until(done: impl Fn() -> bool, at_most: Duration) {
    let start = Instant::now();
    while !done() && start.elapsed() < at_most {
        thread::sleep(Duration::from_millis(5));
    }
}
