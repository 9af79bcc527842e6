//! The lost chunks of a file.

use std::ops::{Range, RangeInclusive};

use crate::exit::{Exit, Failure};

/// Parses chunks as a user names them: `17`, or `40-44`.
pub(super) fn parse_chunks(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|chunk| (chunk, chunk)),
    };
    match range {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err("chunks are counted from 0; write them like 3,17,40-44".to_owned()),
    }
}

/// A set of chunks of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost {
    /// In ascending order, with gaps between them.
    ranges: Vec<Range<u64>>,
}

impl Lost {
    /// The chunks that the user named, in a file of `chunks` chunks. `option` is the option that
    /// named them.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a chunk that does not exist.
    pub(super) fn new(
        named: &[RangeInclusive<u64>],
        chunks: u64,
        option: &str,
    ) -> Result<Self, Failure> {
        let mut lost = Self::default();
        for range in named {
            let last = *range.end();
            if last >= chunks {
                let there = match chunks {
                    0 => "there are none".to_owned(),
                    1 => "there is chunk 0 only".to_owned(),
                    _ => format!("there are chunks 0 to {}", chunks - 1),
                };
                return Err(Failure::new(
                    Exit::Usage,
                    format!("{option} names chunk {last}: {there}"),
                ));
            }
            lost.insert(*range.start()..last + 1);
        }
        Ok(lost)
    }

    /// Adds chunks; an empty range adds none.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Ranges that overlap or touch the new one are merged with it.
        let first = self.ranges.partition_point(|other| other.end < range.start);
        let end = self
            .ranges
            .partition_point(|other| other.start <= range.end);
        let mut whole = range;
        for other in &self.ranges[first..end] {
            whole = whole.start.min(other.start)..whole.end.max(other.end);
        }
        self.ranges.splice(first..end, [whole]);
    }

    pub(super) fn len(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    /// All chunks of the set, as ranges in ascending order.
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The chunks of the set that lie in a range.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let first = self
            .ranges
            .partition_point(|other| other.end <= range.start);
        self.ranges[first..]
            .iter()
            .take_while(move |other| other.start < range.end)
            .flat_map(move |other| other.start.max(range.start)..other.end.min(range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_numbers_and_ranges() {
        assert_eq!(parse_chunks("17"), Ok(17..=17));
        assert_eq!(parse_chunks("40-44"), Ok(40..=44));
        for text in ["", "-", "-3", "3-", "5-4", "x", "1-2-3", "1.5"] {
            parse_chunks(text).expect_err(text);
        }
    }

    #[test]
    fn sets_merge_what_overlaps_or_touches() {
        let named = [7..=7, 3..=4, 20..=29, 5..=5, 0..=0, 25..=31, 7..=7];
        let lost = Lost::new(&named, 32, "--lost").expect("all are there");
        assert_eq!(lost.ranges(), [0..1, 3..6, 7..8, 20..32]);
        assert_eq!(lost.len(), 17);
        assert_eq!(lost.within(0..8).collect::<Vec<_>>(), [0, 3, 4, 5, 7]);
        assert_eq!(lost.within(4..21).collect::<Vec<_>>(), [4, 5, 7, 20]);
        assert_eq!(lost.within(8..20).count() + lost.within(32..40).count(), 0);
    }

    #[test]
    fn a_chunk_that_is_not_there_cannot_be_lost() {
        for (named, chunks) in [(32..=32, 32), (0..=u64::MAX, 32), (0..=0, 0)] {
            let error = Lost::new(&[named], chunks, "--lost").expect_err("not there");
            assert!(error.to_string().contains("--lost"), "{error}");
            assert_eq!(error.exit, Exit::Usage);
        }
    }
}
