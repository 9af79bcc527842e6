//! Releasing the memory of a receive that has ended.
#![allow(unsafe_code)]

use farwrite_wire::control::MessageId;

use crate::qp::SdrQp;
use crate::received::Received;

impl SdrQp {
    /// Releases the memory of a completed receive and of its parity. No worker may still use it.
    /// Does nothing for any other message. [`ChunkBitmap`]s of the message stay readable. Until
    /// this call [`Received`] shows the message. A receive that is never released keeps its bitmaps
    /// in memory until the queue pair and its table are dropped.
    ///
    /// # Safety
    /// Every call of [`SlotTable::handle_packet`] on this queue pair's table that began before
    /// [`SdrQp::complete_recv`] returned for this message has ended, and its end happens before
    /// this call. Calls that begin later see what `complete_recv` has written. It is enough that
    ///
    /// - the same thread makes all these calls, or
    /// - workers call `handle_packet` in batches between which they pass a point, and a
    ///   sequentially consistent fence at its start orders each batch: this call comes when each
    ///   worker was seen outside of the batch that it was in after `complete_recv` and such a fence
    ///   (epoch-based reclamation).
    ///
    /// [`ChunkBitmap`]: crate::ChunkBitmap
    /// [`SlotTable::handle_packet`]: crate::SlotTable::handle_packet
    pub unsafe fn release_recv(&mut self, message: u64) {
        let data = MessageId::new(message);
        for message in [data, data.parity()] {
            // SAFETY: the caller promises it; `complete_recv` takes both from their slots.
            unsafe { self.recv.received.release(message) };
        }
    }
}

impl Received {
    /// Forgets a closed message. Does nothing for any other message.
    ///
    /// # Safety
    /// As for [`SdrQp::release_recv`].
    unsafe fn release(&mut self, message: MessageId) {
        if let Some(unpublished) = self.take_closed(message) {
            // SAFETY: the caller promises it.
            unsafe { unpublished.free() };
        }
    }
}
