//! The record that each rank sends to all others after the data of a bounded operation. It is sent
//! exactly, over the queue pairs of collective operations.
//!
//! ```text
//!  0  u64        cost that the rank proposes, in nanoseconds per MiB
//!  8  u32        what the path to it dropped, in millionths
//! 12  u32        0
//! 16  n x bits   of an all-reduce: for each rank, which packets of its contribution to this
//!                rank's part have arrived; the first one in the least significant bit
//! ```
//!
//! All numbers are big-endian.

use farwrite::deadline::{Cost, Proposal};

const FIXED_BYTES: usize = 16;

/// The layout of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) ranks: usize,
    /// The maximum number of packets that a rank contributes to a part; 0 if the record has no
    /// arrivals.
    pub(crate) packets: usize,
}

impl Layout {
    /// The size of a record in bytes.
    pub(crate) fn bytes(self) -> usize {
        FIXED_BYTES + self.ranks * self.packets.div_ceil(8)
    }

    /// Writes a record.
    pub(crate) fn write(
        self,
        out: &mut [u8],
        proposal: Proposal,
        has_arrived: impl Fn(usize, usize) -> bool,
    ) {
        out[..8].copy_from_slice(&proposal.cost.0.to_be_bytes());
        out[8..12].copy_from_slice(&proposal.path_loss_ppm.to_be_bytes());
        let each = self.packets.div_ceil(8);
        for rank in 0..self.ranks {
            let bits = &mut out[FIXED_BYTES + rank * each..][..each];
            for packet in (0..self.packets).filter(|&packet| has_arrived(rank, packet)) {
                bits[packet / 8] |= 1 << (packet % 8);
            }
        }
    }

    /// The proposal of the rank.
    pub(crate) fn proposal(self, record: &[u8]) -> Proposal {
        let number = |at: usize| record[at..].first_chunk().copied().unwrap_or_default();
        let loss = record[8..].first_chunk().copied().unwrap_or_default();
        Proposal {
            cost: Cost(u64::from_be_bytes(number(0))),
            path_loss_ppm: u32::from_be_bytes(loss),
        }
    }

    /// Whether a packet from rank `from` arrived at the rank that wrote the record.
    pub(crate) fn has_arrived(self, record: &[u8], from: usize, packet: usize) -> bool {
        let each = self.packets.div_ceil(8);
        let byte = FIXED_BYTES + from * each + packet / 8;
        record[byte] >> (packet % 8) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let layout = Layout {
            ranks: 3,
            packets: 11,
        };
        let mut record = vec![0; layout.bytes()];
        let proposal = Proposal {
            cost: Cost(1 << 50),
            path_loss_ppm: 10_000,
        };
        let has_arrived = |rank: usize, packet: usize| (rank + packet).is_multiple_of(3);
        layout.write(&mut record, proposal, has_arrived);
        assert_eq!(layout.proposal(&record), proposal);
        for (rank, packet) in (0..3).flat_map(|rank| (0..11).map(move |packet| (rank, packet))) {
            let arrived = layout.has_arrived(&record, rank, packet);
            assert_eq!(arrived, has_arrived(rank, packet), "{rank}, {packet}");
        }
    }
}
