//! Memory of NCCL.
#![allow(unsafe_code)]

use std::ptr;

use farwrite::Region;

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is only sent.
    Read,
    /// Peers write into it.
    Write,
}

/// A region of NCCL's memory, of `bytes` bytes from the address `base` on, which is not zero.
pub(crate) fn region(base: usize, bytes: usize, access: Access) -> Region {
    let base: *mut u8 = ptr::with_exposed_provenance_mut(base);
    // SAFETY: NCCL registers memory that is mapped, and keeps it so until `deregMr` or `closeSend` or `closeRecv` has
    // returned: these deregister the region, also where they must close the queue pair for it. It does not change what
    // is being sent, nor read what is being received. NCCL may register the same bytes for several connections, but only
    // one of them receives into a byte at a time. No reference is made of them: this crate does not call
    // `Endpoint::memory`, and drops regions without looking at them.
    unsafe {
        match access {
            Access::Write => Region::from_raw_parts(base, bytes),
            Access::Read => Region::read_only_from_raw_parts(base, bytes),
        }
    }
}
