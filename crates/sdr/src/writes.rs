//! A run of chunks, divided into packets to write.

use core::iter::FusedIterator;
use core::ops::Range;

use farwrite_wire::control::{MessageId, Place};

use crate::geometry::{Geometry, ImmediateParts};

/// One packet to write (P3.2 to P3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketWrite {
    /// Channel: the index of the queue pair in the generation.
    pub channel: u8,
    /// Generation of the message.
    pub generation: u8,
    /// Address in the peer's memory.
    pub remote_addr: u64,
    /// Key of the peer's memory.
    pub rkey: u32,
    /// The immediate.
    pub imm: u32,
    /// First byte, counted from the start of the message.
    pub offset: u64,
    /// Bytes. 0 for packets that only carry a user immediate, and for an empty message.
    pub bytes: u32,
    /// The chunk that contains the packet.
    pub chunk: u32,
}

/// The packets of a run of chunks, in order. It holds no borrow, so it may be kept while the
/// carrier is full. The packets that it yields are valid until the send ends.
#[derive(Clone, Debug)]
pub struct PacketWrites {
    geometry: Geometry,
    message: MessageId,
    place: Place,
    /// Bytes that may be written: those of the message, or of the buffer while the length is
    /// unknown.
    length: u64,
    immediate: Option<u32>,
    next: u32,
    end: u32,
}

impl PacketWrites {
    /// The packets of those `chunks` that lie within the message.
    pub(crate) fn new(
        geometry: Geometry,
        message: MessageId,
        place: Place,
        length: Option<u64>,
        immediate: Option<u32>,
        chunks: Range<u32>,
    ) -> Self {
        let bytes = length.unwrap_or(place.length).min(place.length);
        // Packets without bytes lie past the end of the message, so they have no place until the
        // length is known.
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

    /// Removes packets that carry bytes from byte `end` of the message on, and all packets after
    /// them if the run begins before `end`. A stream of unknown length counts its last chunk as
    /// full, although the user may have supplied only a part of it.
    #[must_use]
    pub fn up_to(mut self, end: u64) -> Self {
        if end < self.length {
            let mtu = u64::from(self.geometry.mtu());
            let packets = |bytes: u64| u32::try_from(bytes.div_ceil(mtu)).unwrap_or(u32::MAX);
            if self.next < packets(end) {
                self.end = self.end.min(packets(end));
            } else {
                // Packets without bytes stay.
                self.next = self.next.max(packets(self.length));
            }
        }
        self
    }

    /// Removes all packets except those that carry bytes before byte `end` of the message.
    #[must_use]
    pub fn bytes_up_to(mut self, end: u64) -> Self {
        let packets = end.div_ceil(self.geometry.mtu().into());
        self.end = self.end.min(u32::try_from(packets).unwrap_or(u32::MAX));
        self
    }

    /// Number of the next packet in its message.
    #[must_use]
    pub fn next_packet(&self) -> u32 {
        self.next
    }

    /// Skips the next packets.
    pub fn skip_packets(&mut self, packets: usize) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.next = self
            .next
            .saturating_add(packets)
            .min(self.end.max(self.next));
    }

    pub(crate) fn none(geometry: Geometry) -> Self {
        let place = Place {
            rkey: 0,
            base: 0,
            length: 0,
        };
        Self::new(geometry, MessageId::new(0), place, None, None, 0..0)
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
        // The key is not checked for zero-length writes. They use an address that exists.
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
