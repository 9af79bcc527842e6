//! The functions that NCCL calls. Those that all versions share are here; each version has a module for the others.
#![allow(unsafe_code)]

mod v10;
mod v11;
mod v12;
mod v8;
mod v9;

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{self, Code, DeviceHandles, HANDLE_BYTES, Logger, Object};
use crate::comm::Direction;
use crate::failure::Failure;
use crate::logger;
use crate::plugin::{self, plugin};

/// The name of the network: `NCCL_NET=Farwrite`.
const NAME: *const c_char = c"Farwrite".as_ptr();

/// A table of functions at an address that NCCL finds by its name.
#[repr(transparent)]
struct Exported<T>(T);

// SAFETY: the tables are never written, and the text that they point to is constant.
unsafe impl<T> Sync for Exported<T> {}

/// Runs the body of a function. NCCL gets a code, and a user the text. A panic does not reach NCCL.
fn guard(body: impl FnOnce() -> Result<(), Failure>) -> Code {
    let panicked = |_| Err(Failure::internal("the plugin has a defect: it panicked"));
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked) {
        Ok(()) => abi::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                logger::warn(&failure.text);
            }
            failure.code
        }
    }
}

/// Writes a result to the place that NCCL has given.
///
/// # Safety
/// `place` is null, or a valid place for a value.
unsafe fn set<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument("the place for a result is NULL"));
    }
    // SAFETY: NCCL has given a valid place.
    unsafe { place.write(value) };
    Ok(())
}

/// The object with a number.
fn object(number: Option<usize>) -> Object {
    number.map_or(ptr::null_mut(), ptr::without_provenance_mut)
}

/// Begins. Returns the number of the context.
fn init(logger: Option<Logger>) -> Result<usize, Failure> {
    logger::set(logger);
    plugin::init()
}

/// What all versions say of a device.
struct Description {
    name: *mut c_char,
    pci_path: *mut c_char,
    guid: u64,
    speed: c_int,
    latency: f32,
}

/// More connections than anyone has.
const MAX_COMMS: c_int = 1 << 16;
/// Receives of one request.
const MAX_RECVS: c_int = 1;

fn describe(device: c_int) -> Result<Description, Failure> {
    let plugin = plugin()?;
    let number = number_of(device)?;
    let of_device = plugin.device(number)?;
    let pci_path = of_device.pci_path.as_ref();
    Ok(Description {
        name: of_device.name.as_ptr().cast_mut(),
        pci_path: pci_path.map_or(ptr::null_mut(), |path| path.as_ptr().cast_mut()),
        guid: number as u64,
        speed: of_device.speed_mbps,
        latency: plugin.latency_us(),
    })
}

fn number_of(device: c_int) -> Result<usize, Failure> {
    usize::try_from(device).map_err(|_| Failure::argument(format!("device {device}")))
}

/// # Safety
/// `handle` has [`HANDLE_BYTES`] bytes, and `comm` is a valid place.
unsafe fn listen(device: c_int, handle: *mut c_void, comm: *mut Object) -> Result<(), Failure> {
    if handle.is_null() || comm.is_null() {
        return Err(Failure::argument("a place of listen is NULL"));
    }
    let (number, bytes) = plugin()?.listen(number_of(device)?)?;
    // SAFETY: NCCL has given a valid handle and a valid place.
    unsafe {
        handle.cast::<[u8; HANDLE_BYTES]>().write_unaligned(bytes);
        comm.write(object(Some(number)));
    }
    Ok(())
}

/// # Safety
/// `handle` has [`HANDLE_BYTES`] bytes; `comm` and `device_handles` are null or valid places.
unsafe fn connect(
    device: c_int,
    handle: *mut c_void,
    comm: *mut Object,
    device_handles: DeviceHandles,
) -> Result<(), Failure> {
    if handle.is_null() {
        return Err(Failure::argument("the handle of connect is NULL"));
    }
    let handle = handle.cast::<[u8; HANDLE_BYTES]>();
    // SAFETY: NCCL has given a valid handle.
    let mut bytes = unsafe { handle.read_unaligned() };
    let connected = plugin()?.connect(number_of(device)?, &mut bytes);
    // SAFETY: as above, and the places are valid. The attempt is noted in the handle, also after a failure.
    unsafe {
        handle.write_unaligned(bytes);
        set(comm, object(connected?))?;
        no_device_handle(device_handles);
    }
    Ok(())
}

/// # Safety
/// `place` is null or valid.
unsafe fn no_device_handle(place: DeviceHandles) {
    if !place.is_null() {
        // SAFETY: NCCL has given a valid place.
        unsafe { place.write(ptr::null_mut()) };
    }
}

/// # Safety
/// `request` is null or a valid place.
unsafe fn isend(
    comm: Object,
    data: *mut c_void,
    bytes: usize,
    memory: Object,
    request: *mut Object,
) -> Result<(), Failure> {
    let message = (data.expose_provenance(), bytes, memory.addr());
    let started = plugin()?.start(comm.addr(), Direction::Send, message)?;
    // SAFETY: NCCL has given a valid place.
    unsafe { set(request, object(started)) }
}

/// # Safety
/// The arrays have `count` elements; `request` is null or a valid place.
unsafe fn irecv<S: Copy + TryInto<usize>>(
    comm: Object,
    count: c_int,
    (data, sizes, memory): (*mut *mut c_void, *mut S, *mut Object),
    request: *mut Object,
) -> Result<(), Failure> {
    if count != MAX_RECVS || data.is_null() || sizes.is_null() || memory.is_null() {
        return Err(Failure::argument(format!(
            "{count} receives in one request: the plugin has said that it takes {MAX_RECVS}"
        )));
    }
    // SAFETY: the arrays have one element.
    let (data, bytes, memory) = unsafe { (data.read(), sizes.read(), memory.read()) };
    let bytes = bytes.try_into();
    let bytes = bytes.map_err(|_| Failure::argument("the size of a receive is negative"))?;
    let message = (data.expose_provenance(), bytes, memory.addr());
    let started = plugin()?.start(comm.addr(), Direction::Receive, message)?;
    // SAFETY: NCCL has given a valid place.
    unsafe { set(request, object(started)) }
}

unsafe extern "C" fn devices(count: *mut c_int) -> Code {
    guard(|| {
        let devices = plugin()?.devices().len();
        // SAFETY: NCCL has given a valid place.
        unsafe { set(count, c_int::try_from(devices).unwrap_or(c_int::MAX)) }
    })
}

unsafe extern "C" fn accept(
    listener: Object,
    comm: *mut Object,
    device_handles: DeviceHandles,
) -> Code {
    guard(|| {
        let accepted = plugin()?.accept(listener.addr())?;
        // SAFETY: NCCL has given valid places.
        unsafe {
            no_device_handle(device_handles);
            set(comm, object(accepted))
        }
    })
}

unsafe extern "C" fn reg_mr(
    comm: Object,
    data: *mut c_void,
    bytes: usize,
    kind: c_int,
    memory: *mut Object,
) -> Code {
    guard(|| {
        if kind != abi::PTR_HOST {
            return Err(Failure::argument(format!(
                "memory of kind {kind}: the plugin has said that it takes memory of the host only"
            )));
        }
        let comm = plugin()?.comm(comm.addr())?;
        let number = comm.register(data.expose_provenance(), bytes)?;
        // SAFETY: NCCL has given a valid place.
        unsafe { set(memory, object(Some(number))) }
    })
}

unsafe extern "C" fn dereg_mr(comm: Object, memory: Object) -> Code {
    guard(|| match plugin()?.comm(comm.addr()) {
        Ok(comm) => comm.deregister(memory.addr()),
        // Closing a connection has ended its registrations.
        Err(_) => Ok(()),
    })
}

unsafe extern "C" fn iflush(
    _comm: Object,
    _count: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _memory: *mut Object,
    request: *mut Object,
) -> Code {
    // Bytes in memory of the host are visible at once, so there is no request.
    // SAFETY: NCCL has given a valid place.
    guard(|| unsafe { set(request, ptr::null_mut()) })
}

unsafe extern "C" fn test(request: Object, done: *mut c_int, sizes: *mut c_int) -> Code {
    guard(|| {
        let bytes = plugin()?.test(request.addr())?;
        if let Some(bytes) = bytes
            && !sizes.is_null()
        {
            // SAFETY: NCCL has given a valid place.
            unsafe { sizes.write(c_int::try_from(bytes).unwrap_or(c_int::MAX)) };
        }
        // SAFETY: NCCL has given a valid place.
        unsafe { set(done, bytes.is_some().into()) }
    })
}

/// Versions without `finalize` may end the process next, so the peer must know before.
unsafe extern "C" fn close_and_wait(comm: Object) -> Code {
    guard(|| plugin()?.close(comm.addr(), true))
}

unsafe extern "C" fn close(comm: Object) -> Code {
    guard(|| plugin()?.close(comm.addr(), false))
}

unsafe extern "C" fn close_listen(listener: Object) -> Code {
    guard(|| plugin()?.close_listen(listener.addr()))
}

unsafe extern "C" fn finalize(_context: *mut c_void) -> Code {
    guard(|| {
        plugin()?.finalize();
        Ok(())
    })
}
