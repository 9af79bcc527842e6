//! Running code in another network namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Namespace, TunEmulatorError};

/// Runs `work` in a namespace, on its own thread, because a thread that has entered a namespace
/// cannot return. `None`: this process's namespace.
pub(super) fn inside<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T, TunEmulatorError> + Send,
) -> Result<T, TunEmulatorError> {
    let enter_and_work = || {
        if let Some(namespace) = namespace {
            enter(namespace)?;
        }
        work()
    };
    thread::scope(|scope| match scope.spawn(enter_and_work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn enter(namespace: &Namespace) -> Result<(), TunEmulatorError> {
    let failed = |source| TunEmulatorError::Namespace {
        path: namespace.path().to_owned(),
        source,
    };
    let file = File::open(namespace.path()).map_err(failed)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| failed(error.into()))
}
