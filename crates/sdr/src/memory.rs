//! The memory of one message: which of its packets and chunks have arrived.

use core::ops::Range;

use farwrite_wire::control::MessageId;

use crate::bits::Bits;
use crate::geometry::Geometry;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, write_before_read};
use crate::table::Arrival;

/// The length of a message, once it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the message.
    pub(crate) length: u64,
    /// Whether the message carries a user immediate.
    pub(crate) has_immediate: bool,
}

/// What has arrived of one message or parity message, in words that workers share.
///
/// Its bitmaps have at least the length that the posted buffer needs. A `SlotMemory` belongs to one
/// message while anything but its owner refers to it, so a [`ChunkBitmap`](crate::ChunkBitmap) never
/// shows another message.
pub(crate) struct SlotMemory {
    geometry: Geometry,
    message: MessageId,
    generation: u8,
    /// Bytes of the posted buffer.
    capacity: u64,
    /// 0 if the length is not known. Otherwise length + 1, shifted left by one; the lowest bit is
    /// set if the message carries an immediate.
    extent: AtomicU64,
    /// One bit per packet.
    packets: Bits,
    /// One bit per chunk. `None` if chunks are single packets: then `packets` is the chunk bitmap.
    chunks: Option<Bits>,
    /// Bytes missing from a full MTU, summed over all packets that have arrived.
    short_bytes: AtomicU64,
    /// One bit for every fragment of the user immediate that has arrived.
    fragments: AtomicU32,
    /// The value of `fragments` when all fragments have arrived.
    all_fragments: u32,
    /// The fragments, each at its position.
    immediate: AtomicU32,
    /// Lets loom observe who uses the memory, and when.
    #[cfg(all(test, loom))]
    pub(crate) probe: crate::table::Probe,
}

impl SlotMemory {
    /// Creates the memory of a message before anything has arrived. Its buffer holds `capacity`
    /// bytes.
    pub(crate) fn new(geometry: Geometry, message: MessageId, capacity: u64) -> Self {
        let packets = geometry.packets(capacity, true);
        let per_chunk = geometry.config().packets_per_chunk;
        let fragments = geometry.fragments();
        Self {
            message,
            generation: geometry.generation(message),
            capacity,
            extent: AtomicU64::new(0),
            packets: Bits::new(packets),
            chunks: (per_chunk > 1).then(|| Bits::new(packets.div_ceil(per_chunk))),
            short_bytes: AtomicU64::new(0),
            fragments: AtomicU32::new(0),
            all_fragments: u32::MAX.checked_shr(32 - fragments).unwrap_or(0),
            immediate: AtomicU32::new(0),
            geometry,
            #[cfg(all(test, loom))]
            probe: crate::table::Probe::default(),
        }
    }

    /// Forgets everything that has arrived. The bits stay at their addresses.
    pub(crate) fn clear(&mut self) {
        self.store_extent(None);
        self.packets.clear();
        if let Some(chunks) = &mut self.chunks {
            chunks.clear();
        }
        self.short_bytes = AtomicU64::new(0);
        self.fragments = AtomicU32::new(0);
        self.immediate = AtomicU32::new(0);
    }

    /// Gives cleared memory to another message, if its bitmaps are long enough. Returns whether they
    /// are.
    pub(crate) fn renew(&mut self, geometry: Geometry, message: MessageId, capacity: u64) -> bool {
        let packets = geometry.packets(capacity, true);
        if self.geometry != geometry || !self.packets.has_room_for(packets) {
            return false;
        }
        self.message = message;
        self.generation = geometry.generation(message);
        self.capacity = capacity;
        true
    }

    pub(crate) fn message(&self) -> MessageId {
        self.message
    }

    pub(crate) fn generation(&self) -> u8 {
        self.generation
    }

    /// The arguments may have any value.
    #[inline]
    pub(crate) fn handle_packet(&self, packet: u32, fragment: u32, bytes: u32) -> Arrival {
        let message = self.message;
        let extent = self.extent();
        if !self.fits(extent, packet, bytes) {
            return Arrival::Invalid;
        }
        let Some(neighbours) = self.packets.insert(packet) else {
            // Its fragment can be missing where the chunk was rebuilt rather than received.
            self.keep_fragment(packet, fragment);
            return Arrival::Duplicate { message };
        };
        // Pairs with `set_extent` and with workers that set other bits of the chunk: of two that
        // race, at least one sees what the other wrote.
        write_before_read();
        let mut extent = extent;
        if extent.is_none() {
            extent = self.extent();
            // No reader has seen a bit past the end. A reader may have seen a bit before the end.
            // That bit stays, even if the packet's length is wrong, like all packets that arrived
            // before the length was known.
            if extent.is_some() && packet >= self.total_packets(extent) {
                self.packets.remove(packet);
                return Arrival::Invalid;
            }
        }
        self.add_short(bytes);
        self.keep_fragment(packet, fragment);
        let chunk = self.geometry.chunk_of(packet);
        let packets = self.packets_of_chunk(chunk, extent);
        let completes = !neighbours.has_hole(&packets) && self.complete_chunk(chunk, packets);
        Arrival::New {
            message,
            chunk_completed: completes.then_some(chunk),
        }
    }

    /// Records that a chunk was computed from others and is in place. Its bytes count as arrived,
    /// but it brings no fragments of a user immediate. The length must be known.
    pub(crate) fn handle_rebuilt(&self, chunk: u32) {
        let Some(extent) = self.extent() else {
            return;
        };
        let Extent {
            length,
            has_immediate,
        } = extent;
        let mut is_new = false;
        let packets = self.packets_of_chunk(chunk, Some(extent));
        for packet in packets.clone() {
            if self.packets.insert(packet).is_some() {
                let bytes = self.geometry.packet_bytes(length, has_immediate, packet);
                self.add_short(bytes.unwrap_or(0));
                is_new = true;
            }
        }
        write_before_read();
        if is_new {
            self.complete_chunk(chunk, packets);
        }
    }

    /// Sets the length, and completes the last chunk if only the length was missing. Returns
    /// whether a packet has arrived.
    ///
    /// # Errors
    /// If a packet past the end of the message has arrived: the number of packets up to the highest
    /// that arrived. The length then stays unknown.
    pub(crate) fn set_extent(&self, extent: Extent) -> Result<bool, u32> {
        self.store_extent(Some(extent));
        // Pairs with `handle_packet`: if a worker did not see the extent, this thread sees the
        // worker's bit.
        fence(Ordering::SeqCst);
        let total = self.total_packets(Some(extent));
        let end = self.packets.end();
        if end > total {
            self.store_extent(None);
            return Err(end);
        }
        if end > 0 {
            let last = self.geometry.chunk_of(total - 1);
            self.complete_chunk(last, self.packets_of_chunk(last, Some(extent)));
        }
        Ok(end > 0)
    }

    /// 64 chunk bits from chunk `64 * word` on. The first chunk is the least significant bit. A set
    /// bit means that the chunk has arrived completely.
    pub(crate) fn word(&self, word: u32) -> u64 {
        self.chunk_bits().word(word)
    }

    /// Number of chunks that have arrived completely.
    pub(crate) fn count(&self) -> u32 {
        let lasting = self
            .extent()
            .map_or(0, |extent| self.total_chunks(Some(extent)));
        self.chunk_bits().count(lasting)
    }

    /// One past the highest chunk of which a packet has arrived, or 0 if no packet has.
    pub(crate) fn seen(&self) -> u32 {
        let packets = self.packets.end();
        packets.div_ceil(self.geometry.config().packets_per_chunk)
    }

    /// Number of packets that have arrived, without duplicates.
    pub(crate) fn packets(&self) -> u32 {
        let lasting = self
            .extent()
            .map_or(0, |extent| self.total_packets(Some(extent)));
        self.packets.count(lasting)
    }

    /// Payload bytes of these packets. While a worker takes packets of the message in, it can be
    /// wrong by a packet for that worker.
    pub(crate) fn bytes(&self) -> u64 {
        let full = u64::from(self.packets()) * u64::from(self.geometry.mtu());
        let bytes = full.saturating_sub(self.short_bytes.load(Ordering::Acquire));
        let most = self.extent().map_or(self.capacity, |extent| extent.length);
        bytes.min(most)
    }

    /// Number of chunks of the message. Until its length is known, the chunks of its buffer.
    pub(crate) fn chunks(&self) -> u32 {
        self.total_chunks(self.extent())
    }

    /// Returns whether the length is known and all chunks have arrived completely.
    pub(crate) fn is_complete(&self) -> bool {
        let total = self.extent().map(|extent| self.total_chunks(Some(extent)));
        total.is_some_and(|total| self.chunk_bits().count(total) == total)
    }

    /// The bits of up to 64 packets of one chunk, from its packet `64 * word` on. The first of them is
    /// the least significant bit.
    pub(crate) fn packet_word(&self, chunk: u32, word: u32) -> u64 {
        let per_chunk = self.geometry.config().packets_per_chunk;
        let skipped = word.saturating_mul(64);
        let count = per_chunk.saturating_sub(skipped).min(64);
        let start = chunk.checked_mul(per_chunk);
        let first = start.and_then(|start| start.checked_add(skipped));
        let used = u64::MAX.checked_shr(64 - count).unwrap_or(0);
        first.map_or(0, |first| self.packets.window(first)) & used
    }

    /// The user immediate, if all its fragments have arrived.
    pub(crate) fn immediate(&self) -> Option<u32> {
        let is_whole = self.fragments.load(Ordering::Acquire) == self.all_fragments;
        is_whole.then(|| self.immediate.load(Ordering::Relaxed))
    }

    /// Returns whether the message carries no user immediate, or all of it has arrived. The length
    /// must be known.
    pub(crate) fn immediate_is_whole(&self) -> bool {
        let extent = self.extent();
        extent.is_some_and(|extent| !extent.has_immediate || self.immediate().is_some())
    }

    /// The address of the chunk bits, in as many whole little-endian words as they need.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.chunk_bits().as_ptr()
    }

    /// Returns whether packet `packet` can have `bytes` bytes.
    #[inline]
    fn fits(&self, extent: Option<Extent>, packet: u32, bytes: u32) -> bool {
        let geometry = &self.geometry;
        if let Some(Extent {
            length,
            has_immediate,
        }) = extent
        {
            return geometry.packet_bytes(length, has_immediate, packet) == Some(bytes);
        }
        // No key is checked for a write without bytes. So until the offer announces such
        // packets, anyone who guesses a queue pair's number could forge one (P3.7).
        if bytes == 0 {
            return false;
        }
        let end = geometry.packet_offset(packet) + u64::from(bytes);
        bytes <= geometry.mtu() && end <= self.capacity
    }

    /// Number of packets of the message. Until its length is known, the most that it can have.
    fn total_packets(&self, extent: Option<Extent>) -> u32 {
        match extent {
            Some(extent) => self.geometry.packets(extent.length, extent.has_immediate),
            None => self.geometry.packets(self.capacity, true),
        }
    }

    fn total_chunks(&self, extent: Option<Extent>) -> u32 {
        let packets = self.total_packets(extent);
        packets.div_ceil(self.geometry.config().packets_per_chunk)
    }

    /// The packets of a chunk that the message has, or can have while its length is unknown.
    #[inline]
    fn packets_of_chunk(&self, chunk: u32, extent: Option<Extent>) -> Range<u32> {
        let per_chunk = self.geometry.config().packets_per_chunk;
        let first = chunk.saturating_mul(per_chunk);
        let end = first.saturating_add(per_chunk);
        // Most chunks end before the message does. A multiplication shows this without a division.
        let length = extent.map_or(self.capacity, |extent| extent.length);
        if self.geometry.packet_offset(end) <= length {
            return first..end;
        }
        let total = self.total_packets(extent);
        first.min(total)..end.min(total)
    }

    /// Sets a chunk's bit if all its packets have arrived. Returns true only to the caller that set
    /// it.
    #[inline]
    fn complete_chunk(&self, chunk: u32, packets: Range<u32>) -> bool {
        let Some(chunks) = &self.chunks else {
            return true;
        };
        self.packets.has_all(packets) && chunks.insert(chunk).is_some()
    }

    /// Adds the bytes that a packet has fewer than a full one.
    #[inline]
    fn add_short(&self, bytes: u32) {
        let mtu = self.geometry.mtu();
        if bytes < mtu {
            let short = u64::from(mtu - bytes);
            self.short_bytes.fetch_add(short, Ordering::SeqCst);
        }
    }

    /// Keeps the first copy of a fragment of the user immediate.
    #[inline]
    fn keep_fragment(&self, packet: u32, fragment: u32) {
        let kept = self.fragments.load(Ordering::SeqCst);
        if kept == self.all_fragments {
            return;
        }
        let Some((index, shift)) = self.geometry.fragment_place(packet) else {
            return;
        };
        let flag = 1_u32.checked_shl(index).unwrap_or(0);
        if kept & flag == 0 {
            self.immediate.fetch_or(fragment << shift, Ordering::SeqCst);
            self.fragments.fetch_or(flag, Ordering::SeqCst);
        }
    }

    fn chunk_bits(&self) -> &Bits {
        self.chunks.as_ref().unwrap_or(&self.packets)
    }

    #[inline]
    fn extent(&self) -> Option<Extent> {
        let word = self.extent.load(Ordering::SeqCst);
        Some(Extent {
            length: (word >> 1).checked_sub(1)?,
            has_immediate: word & 1 == 1,
        })
    }

    fn store_extent(&self, extent: Option<Extent>) {
        let word = extent.map_or(0, |extent| {
            ((extent.length + 1) << 1) | u64::from(extent.has_immediate)
        });
        self.extent.store(word, Ordering::SeqCst);
    }
}
