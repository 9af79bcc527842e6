//! A device for tests, which registers memory and binds windows. It records what it is asked for.

mod binding;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::{Device, Library, ProtectionDomain, ffi};

pub(crate) use binding::{domain_with_memory_windows, fail_binds, windows};

/// A registration of a part of a DMA buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) offset: u64,
    pub(crate) length: usize,
    /// The address of the first byte in requests.
    pub(crate) addr: u64,
    pub(crate) fd: c_int,
    pub(crate) access: c_int,
}

thread_local! {
    /// What was registered.
    static REGISTERED: RefCell<Vec<Registration>> = const { RefCell::new(Vec::new()) };
    /// Number of registrations that were removed.
    static REMOVED: Cell<u32> = const { Cell::new(0) };
}

/// Registrations of this thread since the last call, and how many were removed.
pub(crate) fn take_registrations() -> (Vec<Registration>, u32) {
    (REGISTERED.take(), REMOVED.take())
}

/// A domain of a device that takes DMA buffers.
pub(crate) fn domain_with_dma_bufs() -> Arc<ProtectionDomain> {
    domain(Some(take))
}

/// A domain of a device that takes none, as Soft-RoCE.
pub(crate) fn domain_that_refuses() -> Arc<ProtectionDomain> {
    domain(Some(refuse))
}

/// A domain of a device whose library is too old.
pub(crate) fn domain_of_an_old_library() -> Arc<ProtectionDomain> {
    domain(None)
}

unsafe extern "C" fn take(
    _pd: *mut ffi::IbvPd,
    offset: u64,
    length: usize,
    addr: u64,
    fd: c_int,
    access: c_int,
) -> *mut ffi::IbvMr {
    let registration = Registration {
        offset,
        length,
        addr,
        fd,
        access,
    };
    let number = REGISTERED.with_borrow_mut(|all| {
        all.push(registration);
        u32::try_from(all.len()).unwrap()
    });
    Box::into_raw(Box::new(ffi::IbvMr::with_keys(number, 100 + number)))
}

unsafe extern "C" fn refuse(
    _pd: *mut ffi::IbvPd,
    _offset: u64,
    _length: usize,
    _addr: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ffi::IbvMr {
    // The last error of this thread becomes that of a call which fails in the same way.
    let not_supported = Errno::OPNOTSUPP.raw_os_error();
    // SAFETY: the C library has this function, and its result is writable.
    unsafe { *libc_errno() = not_supported };
    std::ptr::null_mut()
}

unsafe extern "C" {
    #[link_name = "__errno_location"]
    fn libc_errno() -> *mut c_int;
}

unsafe extern "C" fn remove(mr: *mut ffi::IbvMr) -> c_int {
    // SAFETY: `take` made it.
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

fn domain(register: Option<ffi::RegDmabufMr>) -> Arc<ProtectionDomain> {
    // Its functions are not called.
    let context = Box::leak(Box::new(MaybeUninit::zeroed()));
    domain_of(functions(register), context.as_mut_ptr())
}

/// Forgets what earlier tests of this thread have done.
fn forget() {
    take_registrations();
    binding::forget();
}

/// Functions that every device of these tests has.
fn functions(register: Option<ffi::RegDmabufMr>) -> ffi::Functions {
    ffi::Functions {
        ibv_reg_dmabuf_mr: register,
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
