//! Reduced parts as best-effort messages: each packet names its contributors.
//!
//! A packet has the size of the packets of contributions. It begins with names, so it holds fewer
//! bytes of the part, and these can belong to two packets of contributions:
//!
//! ```text
//! 0      n bits      contributors of the first bytes, those of the first packet of contributions;
//!                    rank 0 in the least significant bit
//!        n bits      contributors of the other bytes
//!                    zeros up to a multiple of 8 bytes
//!        bytes       of the part
//! ```
//!
//! Each of the two names begins with a new byte.

use std::ops::Range;

use crate::index::{to_range, to_usize};

/// How the bytes of a part are divided over packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    ranks: usize,
    packet_bytes: u64,
}

/// The bytes of a part that have the same contributors, if they are in the same packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes, counted from the start of the part.
    pub(crate) range: Range<u64>,
    /// Which packet of each contribution they belong to.
    pub(crate) contribution: usize,
}

impl Frames {
    /// The division for packets of this size, a multiple of 8; `None` if the names of the ranks fill
    /// them.
    pub(crate) fn new(ranks: usize, packet_bytes: u64) -> Option<Self> {
        let frames = Self {
            ranks,
            packet_bytes,
        };
        (frames.names_bytes() < packet_bytes).then_some(frames)
    }

    /// The size of the names for one piece.
    fn mask_bytes(self) -> usize {
        self.ranks.div_ceil(8)
    }

    /// The size of the names in a packet.
    fn names_bytes(self) -> u64 {
        (2 * self.mask_bytes() as u64).next_multiple_of(8)
    }

    /// The number of bytes of the part in a packet.
    fn data_bytes(self) -> u64 {
        self.packet_bytes - self.names_bytes()
    }

    /// The number of packets of a part of this length.
    pub(crate) fn packets(self, length: u64) -> usize {
        to_usize(length.div_ceil(self.data_bytes()))
    }

    /// The size of all packets of a part of this length.
    pub(crate) fn framed_bytes(self, length: u64) -> u64 {
        length + self.packets(length) as u64 * self.names_bytes()
    }

    /// The one or two pieces of a packet of a part of this length.
    pub(crate) fn pieces(self, length: u64, packet: usize) -> impl Iterator<Item = Piece> {
        let start = packet as u64 * self.data_bytes();
        let end = length.min(start + self.data_bytes());
        let contribution = start / self.packet_bytes;
        let bound = end.min((contribution + 1) * self.packet_bytes);
        let ranges = [start..bound, bound..end];
        let pieces = ranges.into_iter().zip(to_usize(contribution)..);
        let pieces = pieces.map(|(range, contribution)| Piece {
            range,
            contribution,
        });
        pieces.filter(|piece| !piece.range.is_empty())
    }

    /// Writes all packets of a part. `has_arrived` says whether a packet of the contribution of a
    /// rank is part of the reduction.
    pub(crate) fn write(
        self,
        part: &[u8],
        out: &mut [u8],
        has_arrived: impl Fn(usize, usize) -> bool,
    ) {
        let packets = out.chunks_mut(to_usize(self.packet_bytes));
        for (packet, out) in packets.enumerate() {
            let (names, data) = out.split_at_mut(to_usize(self.names_bytes()));
            names.fill(0);
            let mut filled = 0;
            let pieces = self.pieces(part.len() as u64, packet);
            for (piece, names) in pieces.zip(names.chunks_mut(self.mask_bytes())) {
                let contributes = |rank: &usize| has_arrived(*rank, piece.contribution);
                for rank in (0..self.ranks).filter(contributes) {
                    names[rank / 8] |= 1 << (rank % 8);
                }
                let bytes = &part[to_range(&piece.range)];
                data[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
        }
    }

    /// The pieces of a packet: for each one, its bytes, and the ranks that did not contribute.
    /// `framed` has all packets of a part of this length.
    pub(crate) fn read(
        self,
        framed: &[u8],
        length: u64,
        packet: usize,
    ) -> impl Iterator<Item = (Piece, &[u8], Vec<usize>)> {
        let start = packet * to_usize(self.packet_bytes);
        let end = framed.len().min(start + to_usize(self.packet_bytes));
        let (names, data) = framed[start..end].split_at(to_usize(self.names_bytes()));
        let names = names.chunks(self.mask_bytes());
        let mut taken = 0;
        self.pieces(length, packet)
            .zip(names)
            .map(move |(piece, names)| {
                let bytes = to_usize(piece.range.end - piece.range.start);
                let data = &data[taken..taken + bytes];
                taken += bytes;
                let lacks = |rank: &usize| names[rank / 8] >> (rank % 8) & 1 == 0;
                (piece, data, (0..self.ranks).filter(lacks).collect())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_must_leave_room_for_data() {
        assert_eq!(Frames::new(1024, 256), None);
        assert_eq!(Frames::new(1024, 264).map(Frames::data_bytes), Some(8));
        assert_eq!(Frames::new(2, 1408).map(Frames::data_bytes), Some(1400));
    }

    proptest! {
        #[test]
        fn parts_and_names_come_back(
            ranks in 1_usize..40,
            packet_bytes in 3_u64..20,
            length in 0_usize..700,
            seed in any::<u64>(),
        ) {
            let packet_bytes = 8 * packet_bytes;
            let frames = Frames::new(ranks, packet_bytes).unwrap();
            let part: Vec<u8> = (0..=255).cycle().step_by(7).take(length).collect();
            let has_arrived = |rank: usize, packet: usize| {
                seed >> ((rank * 5 + packet * 3) % 64) & 1 == 1
            };
            let length = length as u64;
            let mut framed = vec![0xaa; to_usize(frames.framed_bytes(length))];
            frames.write(&part, &mut framed, has_arrived);
            let mut next = 0;
            for packet in 0..frames.packets(length) {
                for (piece, data, lacks) in frames.read(&framed, length, packet) {
                    prop_assert_eq!(piece.range.start, next);
                    next = piece.range.end;
                    prop_assert_eq!(data, &part[to_range(&piece.range)]);
                    for at in [piece.range.start, piece.range.end - 1] {
                        prop_assert_eq!(at / packet_bytes, piece.contribution as u64);
                    }
                    let expected = |rank: &usize| !has_arrived(*rank, piece.contribution);
                    prop_assert_eq!(lacks, (0..ranks).filter(expected).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(next, length);
        }
    }
}
