//! Where workers find the memory of messages: one pointer for each slot.
//!
//! Pointers are stored in pages. A page exists while one of its slots has an open message, so an
//! idle queue pair holds one pointer for each page and nothing else. The place of a slot never
//! moves: a ring that grew with the number of open messages would have to copy pointers while
//! workers read them. A worker reads two pointers, one after the other, and never waits or counts.
//! So when the owner removes a pointer, it cannot free the target at once: a worker may have read
//! the pointer just before. Removed memory is freed when the owner knows that no worker still uses
//! it ([`Unpublished::free`]).
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{array, ptr};

use crate::memory::SlotMemory;
use crate::sync::{AtomicPtr, Ordering};

/// Slots of a page. Their pointers take 512 bytes. A table of 1024 slots, the default, has 16
/// pages, so it takes 128 bytes while nothing is open.
const PAGE_SLOTS: u32 = 64;

/// Null, or from [`Arc::into_raw`].
struct Page([AtomicPtr<SlotMemory>; PAGE_SLOTS as usize]);

/// The memory of open messages, by slot. Any thread may call [`Published::get`]. Only the owner of
/// the queue pair calls the other functions, one call at a time.
pub(super) struct Published {
    /// Null, or from [`Box::into_raw`].
    pages: Box<[AtomicPtr<Page>]>,
    /// Memory that the owner left behind, from [`Box::into_raw`]. Null while there is an owner.
    left: AtomicPtr<Vec<Unpublished>>,
}

/// Memory that was removed from a slot. A worker may still be using it, so dropping this value
/// frees nothing.
pub(crate) struct Unpublished {
    /// From [`Arc::into_raw`].
    memory: *const SlotMemory,
    /// From [`Box::into_raw`]: the page, if its last message was removed from it.
    page: Option<*mut Page>,
}

// SAFETY: it is used by `free` alone, which takes it by value. What it points to is `Send` and
// `Sync`: atomic words and values that do not change.
unsafe impl Send for Unpublished {}
// SAFETY: as above; nothing can be done with a shared reference.
unsafe impl Sync for Unpublished {}

impl Published {
    /// Creates slots without memory.
    pub(super) fn new(slots: u32) -> Self {
        let pages = 0..slots.div_ceil(PAGE_SLOTS);
        Self {
            pages: pages.map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            left: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&SlotMemory> {
        let page = self.page(slot)?.load(Ordering::Acquire);
        // SAFETY: the pointer is null or to a page that `publish` has made. The caller of
        // `Unpublished::free` promises that the page is not freed during this call, nor while the
        // reference that it returns is in use.
        let page = unsafe { page.as_ref() }?;
        let memory = page.0[(slot % PAGE_SLOTS) as usize].load(Ordering::Acquire);
        // SAFETY: the pointer is null or from `Arc::into_raw`. The same promise holds.
        unsafe { memory.as_ref() }
    }

    /// Stores memory in a slot, which must be empty.
    pub(super) fn publish(&self, slot: u32, memory: Arc<SlotMemory>) {
        let Some(place) = self.page(slot) else {
            return;
        };
        let mut page = place.load(Ordering::Relaxed);
        if page.is_null() {
            let empty = || AtomicPtr::new(ptr::null_mut());
            page = Box::into_raw(Box::new(Page(array::from_fn(|_| empty()))));
            // Release: a thread that sees the page also sees its null pointers.
            place.store(page, Ordering::Release);
        }
        // SAFETY: only this owner takes pages away, and it has not: the page is not freed.
        let page = unsafe { &*page };
        let memory = Arc::into_raw(memory).cast_mut();
        // Release: a thread that sees the memory also sees its contents.
        let old = page.0[(slot % PAGE_SLOTS) as usize].swap(memory, Ordering::Release);
        debug_assert!(old.is_null(), "slot {slot} has memory already");
    }

    /// Removes the memory from a slot, if there is any. Also removes the page if it is now empty.
    pub(super) fn unpublish(&self, slot: u32) -> Option<Unpublished> {
        let place = self.page(slot)?;
        let pointer = place.load(Ordering::Relaxed);
        // SAFETY: null, or not freed: only this owner takes pages away.
        let page = unsafe { pointer.as_ref() }?;
        let at = &page.0[(slot % PAGE_SLOTS) as usize];
        let memory = at.load(Ordering::Relaxed);
        if memory.is_null() {
            return None;
        }
        at.store(ptr::null_mut(), Ordering::Release);
        let mut slots = page.0.iter();
        let is_empty = slots.all(|slot| slot.load(Ordering::Relaxed).is_null());
        if is_empty {
            place.store(ptr::null_mut(), Ordering::Release);
        }
        Some(Unpublished {
            memory,
            page: is_empty.then_some(pointer),
        })
    }

    /// Stores memory that workers may still use when the owner is dropped. It is freed with the
    /// table.
    pub(super) fn leave(&self, unpublished: Vec<Unpublished>) {
        let left = Box::into_raw(Box::new(unpublished));
        let old = self.left.swap(left, Ordering::AcqRel);
        debug_assert!(old.is_null(), "a queue pair has one owner");
    }

    fn page(&self, slot: u32) -> Option<&AtomicPtr<Page>> {
        self.pages.get((slot / PAGE_SLOTS) as usize)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let left = self.left.load(Ordering::Acquire);
        if !left.is_null() {
            // SAFETY: from `Box::into_raw` in `leave`, which the owner calls once.
            let left = unsafe { Box::from_raw(left) };
            // SAFETY: `&mut self`: no call that borrows the table is running, and none follows.
            left.into_iter().for_each(|one| unsafe { one.free() });
        }
        let pages = self.pages.len().try_into().unwrap_or(u32::MAX);
        for slot in 0..pages * PAGE_SLOTS {
            if let Some(unpublished) = self.unpublish(slot) {
                // SAFETY: as above.
                unsafe { unpublished.free() };
            }
        }
    }
}

impl Unpublished {
    /// Frees the page, and drops the table's reference to the memory.
    ///
    /// # Safety
    /// No call of [`Published::get`] that began before [`Published::unpublish`] returned may still
    /// run, and no reference from such a call may still be in use. The ends of these calls happen
    /// before this one; and calls that begin later see what `unpublish` has stored.
    pub(crate) unsafe fn free(self) {
        // SAFETY: `memory` is from `Arc::into_raw`, and this is the one place that undoes it. By
        // the caller's promise, every reference counts.
        let memory = unsafe { Arc::from_raw(self.memory) };
        #[cfg(all(test, loom))]
        memory.probe.give_up();
        drop(memory);
        if let Some(page) = self.page {
            // SAFETY: `page` is from `Box::into_raw`, and was taken from its place once. By the
            // caller's promise, no reference to it is left.
            drop(unsafe { Box::from_raw(page) });
        }
    }
}

/// Lets loom check that no worker uses memory while or after it is freed.
#[cfg(all(test, loom))]
#[derive(Default)]
pub(crate) struct Probe(loom::cell::UnsafeCell<()>);

// SAFETY: the cell holds nothing; loom itself checks how it is used.
#[cfg(all(test, loom))]
unsafe impl Sync for Probe {}

#[cfg(all(test, loom))]
impl Probe {
    /// Records that a worker uses the memory.
    pub(crate) fn touch(&self) {
        self.0.with(|_| ());
    }

    /// Records that the table releases the memory.
    fn give_up(&self) {
        self.0.with_mut(|_| ());
    }
}
