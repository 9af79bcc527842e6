//! A set of chunks of one message: one bit each, in words of 64.

use core::ops::Range;

use alloc::vec;
use alloc::vec::Vec;

/// A set of chunks of a message of fixed length. Chunks outside the message cannot be in it: an
/// inserted range is clipped.
///
/// ```
/// use farwrite_schemes::chunk_set::ChunkSet;
///
/// let mut set = ChunkSet::new(100);
/// set.insert_range(60..70);
/// assert!(set.contains_all(62..66) && set.count() == 10);
/// assert_eq!(set.take_run(4), Some(60..64));
/// assert_eq!(set.take_run(100), Some(64..70));
/// assert!(set.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct ChunkSet {
    words: Vec<u64>,
    chunks: u32,
    count: u32,
    /// No word before this one has a bit set.
    low_word: usize,
}

impl ChunkSet {
    /// Creates an empty set over chunks `0..chunks`. It takes `chunks / 8` bytes.
    pub fn new(chunks: u32) -> Self {
        Self {
            words: vec![0; chunks.div_ceil(64) as usize],
            chunks,
            count: 0,
            low_word: 0,
        }
    }

    /// Number of chunks of the message.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Number of chunks in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether no chunk is in the set.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether every chunk of the message is in the set.
    pub fn is_full(&self) -> bool {
        self.count == self.chunks
    }

    /// Chunks `64 * word..64 * word + 64`, the first in the least significant bit; 0 past the end.
    pub fn word(&self, word: u32) -> u64 {
        self.words.get(word as usize).copied().unwrap_or(0)
    }

    /// Returns whether every chunk of the range is in the set. True for an empty range.
    pub fn contains_all(&self, range: Range<u32>) -> bool {
        words_of(range).all(|(word, mask)| self.word(word) & mask == mask)
    }

    /// Inserts the chunks whose bits are set, and returns the bits that were not there before.
    pub fn insert_word(&mut self, word: u32, bits: u64) -> u64 {
        let valid = word_mask(word, &(0..self.chunks));
        let Some(slot) = self.words.get_mut(word as usize) else {
            return 0;
        };
        let new = bits & valid & !*slot;
        *slot |= new;
        self.count += new.count_ones();
        if new != 0 {
            self.low_word = self.low_word.min(word as usize);
        }
        new
    }

    /// Inserts the chunks of a range.
    pub fn insert_range(&mut self, range: Range<u32>) {
        for (word, mask) in words_of(range) {
            self.insert_word(word, mask);
        }
    }

    /// Removes the chunks whose bits are set.
    pub fn remove_word(&mut self, word: u32, bits: u64) {
        if let Some(slot) = self.words.get_mut(word as usize) {
            self.count -= (*slot & bits).count_ones();
            *slot &= !bits;
        }
    }

    /// Removes all chunks.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// Removes and returns the first run of chunks in the set, or its first `max_chunks` chunks.
    pub fn take_run(&mut self, max_chunks: u32) -> Option<Range<u32>> {
        if self.count == 0 || max_chunks == 0 {
            return None;
        }
        while self.words.get(self.low_word) == Some(&0) {
            self.low_word += 1;
        }
        let word = u32::try_from(self.low_word).ok()?;
        let start = word * 64 + self.word(word).trailing_zeros();
        let limit = self.chunks.min(start.saturating_add(max_chunks));
        let mut end = start;
        while end < limit {
            let run = (!(self.word(end / 64) >> (end % 64))).trailing_zeros();
            if run == 0 {
                break;
            }
            end += run.min(64 - end % 64);
        }
        let run = start..end.min(limit);
        for (word, mask) in words_of(run.clone()) {
            self.remove_word(word, mask);
        }
        Some(run)
    }
}

/// The bits of word `word` that lie in `range`.
pub fn word_mask(word: u32, range: &Range<u32>) -> u64 {
    let first = u64::from(word) * 64;
    let start = u64::from(range.start).clamp(first, first + 64) - first;
    let end = u64::from(range.end).clamp(first, first + 64) - first;
    if start >= end {
        return 0;
    }
    (u64::MAX >> (64 - (end - start))) << start
}

/// The words that a range touches, each with a mask of the bits that lie in the range.
pub fn words_of(range: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    let words = if range.is_empty() {
        0..0
    } else {
        range.start / 64..range.end.div_ceil(64)
    };
    words.map(move |word| (word, word_mask(word, &range)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_mask_covers_exactly_the_range() {
        let table = [
            (0, 0..64, u64::MAX),
            (0, 0..1, 1),
            (0, 63..64, 1 << 63),
            (0, 60..70, 0xF << 60),
            (1, 60..70, 0x3F),
            (2, 60..70, 0),
            (0, 5..5, 0),
            (u32::MAX / 64, u32::MAX - 1..u32::MAX, 1 << 62),
        ];
        for (word, range, mask) in table {
            assert_eq!(word_mask(word, &range), mask, "{word} {range:?}");
        }
    }

    #[test]
    fn nothing_outside_of_the_message_gets_in() {
        let mut set = ChunkSet::new(70);
        assert_eq!(set.insert_word(1, u64::MAX), 0x3F);
        assert_eq!(set.insert_word(2, u64::MAX), 0);
        assert_eq!(set.insert_word(u32::MAX, u64::MAX), 0);
        assert_eq!((set.count(), set.is_full()), (6, false));
        set.insert_word(0, u64::MAX);
        assert!(set.is_full());
    }

    proptest! {
        #[test]
        fn takes_out_in_order_what_was_put_in(
            chunks in 1u32..400,
            put in prop::collection::vec(0u32..400, 0..200),
            max in 1u32..80,
        ) {
            let mut set = ChunkSet::new(chunks);
            let mut expected = BTreeSet::new();
            for chunk in put {
                let new = set.insert_word(chunk / 64, 1 << (chunk % 64));
                prop_assert_eq!(new != 0, chunk < chunks && expected.insert(chunk));
            }
            prop_assert_eq!(set.count() as usize, expected.len());
            let mut taken = BTreeSet::new();
            while let Some(run) = set.take_run(max) {
                prop_assert!(!run.is_empty() && run.len() <= max as usize);
                taken.extend(run);
            }
            prop_assert_eq!(taken, expected);
            prop_assert!(set.is_empty());
        }
    }
}
