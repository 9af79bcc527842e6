//! Sets of chunks of one group.

use crate::code::Code;

/// Maximum of `k + m`. A Cauchy matrix over GF(2^8) needs a different field element for each chunk,
/// so the field itself would allow 256.
pub(crate) const MAX_CHUNKS: usize = 255;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of chunks of one group, by their index in the group. It holds up to 255 chunks and does
/// not allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChunkMask([u64; 4]);

impl ChunkMask {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// Returns the set of chunks `0..count`. A `count` above 255 gives the same set as 255.
    pub const fn first(count: usize) -> Self {
        let mut words = [0; 4];
        let (mut left, mut at) = (
            if count < MAX_CHUNKS {
                count
            } else {
                MAX_CHUNKS
            },
            0,
        );
        while left >= WORD_BITS {
            words[at] = u64::MAX;
            left -= WORD_BITS;
            at += 1;
        }
        words[at] = (1 << left) - 1;
        Self(words)
    }

    /// Adds a chunk to the set. Returns whether the chunk was new. Ignores an index of 255 or more,
    /// which no group has, and returns false.
    pub const fn insert(&mut self, chunk: usize) -> bool {
        if chunk >= MAX_CHUNKS || self.contains(chunk) {
            return false;
        }
        self.0[chunk / WORD_BITS] |= 1 << (chunk % WORD_BITS);
        true
    }

    /// Removes a chunk from the set. Returns whether the set contained it.
    pub const fn remove(&mut self, chunk: usize) -> bool {
        let there = self.contains(chunk);
        if there {
            self.0[chunk / WORD_BITS] &= !(1 << (chunk % WORD_BITS));
        }
        there
    }

    /// Returns whether the set contains a chunk.
    pub const fn contains(&self, chunk: usize) -> bool {
        chunk < MAX_CHUNKS && self.0[chunk / WORD_BITS] >> (chunk % WORD_BITS) & 1 == 1
    }

    /// Returns the number of chunks in the set.
    pub const fn len(&self) -> usize {
        let [a, b, c, d] = self.0;
        (a.count_ones() + b.count_ones() + c.count_ones() + d.count_ones()) as usize
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the chunks that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Returns the chunks of `0..count` that are not in the set.
    #[must_use]
    pub fn missing(&self, count: usize) -> Self {
        let all = Self::first(count);
        Self(core::array::from_fn(|i| all.0[i] & !self.0[i]))
    }

    /// Returns the chunks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.0;
        words.into_iter().enumerate().flat_map(|(at, mut word)| {
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(at * WORD_BITS + bit)
            })
        })
    }
}

impl FromIterator<usize> for ChunkMask {
    fn from_iter<I: IntoIterator<Item = usize>>(chunks: I) -> Self {
        let mut mask = Self::EMPTY;
        for chunk in chunks {
            mask.insert(chunk);
        }
        mask
    }
}

/// The chunks of one group that are present. Chunks that the group does not have are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Present {
    /// Data chunks, by their index in the group.
    pub data: ChunkMask,
    /// Parity chunks, by their index in the group.
    pub parity: ChunkMask,
}

impl Present {
    /// Returns all chunks of a group that has `data_chunks` data chunks.
    pub const fn all(code: Code, data_chunks: usize) -> Self {
        Self {
            data: ChunkMask::first(data_chunks),
            parity: ChunkMask::first(code.parity_chunks(data_chunks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_first_chunks_are_those() {
        for count in 0..=300 {
            let mask = ChunkMask::first(count);
            assert_eq!(mask.len(), count.min(255));
            assert!(mask.iter().eq(0..count.min(255)), "{count}");
            assert!(mask.missing(count).is_empty());
            assert_eq!(ChunkMask::EMPTY.missing(count), mask);
        }
    }

    #[test]
    fn what_goes_in_comes_out() {
        let chunks = [0, 1, 63, 64, 127, 128, 191, 192, 254];
        let mut mask: ChunkMask = chunks.into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), chunks);
        for chunk in chunks {
            assert!(!mask.insert(chunk) && mask.contains(chunk));
            assert!(mask.remove(chunk) && !mask.remove(chunk) && !mask.contains(chunk));
        }
        assert!(mask.is_empty());
    }

    #[test]
    fn no_group_has_chunk_255() {
        let mut mask = ChunkMask::EMPTY;
        for chunk in [255, 256, usize::MAX] {
            assert!(!mask.insert(chunk) && !mask.contains(chunk) && !mask.remove(chunk));
        }
        assert!(mask.is_empty());
    }
}
