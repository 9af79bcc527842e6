//! A run of chunks, cut into the packets to write.

use core::iter::FusedIterator;
use core::ops::Range;

use farwrite_wire::control::Place;

use crate::geometry::{Geometry, ImmediateParts};

/// One packet to write (P3.2 to P3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketWrite {
    /// Channel: which of the generation's queue pairs.
    pub channel: u8,
    /// Generation of the message.
    pub generation: u8,
    /// Where the peer's memory gets it.
    pub remote_addr: u64,
    /// Key of that memory.
    pub rkey: u32,
    /// The immediate.
    pub imm: u32,
    /// First byte, counted from the start of the message.
    pub offset: u64,
    /// Bytes; 0 for packets that only carry a user immediate, and for an empty message.
    pub bytes: u32,
    /// The chunk that it is part of.
    pub chunk: u32,
}

/// The packets of a run of chunks, in order. Holds no borrow, so it may be kept while the carrier
/// is full; what it yields is right until the send is over.
#[derive(Clone, Debug)]
pub struct PacketWrites {
    geometry: Geometry,
    message: u64,
    place: Place,
    /// Bytes that may be written: those of the message, or of the buffer while it has no end.
    length: u64,
    immediate: Option<u32>,
    next: u32,
    end: u32,
}

impl PacketWrites {
    /// The packets of `chunks`, as far as the message goes.
    pub(crate) fn new(
        geometry: Geometry,
        message: u64,
        place: Place,
        length: Option<u64>,
        immediate: Option<u32>,
        chunks: Range<u32>,
    ) -> Self {
        let bytes = length.unwrap_or(place.length).min(place.length);
        // Packets without bytes lie past the end, so they have no place until there is one.
        let padded = immediate.is_some() && length.is_some();
        let total = geometry.packets(bytes, padded);
        let packet = |chunk: u32| {
            chunk
                .saturating_mul(geometry.config().packets_per_chunk)
                .min(total)
        };
        Self {
            geometry,
            message,
            place,
            length: bytes,
            immediate,
            next: packet(chunks.start),
            end: packet(chunks.end),
        }
    }

    /// No packets.
    pub(crate) fn none(geometry: Geometry) -> Self {
        let place = Place {
            rkey: 0,
            base: 0,
            length: 0,
        };
        Self::new(geometry, 0, place, None, None, 0..0)
    }
}

impl Iterator for PacketWrites {
    type Item = PacketWrite;

    fn next(&mut self) -> Option<PacketWrite> {
        if self.next >= self.end {
            return None;
        }
        let packet = self.next;
        self.next += 1;
        let geometry = &self.geometry;
        let bytes = geometry
            .packet_bytes(self.length, self.immediate.is_some(), packet)
            .unwrap_or(0);
        // Zero-length writes are not checked against the key; they name an address that exists.
        let offset = if bytes == 0 {
            0
        } else {
            geometry.packet_offset(packet)
        };
        let chunk = geometry.chunk_of(packet);
        Some(PacketWrite {
            channel: geometry.channel(self.message, chunk),
            generation: geometry.generation(self.message),
            remote_addr: self.place.base.saturating_add(offset),
            rkey: self.place.rkey,
            imm: geometry.encode_immediate(ImmediateParts {
                slot: geometry.slot(self.message),
                packet,
                fragment: geometry.fragment(self.immediate.unwrap_or(0), packet),
            }),
            offset,
            bytes,
            chunk,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for PacketWrites {}
impl FusedIterator for PacketWrites {}
