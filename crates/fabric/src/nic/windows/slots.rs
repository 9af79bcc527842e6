//! The slots of a window set.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Batch;
use crate::contract::{DropReason, FabricError, RegionPtr, Registered, Window};

/// A window as workers see it.
struct Open {
    window: Window,
    memory: RegionPtr,
    /// Keeps the memory registered, and so valid.
    _region: Arc<Registered>,
}

/// The slots of a window set: slot `i` at addresses `i * slot_bytes..`.
pub(in crate::nic) struct Slots {
    slot_bytes: u64,
    /// Null, or from [`Box::into_raw`]. The control object alone changes it.
    slots: Box<[AtomicPtr<Open>]>,
}

/// A window that was taken from its slot. A worker may still be writing through it.
pub(in crate::nic) struct Unpublished {
    window: Window,
    /// From [`Box::into_raw`].
    open: *mut Open,
}

// SAFETY: `Open` is used by any thread that is in a batch, and all that it holds is `Send + Sync`.
unsafe impl Send for Unpublished {}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nic) enum Placed {
    /// It is in memory.
    InMemory,
    /// No window is open at the slot.
    Nowhere,
}

impl Slots {
    /// All closed. `slots * slot_bytes` fits 64 bits.
    pub(in crate::nic) fn new(slots: u32, slot_bytes: u64) -> Self {
        Self {
            slot_bytes,
            // Untouched until used.
            slots: bytemuck::zeroed_slice_box(slots as usize),
        }
    }

    /// Opens a window onto `length` bytes of a region, from `offset` on; returns its address.
    pub(in crate::nic) fn open(
        &self,
        window: Window,
        region: &Arc<Registered>,
        offset: u64,
        length: u64,
    ) -> Result<u64, FabricError> {
        let slot = self.slot(window.slot)?;
        if length > self.slot_bytes {
            return Err(FabricError::OutOfBounds {
                offset: 0,
                length,
                limit: self.slot_bytes,
            });
        }
        if !slot.load(Ordering::Relaxed).is_null() {
            return Err(FabricError::InUse("the slot"));
        }
        let open = Box::new(Open {
            window,
            memory: region.bytes().slice(offset, length)?,
            _region: Arc::clone(region),
        });
        // Release: a worker that sees the pointer sees the window.
        slot.store(Box::into_raw(open), Ordering::Release);
        Ok(u64::from(window.slot) * self.slot_bytes)
    }

    /// Takes a window from its slot, if it is still open there.
    pub(in crate::nic) fn close(&self, window: Window) -> Option<Unpublished> {
        let slot = self.slots.get(window.slot as usize)?;
        let open = slot.load(Ordering::Relaxed);
        // SAFETY: what is published is not freed, and only the control object, which calls this,
        // takes it away.
        let is_open = !open.is_null() && unsafe { (*open).window } == window;
        is_open.then(|| {
            slot.store(ptr::null_mut(), Ordering::Relaxed);
            Unpublished { window, open }
        })
    }

    /// Takes all windows from their slots.
    pub(in crate::nic) fn close_all(&self) -> impl Iterator<Item = Unpublished> {
        self.slots.iter().filter_map(|slot| {
            let open = slot.load(Ordering::Relaxed);
            if open.is_null() {
                return None;
            }
            slot.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: it was published, so it is not freed, and now is the caller's.
            let window = unsafe { (*open).window };
            Some(Unpublished { window, open })
        })
    }

    /// Puts a payload, which is not empty, where a write wants it, or says why not; then nothing
    /// was written. The worker is in `_batch`.
    pub(in crate::nic) fn place(
        &self,
        addr: u64,
        payload: &[u8],
        _batch: &Batch<'_>,
    ) -> Result<Placed, DropReason> {
        let length = payload.len() as u64;
        let (slot, start) = (addr / self.slot_bytes, addr % self.slot_bytes);
        let slot = usize::try_from(slot).map_err(|_| DropReason::OutOfBounds)?;
        let slot = self.slots.get(slot).ok_or(DropReason::OutOfBounds)?;
        // Checked before looking at the slot: what straddles two slots is wrong whether or not
        // their windows are open.
        if length > self.slot_bytes - start {
            return Err(DropReason::OutOfBounds);
        }
        // Acquire: pairs with the release in `open`.
        let open = slot.load(Ordering::Acquire);
        if open.is_null() {
            return Ok(Placed::Nowhere);
        }
        // SAFETY: a window that a worker finds published in a batch is not freed before the batch
        // ends (`Closings`).
        let memory = unsafe { (*open).memory };
        let part = memory.slice(start, length);
        let part = part.map_err(|_| DropReason::OutOfBounds)?;
        // SAFETY: the window holds a reference to its region, which is registered therefore.
        unsafe { part.copy_in(payload) };
        Ok(Placed::InMemory)
    }

    fn slot(&self, slot: u32) -> Result<&AtomicPtr<Open>, FabricError> {
        self.slots
            .get(slot as usize)
            .ok_or(FabricError::OutOfBounds {
                offset: u64::from(slot),
                length: 1,
                limit: self.slots.len() as u64,
            })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Workers hold a reference to the slots, so none is in a batch with them.
        self.close_all().for_each(drop);
    }
}

impl Unpublished {
    pub(in crate::nic) fn window(&self) -> Window {
        self.window
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and nobody else frees it. No worker has the pointer any
        // more: `Closings` drops windows after every worker has left its batch, the graveyard in
        // `Epochs` with the last worker, and `Slots` when no worker holds the slots.
        drop(unsafe { Box::from_raw(self.open) });
    }
}
