//! A device for tests, which registers memory and binds windows. It records what it is asked for.

mod binding;

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use super::{Device, Library, ProtectionDomain, ffi};

pub(crate) use binding::{domain_with_memory_windows, fail_binds, windows};

thread_local! {
    /// Number of registrations that were removed.
    static REMOVED: Cell<u32> = const { Cell::new(0) };
}

/// How many registrations of this thread were removed since the last call.
pub(crate) fn take_removed() -> u32 {
    REMOVED.take()
}

unsafe extern "C" fn remove(mr: *mut ffi::IbvMr) -> c_int {
    // SAFETY: `binding::register` made it.
    drop(unsafe { Box::from_raw(mr) });
    REMOVED.set(REMOVED.get() + 1);
    0
}

unsafe extern "C" fn alloc_pd(_context: *mut ffi::IbvContext) -> *mut ffi::IbvPd {
    std::ptr::dangling_mut()
}

unsafe extern "C" fn dealloc_pd(_pd: *mut ffi::IbvPd) -> c_int {
    0
}

unsafe extern "C" fn close(_context: *mut ffi::IbvContext) -> c_int {
    0
}

/// Forgets what earlier tests of this thread have done.
fn forget() {
    take_removed();
    binding::forget();
}

/// Functions that every device of these tests has.
fn functions() -> ffi::Functions {
    ffi::Functions {
        ibv_dereg_mr: remove,
        ibv_alloc_pd: alloc_pd,
        ibv_dealloc_pd: dealloc_pd,
        ibv_close_device: close,
        ..ffi::Functions::uncalled()
    }
}

fn domain_of(functions: ffi::Functions, context: *mut ffi::IbvContext) -> Arc<ProtectionDomain> {
    forget();
    let opened = libloading::os::unix::Library::this().into();
    let library = Library {
        functions,
        _opened: Box::leak(Box::new(opened)),
    };
    let device = Device {
        ibverbs: Box::leak(Box::new(library)),
        context,
        name: "fake0".into(),
        fatal: OnceLock::new(),
        is_gone: AtomicBool::new(false),
        is_port_in_doubt: AtomicBool::new(false),
    };
    ProtectionDomain::new(&Arc::new(device)).unwrap()
}
