//! The structures of libibverbs that this crate uses, as `<infiniband/verbs.h>` declares them.
//!
//! They are part of the stable interface `IBVERBS_1.1`. Structures that only the library makes are
//! declared up to the last field that is read here.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `enum ibv_qp_type`: unreliable connected.
pub(super) const QPT_UC: u32 = 3;
/// `enum ibv_qp_state`.
pub(super) const QPS_RESET: u32 = 0;
pub(super) const QPS_INIT: u32 = 1;
pub(super) const QPS_RTR: u32 = 2;
pub(super) const QPS_RTS: u32 = 3;
/// `enum ibv_qp_attr_mask`.
pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const QP_PORT: c_int = 1 << 5;
pub(super) const QP_AV: c_int = 1 << 7;
pub(super) const QP_PATH_MTU: c_int = 1 << 8;
pub(super) const QP_RQ_PSN: c_int = 1 << 12;
pub(super) const QP_SQ_PSN: c_int = 1 << 16;
pub(super) const QP_DEST_QPN: c_int = 1 << 20;
/// `enum ibv_access_flags`.
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub(super) const ACCESS_MW_BIND: c_int = 1 << 4;
/// `enum ibv_device_cap_flags`.
pub(super) const DEVICE_MEM_WINDOW: u32 = 1 << 17;
/// `enum ibv_mw_type`.
pub(super) const MW_TYPE_1: u32 = 1;
/// `enum ibv_wr_opcode`.
pub(super) const WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub(super) const WR_SEND: u32 = 2;
/// `enum ibv_send_flags`.
pub(super) const SEND_SIGNALED: u32 = 1 << 1;
pub(super) const SEND_INLINE: u32 = 1 << 3;
/// `enum ibv_wc_status`.
pub(super) const WC_SUCCESS: u32 = 0;
pub(crate) const WC_WR_FLUSH_ERR: u32 = 5;
/// `enum ibv_wc_opcode`.
pub(super) const WC_RECV_RDMA_WITH_IMM: u32 = 129;
/// `enum ibv_event_type`.
pub(super) const EVENT_CQ_ERR: u32 = 0;
pub(super) const EVENT_QP_FATAL: u32 = 1;
pub(super) const EVENT_QP_REQ_ERR: u32 = 2;
pub(super) const EVENT_QP_ACCESS_ERR: u32 = 3;
pub(super) const EVENT_DEVICE_FATAL: u32 = 8;
pub(super) const EVENT_PORT_ERR: u32 = 10;
pub(super) const EVENT_GID_CHANGE: u32 = 18;
/// `enum ibv_port_state`.
pub(super) const PORT_ACTIVE: u32 = 4;
/// `enum ibv_gid_type`.
pub(super) const GID_TYPE_ROCE_V2: u32 = 2;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;

/// A function that this crate does not call.
type Unused = *mut c_void;

/// `struct ibv_device`.
#[repr(C)]
pub(super) struct IbvDevice {
    opaque: [u8; 0],
}

/// `struct ibv_context`.
#[repr(C)]
pub(super) struct IbvContext {
    device: *mut IbvDevice,
    pub(super) ops: Operations,
    cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// `struct ibv_context_ops`: functions that the header calls from inline functions.
#[repr(C)]
pub(super) struct Operations {
    before_alloc_mw: [Unused; 7],
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut IbvPd, u32) -> *mut IbvMw>,
    pub(super) bind_mw: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvMw, *mut MwBind) -> c_int>,
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut IbvMw) -> c_int>,
    before_poll_cq: Unused,
    pub(super) poll_cq: unsafe extern "C" fn(*mut IbvCq, c_int, *mut WorkCompletion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int,
    before_post_send: [Unused; 12],
    pub(super) post_send:
        unsafe extern "C" fn(*mut IbvQp, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut IbvQp, *mut RecvRequest, *mut *mut RecvRequest) -> c_int,
    after_post_recv: [Unused; 5],
}

/// `struct ibv_pd`.
#[repr(C)]
pub(super) struct IbvPd {
    opaque: [u8; 0],
}

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct IbvMr {
    context: *mut IbvContext,
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

#[cfg(test)]
impl IbvMr {
    /// A registration that only has keys.
    pub(super) fn with_keys(lkey: u32, rkey: u32) -> Self {
        Self {
            context: std::ptr::null_mut(),
            pd: std::ptr::null_mut(),
            addr: std::ptr::null_mut(),
            length: 0,
            handle: 0,
            lkey,
            rkey,
        }
    }
}

/// `struct ibv_mw`.
#[repr(C)]
pub(super) struct IbvMw {
    context: *mut IbvContext,
    pd: *mut IbvPd,
    pub(super) rkey: u32,
    handle: u32,
    window_type: u32,
}

#[cfg(test)]
impl IbvMw {
    /// A window that only has a key.
    pub(super) fn with_key(rkey: u32) -> Self {
        Self {
            context: std::ptr::null_mut(),
            pd: std::ptr::null_mut(),
            rkey,
            handle: 0,
            window_type: MW_TYPE_1,
        }
    }
}

/// `struct ibv_mw_bind`, with its `struct ibv_mw_bind_info`.
#[repr(C)]
pub(super) struct MwBind {
    pub(super) wr_id: u64,
    pub(super) send_flags: u32,
    pub(super) mr: *mut IbvMr,
    pub(super) addr: u64,
    pub(super) length: u64,
    pub(super) access: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct IbvChannel {
    context: *mut IbvContext,
    pub(super) fd: c_int,
}

#[cfg(test)]
impl IbvChannel {
    /// A channel that only has a descriptor.
    pub(super) fn with_fd(fd: c_int) -> Self {
        Self {
            context: std::ptr::null_mut(),
            fd,
        }
    }
}

/// `struct ibv_cq`.
#[repr(C)]
pub(super) struct IbvCq {
    opaque: [u8; 0],
}

/// `struct ibv_qp`.
#[repr(C)]
pub(super) struct IbvQp {
    before_qp_num: [u8; 52],
    pub(super) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut IbvCq,
    pub(super) recv_cq: *mut IbvCq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: u32,
    pub(super) sq_sig_all: c_int,
}

/// `struct ibv_global_route`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct GlobalRoute {
    pub(super) dgid: Gid,
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// `union ibv_gid`.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub(super) struct Gid(pub(super) [u8; 16]);

/// `struct ibv_gid_entry`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct GidEntry {
    pub(super) gid: Gid,
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    pub(super) gid_type: u32,
    ndev_ifindex: u32,
}

/// `struct ibv_ah_attr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AddressHandleAttr {
    pub(super) grh: GlobalRoute,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct QpAttr {
    pub(super) qp_state: u32,
    pub(super) cur_qp_state: u32,
    pub(super) path_mtu: u32,
    pub(super) path_mig_state: u32,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: u32,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AddressHandleAttr,
    pub(super) alt_ah_attr: AddressHandleAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `struct ibv_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ScatterEntry {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) sg_list: *mut ScatterEntry,
    pub(super) num_sge: c_int,
    pub(super) opcode: u32,
    pub(super) send_flags: u32,
    /// In network byte order.
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    /// For other kinds of queue pairs and operations.
    pub(super) unused: [u64; 9],
}

impl SendRequest {
    /// A request without bytes.
    pub(super) fn empty(wr_id: u64) -> Self {
        Self {
            wr_id,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            remote_addr: 0,
            rkey: 0,
            unused: [0; 9],
        }
    }
}

/// `struct ibv_recv_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RecvRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvRequest,
    pub(super) sg_list: *mut ScatterEntry,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct WorkCompletion {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    /// Not valid unless the status is success.
    pub(super) opcode: u32,
    vendor_err: u32,
    pub(super) byte_len: u32,
    /// In network byte order.
    pub(super) imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// `struct ibv_device_attr`.
#[repr(C, align(8))]
pub(super) struct DeviceAttr {
    before_max_qp_wr: [u32; 28],
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: u32,
    pub(super) max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    after_max_cqe: [u32; 24],
}

/// `struct ibv_port_attr`.
#[derive(Default)]
#[repr(C)]
pub(super) struct PortAttr {
    pub(super) state: u32,
    max_mtu: u32,
    pub(super) active_mtu: u32,
    gid_tbl_len: c_int,
    between: [u32; 7],
    between_bytes: [u8; 2],
    pub(super) link_layer: u8,
    after: [u8; 5],
}

/// `struct ibv_async_event`.
#[repr(C)]
pub(super) struct AsyncEvent {
    /// The queue pair, for events of one.
    pub(super) element: *mut c_void,
    pub(super) event_type: u32,
}

impl AsyncEvent {
    pub(super) const EMPTY: Self = Self {
        element: std::ptr::null_mut(),
        event_type: 0,
    };
}

// The sizes and offsets that a C compiler gives for the header of rdma-core, with 64-bit pointers.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Operations>() == 256);
    assert!(offset_of!(Operations, alloc_mw) == 56);
    assert!(offset_of!(Operations, dealloc_mw) == 72);
    assert!(offset_of!(Operations, poll_cq) == 88);
    assert!(offset_of!(Operations, post_send) == 200);
    assert!(offset_of!(IbvContext, ops) == 8);
    assert!(offset_of!(IbvContext, async_fd) == 268);
    assert!(offset_of!(IbvMr, lkey) == 36);
    assert!(offset_of!(IbvMw, rkey) == 16);
    assert!(offset_of!(MwBind, mr) == 16);
    assert!(size_of::<MwBind>() == 48);
    assert!(offset_of!(IbvChannel, fd) == 8);
    assert!(offset_of!(IbvQp, qp_num) == 52);
    assert!(size_of::<QpInitAttr>() == 64);
    assert!(size_of::<GlobalRoute>() == 24);
    assert!(size_of::<GidEntry>() == 32);
    assert!(size_of::<AddressHandleAttr>() == 32);
    assert!(size_of::<QpAttr>() == 144);
    assert!(offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, port_num) == 129);
    assert!(offset_of!(QpAttr, rate_limit) == 136);
    assert!(size_of::<ScatterEntry>() == 16);
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, remote_addr) == 40);
    assert!(offset_of!(SendRequest, rkey) == 48);
    assert!(size_of::<RecvRequest>() == 32);
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(size_of::<DeviceAttr>() == 232);
    assert!(offset_of!(DeviceAttr, max_qp_wr) == 112);
    assert!(offset_of!(DeviceAttr, device_cap_flags) == 116);
    assert!(offset_of!(DeviceAttr, max_sge) == 120);
    assert!(offset_of!(DeviceAttr, max_cqe) == 132);
    assert!(size_of::<PortAttr>() == 52);
    assert!(offset_of!(PortAttr, gid_tbl_len) == 12);
    assert!(offset_of!(PortAttr, link_layer) == 46);
    assert!(size_of::<AsyncEvent>() == 16);
};

/// Makes the type of the functions that are looked up by name, and the lookup.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Functions of the library, by their names.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// The library must be libibverbs, and stay loaded.
            pub(super) unsafe fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the header for this name.
                        *unsafe { library.get(name) }?
                    },)*
                })
            }
        }

        #[cfg(test)]
        impl Functions {
            /// Functions that must not be called, for tests that replace some of them.
            pub(super) fn uncalled() -> Self {
                $(extern "C" fn $name($(_: $argument),*) -> $result {
                    unreachable!(stringify!($name))
                })*
                Self { $($name),* }
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut IbvDevice;
    ibv_free_device_list: fn(*mut *mut IbvDevice) -> ();
    ibv_get_device_name: fn(*mut IbvDevice) -> *const c_char;
    ibv_open_device: fn(*mut IbvDevice) -> *mut IbvContext;
    ibv_close_device: fn(*mut IbvContext) -> c_int;
    ibv_query_device: fn(*mut IbvContext, *mut DeviceAttr) -> c_int;
    ibv_query_port: fn(*mut IbvContext, u8, *mut PortAttr) -> c_int;
    _ibv_query_gid_table: fn(*mut IbvContext, *mut GidEntry, usize, u32, usize) -> isize;
    ibv_get_async_event: fn(*mut IbvContext, *mut AsyncEvent) -> c_int;
    ibv_ack_async_event: fn(*mut AsyncEvent) -> ();
    ibv_alloc_pd: fn(*mut IbvContext) -> *mut IbvPd;
    ibv_dealloc_pd: fn(*mut IbvPd) -> c_int;
    ibv_reg_mr_iova: fn(*mut IbvPd, *mut c_void, usize, u64, c_int) -> *mut IbvMr;
    ibv_dereg_mr: fn(*mut IbvMr) -> c_int;
    ibv_create_comp_channel: fn(*mut IbvContext) -> *mut IbvChannel;
    ibv_destroy_comp_channel: fn(*mut IbvChannel) -> c_int;
    ibv_create_cq: fn(*mut IbvContext, c_int, *mut c_void, *mut IbvChannel, c_int) -> *mut IbvCq;
    ibv_destroy_cq: fn(*mut IbvCq) -> c_int;
    ibv_get_cq_event: fn(*mut IbvChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut IbvCq, u32) -> ();
    ibv_create_qp: fn(*mut IbvPd, *mut QpInitAttr) -> *mut IbvQp;
    ibv_modify_qp: fn(*mut IbvQp, *mut QpAttr, c_int) -> c_int;
    ibv_query_qp: fn(*mut IbvQp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
    ibv_destroy_qp: fn(*mut IbvQp) -> c_int;
    ibv_event_type_str: fn(u32) -> *const c_char;
}
