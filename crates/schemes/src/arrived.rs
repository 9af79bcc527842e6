//! Reading an [`Arrivals`] bitmap: the cumulative point, and what is missing.

use core::ops::Range;

use crate::chunk_set::words_of;
use crate::scheme::{Arrivals, MessageId};

/// Returns the first chunk from `from` on that has not arrived, or `chunks` if all have. If `from`
/// is the last result, successive calls read each word of the bitmap about once.
pub fn cumulative(
    arrivals: &dyn Arrivals,
    message: impl Into<MessageId>,
    from: u32,
    chunks: u32,
) -> u32 {
    Missing::new(arrivals, message, from..chunks).first(false)
}

/// Number of chunks of the range that have arrived.
pub fn count(arrivals: &dyn Arrivals, message: impl Into<MessageId>, range: Range<u32>) -> u32 {
    let message = message.into();
    let bits = words_of(range).map(|(word, mask)| arrivals.word(message, word) & mask);
    bits.map(u64::count_ones).sum()
}

/// The highest chunk of the range that has arrived.
pub fn highest(
    arrivals: &dyn Arrivals,
    message: impl Into<MessageId>,
    range: Range<u32>,
) -> Option<u32> {
    let message = message.into();
    let bits = words_of(range).map(|(word, mask)| (word, arrivals.word(message, word) & mask));
    let (word, bits) = bits.filter(|(_, bits)| *bits != 0).last()?;
    Some(word * 64 + 63 - bits.leading_zeros())
}

/// The runs of chunks in a range that have not arrived, in order.
///
/// It reads every word of the bitmap once. More chunks may arrive meanwhile, so a second read of a
/// word could differ from the first and produce an empty run.
pub struct Missing<'a> {
    arrivals: &'a dyn Arrivals,
    message: MessageId,
    rest: Range<u32>,
    /// Number and value of the word that was read last.
    read: Option<(u32, u64)>,
}

impl<'a> Missing<'a> {
    /// Iterates over `range` of `message`. Words are read as the runs are requested.
    pub fn new(
        arrivals: &'a dyn Arrivals,
        message: impl Into<MessageId>,
        range: Range<u32>,
    ) -> Self {
        Self {
            arrivals,
            message: message.into(),
            rest: range,
            read: None,
        }
    }

    fn word(&mut self, word: u32) -> u64 {
        match self.read {
            Some((read, bits)) if read == word => bits,
            _ => {
                let bits = self.arrivals.word(self.message, word);
                self.read = Some((word, bits));
                bits
            }
        }
    }

    /// The first remaining chunk that has arrived, or has not, as `arrived` selects. The end if
    /// there is none.
    fn first(&mut self, arrived: bool) -> u32 {
        let end = self.rest.end;
        let found = words_of(self.rest.clone()).find_map(|(word, mask)| {
            let bits = self.word(word);
            let found = mask & if arrived { bits } else { !bits };
            (found != 0).then(|| word * 64 + found.trailing_zeros())
        });
        found.unwrap_or(end)
    }
}

impl Iterator for Missing<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        self.rest.start = self.first(false);
        if self.rest.is_empty() {
            return None;
        }
        let start = self.rest.start;
        self.rest.start = self.first(true);
        Some(start..self.rest.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    struct Bits(Vec<bool>);

    impl Arrivals for Bits {
        fn word(&self, _message: MessageId, word: u32) -> u64 {
            let bits = self.0.iter().skip(word as usize * 64).take(64);
            bits.enumerate().fold(0, |w, (i, &b)| w | u64::from(b) << i)
        }
        fn count(&self, _message: MessageId) -> u32 {
            u32::try_from(self.0.iter().filter(|b| **b).count()).unwrap()
        }
        fn seen(&self, _message: MessageId) -> u32 {
            u32::try_from(self.0.iter().rposition(|b| *b).map_or(0, |i| i + 1)).unwrap()
        }
    }

    proptest! {
        #[test]
        fn runs_and_arrived_chunks_make_up_the_range(
            bits in prop::collection::vec(prop::bool::weighted(0.8), 1..300),
            a in 0u32..300,
            b in 0u32..300,
        ) {
            let chunks = u32::try_from(bits.len()).unwrap();
            let range = a.min(chunks)..b.min(chunks);
            let arrivals = Bits(bits.clone());
            let runs: Vec<_> = Missing::new(&arrivals, 0, range.clone()).collect();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            let missing: Vec<u32> = runs.into_iter().flatten().collect();
            let expected: Vec<u32> = range.clone().filter(|c| !bits[*c as usize]).collect();
            let last = range.clone().rev().find(|c| bits[*c as usize]);
            prop_assert_eq!(highest(&arrivals, 0, range.clone()), last);
            let there = range.len() - expected.len();
            prop_assert_eq!(count(&arrivals, 0, range) as usize, there);
            prop_assert_eq!(missing, expected);
            let first_hole = bits.iter().position(|b| !b).unwrap_or(bits.len());
            prop_assert_eq!(cumulative(&arrivals, 0, 0, chunks) as usize, first_hole);
        }
    }
}
