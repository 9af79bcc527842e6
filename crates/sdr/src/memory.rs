//! The memory of one message: which of its packets and chunks have arrived.

use core::ops::Range;

use crate::bits::Bits;
use crate::geometry::Geometry;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, write_before_read};
use crate::table::Arrival;

/// A message's length, once known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the message.
    pub(crate) length: u64,
    /// Whether it carries a user immediate.
    pub(crate) has_immediate: bool,
}

/// What has arrived of one message or parity message, in words that workers share.
///
/// Its bitmaps are as long as the posted buffer needs. It belongs to one message for as long as it
/// lives, so a reader cannot see another message in it.
pub(crate) struct SlotMemory {
    geometry: Geometry,
    message: u64,
    generation: u8,
    /// Bytes of the posted buffer.
    capacity: u64,
    /// 0: not known; else length + 1, shifted left by one, and whether an immediate comes.
    extent: AtomicU64,
    /// A bit a packet.
    packets: Bits,
    /// A bit a chunk. `None` where chunks are single packets: then `packets` is the chunk bitmap.
    chunks: Option<Bits>,
    /// Bytes that the packets which have arrived lack to a full packet each.
    short_bytes: AtomicU64,
    /// A bit for every fragment of the user immediate that has arrived.
    fragments: AtomicU32,
    /// All of these bits.
    all_fragments: u32,
    /// The fragments, in their places.
    immediate: AtomicU32,
    /// Shows loom who uses the memory when.
    #[cfg(all(test, loom))]
    pub(crate) probe: crate::table::Probe,
}

impl SlotMemory {
    /// The memory of a message of which nothing has arrived. Its buffer holds `capacity` bytes.
    pub(crate) fn new(geometry: Geometry, message: u64, capacity: u64) -> Self {
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

    pub(crate) fn message(&self) -> u64 {
        self.message
    }

    pub(crate) fn generation(&self) -> u8 {
        self.generation
    }

    /// Takes a packet in, whatever its arguments hold.
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
            // A bit past the end is nobody's yet. One before it may have been seen: like all that
            // came before the length was known, it stays, whatever its packet's length.
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

    /// A chunk was computed from others, and is in its place. It counts with its bytes, but without
    /// fragments of a user immediate. The length must be known.
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

    /// The length has become known: completes the last chunk if only that was missing. Answers
    /// whether a packet has arrived.
    ///
    /// # Errors
    /// The number of packets up to the last that arrived, if the message ends before it. The
    /// length stays unknown then.
    pub(crate) fn set_extent(&self, extent: Extent) -> Result<bool, u32> {
        self.store_extent(Some(extent));
        // Pairs with `handle_packet`: a worker that did not see the extent is seen here.
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

    /// 64 chunks from `64 * word` on, the first in the least significant bit; set: arrived whole.
    pub(crate) fn word(&self, word: u32) -> u64 {
        self.chunk_bits().word(word)
    }

    /// Chunks that have arrived whole.
    pub(crate) fn count(&self) -> u32 {
        let lasting = self
            .extent()
            .map_or(0, |extent| self.total_chunks(Some(extent)));
        self.chunk_bits().count(lasting)
    }

    /// One past the highest chunk of which a packet has arrived, 0 if none.
    pub(crate) fn seen(&self) -> u32 {
        let packets = self.packets.end();
        packets.div_ceil(self.geometry.config().packets_per_chunk)
    }

    /// Packets that have arrived, each once.
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

    /// Chunks of the message; until its length is known, of its buffer.
    pub(crate) fn chunks(&self) -> u32 {
        self.total_chunks(self.extent())
    }

    /// Whether the length is known, and all chunks have arrived whole.
    pub(crate) fn is_complete(&self) -> bool {
        let total = self.extent().map(|extent| self.total_chunks(Some(extent)));
        total.is_some_and(|total| self.chunk_bits().count(total) == total)
    }

    /// The packets of one chunk, up to 64 of them, the first in the least significant bit.
    pub(crate) fn packets_of(&self, chunk: u32) -> u64 {
        let per_chunk = self.geometry.config().packets_per_chunk;
        let first = chunk.checked_mul(per_chunk);
        let unused = 64 - per_chunk.min(64);
        first.map_or(0, |first| self.packets.window(first)) & (u64::MAX >> unused)
    }

    /// The user immediate, once all its fragments have arrived.
    pub(crate) fn immediate(&self) -> Option<u32> {
        let is_whole = self.fragments.load(Ordering::Acquire) == self.all_fragments;
        is_whole.then(|| self.immediate.load(Ordering::Relaxed))
    }

    /// Whether the message, whose length must be known, carries no user immediate or has all of it.
    pub(crate) fn immediate_is_whole(&self) -> bool {
        let extent = self.extent();
        extent.is_some_and(|extent| !extent.has_immediate || self.immediate().is_some())
    }

    /// Where the bits of chunks lie: as many whole words as they need, little-endian.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.chunk_bits().as_ptr()
    }

    /// Whether a packet of `bytes` bytes can be packet `packet`.
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
        // No key is checked for a write without bytes, so before the offer says that there are such
        // packets, anyone who guessed a queue pair's number could make one up (P3.7).
        if bytes == 0 {
            return false;
        }
        let end = geometry.packet_offset(packet) + u64::from(bytes);
        bytes <= geometry.mtu() && end <= self.capacity
    }

    /// Packets of the message, or the most that it can turn out to have.
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

    /// The packets of a chunk, as far as the message, or what it can be, has them.
    #[inline]
    fn packets_of_chunk(&self, chunk: u32, extent: Option<Extent>) -> Range<u32> {
        let per_chunk = self.geometry.config().packets_per_chunk;
        let first = chunk.saturating_mul(per_chunk);
        let end = first.saturating_add(per_chunk);
        // Most chunks end before the message does, which a product shows without a division.
        let length = extent.map_or(self.capacity, |extent| extent.length);
        if self.geometry.packet_offset(end) <= length {
            return first..end;
        }
        let total = self.total_packets(extent);
        first.min(total)..end.min(total)
    }

    /// Sets a chunk's bit if all its packets have arrived. True for the one caller that set it.
    #[inline]
    fn complete_chunk(&self, chunk: u32, packets: Range<u32>) -> bool {
        let Some(chunks) = &self.chunks else {
            return true;
        };
        self.packets.has_all(packets) && chunks.insert(chunk).is_some()
    }

    /// Counts what a packet that has arrived lacks to a full one.
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
