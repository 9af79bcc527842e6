//! Records: what ranks report to each other after the first phase of a bounded operation.
//!
//! Each rank proposes the cost of the next operations. A proposal has 24 bytes:
//!
//! ```text
//!  0  u64        cost that the rank proposes, in nanoseconds per MiB
//!  8  u64        round trip of the paths to it, in nanoseconds; 0 if it is not measured
//! 16  u32        what these paths dropped, in millionths
//! 20  u8         1 if the rank proposes something, 0 if it expected no data
//! 21  3 x u8     repair of its contributions: 0, 0, 0 none; 1, k, m parity; 2, rounds, 0 repeats
//! ```
//!
//! In an all-reduce with exact parts, the record is sent over the queue pairs of collective
//! operations, and also names the contributors of the part that the rank has reduced:
//!
//! ```text
//!  0  24 x u8    proposal
//! 24  n x bits   for each rank, which packets of its contribution to this rank's part have
//!                arrived; the first one in the least significant bit
//! ```
//!
//! In all other operations, each rank sends two [control messages](crate::control) of this form. It
//! sends the first one when it starts the operation, so that ranks that run different operations
//! detect this:
//!
//! ```text
//!  0  32 x u8    header of a segment, with offset 0
//! 32  24 x u8    proposal; in the first message, 0 except for byte 20, which is 2
//! ```
//!
//! All numbers are big-endian.

use farwrite_deadline::{Cost, Proposal, RepairChoice};

use crate::segment::{Descriptor, HEADER_BYTES, Header};

const PROPOSAL_BYTES: usize = 24;
/// The byte of a proposal that says whether there is one, and its value before the first phase.
const MARK: usize = 20;
const STARTED: u8 = 2;
/// The size of a record in a control message.
pub(crate) const RECORD_BYTES: usize = HEADER_BYTES + PROPOSAL_BYTES;

/// The record of an operation that does not wait for the records of other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of the operation in the group.
    pub(crate) number: u64,
    pub(crate) descriptor: Descriptor,
    pub(crate) stage: Stage,
}

/// How far a rank is with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Started,
    /// The first phase has ended. The rank has no proposal if it expected no data.
    Ended(Option<Proposal>),
}

impl Record {
    pub(crate) fn header(&self) -> Header {
        Header {
            number: self.number,
            offset: 0,
            descriptor: self.descriptor,
        }
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        out[..HEADER_BYTES].copy_from_slice(&self.header().encode());
        let proposal = &mut out[HEADER_BYTES..];
        match self.stage {
            Stage::Started => proposal[MARK] = STARTED,
            Stage::Ended(own) => proposal.copy_from_slice(&encode_proposal(own)),
        }
        out
    }

    /// Reads a record from arbitrary bytes; `None` if they are not a record.
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let Header {
            number, descriptor, ..
        } = Header::decode(bytes)?;
        let record = Self {
            number,
            descriptor,
            stage: match bytes[HEADER_BYTES + MARK] {
                STARTED => Stage::Started,
                _ => Stage::Ended(decode_proposal(&bytes[HEADER_BYTES..])),
            },
        };
        (record.encode() == *bytes).then_some(record)
    }
}

/// The layout of a record with arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) ranks: usize,
    /// The maximum number of packets that a rank contributes to a part.
    pub(crate) packets: usize,
}

impl Layout {
    /// The size of a record in bytes.
    pub(crate) fn bytes(self) -> usize {
        PROPOSAL_BYTES + self.ranks * self.packets.div_ceil(8)
    }

    /// Writes a record.
    pub(crate) fn write(
        self,
        out: &mut [u8],
        proposal: Option<Proposal>,
        has_arrived: impl Fn(usize, usize) -> bool,
    ) {
        out[..PROPOSAL_BYTES].copy_from_slice(&encode_proposal(proposal));
        let each = self.packets.div_ceil(8);
        for rank in 0..self.ranks {
            let bits = &mut out[PROPOSAL_BYTES + rank * each..][..each];
            for packet in (0..self.packets).filter(|&packet| has_arrived(rank, packet)) {
                bits[packet / 8] |= 1 << (packet % 8);
            }
        }
    }

    /// The proposal of the rank; `None` if it has none.
    pub(crate) fn proposal(self, record: &[u8]) -> Option<Proposal> {
        decode_proposal(record)
    }

    /// Whether a packet from rank `from` arrived at the rank that wrote the record.
    pub(crate) fn has_arrived(self, record: &[u8], from: usize, packet: usize) -> bool {
        let each = self.packets.div_ceil(8);
        let byte = PROPOSAL_BYTES + from * each + packet / 8;
        record[byte] >> (packet % 8) & 1 == 1
    }
}

/// Reads a proposal from the start of a record; `None` if the rank has none.
fn decode_proposal(record: &[u8]) -> Option<Proposal> {
    let number = |at: usize| {
        let bytes = record[at..].first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(bytes)
    };
    let loss = record[16..].first_chunk().copied().unwrap_or_default();
    (record[MARK] == 1).then(|| Proposal {
        cost: Cost(number(0)),
        rtt_ns: Some(number(8)).filter(|ns| *ns > 0),
        path_loss_ppm: u32::from_be_bytes(loss),
        repair_choice: match [record[21], record[22], record[23]].map(u32::from) {
            [1, k, m] => RepairChoice::Parity { k, m },
            [2, rounds, _] => RepairChoice::Repeats { rounds },
            _ => RepairChoice::Wait,
        },
    })
}

fn encode_proposal(proposal: Option<Proposal>) -> [u8; PROPOSAL_BYTES] {
    let mut out = [0; PROPOSAL_BYTES];
    if let Some(proposal) = proposal {
        let rtt_ns = proposal.rtt_ns.unwrap_or(0);
        // Groups have at most 32 packets of each kind, and there are at most 8 rounds.
        let byte = |number| u8::try_from(number).unwrap_or(u8::MAX);
        let repair = match proposal.repair_choice {
            RepairChoice::Wait | RepairChoice::CannotBeMet { .. } => [0, 0, 0],
            RepairChoice::Parity { k, m } => [1, byte(k), byte(m)],
            RepairChoice::Repeats { rounds } => [2, byte(rounds), 0],
        };
        out[..8].copy_from_slice(&proposal.cost.0.to_be_bytes());
        out[8..16].copy_from_slice(&rtt_ns.to_be_bytes());
        out[16..20].copy_from_slice(&proposal.path_loss_ppm.to_be_bytes());
        out[MARK] = 1;
        out[21..].copy_from_slice(&repair);
    }
    out
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
        let proposal = |rtt_ns, repair_choice| Proposal {
            cost: Cost(1 << 50),
            path_loss_ppm: 10_000,
            repair_choice,
            rtt_ns,
        };
        let has_arrived = |rank: usize, packet: usize| (rank + packet).is_multiple_of(3);
        for proposal in [
            None,
            Some(proposal(None, RepairChoice::Wait)),
            Some(proposal(
                Some(1 << 40),
                RepairChoice::Parity { k: 32, m: 24 },
            )),
            Some(proposal(Some(1), RepairChoice::Repeats { rounds: 8 })),
        ] {
            layout.write(&mut record, proposal, has_arrived);
            assert_eq!(layout.proposal(&record), proposal);
        }
        for (rank, packet) in (0..3).flat_map(|rank| (0..11).map(move |packet| (rank, packet))) {
            let arrived = layout.has_arrived(&record, rank, packet);
            assert_eq!(arrived, has_arrived(rank, packet), "{rank}, {packet}");
        }
    }
}
