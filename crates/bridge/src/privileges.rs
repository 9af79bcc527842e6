//! Gives up the privileges that a bridge needs only to open its interfaces.

use std::io;

use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};

use crate::{BridgeError, BridgeTask, sys};

/// The user and the group without privileges: `nobody` and `nogroup` of Debian, and the kernel's number for
/// users that it does not know.
const NOBODY: u32 = 65534;

/// This thread, and those that it starts from now on, can get no privileges by starting a program
/// (`no_new_privs`). Call it before starting threads that talk to others.
///
/// # Errors
/// [`BridgeError::System`].
pub fn gain_no_privileges() -> Result<(), BridgeError> {
    set_no_new_privs(true).map_err(|error| BridgeError::System {
        what: BridgeTask::Privileges,
        source: error.into(),
    })
}

/// Gives up all privileges. This thread, and those that it starts from now on, keep no capability and cannot
/// get one by starting a program.
///
/// If the process runs as root, all its threads go on as user and group 65534 without further groups, and
/// without capabilities: root without capabilities can still change the files of root. Where this user
/// does not exist, as in some user namespaces, or may not be taken, the user stays the same.
pub(crate) fn give_up() -> io::Result<()> {
    if geteuid().is_root() {
        match sys::become_user(NOBODY) {
            Err(error) if !is_refused(&error) => return Err(error),
            _ => {}
        }
    }
    set_no_new_privs(true)?;
    // A kernel without ambient capabilities has none to clear.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM))
}
