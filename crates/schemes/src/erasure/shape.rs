//! How a message is divided into groups, and the order in which their chunks are sent (P5.4.1 to
//! 3).

use core::ops::Range;

use farwrite_codes::Code;

use super::ErasureCoding;
use super::rows::Rows;
use crate::order::WireOrder;
use crate::scheme::{Message, MessageId, Scheme};

/// The shape of one message. Both ends compute the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) number: u64,
    pub(super) code: Code,
    /// Number of data chunks, including those that carry no bytes.
    pub(super) chunks: u32,
    pub(super) groups: u32,
    pub(super) blocks: u32,
    /// Data chunks that carry bytes.
    pub(super) data: Rows,
    pub(super) parity: Rows,
}

impl Shape {
    pub(super) fn new(scheme: &ErasureCoding, message: &Message) -> Self {
        let code = scheme.code;
        let with_bytes = message.bytes.div_ceil(message.chunk_bytes.max(1));
        let coded = u32::try_from(with_bytes).map_or(message.chunks, |c| c.min(message.chunks));
        let k = count(code.k());
        let groups = coded.div_ceil(k);
        let blocks = groups.div_ceil(scheme.depth.get().into());
        let last = coded - groups.saturating_sub(1) * k;
        // Without a layout, a group is only a set of chunks that is requested together.
        let (m, last_m) = match scheme.layout(message) {
            Some(_) => (count(code.m()), count(code.parity_chunks(last as usize))),
            None => (0, 0),
        };
        Self {
            number: message.number,
            code,
            chunks: message.chunks.max(1),
            groups,
            blocks,
            data: Rows::new(k, last, groups, blocks),
            parity: Rows::new(m, last_m, groups, blocks),
        }
    }

    /// The data chunk with a rank. Chunks without bytes come after all others.
    pub(super) fn data_at(&self, rank: u32) -> u32 {
        match rank < self.data.len() {
            true => self.data.at(rank),
            false => rank,
        }
    }

    pub(super) fn data_rank(&self, chunk: u32) -> u32 {
        match chunk < self.data.len() {
            true => self.data.rank(chunk),
            false => chunk,
        }
    }

    /// The message itself.
    pub(super) fn data_id(&self) -> MessageId {
        MessageId::new(self.number)
    }

    /// The message with its parity.
    pub(super) fn parity_id(&self) -> MessageId {
        self.data_id().parity()
    }

    /// The data chunks of a superblock. Its data ranks are the same range.
    pub(super) fn block_data(&self, block: u32) -> Range<u32> {
        self.data.of_groups(self.data.block(block))
    }

    /// The parity chunks of a superblock. Its parity ranks are the same range.
    pub(super) fn block_parity(&self, block: u32) -> Range<u32> {
        self.parity.of_groups(self.parity.block(block))
    }

    /// The superblock of a data chunk or rank. For a chunk without bytes, the last superblock.
    pub(super) fn block_of_data(&self, chunk: u32) -> u32 {
        let block = self.data.block_of(chunk / count(self.code.k()));
        block.min(self.blocks.saturating_sub(1))
    }

    /// The group of the chunk at a position; `None` if it is in no group.
    fn group_of(&self, position: u32) -> Option<u32> {
        let (message, chunk) = self.at(position)?;
        if message.is_parity() {
            return Some(chunk / count(self.code.m()));
        }
        (chunk < self.data.len()).then(|| chunk / count(self.code.k()))
    }

    /// The superblock of a parity chunk or rank.
    pub(super) fn block_of_parity(&self, chunk: u32) -> u32 {
        let block = self.parity.block_of(chunk / count(self.code.m()));
        block.min(self.blocks.saturating_sub(1))
    }
}

impl WireOrder for Shape {
    fn len(&self) -> u32 {
        self.chunks + self.parity.len()
    }

    fn at(&self, position: u32) -> Option<(MessageId, u32)> {
        if position >= self.len() {
            return None;
        }
        let coded = self.data.len() + self.parity.len();
        if position >= coded {
            return Some((self.data_id(), position - self.parity.len()));
        }
        let whole_groups = self.data.of_group(0).len() + self.parity.of_group(0).len();
        let group = position / count(whole_groups).max(1);
        // Data and parity have the same groups in the same superblocks.
        let groups = self.data.block(self.data.block_of(group));
        let data = self.data.of_groups(groups.clone());
        let parity = self.parity.of_groups(groups.clone());
        let offset = position - data.start - parity.start;
        let chunk = match offset.checked_sub(data.end - data.start) {
            None => (
                self.data_id(),
                self.data.at_in(&groups, data.start + offset),
            ),
            Some(beyond) => (
                self.parity_id(),
                self.parity.at_in(&groups, parity.start + beyond),
            ),
        };
        Some(chunk)
    }

    fn group_end(&self, position: u32) -> Option<u32> {
        let Some(group) = self.group_of(position) else {
            return (position < self.len()).then_some(position);
        };
        let Some(last) = self.parity.of_group(group).last() else {
            return Some(position);
        };
        // The parity of a superblock follows all its data.
        let data = self.block_data(self.data.block_of(group));
        Some(data.end + self.parity.rank(last))
    }
}

/// The number of chunks in a group, at most 255.
fn count(chunks: usize) -> u32 {
    u32::try_from(chunks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::CriticalChunks;
    use core::num::NonZeroU8;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    const D: MessageId = MessageId::new(9);

    fn shape(code: &str, depth: u8, bytes: u64, chunks: u32) -> Shape {
        let scheme = ErasureCoding {
            depth: NonZeroU8::new(depth).unwrap(),
            ..ErasureCoding::new(code.parse().unwrap(), crate::timing::Alpha::DEFAULT)
        };
        let message = Message {
            number: 9,
            bytes,
            chunks,
            chunk_bytes: 100,
            critical: CriticalChunks::NONE,
        };
        Shape::new(&scheme, &message)
    }

    #[test]
    fn a_superblock_is_data_by_rows_then_parity_by_rows() {
        let shape = shape("ec-mds:2,1", 2, 450, 5);
        let order: Vec<_> = (0..shape.len()).map_while(|p| shape.at(p)).collect();
        let p = D.parity();
        // There are three groups, in superblocks of one and of two groups. The last group has one
        // chunk.
        assert_eq!(
            order,
            [
                (D, 0),
                (D, 1),
                (p, 0),
                (D, 2),
                (D, 4),
                (D, 3),
                (p, 1),
                (p, 2)
            ]
        );
    }

    #[test]
    fn chunks_without_bytes_are_not_coded_and_go_last() {
        let order = |shape: Shape| {
            (0..shape.len())
                .map_while(move |p| shape.at(p))
                .collect::<Vec<_>>()
        };
        let p = D.parity();
        assert_eq!(
            order(shape("ec-mds:4,1", 8, 101, 4)),
            [(D, 0), (D, 1), (p, 0), (D, 2), (D, 3)]
        );
        let empty = shape("ec-xor:4,2", 8, 0, 3);
        assert_eq!(empty.groups, 0);
        assert_eq!(order(empty), [(D, 0), (D, 1), (D, 2)]);
    }

    #[test]
    fn a_message_whose_parity_cannot_be_counted_has_none() {
        let chunks = u32::MAX / 100;
        let shape = shape("ec-mds:1,254", 16, u64::from(chunks) * 100, chunks);
        assert_eq!((shape.parity.len(), shape.len()), (0, chunks));
        assert_eq!(shape.at(chunks - 1), Some((D, chunks - 1)));
    }

    proptest! {
        #[test]
        fn every_chunk_has_one_position_and_parity_follows_its_data(
            k in 1u8..12,
            m in 1u8..12,
            depth in 1u8..12,
            xor in any::<bool>(),
            chunks in 1u32..300,
            empty in 0u32..9,
        ) {
            let code = match xor && m <= k {
                true => std::format!("ec-xor:{k},{m}"),
                false => std::format!("ec-mds:{k},{m}"),
            };
            let empty = empty.min(chunks);
            let shape = shape(&code, depth, u64::from(chunks - empty) * 100, chunks);
            let mut seen = BTreeSet::new();
            let mut ends = BTreeMap::new();
            for position in 0..shape.len() {
                let (message, chunk) = shape.at(position).unwrap();
                let per_group = if message.is_parity() { m } else { k };
                let is_coded = message.is_parity() || chunk < shape.data.len();
                let group = is_coded.then(|| chunk / u32::from(per_group)).ok_or(chunk);
                let end = shape.group_end(position).unwrap();
                prop_assert_eq!(*ends.entry(group).or_insert(end), end);
                prop_assert!(seen.insert((message, chunk)));
                if message.is_parity() {
                    let group = chunk / u32::from(m);
                    prop_assert!(shape.data.of_group(group).all(|data| seen.contains(&(D, data))));
                    prop_assert!(shape.parity.of_group(group).contains(&chunk));
                } else {
                    prop_assert_eq!(shape.data_at(shape.data_rank(chunk)), chunk);
                }
            }
            for (group, end) in ends {
                let last = (0..shape.len()).rev().find(|position| {
                    let (message, chunk) = shape.at(*position).unwrap();
                    match group {
                        Ok(group) => message.is_parity() && chunk / u32::from(m) == group,
                        Err(alone) => !message.is_parity() && chunk == alone,
                    }
                });
                prop_assert_eq!(last, Some(end));
            }
            prop_assert_eq!(shape.at(shape.len()), None);
            prop_assert_eq!(shape.group_end(shape.len()), None);
            prop_assert!((0..chunks).all(|chunk| seen.contains(&(D, chunk))));
        }
    }
}
