//! Short messages between ranks, separate from the data: the progress of each rank, which rank
//! ended the group, and which receives wait for a point-to-point send.
//!
//! ```text
//! 0  u8   1: ask      how far the other rank is
//!         2: answer   u64 collective operations that were started, UTF-8 text: why the next one
//!                     could not start at this rank, or nothing
//!         3: leave    u64 collective operations that were started; there will be no more,
//!                     u64 receives of the other rank that were matched, without those of 0 bytes
//!         4: end      u64 number of the first collective operation that has not ended at this rank,
//!                     u64 receives as in leave, UTF-8 text: why the group ended at this rank
//!         5: want     u64 number of the receive at its rank, u32 tag, u64 bytes
//!         6: records  of bounded operations, in order, 56 bytes each
//!         7: want any a receive from any rank, as in want
//!         8: offer    u64 number of a receive from any rank, for which a send waits; the answer is want with
//!                     this number, or taken
//!         9: taken    u64 number of a receive from any rank, which gets its data from another rank
//! ```
//!
//! All numbers are big-endian, and nothing follows. A message has at most [`CONTROL_BYTES`]: a longer text is
//! cut before it is sent.

use crate::bounded::record::{RECORD_BYTES, Record};

/// The maximum size of a message in bytes.
pub(crate) const CONTROL_BYTES: usize = 512;
/// The maximum number of records in a message.
pub(crate) const MAX_RECORDS: usize = (CONTROL_BYTES - 1) / RECORD_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    Ask,
    Answer {
        started: u64,
        refusal: String,
    },
    Leave {
        started: u64,
        served: u64,
    },
    End {
        ended: u64,
        served: u64,
        reason: String,
    },
    WaitingReceive(WaitingReceive),
    AnyReceive(WaitingReceive),
    Offer(u64),
    Taken(u64),
    /// At least one and at most [`MAX_RECORDS`].
    Records(Vec<Record>),
}

/// A receive that waits for its send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingReceive {
    /// The number of this receive among the receives of its rank.
    pub(crate) number: u64,
    pub(crate) tag: u32,
    pub(crate) bytes: u64,
}

impl WaitingReceive {
    fn encode(self, kind: u8) -> Vec<u8> {
        let Self { number, tag, bytes } = self;
        let head = [&[kind][..], &number.to_be_bytes(), &tag.to_be_bytes()].concat();
        [&head[..], &bytes.to_be_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            tag: u32::from_be_bytes(*tag),
            bytes: rest.try_into().map(u64::from_be_bytes).ok()?,
        })
    }
}

impl ControlMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ask => vec![1],
            Self::Answer { started, refusal } => {
                let text = cut(refusal, CONTROL_BYTES - 9);
                [&[2][..], &started.to_be_bytes(), text.as_bytes()].concat()
            }
            Self::Leave { started, served } => {
                [&[3][..], &started.to_be_bytes(), &served.to_be_bytes()].concat()
            }
            Self::End {
                ended,
                served,
                reason,
            } => {
                let text = cut(reason, CONTROL_BYTES - 17).as_bytes();
                [&[4], &ended.to_be_bytes()[..], &served.to_be_bytes(), text].concat()
            }
            Self::WaitingReceive(receive) => receive.encode(5),
            Self::AnyReceive(receive) => receive.encode(7),
            Self::Offer(number) => [&[8][..], &number.to_be_bytes()].concat(),
            Self::Taken(number) => [&[9][..], &number.to_be_bytes()].concat(),
            Self::Records(records) => {
                let records = records.iter().flat_map(Record::encode);
                [6].into_iter().chain(records).collect()
            }
        }
    }

    /// Reads a message from arbitrary bytes; `None` if they are not a message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > CONTROL_BYTES {
            return None;
        }
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok();
        let (&kind, rest) = bytes.split_first()?;
        match (kind, rest) {
            (1, []) => Some(Self::Ask),
            (2, rest) => {
                let (started, refusal) = rest.split_first_chunk()?;
                Some(Self::Answer {
                    started: u64::from_be_bytes(*started),
                    refusal: str::from_utf8(refusal).ok()?.to_owned(),
                })
            }
            (3, rest) => {
                let (started, rest) = rest.split_first_chunk()?;
                Some(Self::Leave {
                    started: u64::from_be_bytes(*started),
                    served: number(rest)?,
                })
            }
            (4, rest) => {
                let (ended, rest) = rest.split_first_chunk()?;
                let (served, reason) = rest.split_first_chunk()?;
                Some(Self::End {
                    ended: u64::from_be_bytes(*ended),
                    served: u64::from_be_bytes(*served),
                    reason: str::from_utf8(reason).ok()?.to_owned(),
                })
            }
            (5, rest) => WaitingReceive::decode(rest).map(Self::WaitingReceive),
            (7, rest) => WaitingReceive::decode(rest).map(Self::AnyReceive),
            (8, rest) => number(rest).map(Self::Offer),
            (9, rest) => number(rest).map(Self::Taken),
            (6, rest) => {
                let (records, rest) = rest.as_chunks();
                let fits = rest.is_empty() && (1..=MAX_RECORDS).contains(&records.len());
                let records = fits.then(|| records.iter().map(Record::decode))?;
                Some(Self::Records(records.collect::<Option<_>>()?))
            }
            _ => None,
        }
    }
}

/// The start of a text, of at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    // The cut must not lie within a character. Index 0 never does.
    let end = ends.find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::record::Stage;
    use crate::segment::Descriptor;
    use farwrite_deadline::{Cost, Proposal, RepairChoice};
    use proptest::prelude::*;

    #[test]
    fn control_messages_come_back() {
        let want = WaitingReceive {
            number: 1 << 40,
            tag: 7,
            bytes: u64::MAX,
        };
        let end = ControlMessage::End {
            ended: 7,
            served: 1 << 40,
            reason: "rank 3 does not answer".into(),
        };
        let messages = [
            ControlMessage::Ask,
            ControlMessage::Answer {
                started: 5,
                refusal: "rank 1: root = 9: there are 2 ranks".into(),
            },
            ControlMessage::Leave {
                started: 6,
                served: 1 << 50,
            },
            end,
            ControlMessage::WaitingReceive(want),
            ControlMessage::AnyReceive(want),
            ControlMessage::Offer(1 << 40),
            ControlMessage::Taken(1 << 41),
            ControlMessage::Records(vec![
                record(3, true),
                Record {
                    stage: Stage::Started,
                    ..record(4, false)
                },
            ]),
            ControlMessage::Records((0..9).map(|number| record(number, false)).collect()),
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(ControlMessage::decode(&bytes), Some(message.clone()));
            assert_eq!(
                ControlMessage::decode(&[&bytes[..], &[0xff]].concat()),
                None,
                "{message:?}"
            );
        }
    }

    fn record(number: u64, has_proposal: bool) -> Record {
        let proposal = Proposal {
            cost: Cost(1 << 40),
            path_loss_ppm: 9,
            repair_choice: RepairChoice::Repeats { rounds: 3 },
            rtt_ns: Some(5),
        };
        Record {
            number,
            descriptor: Descriptor {
                bytes: 1 << 30,
                root: 0,
                operation: 2,
                element: 1,
                reduction: 1,
                algorithm: 2,
                is_bounded: true,
            },
            stage: Stage::Ended(has_proposal.then_some(proposal)),
        }
    }

    #[test]
    fn records_that_no_rank_writes_are_refused() {
        let good = ControlMessage::Records(vec![record(1, true)]).encode();
        // The offset of the header, two marks of the proposal, and the kind of repair.
        for (place, byte) in [(16, 1), (52 + 1, 2), (52 + 1, 3), (53 + 1, 3)] {
            let mut bytes = good.clone();
            bytes[place] = byte;
            assert_eq!(ControlMessage::decode(&bytes), None, "byte {place}");
        }
        let many = vec![record(1, true); MAX_RECORDS + 1];
        let many = ControlMessage::Records(many).encode();
        assert_eq!(ControlMessage::decode(&many), None);
        assert_eq!(ControlMessage::decode(&[6]), None);
    }

    #[test]
    fn messages_that_are_too_long_are_refused() {
        for kind in [2, 4] {
            let mut bytes = [&[kind][..], &[b'x'; CONTROL_BYTES - 1]].concat();
            let message = ControlMessage::decode(&bytes).expect("the longest message");
            assert_eq!(message.encode(), bytes);
            bytes.push(b'x');
            assert_eq!(ControlMessage::decode(&bytes), None, "kind {kind}");
        }
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let reason = "\u{20ac}".repeat(CONTROL_BYTES);
        let bytes = ControlMessage::End {
            ended: 0,
            served: 0,
            reason: reason.clone(),
        }
        .encode();
        assert!(bytes.len() <= CONTROL_BYTES);
        assert!(matches!(
            ControlMessage::decode(&bytes),
            Some(ControlMessage::End { .. })
        ));
        let (started, refusal) = (5, reason);
        let bytes = ControlMessage::Answer { started, refusal }.encode();
        assert!(bytes.len() <= CONTROL_BYTES);
        assert!(ControlMessage::decode(&bytes).is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_control_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(message) = ControlMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
