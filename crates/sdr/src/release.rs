//! Giving up the memory of a receive that is over.
#![allow(unsafe_code)]

use farwrite_wire::control::parity_of;

use crate::qp::SdrQp;
use crate::received::Received;

impl SdrQp {
    /// Gives up the memory of a receive that is completed, and that of its parity: no worker is
    /// using it any more. Of any other message it does nothing. [`ChunkBitmap`]s of the message stay
    /// readable. Until then [`Received`] shows the message; a receive that is never released costs
    /// its bitmaps until the queue pair and its table are dropped.
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
        for number in [message, parity_of(message)] {
            // SAFETY: the caller promises it; `complete_recv` takes both from their slots.
            unsafe { self.recv.received.release(number) };
        }
    }
}

impl Received {
    /// Forgets a message that is closed; of any other it does nothing.
    ///
    /// # Safety
    /// As for [`SdrQp::release_recv`].
    unsafe fn release(&mut self, message: u64) {
        if let Some(unpublished) = self.take_closed(message) {
            // SAFETY: the caller promises it.
            unsafe { unpublished.free() };
        }
    }
}
