//! Reading an [`Arrivals`] bitmap: the cumulative point, and what is missing.

use core::ops::Range;

use crate::chunk_set::words_of;
use crate::scheme::Arrivals;

/// First chunk from `from` on that has not arrived, `chunks` if all have. With `from` the last
/// answer, successive calls read each word of the bitmap about once.
pub fn cumulative(arrivals: &dyn Arrivals, message: u64, from: u32, chunks: u32) -> u32 {
    first(arrivals, message, from..chunks, false)
}

/// First chunk of the range that has `arrived`, or has not; the range's end if there is none.
fn first(arrivals: &dyn Arrivals, message: u64, range: Range<u32>, arrived: bool) -> u32 {
    for (word, mask) in words_of(range.clone()) {
        let bits = arrivals.word(message, word);
        let found = mask & if arrived { bits } else { !bits };
        if found != 0 {
            return word * 64 + found.trailing_zeros();
        }
    }
    range.end
}

/// How many chunks of the range have arrived.
pub fn count(arrivals: &dyn Arrivals, message: u64, range: Range<u32>) -> u32 {
    let bits = words_of(range).map(|(word, mask)| arrivals.word(message, word) & mask);
    bits.map(u64::count_ones).sum()
}

/// The highest chunk of the range that has arrived.
pub fn highest(arrivals: &dyn Arrivals, message: u64, range: Range<u32>) -> Option<u32> {
    let bits = words_of(range).map(|(word, mask)| (word, arrivals.word(message, word) & mask));
    let (word, bits) = bits.filter(|(_, bits)| *bits != 0).last()?;
    Some(word * 64 + 63 - bits.leading_zeros())
}

/// The runs of chunks in a range that have not arrived, in order.
pub struct Missing<'a> {
    arrivals: &'a dyn Arrivals,
    message: u64,
    rest: Range<u32>,
}

impl<'a> Missing<'a> {
    /// Looks at `range` of `message`, as it stands when each run is asked for.
    pub fn new(arrivals: &'a dyn Arrivals, message: u64, range: Range<u32>) -> Self {
        Self {
            arrivals,
            message,
            rest: range,
        }
    }
}

impl Iterator for Missing<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        if self.rest.is_empty() {
            return None;
        }
        let Range { start, end } = self.rest;
        let start = first(self.arrivals, self.message, start..end, false);
        self.rest.start = first(self.arrivals, self.message, start..end, true);
        (start < end).then_some(start..self.rest.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    struct Bits(Vec<bool>);

    impl Arrivals for Bits {
        fn word(&self, _message: u64, word: u32) -> u64 {
            let bits = self.0.iter().skip(word as usize * 64).take(64);
            bits.enumerate().fold(0, |w, (i, &b)| w | u64::from(b) << i)
        }
        fn count(&self, _message: u64) -> u32 {
            u32::try_from(self.0.iter().filter(|b| **b).count()).unwrap()
        }
        fn seen(&self, _message: u64) -> u32 {
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
