//! Queue pairs.

use std::ffi::c_int;
use std::net::IpAddr;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use farwrite_fabric::contract::FabricError;

use super::requests::{Receives, Sends};
use super::{CompletionQueue, Memory, MemoryWindow, ProtectionDomain, check, ffi, not_null};

/// An unreliable-connected queue pair of a device.
pub(crate) struct DeviceQp {
    qp: *mut ffi::IbvQp,
    /// How often the queue pair was reset. The device's functions do not allow a reset while a
    /// request is posted.
    resets: RwLock<u64>,
    inline_bytes: u32,
    domain: Arc<ProtectionDomain>,
    /// The queue pair puts completions into these.
    _queues: [Arc<CompletionQueue>; 2],
}

// SAFETY: same as for `Device`.
unsafe impl Send for DeviceQp {}
// SAFETY: same as for `Device`.
unsafe impl Sync for DeviceQp {}

/// How many requests a queue pair holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    pub(crate) send: u32,
    pub(crate) receive: u32,
    /// Scatter entries of a send request.
    pub(crate) send_entries: u32,
    /// Bytes of a request that the device need not fetch. It may grant more.
    pub(crate) inline_bytes: u32,
}

/// The other end of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) ip: IpAddr,
    pub(crate) qpn: u32,
    /// Port of the device, and index of the own address.
    pub(crate) port: u8,
    pub(crate) address_index: u8,
    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub(crate) path_mtu: u32,
    pub(crate) first_psn: u32,
}

/// Hops that a packet may take.
const HOP_LIMIT: u8 = 64;

impl DeviceQp {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        send: &Arc<CompletionQueue>,
        receive: &Arc<CompletionQueue>,
        depths: Depths,
    ) -> Result<Self, FabricError> {
        let device = domain.device();
        let mut attr = ffi::QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: send.as_ptr(),
            recv_cq: receive.as_ptr(),
            srq: ptr::null_mut(),
            cap: ffi::QpCap {
                max_send_wr: depths.send,
                max_recv_wr: depths.receive,
                max_send_sge: depths.send_entries,
                max_recv_sge: 1,
                max_inline_data: depths.inline_bytes,
            },
            qp_type: ffi::QPT_UC,
            sq_sig_all: 0,
        };
        // SAFETY: the domain and the queues exist, and belong to one device.
        let qp = unsafe { (device.functions().ibv_create_qp)(domain.as_ptr(), &raw mut attr) };
        let qp = not_null(qp, || {
            format!(
                "making an unreliable-connected queue pair of {} (not every device has them)",
                device.name
            )
        })?;
        Ok(Self {
            qp,
            resets: RwLock::new(0),
            inline_bytes: attr.cap.max_inline_data,
            domain: Arc::clone(domain),
            _queues: [Arc::clone(send), Arc::clone(receive)],
        })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the library made the structure, and does not change the number.
        unsafe { (*self.qp).qp_num }
    }

    /// Bytes that a request may have if they are to be copied when it is posted.
    pub(crate) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Makes the queue pair forget its peer and all requests. None of them completes after that, but
    /// completions that were made before stay in their queues.
    pub(crate) fn reset(&self) -> Result<(), FabricError> {
        let mut resets = self.exclusive();
        // Also if it fails: then the device is gone.
        *resets += 1;
        let attr = ffi::QpAttr {
            qp_state: ffi::QPS_RESET,
            ..ffi::QpAttr::default()
        };
        self.modify("resetting", attr, ffi::QP_STATE)
    }

    /// Prepares a queue pair that was reset for receive requests. They must name the number that is
    /// returned, so that none of the time before the reset is posted.
    pub(crate) fn prepare(&self, port: u8) -> Result<u64, FabricError> {
        self.prepare_for(port, ffi::ACCESS_REMOTE_WRITE)
    }

    /// As [`DeviceQp::prepare`], for a queue pair that also binds memory windows.
    pub(crate) fn prepare_to_bind(&self, port: u8) -> Result<u64, FabricError> {
        self.prepare_for(port, ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_MW_BIND)
    }

    fn prepare_for(&self, port: u8, access: c_int) -> Result<u64, FabricError> {
        let resets = self.exclusive();
        let attr = ffi::QpAttr {
            qp_state: ffi::QPS_INIT,
            pkey_index: 0,
            port_num: port,
            qp_access_flags: access.unsigned_abs(),
            ..ffi::QpAttr::default()
        };
        let mask = ffi::QP_STATE | ffi::QP_PKEY_INDEX | ffi::QP_PORT | ffi::QP_ACCESS_FLAGS;
        self.modify("preparing", attr, mask)?;
        Ok(*resets)
    }

    /// Connects a queue pair that was prepared. The kernel looks up the peer's link address and may
    /// wait for the answer. Others may post receive requests meanwhile.
    pub(crate) fn connect(&self, peer: &Peer) -> Result<(), FabricError> {
        let dgid = match peer.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let attr = ffi::QpAttr {
            qp_state: ffi::QPS_RTR,
            path_mtu: (peer.path_mtu / 128).trailing_zeros(),
            // On UC, any number begins a message.
            rq_psn: 0,
            dest_qp_num: peer.qpn,
            ah_attr: ffi::AddressHandleAttr {
                grh: ffi::GlobalRoute {
                    dgid: ffi::Gid(dgid.octets()),
                    sgid_index: peer.address_index,
                    hop_limit: HOP_LIMIT,
                    ..ffi::GlobalRoute::default()
                },
                is_global: 1,
                port_num: peer.port,
                ..ffi::AddressHandleAttr::default()
            },
            ..ffi::QpAttr::default()
        };
        let mask =
            ffi::QP_STATE | ffi::QP_AV | ffi::QP_PATH_MTU | ffi::QP_DEST_QPN | ffi::QP_RQ_PSN;
        self.modify(&format!("connecting to {}", peer.ip), attr, mask)?;
        let attr = ffi::QpAttr {
            qp_state: ffi::QPS_RTS,
            sq_psn: peer.first_psn,
            ..ffi::QpAttr::default()
        };
        self.modify("making ready to send", attr, ffi::QP_STATE | ffi::QP_SQ_PSN)
    }

    fn modify(&self, what: &str, mut attr: ffi::QpAttr, mask: c_int) -> Result<(), FabricError> {
        let functions = self.domain.device().functions();
        // SAFETY: the queue pair exists. Those who reset it hold the lock, so nobody posts meanwhile.
        let code = unsafe { (functions.ibv_modify_qp)(self.qp, &raw mut attr, mask) };
        check(code, || {
            let number = self.number();
            format!(
                "{what} queue pair {number:#08x} of {}",
                self.domain.device().name
            )
        })
    }

    /// Whether a queue pair that was connected neither receives nor sends any more.
    pub(crate) fn is_broken(&self) -> bool {
        let mut attr = ffi::QpAttr::default();
        // SAFETY: zeros are valid integers and pointers.
        let mut init: ffi::QpInitAttr = unsafe { std::mem::zeroed() };
        let functions = self.domain.device().functions();
        // SAFETY: the queue pair exists, and both structures are writable.
        let code = unsafe {
            (functions.ibv_query_qp)(self.qp, &raw mut attr, ffi::QP_STATE, &raw mut init)
        };
        code != 0 || attr.qp_state != ffi::QPS_RTS
    }

    pub(crate) fn resets(&self) -> u64 {
        *self.shared()
    }

    fn shared(&self) -> RwLockReadGuard<'_, u64> {
        self.resets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, u64> {
        self.resets.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts requests in order. After an error, some of them may have been posted.
    ///
    /// # Safety
    /// The bytes of requests that are inline must be readable.
    pub(crate) unsafe fn post_sends(&self, sends: &mut Sends) -> Result<(), FabricError> {
        let first = sends.0.link();
        if first.is_null() {
            return Ok(());
        }
        let _posting = self.shared();
        let mut bad = ptr::null_mut();
        let context = self.domain.device().context;
        // SAFETY: the queue pair exists. The requests and their entries are linked, and are not
        // moved before the call returns. The device checks keys and addresses of other bytes.
        let code = unsafe { ((*context).ops.post_send)(self.qp, first, &raw mut bad) };
        check(code, || format!("posting to {}", self.domain.device().name))
    }

    /// Posts a request that binds a memory window to a part of a registration, at most the whole. No bytes
    /// close the window. It completes with the identifier 0, and the window has another key at once.
    pub(crate) fn post_bind(
        &self,
        window: &mut MemoryWindow,
        memory: &Memory,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        let _posting = self.shared();
        window.bind(self.qp, memory, offset, length)
    }

    /// Posts receive requests in order. Also returns how many the device took: none with
    /// [`FabricError::NotConnected`], if the queue pair was reset since [`DeviceQp::prepare`] has
    /// returned `resets`.
    pub(crate) fn post_receives(
        &self,
        resets: u64,
        receives: &mut Receives,
    ) -> (usize, Result<(), FabricError>) {
        let first = receives.0.link();
        if first.is_null() {
            return (0, Ok(()));
        }
        let now = self.shared();
        if *now != resets {
            return (0, Err(FabricError::NotConnected(self.number())));
        }
        let mut bad = ptr::null_mut();
        let context = self.domain.device().context;
        // SAFETY: same as in `post_sends`.
        let code = unsafe { ((*context).ops.post_recv)(self.qp, first, &raw mut bad) };
        let result = check(code, || {
            format!("posting receive requests to {}", self.domain.device().name)
        });
        let posted = match result {
            Ok(()) => receives.0.requests.len(),
            // The device names the first request that it did not take.
            Err(_) => receives.0.before(bad),
        };
        (posted, result)
    }
}

impl Drop for DeviceQp {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once.
        unsafe { (self.domain.device().functions().ibv_destroy_qp)(self.qp) };
    }
}
