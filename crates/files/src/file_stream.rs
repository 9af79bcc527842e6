//! The bytes of a file in the stream, in their order, and the hash of the file.
//!
//! Of a file that goes on after an interruption, the bytes from some block on come first. Blocks before it
//! that differ follow (P8.8).

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::file_hash::{BLOCK_BYTES, BlockHash, FileHasher, offset_of};
use super::partial::Run;
use super::sparse::Layout;
use super::{CommitGate, Extent};

/// Where the stream has arrived in a file.
#[derive(Debug)]
pub(super) struct FileStream {
    layout: Layout,
    hasher: FileHasher,
    /// What follows the first part; `None` before it is known.
    again: Option<Again>,
}

/// The blocks that come again.
#[derive(Debug)]
struct Again {
    /// The hashes of all blocks before the first part.
    before: Vec<BlockHash>,
    /// The parts that are left, with the numbers of their blocks.
    rest: VecDeque<(u32, Layout)>,
    /// The block of the current part, and the hasher of the first part.
    current: Option<(u32, FileHasher)>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// So many bytes of the stream belong here.
    Data {
        /// Where in the file.
        offset: u64,
        bytes: u64,
    },
    /// A block that comes again has a hole here, and the receiver has other bytes in it.
    Zeros(Range<u64>),
    /// The first part has ended, and nobody has said which blocks come again.
    Unknown,
    End,
}

impl FileStream {
    /// The first `before_bytes` of a file, whole blocks, were moved earlier. `data` says where the data of a
    /// sparse file are.
    pub(super) fn new(data: Option<&[Extent]>, length: u64, before_bytes: u64) -> Self {
        let none = || Again {
            before: Vec::new(),
            rest: VecDeque::new(),
            current: None,
        };
        Self {
            layout: Layout::new(data, before_bytes..length),
            hasher: FileHasher::new(before_bytes),
            again: (before_bytes == 0).then(none),
        }
    }

    /// Says which blocks come again, and gives the hashes of all blocks before the first part.
    pub(super) fn send_again(
        &mut self,
        data: Option<&[Extent]>,
        before: Vec<BlockHash>,
        runs: &[Run],
    ) {
        let blocks = runs.iter().flat_map(Run::blocks);
        let layout = |block| (block, Layout::new(data, range_of(block)));
        self.again = Some(Again {
            before,
            rest: blocks.map(layout).collect(),
            current: None,
        });
    }

    /// Where in the file the next byte of the stream lies.
    pub(super) fn offset(&self) -> u64 {
        self.layout.offset
    }

    /// Whether all bytes before [`FileStream::offset`] have come, and none after it.
    pub(super) fn is_first_part(&self) -> bool {
        self.again
            .as_ref()
            .is_none_or(|again| again.current.is_none())
    }

    /// Whether it is known which blocks come again.
    pub(super) fn is_known(&self) -> bool {
        self.again.is_some()
    }

    /// Goes to the next byte of the stream.
    pub(super) fn step(&mut self, gate: &CommitGate) -> io::Result<Piece> {
        let from = self.layout.offset;
        let bytes = self.layout.piece(&mut self.hasher, gate)?;
        if from < self.layout.offset && !self.is_first_part() {
            return Ok(Piece::Zeros(from..self.layout.offset));
        }
        if bytes > 0 {
            let offset = self.layout.offset;
            return Ok(Piece::Data { offset, bytes });
        }
        self.layout.finish(&mut self.hasher, gate)?;
        if from < self.layout.offset && !self.is_first_part() {
            return Ok(Piece::Zeros(from..self.layout.offset));
        }
        let Some(again) = &mut self.again else {
            return Ok(Piece::Unknown);
        };
        let Some((block, layout)) = again.rest.pop_front() else {
            return Ok(Piece::End);
        };
        self.layout = layout;
        let ended = std::mem::replace(&mut self.hasher, FileHasher::new(offset_of(block)));
        let first = again.end_part(ended);
        again.current = Some((block, first));
        self.step(gate)
    }

    /// Processes bytes that belong to the current place.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.layout
            .advance(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    /// The hash of the file, after [`Piece::End`].
    pub(super) fn hash(self) -> blake3::Hash {
        match self.again {
            None => self.hasher.hash(Vec::new()),
            Some(mut again) => {
                let first = again.end_part(self.hasher);
                first.hash(again.before)
            }
        }
    }
}

impl Again {
    /// Notes the hash of a part that has ended. Returns the hasher of the first part.
    fn end_part(&mut self, ended: FileHasher) -> FileHasher {
        let Some((block, first)) = self.current.take() else {
            return ended;
        };
        let place = usize::try_from(block).ok();
        if let Some(hash) = place.and_then(|place| self.before.get_mut(place)) {
            *hash = ended.block();
        }
        first
    }
}

/// Where a block lies in its file, which has bytes after it.
pub(super) fn range_of(block: u32) -> Range<u64> {
    offset_of(block)..offset_of(block) + BLOCK_BYTES
}
