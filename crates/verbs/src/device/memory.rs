//! Protection domains, and memory that a device may read or write.

use std::ffi::c_int;
use std::sync::Arc;

use farwrite_fabric::contract::{FabricError, Registered};
use rustix::io::Errno;

use super::{Device, ffi, not_null};

/// A protection domain: queue pairs use memory of their own domain only.
pub(crate) struct ProtectionDomain {
    pd: *mut ffi::IbvPd,
    device: Arc<Device>,
}

// SAFETY: same as for `Device`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: same as for `Device`.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>, FabricError> {
        // SAFETY: the context is open.
        let pd = unsafe { (device.functions().ibv_alloc_pd)(device.context) };
        let pd = not_null(pd, || {
            format!("making a protection domain of {}", device.name)
        })?;
        let device = Arc::clone(device);
        Ok(Arc::new(Self { pd, device }))
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::IbvPd {
        self.pd
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: memory and queue pairs of the domain hold it, so none is left.
        unsafe { (self.device.functions().ibv_dealloc_pd)(self.pd) };
    }
}

/// What the device may do with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// Send from it.
    Send,
    /// Place SENDs of peers where a receive request says.
    Receive,
    /// Place writes of peers that have the key.
    RemoteWrite,
    /// Place writes of peers that have the key of a memory window onto it.
    Bind,
}

/// Memory that is registered with a device. The pages stay locked until it is dropped.
pub(crate) struct Memory {
    mr: *mut ffi::IbvMr,
    /// The address of the first byte in requests, those of peers or local ones.
    addr: u64,
    domain: Arc<ProtectionDomain>,
    owner: Arc<Registered>,
}

// SAFETY: same as for `Device`.
unsafe impl Send for Memory {}
// SAFETY: same as for `Device`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Registers a part of `owner`, at least one byte.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        owner: &Arc<Registered>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<Self, FabricError> {
        let device = domain.device();
        let bytes = owner.bytes().slice(offset, length)?;
        let base = bytes.as_ptr().unwrap_or_default();
        // Peers see only the place within a huge page, which the device's tables need, not the
        // address.
        let hidden = base as u64 % (2 << 20);
        let flags = match access {
            Access::Send => 0,
            Access::Receive => ffi::ACCESS_LOCAL_WRITE,
            Access::RemoteWrite => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE,
            Access::Bind => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_MW_BIND,
        };
        // The length of memory fits a `usize`.
        #[allow(clippy::cast_possible_truncation)]
        let length = bytes.length() as usize;
        // Local requests use addresses of this process: the library reads there what is inline.
        let addr = match access {
            Access::Send | Access::Receive if !base.is_null() => base as u64,
            _ => hidden,
        };
        let register = device.functions().ibv_reg_mr_iova;
        // SAFETY: the domain exists. The owner has the bytes, and is held until the device has forgotten them.
        let mr = unsafe { register(domain.as_ptr(), base.cast(), length, addr, flags) };
        let mr = not_null(mr, || {
            format!("registering {length} bytes with {}", device.name)
        })?;
        let domain = Arc::clone(domain);
        Ok(Self {
            mr,
            addr,
            domain,
            owner: Arc::clone(owner),
        })
    }

    /// The key of local requests.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: the library made the structure, and does not change it.
        unsafe { (*self.mr).lkey }
    }

    /// The address of the first byte in requests with the key.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// The key of peers, and the address of the first byte.
    pub(crate) fn remote(&self) -> (u32, u64) {
        // SAFETY: same as above.
        (unsafe { (*self.mr).rkey }, self.addr)
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::IbvMr {
        self.mr
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let device = self.domain.device();
        // SAFETY: it is deregistered once.
        let code = unsafe { (device.functions().ibv_dereg_mr)(self.mr) };
        release(&self.owner, code, || device.is_gone());
    }
}

/// Keeps bytes for ever if the device may still write them: after a deregistration that failed with
/// `code`, unless the device is gone.
fn release<T>(owner: &Arc<T>, code: c_int, is_gone: impl FnOnce() -> bool) {
    // The kernel deregisters all memory of a device that is removed, and then knows none of it.
    let is_forgotten = code == 0 || (code == Errno::IO.raw_os_error() && is_gone());
    if !is_forgotten {
        std::mem::forget(Arc::clone(owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_device_may_write_are_never_freed() {
        let (io, busy) = (Errno::IO.raw_os_error(), Errno::BUSY.raw_os_error());
        for (code, is_gone, is_kept) in [
            (0, false, false),
            (io, true, false),
            (io, false, true),
            (busy, true, true),
            (-1, true, true),
        ] {
            let owner = Arc::new([0_u8; 8]);
            let bytes = Arc::downgrade(&owner);
            release(&owner, code, || is_gone);
            drop(owner);
            assert_eq!(bytes.upgrade().is_some(), is_kept, "{code} {is_gone}");
        }
    }
}
