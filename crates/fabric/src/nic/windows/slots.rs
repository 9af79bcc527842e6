//! The slots of a window set.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::Batch;
use crate::contract::{DropReason, FabricError, Object, RegionPtr, Registered, Window, WindowHold};

/// A window as workers see it.
struct PublishedWindow {
    window: Window,
    memory: RegionPtr,
    _region: WindowHold,
}

const PAGE_SLOTS: usize = 128;

/// Adjacent slots of a set. At least one of them has a window.
struct Page {
    /// Each is null, or comes from [`Box::into_raw`].
    slots: [AtomicPtr<PublishedWindow>; PAGE_SLOTS],
    /// Number of slots that are not null.
    windows: AtomicU32,
}

/// The slots of a window set. Slot `i` has the addresses from `i * slot_bytes` on. Only the control
/// object changes them.
pub(in crate::nic) struct Slots {
    /// Serials of the queue pairs whose packets may reach the windows.
    of: Box<[u64]>,
    slot_bytes: u64,
    count: u32,
    /// Each is null if the page has no open window, or comes from [`Box::into_raw`]. A set
    /// therefore uses memory only for the windows that are open now.
    pages: Box<[AtomicPtr<Page>]>,
}

/// A window that was taken from its slot. A worker may still be writing through it.
pub(in crate::nic) struct Unpublished {
    window: Window,
    /// From [`Box::into_raw`].
    open: *mut PublishedWindow,
    /// The page of the slot, from [`Box::into_raw`], if this was its last window; otherwise null. A
    /// worker may still be reading the page.
    page: *mut Page,
}

// SAFETY: threads that are in a batch use `PublishedWindow` and `Page`, and all fields of both are
// `Send + Sync`.
unsafe impl Send for Unpublished {}

/// Where the payload of a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nic) enum Placed {
    InMemory,
    /// No window is open at the slot, so it was dropped.
    NoWindow,
}

impl Page {
    fn empty() -> Self {
        Self {
            slots: [const { AtomicPtr::new(ptr::null_mut()) }; PAGE_SLOTS],
            windows: AtomicU32::new(0),
        }
    }
}

impl Slots {
    /// Creates closed slots for the queue pairs with the serials `of`. `slots * slot_bytes` must
    /// fit 64 bits.
    pub(in crate::nic) fn new(of: Box<[u64]>, slots: u32, slot_bytes: u64) -> Self {
        Self {
            of,
            slot_bytes,
            count: slots,
            // The zeroed memory is not touched until it is used.
            pages: bytemuck::zeroed_slice_box((slots as usize).div_ceil(PAGE_SLOTS)),
        }
    }

    /// Whether packets of the queue pair with this serial may reach the windows.
    pub(in crate::nic) fn is_bound_to(&self, serial: u64) -> bool {
        self.of.contains(&serial)
    }

    /// Opens a window onto `length` bytes of a region, from `offset` on. Returns its address.
    pub(in crate::nic) fn open(
        &self,
        window: Window,
        region: &Arc<Registered>,
        offset: u64,
        length: u64,
    ) -> Result<u64, FabricError> {
        region.check_writable()?;
        let (index, count) = (window.slot, self.count);
        let (page_pointer, in_page) = self.find(index).ok_or(FabricError::OutOfBounds {
            offset: index.into(),
            length: 1,
            limit: count.into(),
        })?;
        if length > self.slot_bytes {
            return Err(FabricError::OutOfBounds {
                offset: 0,
                length,
                limit: self.slot_bytes,
            });
        }
        if !self.load(index).is_null() {
            return Err(FabricError::InUse(Object::Slot));
        }
        let open = Box::new(PublishedWindow {
            window,
            memory: region.bytes().slice(offset, length)?,
            _region: WindowHold::new(region),
        });
        let mut page = page_pointer.load(Ordering::Relaxed);
        if page.is_null() {
            page = Box::into_raw(Box::new(Page::empty()));
            // Release: a worker that sees the pointer also sees the page.
            page_pointer.store(page, Ordering::Release);
        }
        // SAFETY: only the control object, which calls this, removes pages.
        let page = unsafe { &*page };
        page.windows.fetch_add(1, Ordering::Relaxed);
        // Release: a worker that sees the pointer also sees the window.
        page.slots[in_page].store(Box::into_raw(open), Ordering::Release);
        Ok(u64::from(index) * self.slot_bytes)
    }

    /// Takes a window from its slot, if it is still open there.
    pub(in crate::nic) fn close(&self, window: Window) -> Option<Unpublished> {
        let open = self.load(window.slot);
        // SAFETY: a published window is not freed, and only the control object, which calls this,
        // removes it.
        let is_open = !open.is_null() && unsafe { (*open).window } == window;
        if !is_open {
            return None;
        }
        let (page_pointer, in_page) = self.find(window.slot)?;
        let mut page = page_pointer.load(Ordering::Relaxed);
        // SAFETY: a window is published in the page, so the page is not freed.
        let windows = unsafe {
            (*page).slots[in_page].store(ptr::null_mut(), Ordering::Relaxed);
            (*page).windows.fetch_sub(1, Ordering::Relaxed)
        };
        if windows == 1 {
            page_pointer.store(ptr::null_mut(), Ordering::Relaxed);
        } else {
            page = ptr::null_mut();
        }
        Some(Unpublished { window, open, page })
    }

    pub(in crate::nic) fn close_all(&self) -> impl Iterator<Item = Unpublished> {
        let mut windows = Vec::new();
        for page in &self.pages {
            let page = page.load(Ordering::Relaxed);
            // SAFETY: the pointer is null, or not freed: only the control object, which calls this,
            // removes pages.
            let slots = unsafe { page.as_ref() }.map(|page| &page.slots);
            for slot in slots.into_iter().flatten() {
                let open = slot.load(Ordering::Relaxed);
                // SAFETY: same as for the page.
                windows.extend(unsafe { open.as_ref() }.map(|open| open.window));
            }
        }
        windows.into_iter().filter_map(|window| self.close(window))
    }

    /// Copies a non-empty payload to the destination of a write, or returns why not; then nothing
    /// was written. The worker is in `_batch`.
    pub(in crate::nic) fn place(
        &self,
        addr: u64,
        payload: &[u8],
        _batch: &Batch<'_>,
    ) -> Result<Placed, DropReason> {
        let length = payload.len() as u64;
        let (slot, start) = (addr / self.slot_bytes, addr % self.slot_bytes);
        let slot = u32::try_from(slot).map_err(|_| DropReason::OutOfBounds)?;
        // Check this before the slot: a write across two slots is invalid, whether or not their
        // windows are open.
        if slot >= self.count || length > self.slot_bytes - start {
            return Err(DropReason::OutOfBounds);
        }
        let open = self.load(slot);
        if open.is_null() {
            return Ok(Placed::NoWindow);
        }
        // SAFETY: a window that a worker finds published during a batch is not freed before the
        // batch ends (`Closings`).
        let memory = unsafe { (*open).memory };
        let part = memory.slice(start, length);
        let part = part.map_err(|_| DropReason::OutOfBounds)?;
        // SAFETY: the window holds a reference to its region, so the region is registered.
        unsafe { part.copy_in(payload) };
        Ok(Placed::InMemory)
    }

    /// The pointer published at a slot; null if no window is open. The calling worker must be in a
    /// batch.
    fn load(&self, slot: u32) -> *mut PublishedWindow {
        let Some((page, in_page)) = self.find(slot) else {
            return ptr::null_mut();
        };
        // Acquire, here and below: pairs with the release in `open`.
        let page = page.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or not freed: a page that a worker finds published during a
        // batch is not freed before the batch ends (`Closings`), and otherwise the caller is the
        // control object, which removes pages.
        match unsafe { page.as_ref() } {
            Some(page) => page.slots[in_page].load(Ordering::Acquire),
            None => ptr::null_mut(),
        }
    }

    /// The pointer to the page of a slot, and the index of the slot in the page; `None` for a slot
    /// that does not exist.
    fn find(&self, slot: u32) -> Option<(&AtomicPtr<Page>, usize)> {
        let slot = Some(slot).filter(|&slot| slot < self.count)? as usize;
        let page = self.pages.get(slot / PAGE_SLOTS)?;
        Some((page, slot % PAGE_SLOTS))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Workers hold a reference to the slots, so no worker is in a batch with them.
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
        // SAFETY: both pointers come from `Box::into_raw`, and nobody else frees them. No worker
        // has the pointers any more: `Closings` drops windows after every worker has left its
        // batch, the graveyard in `Epochs` drops them with the last worker, and `Slots` drops them
        // when no worker holds the slots.
        unsafe {
            drop(Box::from_raw(self.open));
            if !self.page.is_null() {
                drop(Box::from_raw(self.page));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Epochs, Worker};
    use super::*;
    use crate::contract::{Region, WindowSet};

    /// Two pages and three more slots.
    const SLOTS: u32 = 259;

    fn region() -> Arc<Registered> {
        Arc::new(Registered::new(Region::owned(vec![0; 8])))
    }

    fn open(slots: &Slots, slot: u32) -> Window {
        let window = Window {
            set: WindowSet(1),
            slot,
            serial: slot.into(),
        };
        slots.open(window, &region(), 0, 8).unwrap();
        window
    }

    fn pages(slots: &Slots) -> Vec<bool> {
        let pages = slots.pages.iter();
        pages
            .map(|page| !page.load(Ordering::Relaxed).is_null())
            .collect()
    }

    #[test]
    fn a_page_lives_from_its_first_window_to_its_last() {
        let slots = Slots::new([].into(), SLOTS, 8);
        assert_eq!(pages(&slots), [false; 3]);
        let windows = [0, 127, 128, SLOTS - 1].map(|slot| open(&slots, slot));
        assert_eq!(pages(&slots), [true; 3]);
        let held = [false, true, true, true];
        for (window, is_last) in windows.into_iter().zip(held) {
            let closed = slots.close(window).unwrap();
            assert_eq!(closed.window(), window);
            assert_eq!(!closed.page.is_null(), is_last);
            assert!(slots.close(window).is_none());
        }
        assert_eq!(pages(&slots), [false; 3]);
        open(&slots, 63);
        assert_eq!(pages(&slots), [true, false, false]);
    }

    #[test]
    fn all_windows_close_with_their_pages() {
        let slots = Slots::new([].into(), SLOTS, 8);
        let windows = [1, 126, 127, SLOTS - 2].map(|slot| open(&slots, slot));
        let closed: Vec<_> = slots.close_all().collect();
        assert!(closed.iter().map(Unpublished::window).eq(windows));
        assert_eq!(pages(&slots), [false; 3]);
        assert_eq!(slots.close_all().count(), 0);
    }

    #[test]
    fn slots_end_where_the_set_does() {
        let slots = Slots::new([].into(), SLOTS, 8);
        open(&slots, SLOTS - 1);
        let mut worker = Worker::new(Arc::new(Epochs::new(1)), 0);
        let batch = worker.begin_batch();
        let place = |slot: u32| slots.place(u64::from(slot) * 8, &[1; 8], &batch);
        assert_eq!(place(0), Ok(Placed::NoWindow), "no page");
        assert_eq!(
            place(SLOTS - 2),
            Ok(Placed::NoWindow),
            "no window in the page"
        );
        assert_eq!(place(SLOTS - 1), Ok(Placed::InMemory));
        // The last page has this slot, but the set does not.
        assert_eq!(place(SLOTS), Err(DropReason::OutOfBounds));
        assert_eq!(place(u32::MAX), Err(DropReason::OutOfBounds));
        let beyond = Window {
            set: WindowSet(1),
            slot: SLOTS,
            serial: 0,
        };
        let refused = slots.open(beyond, &region(), 0, 8);
        assert!(matches!(refused, Err(FabricError::OutOfBounds { .. })));
        assert!(slots.close(beyond).is_none());
    }
}
