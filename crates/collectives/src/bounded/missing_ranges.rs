//! Which bytes of a result lack which contributions.

use std::ops::Range;

use crate::index::to_usize;
use crate::report::Missing;

/// Ranges of bytes that are added in order. Equal neighbours become one.
#[derive(Debug, Default)]
pub(super) struct MissingRanges(Vec<Missing>);

impl MissingRanges {
    /// Adds bytes that lack the contributions of these ranks, in ascending order.
    pub(super) fn add(&mut self, range: Range<u64>, ranks: Vec<usize>) {
        if ranks.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.range.end == range.start && last.ranks == ranks => {
                last.range.end = range.end;
            }
            _ => self.0.push(Missing { range, ranks }),
        }
    }

    /// Adds a part that was reduced packet by packet from the contributions of these many ranks.
    pub(super) fn add_packets(
        &mut self,
        part: &Range<u64>,
        packet_bytes: u64,
        ranks: usize,
        has_arrived: impl Fn(usize, usize) -> bool,
    ) {
        let starts = part.clone().step_by(to_usize(packet_bytes));
        for (packet, start) in starts.enumerate() {
            let absent = |rank: &usize| !has_arrived(*rank, packet);
            let end = part.end.min(start + packet_bytes);
            self.add(start..end, (0..ranks).filter(absent).collect());
        }
    }

    pub(super) fn into_missing(self) -> Vec<Missing> {
        self.0
    }
}
