//! Version 12 of the interface: rails and planes.

use std::ffi::{c_char, c_int, c_void};

use super::{
    Accept, Close, Code, DeregMr, DeviceHandles, Devices, GetDeviceMr, Iflush, IrecvConsumed,
    Logger, Object, Profiler, RegMr, RegMrDmaBuf, Test,
};

/// `ncclNetVDeviceProps_v12_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VirtualDevice {
    /// How many devices it has.
    pub ndevs: c_int,
    /// Their numbers.
    pub devs: [c_int; 8],
}

/// `ncclNetCommConfig_v12_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CommConfig {
    /// The traffic class; -1 if it is not set.
    pub traffic_class: c_int,
}

/// `ncclNetCommAttr_v12_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CommAttributes {
    /// The most peers at a time.
    pub max_concurrent_peers: i32,
    /// The least peers at a time.
    pub min_concurrent_peers: i32,
    /// The most flows to a peer.
    pub max_flows_per_peer: i32,
    /// The least flows to a peer.
    pub min_flows_per_peer: i32,
}

/// `ncclNetAttr_v12_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attributes {
    /// Of connections that send.
    pub send_comm_attr: CommAttributes,
    /// Of connections that receive.
    pub recv_comm_attr: CommAttributes,
    /// The operation.
    pub op: u32,
    /// The algorithm.
    pub algo: u32,
    /// The protocol.
    pub proto: u32,
}

/// `ncclNetProperties_v12_t`.
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
    /// Whether receives must be flushed.
    pub force_flush: c_int,
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
    /// The devices behind this one.
    pub v_props: VirtualDevice,
    /// The longest message.
    pub max_p2p_bytes: usize,
    /// The longest message of a collective.
    pub max_coll_bytes: usize,
    /// Requests of one multi-request.
    pub max_multi_request_size: c_int,
    /// The rail.
    pub rail_id: i16,
    /// The plane.
    pub plane_id: i16,
}

/// `ncclNet_v12_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Net {
    /// The name of the network.
    pub name: *const c_char,
    /// Begins.
    pub init: unsafe extern "C" fn(
        *mut *mut c_void,
        u64,
        *const CommConfig,
        Option<Logger>,
        Option<Profiler>,
    ) -> Code,
    /// Counts the devices.
    pub devices: Devices,
    /// Describes a device.
    pub get_properties: unsafe extern "C" fn(c_int, *mut Properties) -> Code,
    /// Makes a handle for peers.
    pub listen: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut Object) -> Code,
    /// Connects to a handle.
    pub connect:
        unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut Object, DeviceHandles) -> Code,
    /// Takes a connection of a peer.
    pub accept: Accept,
    /// Registers memory.
    pub reg_mr: RegMr,
    /// Registers memory of a GPU.
    pub reg_mr_dma_buf: Option<RegMrDmaBuf>,
    /// Ends a registration.
    pub dereg_mr: DeregMr,
    /// Sends a message.
    pub isend: unsafe extern "C" fn(
        Object,
        *mut c_void,
        usize,
        c_int,
        Object,
        *mut c_void,
        *mut Object,
    ) -> Code,
    /// Receives a message.
    pub irecv: unsafe extern "C" fn(
        Object,
        c_int,
        *mut *mut c_void,
        *mut usize,
        *mut c_int,
        *mut Object,
        *mut *mut c_void,
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
    /// Joins devices to one.
    pub make_v_device: Option<unsafe extern "C" fn(*mut c_int, *mut VirtualDevice) -> Code>,
    /// Ends.
    pub finalize: unsafe extern "C" fn(*mut c_void) -> Code,
    /// Hints about the traffic.
    pub set_net_attr: Option<unsafe extern "C" fn(*mut c_void, *mut Attributes) -> Code>,
}
