//! What `fork` means for the handles of a program.
//!
//! A child has the handles of its parent, and none of the threads behind them: a call that waits for a
//! thread would wait for ever. So a child finds that these handles do not exist. It can make its own.
#![allow(unsafe_code)]

use std::sync::Once;

use crate::table;

/// Has the table told of each `fork` from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the three functions exist as long as the library, and do not unwind.
        unsafe {
            libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
        }
    });
}

extern "C" fn before() {
    table::before_fork();
}

extern "C" fn in_parent() {
    table::after_fork();
}

extern "C" fn in_child() {
    table::abandon();
    table::after_fork();
}
