//! BLAKE3 of a file in blocks, so that parts of a file can be hashed in any order (P8.8).
//!
//! BLAKE3 is a tree. The node above a block of a power of two of bytes, at a multiple of this length, depends
//! on the block and its position only. The hash of the file follows from the nodes of all of its blocks.

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

pub(super) const BLOCK_BYTES: u64 = 4 << 20;

/// The node of a block in the tree.
pub(super) type BlockHash = ChainingValue;

/// Hashes consecutive bytes of a file, from the start of a block on.
#[derive(Debug)]
pub(super) struct FileHasher {
    /// Of the current block.
    hasher: Hasher,
    /// Where the next byte lies in the file.
    offset: u64,
    /// The blocks before the current one, from the first on.
    blocks: Vec<BlockHash>,
}

impl FileHasher {
    /// Begins at a multiple of [`BLOCK_BYTES`].
    pub(super) fn new(offset: u64) -> Self {
        Self {
            hasher: at(offset),
            offset,
            blocks: Vec::new(),
        }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // The last block of a file stays open, since it may be the only one, which is hashed in
            // another way.
            if self.hasher.count() == BLOCK_BYTES {
                self.blocks.push(self.hasher.finalize_non_root());
                self.hasher = at(self.offset);
            }
            let room = BLOCK_BYTES - self.hasher.count();
            let room = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (piece, rest) = bytes.split_at(room);
            self.hasher.update(piece);
            self.offset += u64::try_from(room).unwrap_or(u64::MAX);
            bytes = rest;
        }
    }

    /// The hash of a file, of which `before` are the blocks before those that were hashed here.
    pub(super) fn hash(mut self, mut before: Vec<BlockHash>) -> blake3::Hash {
        if before.is_empty() && self.blocks.is_empty() {
            return self.hasher.finalize();
        }
        before.append(&mut self.blocks);
        if self.hasher.count() > 0 {
            before.push(self.hasher.finalize_non_root());
        }
        let (left, right) = halves(&before);
        merge_subtrees_root(&node(left), &node(right), Mode::Hash)
    }

    /// The node of one block, all of which was hashed here.
    pub(super) fn block(self) -> BlockHash {
        self.hasher.finalize_non_root()
    }
}

/// The node of a block, by its number.
pub(super) fn block_hash(block: u32, bytes: &[u8]) -> BlockHash {
    let mut hasher = FileHasher::new(offset_of(block));
    hasher.update(bytes);
    hasher.block()
}

pub(super) fn offset_of(block: u32) -> u64 {
    u64::from(block) * BLOCK_BYTES
}

fn at(offset: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher
}

/// The node above consecutive blocks.
fn node(blocks: &[BlockHash]) -> BlockHash {
    match blocks {
        [] => BlockHash::default(),
        [only] => *only,
        _ => {
            let (left, right) = halves(blocks);
            merge_subtrees_non_root(&node(left), &node(right), Mode::Hash)
        }
    }
}

/// The left half of a tree is as large as possible, and full.
fn halves(blocks: &[BlockHash]) -> (&[BlockHash], &[BlockHash]) {
    blocks.split_at(blocks.len().div_ceil(2).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_that_of_the_whole_file_from_any_block_on() {
        const BLOCK: usize = 4 << 20;
        let bytes: Vec<u8> = (0..5 * BLOCK + 1000)
            .map(|at| u8::try_from(at * at / 7919 % 251).expect("below 251"))
            .collect();
        let lengths = [
            0,
            1,
            2000,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            2 * BLOCK,
            3 * BLOCK,
        ];
        for length in lengths
            .into_iter()
            .chain([4 * BLOCK + 9, 5 * BLOCK, bytes.len()])
        {
            let file = &bytes[..length];
            for before in 0..=length.saturating_sub(1) / BLOCK {
                let start = before * BLOCK;
                let blocks = file[..start].chunks(BLOCK).zip(0..);
                let blocks = blocks.map(|(bytes, block)| block_hash(block, bytes));
                let mut hasher = FileHasher::new(start as u64);
                for piece in file[start..].chunks(700_001) {
                    hasher.update(piece);
                }
                let hash = hasher.hash(blocks.collect());
                assert_eq!(hash, blake3::hash(file), "{length} bytes, from {start} on");
            }
        }
    }
}
