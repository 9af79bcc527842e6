//! What NCCL expects in memory, one module for each version of its interface. The public header `nccl_net.h` is the
//! source. `tests/layout.txt` has the offsets of all members.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

pub mod v10;
pub mod v11;
pub mod v12;
pub mod v8;
pub mod v9;

/// `ncclResult_t`.
pub type Code = c_int;

/// The call has done its work.
pub const SUCCESS: Code = 0;
/// The system, or this machine, refuses something.
pub const SYSTEM_ERROR: Code = 2;
/// The plugin has a defect.
pub const INTERNAL_ERROR: Code = 3;
/// NCCL gave an argument that cannot be right.
pub const INVALID_ARGUMENT: Code = 4;
/// The environment asks for something that does not exist.
pub const INVALID_USAGE: Code = 5;
/// The peer is gone, or refuses.
pub const REMOTE_ERROR: Code = 6;

/// Bytes of a handle, `NCCL_NET_HANDLE_MAXSIZE`.
pub const HANDLE_BYTES: usize = 128;
/// Requests that a connection must hold at once, `NCCL_NET_MAX_REQUESTS`.
pub const MAX_REQUESTS: u32 = 32;
/// Memory of the host, `NCCL_PTR_HOST`.
pub const PTR_HOST: c_int = 1;
/// Networks that run on the host, `NCCL_NET_DEVICE_HOST`.
pub const DEVICE_HOST: c_int = 0;
/// An identifier of a rail or a plane that is not known, `NCCL_NET_ID_UNDEF`.
pub const ID_UNDEF: i16 = -1;

/// `NCCL_LOG_WARN`.
pub const LOG_WARN: c_int = 2;
/// `NCCL_LOG_INFO`.
pub const LOG_INFO: c_int = 3;
/// `NCCL_INIT | NCCL_NET`.
pub const SUBSYSTEMS: c_ulong = 0x11;

/// `ncclDebugLogger_t`: level, subsystems, file, line, and a format with its values.
pub type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// `ncclProfilerCallback_t`, which the plugin does not call.
pub type Profiler =
    unsafe extern "C" fn(*mut *mut c_void, c_int, *mut c_void, c_long, *mut c_void) -> Code;

/// A pointer to a device handle of any version. The plugin offers none.
pub type DeviceHandles = *mut *mut c_void;

/// A connection, a listener, a request or registered memory: a number that the plugin has given.
pub type Object = *mut c_void;

/// `devices`.
pub type Devices = unsafe extern "C" fn(*mut c_int) -> Code;
/// `accept`.
pub type Accept = unsafe extern "C" fn(Object, *mut Object, DeviceHandles) -> Code;
/// `regMr`.
pub type RegMr = unsafe extern "C" fn(Object, *mut c_void, usize, c_int, *mut Object) -> Code;
/// `regMrDmaBuf`.
pub type RegMrDmaBuf =
    unsafe extern "C" fn(Object, *mut c_void, usize, c_int, u64, c_int, *mut Object) -> Code;
/// `deregMr`.
pub type DeregMr = unsafe extern "C" fn(Object, Object) -> Code;
/// `iflush`.
pub type Iflush = unsafe extern "C" fn(
    Object,
    c_int,
    *mut *mut c_void,
    *mut c_int,
    *mut Object,
    *mut Object,
) -> Code;
/// `test`.
pub type Test = unsafe extern "C" fn(Object, *mut c_int, *mut c_int) -> Code;
/// `closeSend`, `closeRecv` and `closeListen`.
pub type Close = unsafe extern "C" fn(Object) -> Code;
/// `getDeviceMr`.
pub type GetDeviceMr = unsafe extern "C" fn(Object, Object, *mut *mut c_void) -> Code;
/// `irecvConsumed`.
pub type IrecvConsumed = unsafe extern "C" fn(Object, c_int, Object) -> Code;
/// An unsigned number of the header.
pub type Unsigned = c_uint;
