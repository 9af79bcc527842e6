//! The threads of a transfer.

use std::thread::{self, JoinHandle};

use crate::{Error, ErrorKind};

/// Starts a thread with a name.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|error| Error::caused(ErrorKind::Other, "starting a thread", &error))
}
