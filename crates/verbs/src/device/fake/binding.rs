//! Queue pairs that only bind memory windows, one request at a time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use super::{domain_of, functions};
use crate::device::{ProtectionDomain, ffi};

/// `IBV_WC_MW_BIND_ERR`.
const BIND_ERROR: u32 = 6;

thread_local! {
    /// Bytes of each window that exists, by its key. A window without bytes is closed.
    static WINDOWS: RefCell<HashMap<u32, u64>> = RefCell::default();
    /// Windows that were made.
    static MADE: Cell<u32> = const { Cell::new(0) };
    /// The status of the request that was posted, until it is polled.
    static POSTED: Cell<Option<u32>> = const { Cell::new(None) };
    static BINDS_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Bytes of each window that exists, by its key.
pub(crate) fn windows() -> HashMap<u32, u64> {
    WINDOWS.with_borrow(Clone::clone)
}

pub(super) fn forget() {
    WINDOWS.take();
    POSTED.take();
    BINDS_FAIL.set(false);
}

/// Makes all later binds of this thread fail.
pub(crate) fn fail_binds() {
    BINDS_FAIL.set(true);
}

/// A domain of a device that has memory windows of type 1.
pub(crate) fn domain_with_memory_windows() -> Arc<ProtectionDomain> {
    let functions = ffi::Functions {
        ibv_reg_mr_iova: register,
        ibv_create_comp_channel: create_channel,
        ibv_destroy_comp_channel: destroy_channel,
        ibv_create_cq: create_queue,
        ibv_destroy_cq: destroy_queue,
        ibv_create_qp: create_qp,
        ibv_modify_qp: modify_qp,
        ibv_destroy_qp: destroy_qp,
        ..functions()
    };
    let context = Box::leak(Box::new(MaybeUninit::<ffi::IbvContext>::zeroed()));
    let context = context.as_mut_ptr();
    // SAFETY: the context has room for its functions. Others are not called.
    unsafe {
        (&raw mut (*context).ops.alloc_mw).write(Some(alloc_window));
        (&raw mut (*context).ops.bind_mw).write(Some(bind));
        (&raw mut (*context).ops.dealloc_mw).write(Some(dealloc_window));
        (&raw mut (*context).ops.poll_cq).write(poll);
    }
    domain_of(functions, context)
}

unsafe extern "C" fn register(
    _pd: *mut ffi::IbvPd,
    _base: *mut c_void,
    _length: usize,
    _addr: u64,
    access: c_int,
) -> *mut ffi::IbvMr {
    let key = u32::try_from(access).unwrap();
    Box::into_raw(Box::new(ffi::IbvMr::with_keys(key, key)))
}

unsafe extern "C" fn create_channel(_context: *mut ffi::IbvContext) -> *mut ffi::IbvChannel {
    let fd = File::open("/dev/null").unwrap().into_raw_fd();
    Box::into_raw(Box::new(ffi::IbvChannel::with_fd(fd)))
}

unsafe extern "C" fn destroy_channel(channel: *mut ffi::IbvChannel) -> c_int {
    // SAFETY: `create_channel` made it.
    drop(unsafe { Box::from_raw(channel) });
    0
}

unsafe extern "C" fn create_queue(
    _context: *mut ffi::IbvContext,
    _depth: c_int,
    _queue_context: *mut c_void,
    _channel: *mut ffi::IbvChannel,
    _vector: c_int,
) -> *mut ffi::IbvCq {
    std::ptr::dangling_mut()
}

unsafe extern "C" fn destroy_queue(_queue: *mut ffi::IbvCq) -> c_int {
    0
}

unsafe extern "C" fn create_qp(
    _pd: *mut ffi::IbvPd,
    _attr: *mut ffi::QpInitAttr,
) -> *mut ffi::IbvQp {
    // SAFETY: zeros are valid integers.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed() }))
}

unsafe extern "C" fn modify_qp(
    _qp: *mut ffi::IbvQp,
    _attr: *mut ffi::QpAttr,
    _mask: c_int,
) -> c_int {
    0
}

unsafe extern "C" fn destroy_qp(qp: *mut ffi::IbvQp) -> c_int {
    // SAFETY: `create_qp` made it.
    drop(unsafe { Box::from_raw(qp) });
    0
}

unsafe extern "C" fn alloc_window(_pd: *mut ffi::IbvPd, _kind: u32) -> *mut ffi::IbvMw {
    MADE.set(MADE.get() + 1);
    let key = MADE.get() << 8 | 0xf0;
    WINDOWS.with_borrow_mut(|windows| windows.insert(key, 0));
    Box::into_raw(Box::new(ffi::IbvMw::with_key(key)))
}

unsafe extern "C" fn dealloc_window(window: *mut ffi::IbvMw) -> c_int {
    // SAFETY: `alloc_window` made it.
    let window = unsafe { Box::from_raw(window) };
    WINDOWS.with_borrow_mut(|windows| windows.remove(&window.rkey));
    0
}

unsafe extern "C" fn bind(
    _qp: *mut ffi::IbvQp,
    window: *mut ffi::IbvMw,
    request: *mut ffi::MwBind,
) -> c_int {
    if BINDS_FAIL.get() {
        POSTED.set(Some(BIND_ERROR));
        return 0;
    }
    // SAFETY: both exist while this is called.
    let (window, request) = unsafe { (&mut *window, &*request) };
    let old = window.rkey;
    window.rkey = old & !0xff | (old + 1) & 0xff;
    WINDOWS.with_borrow_mut(|windows| {
        windows.remove(&old);
        windows.insert(window.rkey, request.length);
    });
    POSTED.set(Some(ffi::WC_SUCCESS));
    0
}

unsafe extern "C" fn poll(
    _queue: *mut ffi::IbvCq,
    _most: c_int,
    out: *mut ffi::WorkCompletion,
) -> c_int {
    let Some(status) = POSTED.take() else {
        return 0;
    };
    let mut completion = ffi::WorkCompletion::default();
    completion.status = status;
    // SAFETY: there is room for one.
    unsafe { out.write(completion) };
    1
}
