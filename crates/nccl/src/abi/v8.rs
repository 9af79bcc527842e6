//! Version 8 of the interface.

use std::ffi::{c_char, c_int, c_void};

use super::{
    Accept, Close, Code, DeregMr, DeviceHandles, Devices, GetDeviceMr, Iflush, IrecvConsumed,
    Logger, Object, RegMr, RegMrDmaBuf, Test,
};

/// `ncclNetProperties_v8_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    /// For logs.
    pub name: *mut c_char,
    /// Its folder in /sys; null if it has none.
    pub pci_path: *mut c_char,
    /// Names the NIC.
    pub guid: u64,
    /// Kinds of memory.
    pub ptr_support: c_int,
    /// Whether registered memory belongs to all connections.
    pub reg_is_global: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// The port of the NIC.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections.
    pub max_comms: c_int,
    /// Receives of one request.
    pub max_recvs: c_int,
    /// Where the network runs.
    pub net_device_type: c_int,
    /// Its version there.
    pub net_device_version: c_int,
}

/// `ncclNet_v8_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Net {
    /// The name of the network.
    pub name: *const c_char,
    /// Begins.
    pub init: unsafe extern "C" fn(Option<Logger>) -> Code,
    /// Counts the devices.
    pub devices: Devices,
    /// Describes a device.
    pub get_properties: unsafe extern "C" fn(c_int, *mut Properties) -> Code,
    /// Makes a handle for peers.
    pub listen: unsafe extern "C" fn(c_int, *mut c_void, *mut Object) -> Code,
    /// Connects to a handle.
    pub connect: unsafe extern "C" fn(c_int, *mut c_void, *mut Object, DeviceHandles) -> Code,
    /// Takes a connection of a peer.
    pub accept: Accept,
    /// Registers memory.
    pub reg_mr: RegMr,
    /// Registers memory of a GPU.
    pub reg_mr_dma_buf: Option<RegMrDmaBuf>,
    /// Ends a registration.
    pub dereg_mr: DeregMr,
    /// Sends a message.
    pub isend: unsafe extern "C" fn(Object, *mut c_void, c_int, c_int, Object, *mut Object) -> Code,
    /// Receives a message.
    pub irecv: unsafe extern "C" fn(
        Object,
        c_int,
        *mut *mut c_void,
        *mut c_int,
        *mut c_int,
        *mut Object,
        *mut Object,
    ) -> Code,
    /// Makes received bytes visible to a GPU.
    pub iflush: Iflush,
    /// Asks whether a request is done.
    pub test: Test,
    /// Ends a connection to a peer.
    pub close_send: Close,
    /// Ends a connection of a peer.
    pub close_recv: Close,
    /// Ends a handle.
    pub close_listen: Close,
    /// Memory as devices know it.
    pub get_device_mr: Option<GetDeviceMr>,
    /// Says that a device has taken a message.
    pub irecv_consumed: Option<IrecvConsumed>,
}
