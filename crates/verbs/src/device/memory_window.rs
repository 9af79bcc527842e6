//! Memory windows of type 1 (IBTA 10.6.7): keys of peers for a part of a registration.
//!
//! A request to any queue pair of the protection domain binds a window to bytes, or to none. Each
//! bind gives the window another key. Only the lowest byte of the key changes, so a window has 256.

use std::io;
use std::sync::Arc;

use farwrite_fabric::contract::FabricError;

use super::{Memory, ProtectionDomain, check, failed, ffi, not_null};

/// A window. While it is bound to memory, the device refuses to deregister that.
pub(crate) struct MemoryWindow {
    mw: *mut ffi::IbvMw,
    binds: u32,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: same as for `Device`.
unsafe impl Send for MemoryWindow {}

/// Binds after which a window has had all of its keys, if it began with another one.
const MOST_BINDS: u32 = 255;

impl MemoryWindow {
    /// Makes a window without bytes.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, FabricError> {
        let device = domain.device();
        let what = || format!("making a memory window of {}", device.name);
        // SAFETY: the context is open.
        let operations = unsafe { &(*device.context).ops };
        let (Some(alloc), Some(_), Some(_)) = (
            operations.alloc_mw,
            operations.bind_mw,
            operations.dealloc_mw,
        ) else {
            return Err(failed(what(), io::ErrorKind::Unsupported.into()));
        };
        // SAFETY: the domain exists.
        let mw = unsafe { alloc(domain.as_ptr(), ffi::MW_TYPE_1) };
        Ok(Self {
            mw: not_null(mw, what)?,
            binds: 0,
            domain: Arc::clone(domain),
        })
    }

    /// The key of peers.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: the library made the structure. It changes the key in `bind` alone.
        unsafe { (*self.mw).rkey }
    }

    /// Whether the next binds give keys that the window has had before.
    pub(crate) fn has_had_all_keys(&self) -> bool {
        self.binds >= MOST_BINDS
    }

    /// Posts the request of [`DeviceQp::post_bind`](super::DeviceQp::post_bind).
    pub(super) fn bind(
        &mut self,
        qp: *mut ffi::IbvQp,
        memory: &Memory,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        let access = match length {
            0 => 0,
            _ => ffi::ACCESS_REMOTE_WRITE.unsigned_abs(),
        };
        let mut request = ffi::MwBind {
            wr_id: 0,
            send_flags: ffi::SEND_SIGNALED,
            mr: memory.as_ptr(),
            addr: memory.remote().1 + offset,
            length,
            access,
        };
        self.binds += 1;
        let device = self.domain.device();
        let what = || format!("binding a memory window of {}", device.name);
        // SAFETY: the context is open.
        let Some(bind) = (unsafe { (*device.context).ops.bind_mw }) else {
            return Err(failed(what(), io::ErrorKind::Unsupported.into()));
        };
        // SAFETY: the queue pair, the window and the registration exist, and belong to one device. The
        // device checks the bytes.
        check(unsafe { bind(qp, self.mw, &raw mut request) }, what)
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: the context is open.
        let dealloc = unsafe { (*self.domain.device().context).ops.dealloc_mw };
        if let Some(dealloc) = dealloc {
            // SAFETY: it is destroyed once. If that fails, the memory that it is bound to cannot be
            // deregistered either, and so is never freed.
            unsafe { dealloc(self.mw) };
        }
    }
}
