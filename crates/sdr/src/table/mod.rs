//! The slot table: what has arrived, in words that receive workers share with the control state.

#[cfg(all(test, loom))]
mod interleavings;
mod view;

use alloc::boxed::Box;

use farwrite_wire::control::data_of;

use crate::geometry::Geometry;
use crate::slot::{Extent, Occupant, Phase, Slot};
use crate::sync::{AtomicU64, Ordering, fence, zeroed};

/// What a packet turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A packet not seen before.
    New {
        /// Its message.
        message: u64,
        /// The chunk that it completed, if it did. Told exactly once for every chunk.
        chunk_completed: Option<u32>,
    },
    /// A packet seen before.
    Duplicate {
        /// Its message.
        message: u64,
    },
    /// A packet of a message whose receive is over, or of an older generation of the slot. Its
    /// sender may have missed the end: [`SdrQp::handle_late`](crate::SdrQp::handle_late).
    Late {
        /// The newest message of that slot and generation; of parity, the message that it is for.
        message: u64,
    },
    /// A slot, generation or offset that does not exist, or a length that the packet cannot have.
    Invalid,
}

/// The part of a queue pair's receiving side that workers share.
///
/// All memory is allocated when the queue pair is made (zeroed by the allocator, so untouched until
/// used) and all its words are atomic. Any number of threads may call any method at any time, with
/// one exception: the control state reuses a slot when it posts a receive, and by then no call of
/// [`SlotTable::handle_packet`] that began before the slot's last receive was completed may still
/// be running. A worker that takes packets in batches and passes a point between batches, seen
/// by the control thread after `complete_recv` and before `post_recv`, is enough.
pub struct SlotTable {
    geometry: Geometry,
    slots: Box<[Slot]>,
    /// A bit a packet; `packet_words` words a slot. Bytes least significant bit first.
    packets: Box<[AtomicU64]>,
    /// A bit a chunk; `chunk_words` words a slot. Empty where chunks are single packets: then
    /// `packets` is the chunk bitmap.
    chunks: Box<[AtomicU64]>,
    /// A bit for every slot where something arrived since the control state last looked.
    dirty: Box<[AtomicU64]>,
    /// Whether one word of `packets` may hold only a part of a chunk.
    straddles: bool,
}

impl SlotTable {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let slots = geometry.table_slots() as usize;
        let per_chunk = geometry.config().packets_per_chunk;
        let chunk_words = if per_chunk == 1 {
            0
        } else {
            geometry.chunk_words() as usize
        };
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            packets: zeroed(geometry.packet_words() as usize * slots),
            chunks: zeroed(chunk_words * slots),
            dirty: zeroed(slots.div_ceil(64)),
            straddles: !64_u32.is_multiple_of(per_chunk),
            geometry,
        }
    }

    /// The arithmetic of the queue pair.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Takes in a packet that the fabric has placed: `generation` is that of the queue pair it came
    /// through, `imm` its immediate, `bytes` its payload. The arguments may hold anything.
    pub fn handle_packet(&self, generation: u8, imm: u32, bytes: u32) -> Arrival {
        let parts = self.geometry.decode_immediate(imm);
        let index = parts.slot as usize;
        let Some((slot, occupant)) = self.slots.get(index).and_then(|s| Some((s, s.occupant()?)))
        else {
            return Arrival::Invalid;
        };
        let message = occupant.message;
        if occupant.phase != Phase::Open || self.geometry.generation(message) != generation {
            return self.late(message, generation);
        }
        let extent = slot.extent();
        if !self.fits(slot, extent, parts.packet, bytes) {
            return Arrival::Invalid;
        }
        let Some((word, bit)) = self.packet_bit(index, parts.packet) else {
            return Arrival::Invalid;
        };
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            // Its fragment can be missing where the chunk was rebuilt rather than received.
            self.keep_fragment(slot, parts.packet, parts.fragment);
            self.mark_dirty(index);
            return Arrival::Duplicate { message };
        }
        slot.see(parts.packet);
        let extent = if extent.is_none() || self.straddles {
            // Pairs with `set_extent`, and with workers that complete another word of the chunk:
            // of two that race, at least one sees what the other wrote.
            fence(Ordering::SeqCst);
            slot.extent()
        } else {
            extent
        };
        if !self.fits(slot, extent, parts.packet, bytes) {
            word.fetch_and(!bit, Ordering::AcqRel);
            return Arrival::Invalid;
        }
        slot.packets.fetch_add(1, Ordering::Relaxed);
        slot.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
        self.keep_fragment(slot, parts.packet, parts.fragment);
        let chunk = self.geometry.chunk_of(parts.packet);
        let completed = self.complete_chunk(index, slot, chunk, self.total_packets(slot, extent));
        self.mark_dirty(index);
        Arrival::New {
            message,
            chunk_completed: completed.then_some(chunk),
        }
    }

    /// A chunk of an open message was computed from others, and is in its place: from now on it
    /// counts as arrived, with its bytes, but without fragments of a user immediate.
    pub fn handle_rebuilt(&self, message: u64, chunk: u32) {
        let index = self.geometry.slot(message) as usize;
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let open = Occupant {
            message,
            phase: Phase::Open,
        };
        let Some(extent) = slot.extent().filter(|_| slot.occupant() == Some(open)) else {
            return;
        };
        let per_chunk = self.geometry.config().packets_per_chunk;
        let total = self.total_packets(slot, Some(extent));
        let first = chunk.saturating_mul(per_chunk).min(total);
        let mut is_new = false;
        for packet in first..first.saturating_add(per_chunk).min(total) {
            let Some((word, bit)) = self.packet_bit(index, packet) else {
                return;
            };
            if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                let Extent {
                    length,
                    has_immediate,
                } = extent;
                let bytes = self.geometry.packet_bytes(length, has_immediate, packet);
                slot.see(packet);
                slot.packets.fetch_add(1, Ordering::Relaxed);
                slot.bytes
                    .fetch_add(bytes.unwrap_or(0).into(), Ordering::Relaxed);
                is_new = true;
            }
        }
        if is_new {
            self.complete_chunk(index, slot, chunk, total);
        }
    }

    /// Calls `each` with every open message or parity message of which packets have arrived,
    /// duplicates included, since the last call.
    pub fn drain_arrivals(&self, mut each: impl FnMut(u64)) {
        for (word, slots) in self.dirty.iter().zip(self.slots.chunks(64)) {
            let mut bits = word.load(Ordering::Relaxed);
            if bits != 0 {
                bits = word.swap(0, Ordering::AcqRel);
            }
            while let Some(slot) = slots.get(bits.trailing_zeros() as usize) {
                bits &= bits - 1;
                match slot.occupant() {
                    Some(occupant) if occupant.phase == Phase::Open => each(occupant.message),
                    _ => {}
                }
            }
        }
    }

    /// Opens the slot for a message whose buffer holds `capacity` bytes. See the type about
    /// workers.
    pub(crate) fn open(&self, message: u64, capacity: u64) {
        let index = self.geometry.slot(message) as usize;
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let phase = |phase| Occupant { message, phase };
        // Readers of the old message's bits look at the occupant after the bits: whoever sees a
        // wiped word (Release below, Acquire there) sees that the slot has moved on.
        slot.set_occupant(phase(Phase::Opening));
        let seen = slot.seen_packets.load(Ordering::Relaxed);
        let used = seen.div_ceil(64) as usize;
        for words in [self.packet_bitmap(index), self.chunk_bitmap(index)] {
            for word in words.iter().take(used) {
                word.store(0, Ordering::Release);
            }
        }
        slot.wipe(capacity);
        if let Some(dirty) = self.dirty.get(index / 64) {
            dirty.fetch_and(!(1 << (index % 64)), Ordering::AcqRel);
        }
        slot.set_occupant(phase(Phase::Open));
    }

    /// Takes no more packets of a message; its bits stay readable until the slot is opened again.
    pub(crate) fn close(&self, message: u64) {
        if let Some(slot) = self.slots.get(self.geometry.slot(message) as usize) {
            slot.set_occupant(Occupant {
                message,
                phase: Phase::Closed,
            });
        }
    }

    /// The length of an open message has become known: completes its last chunk if only that was
    /// missing.
    ///
    /// # Errors
    /// The number of packets up to the last that arrived, if the message ends before it. The
    /// length stays unknown then.
    pub(crate) fn set_extent(&self, message: u64, extent: Extent) -> Result<(), u32> {
        let index = self.geometry.slot(message) as usize;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        slot.set_extent(Some(extent));
        // Pairs with `handle_packet`: a worker that did not see the extent is seen here.
        fence(Ordering::SeqCst);
        let total = self.total_packets(slot, Some(extent));
        let seen = slot.seen_packets.load(Ordering::Relaxed);
        if seen > total {
            slot.set_extent(None);
            return Err(seen);
        }
        let last = self.geometry.chunk_of(total - 1);
        if seen > 0 && self.geometry.config().packets_per_chunk > 1 {
            self.complete_chunk(index, slot, last, total);
        }
        if seen > 0 {
            self.mark_dirty(index);
        }
        Ok(())
    }

    /// The newest message of `generation` that was in the slot of `newest`.
    fn late(&self, newest: u64, generation: u8) -> Arrival {
        let generations = self.geometry.generations();
        if generation >= generations {
            return Arrival::Invalid;
        }
        let ahead = self.geometry.generation(newest) + generations - generation;
        let back = u64::from(ahead % generations) * u64::from(self.geometry.slots());
        // Before 0 there was none: nobody was ever cleared to send it.
        data_of(newest)
            .checked_sub(back)
            .map_or(Arrival::Invalid, |message| Arrival::Late { message })
    }

    /// Whether a packet of `bytes` bytes can be packet `packet` of the slot's message.
    fn fits(&self, slot: &Slot, extent: Option<Extent>, packet: u32, bytes: u32) -> bool {
        let geometry = &self.geometry;
        if let Some(Extent {
            length,
            has_immediate,
        }) = extent
        {
            return geometry.packet_bytes(length, has_immediate, packet) == Some(bytes);
        }
        // No key is checked for a write without bytes, so before the offer says that there are such
        // packets, anyone who guessed a queue pair's number could make one up (P3.7).
        if bytes == 0 {
            return false;
        }
        let end = geometry.packet_offset(packet) + u64::from(bytes);
        bytes <= geometry.mtu() && end <= slot.capacity.load(Ordering::Relaxed)
    }

    /// Packets of the slot's message, or the most that it can turn out to have.
    pub(super) fn total_packets(&self, slot: &Slot, extent: Option<Extent>) -> u32 {
        let geometry = &self.geometry;
        match extent {
            Some(extent) => geometry.packets(extent.length, extent.has_immediate),
            None => geometry.packets(slot.capacity.load(Ordering::Relaxed), true),
        }
    }

    fn keep_fragment(&self, slot: &Slot, packet: u32, fragment: u32) {
        if let Some((index, shift)) = self.geometry.fragment_place(packet) {
            slot.keep_fragment(index, fragment << shift);
        }
    }

    /// Sets a chunk's bit if all its packets are there. True for the one caller that set it.
    fn complete_chunk(&self, index: usize, slot: &Slot, chunk: u32, total: u32) -> bool {
        let per_chunk = self.geometry.config().packets_per_chunk;
        if per_chunk > 1 {
            let first = chunk.saturating_mul(per_chunk);
            let end = first.saturating_add(per_chunk).min(total);
            if !all_set(self.packet_bitmap(index), first, end) {
                return false;
            }
            let bit = (1_u64 << (chunk % 64)).to_le();
            let Some(word) = self.chunk_bitmap(index).get((chunk / 64) as usize) else {
                return false;
            };
            if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
                return false;
            }
        }
        slot.chunks.fetch_add(1, Ordering::Release);
        true
    }

    fn mark_dirty(&self, index: usize) {
        // Always a read-modify-write: a look before it could see a flag that is being taken.
        if let Some(word) = self.dirty.get(index / 64) {
            word.fetch_or(1 << (index % 64), Ordering::AcqRel);
        }
    }

    fn packet_bit(&self, index: usize, packet: u32) -> Option<(&AtomicU64, u64)> {
        let word = self.packet_bitmap(index).get((packet / 64) as usize)?;
        Some((word, (1_u64 << (packet % 64)).to_le()))
    }

    pub(super) fn packet_bitmap(&self, index: usize) -> &[AtomicU64] {
        words_of(&self.packets, index, self.geometry.packet_words())
    }

    pub(super) fn chunk_bitmap(&self, index: usize) -> &[AtomicU64] {
        if self.chunks.is_empty() {
            self.packet_bitmap(index)
        } else {
            words_of(&self.chunks, index, self.geometry.chunk_words())
        }
    }
}

impl core::fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlotTable")
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

fn words_of(words: &[AtomicU64], index: usize, per_slot: u32) -> &[AtomicU64] {
    let per_slot = per_slot as usize;
    words
        .get(index * per_slot..(index + 1) * per_slot)
        .unwrap_or(&[])
}

/// Whether bits `first..end` are all set.
fn all_set(words: &[AtomicU64], first: u32, end: u32) -> bool {
    let mut at = first;
    while at < end {
        let until = end.min((at / 64 + 1) * 64);
        let mask = (u64::MAX >> (64 - (until - at))) << (at % 64);
        let word = words.get((at / 64) as usize);
        if word.is_none_or(|word| u64::from_le(word.load(Ordering::Acquire)) & mask != mask) {
            return false;
        }
        at = until;
    }
    true
}
