//! Version 8: what differs from the other versions.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::{Description, Exported, MAX_COMMS, MAX_RECVS, NAME, guard, set};
use crate::abi::v8::{Net, Properties};
use crate::abi::{self, Code, DeviceHandles, Logger, Object};
use crate::failure::Failure;

/// What NCCL looks for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static ncclNetPlugin_v8: Exported<Net> = Exported(Net {
    name: NAME,
    init,
    devices: super::devices,
    get_properties,
    listen,
    connect,
    accept: super::accept,
    reg_mr: super::reg_mr,
    reg_mr_dma_buf: None,
    dereg_mr: super::dereg_mr,
    isend,
    irecv,
    iflush: super::iflush,
    test: super::test,
    close_send: super::close_and_wait,
    close_recv: super::close_and_wait,
    close_listen: super::close_listen,
    get_device_mr: None,
    irecv_consumed: None,
});

unsafe extern "C" fn init(logger: Option<Logger>) -> Code {
    guard(|| super::init(logger).map(drop))
}

unsafe extern "C" fn get_properties(device: c_int, properties: *mut Properties) -> Code {
    guard(|| {
        let Description {
            name,
            pci_path,
            guid,
            speed,
            latency,
        } = super::describe(device)?;
        let of_device = Properties {
            name,
            pci_path,
            guid,
            ptr_support: abi::PTR_HOST,
            reg_is_global: 0,
            speed,
            port: 0,
            latency,
            max_comms: MAX_COMMS,
            max_recvs: MAX_RECVS,
            net_device_type: abi::DEVICE_HOST,
            net_device_version: 0,
        };
        // SAFETY: NCCL has given a valid place.
        unsafe { set(properties, of_device) }
    })
}

unsafe extern "C" fn listen(device: c_int, handle: *mut c_void, comm: *mut Object) -> Code {
    // SAFETY: NCCL has given valid places.
    guard(|| unsafe { super::listen(device, handle, comm) })
}

unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    comm: *mut Object,
    device_handles: DeviceHandles,
) -> Code {
    // SAFETY: NCCL has given valid places.
    guard(|| unsafe { super::connect(device, handle, comm, device_handles) })
}

unsafe extern "C" fn isend(
    comm: Object,
    data: *mut c_void,
    size: c_int,
    _tag: c_int,
    memory: Object,
    request: *mut Object,
) -> Code {
    guard(|| {
        let size = usize::try_from(size);
        let size = size.map_err(|_| Failure::argument("the size of a send is negative"))?;
        // SAFETY: NCCL has given a valid place.
        unsafe { super::isend(comm, data, size, memory, request) }
    })
}

unsafe extern "C" fn irecv(
    comm: Object,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    _tags: *mut c_int,
    memory: *mut Object,
    request: *mut Object,
) -> Code {
    // SAFETY: NCCL has given arrays of `count` elements, and a valid place.
    guard(|| unsafe { super::irecv(comm, count, (data, sizes, memory), request) })
}
