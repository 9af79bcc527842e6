//! The slot table: what receive workers share with the control state.

#[cfg(all(test, loom))]
mod interleavings;
mod published;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use farwrite_wire::control::MessageId;

use crate::geometry::Geometry;
use crate::memory::SlotMemory;
use crate::sync::{AtomicU64, Ordering, fence, write_before_read, zeroed};
#[cfg(all(test, loom))]
pub(crate) use published::Probe;
use published::Published;
pub(crate) use published::Unpublished;

/// The result for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A packet that arrives for the first time.
    New {
        /// Its message.
        message: MessageId,
        /// The chunk that this packet completed, if any. Each chunk is reported exactly once.
        chunk_completed: Option<u32>,
    },
    /// A packet that arrived before.
    Duplicate {
        /// Its message.
        message: MessageId,
    },
    /// A packet of a message whose receive has ended, or of an older generation of the slot. Its
    /// sender may have missed the end: see [`SdrQp::handle_late`](crate::SdrQp::handle_late).
    Late {
        /// The newest message of that slot and generation. For parity, the data message that it
        /// belongs to.
        message: u64,
    },
    /// A slot, generation or offset that does not exist, or a length that the packet cannot have.
    Invalid,
}

/// The part of a queue pair's receiving side that workers share.
///
/// Any number of threads may process packets. The table itself is small: the memory of a message
/// exists from posting until [`SdrQp::release_recv`](crate::SdrQp::release_recv).
pub struct SlotTable {
    geometry: Geometry,
    published: Published,
    /// Receives posted so far. This number determines the newest message of every slot.
    posted: AtomicU64,
    /// A bit for every slot in which something arrived since the control state last looked.
    dirty: Box<[AtomicU64]>,
}

impl SlotTable {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let slots = geometry.table_slots();
        Self {
            published: Published::new(slots),
            posted: AtomicU64::new(0),
            dirty: zeroed(slots.div_ceil(64) as usize),
            geometry,
        }
    }

    /// The arithmetic of the queue pair.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Processes a packet that the fabric has placed. `generation` is the generation of the queue
    /// pair that received it, `imm` its immediate, `bytes` the length of its payload. The arguments
    /// may have any value.
    ///
    /// The call takes a bounded number of steps. It neither allocates nor waits.
    pub fn handle_packet(&self, generation: u8, imm: u32, bytes: u32) -> Arrival {
        let parts = self.geometry.decode_immediate(imm);
        let memory = self.published.get(parts.slot);
        let Some(memory) = memory.filter(|memory| memory.generation() == generation) else {
            return self.late(parts.slot, generation);
        };
        #[cfg(all(test, loom))]
        memory.probe.touch();
        let arrival = memory.handle_packet(parts.packet, parts.fragment, bytes);
        if arrival != Arrival::Invalid {
            self.mark_dirty(parts.slot);
        }
        arrival
    }

    /// Makes the memory of a newly posted message visible to workers.
    pub(crate) fn publish(&self, memory: Arc<SlotMemory>) {
        let slot = self.geometry.slot(memory.message());
        // An arrival for the slot's last message is not an arrival for this one.
        if let Some((word, bit)) = self.dirty_bit(slot) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
        self.published.publish(slot, memory);
    }

    pub(crate) fn set_posted(&self, posted: u64) {
        self.posted.store(posted, Ordering::Release);
    }

    /// Stops accepting packets of an open message.
    pub(crate) fn unpublish(&self, message: MessageId) -> Option<Unpublished> {
        self.published.unpublish(self.geometry.slot(message))
    }

    /// Keeps unpublished memory until no worker uses the table any more.
    pub(crate) fn leave(&self, unpublished: Vec<Unpublished>) {
        self.published.leave(unpublished);
    }

    /// Calls `each` with every slot that was marked since the last call.
    pub(crate) fn drain_dirty(&self, mut each: impl FnMut(u32)) {
        for (first, word) in (0..).step_by(64).zip(&self.dirty) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            // Pairs with `mark_dirty`.
            fence(Ordering::SeqCst);
            while bits != 0 {
                each(first + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// The newest message that was posted in a slot. For a parity slot, the newest message that the
    /// parity can belong to.
    pub(crate) fn newest(&self, slot: u32) -> Option<u64> {
        let last = self.posted.load(Ordering::Acquire).checked_sub(1)?;
        let back = last.wrapping_sub(slot.into()) & u64::from(self.geometry.slots() - 1);
        last.checked_sub(back)
    }

    /// Marks that something has arrived for the message in the slot.
    #[inline]
    pub(crate) fn mark_dirty(&self, slot: u32) {
        let Some((word, bit)) = self.dirty_bit(slot) else {
            return;
        };
        // All earlier writes of this worker, this read, and the swap in `drain_dirty` are
        // sequentially consistent. If the read comes before the swap in that order, it can find the
        // bit set before the owner takes it; then the fence after the swap makes the owner see the
        // writes. If the read comes after the swap, it finds the bit clear.
        write_before_read();
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn dirty_bit(&self, slot: u32) -> Option<(&AtomicU64, u64)> {
        let word = self.dirty.get((slot / 64) as usize)?;
        Some((word, 1 << (slot % 64)))
    }

    /// Handles a packet that is for no open message. It belongs to the newest message of
    /// `generation` that was in the slot.
    #[cold]
    fn late(&self, slot: u32, generation: u8) -> Arrival {
        let geometry = &self.geometry;
        let generations = geometry.generations();
        if slot >= geometry.table_slots() || generation >= generations {
            return Arrival::Invalid;
        }
        let message = self.newest(slot).and_then(|newest| {
            let ahead = geometry.generation(newest) + generations - generation;
            let back = u64::from(ahead % generations) * u64::from(geometry.slots());
            newest.checked_sub(back)
        });
        // Before message 0 the slot had no message, so no clearance was given for the packet.
        message.map_or(Arrival::Invalid, |message| Arrival::Late { message })
    }
}

impl core::fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlotTable")
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}
