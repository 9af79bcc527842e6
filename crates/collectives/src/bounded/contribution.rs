//! Contributions of ranks to a part, and their reduction.

use std::ops::Range;

use super::exchange::Exchange;
use crate::element::Reduction;
use crate::index::{to_range, to_usize};
use crate::kernel;
use crate::scratch::Scratch;

/// What has arrived of the contribution of one rank.
#[derive(Debug)]
pub(super) struct Contribution {
    /// Bytes that wait for the reduction; those of packets that have not arrived have any value, or
    /// are 0 if contributions are transformed. Empty for this rank, and if nothing is reduced.
    pub(super) staged: Vec<u8>,
    /// Whether each packet has arrived. The own contribution of a rank is complete.
    pub(super) arrived: Vec<bool>,
}

impl Contribution {
    /// Nothing has arrived from `rank` yet.
    pub(super) fn new(exchange: &Exchange, rank: usize, scratch: &mut Scratch) -> Self {
        let range = &exchange.receives[rank];
        let bytes = range.end - range.start;
        let is_own = rank == exchange.rank;
        let staged = match exchange.reduction {
            Some(_) if is_own => Vec::new(),
            Some(_) if exchange.encoding.is_some() => scratch.take_zeroed(to_usize(bytes)),
            Some(_) => scratch.take(to_usize(bytes)),
            None => Vec::new(),
        };
        let packets = to_usize(bytes.div_ceil(exchange.packet_bytes));
        Self {
            staged,
            arrived: vec![is_own; packets],
        }
    }
}

impl Exchange {
    /// Combines the contributions that have arrived, rank by rank, starting after this rank. They
    /// remain transformed. Does nothing if the operation does not reduce.
    pub(super) fn reduce(&self, contributions: &mut [&mut Contribution], work: &mut [u8]) {
        let Some((element, reduction)) = self.reduction else {
            return;
        };
        let own = &mut work[to_range(&self.receives[self.rank])];
        let packets = contributions[self.rank].arrived.len();
        let ranks = contributions.len();
        let bytes_of = |run: &Range<usize>, length: usize| {
            let packet_bytes = to_usize(self.packet_bytes);
            run.start * packet_bytes..length.min(run.end * packet_bytes)
        };
        for peer in (1..ranks).map(|distance| (self.rank + distance) % ranks) {
            let from = &mut contributions[peer];
            if let Some(encoding) = self.encoding {
                encoding.rescale(&mut from.staged, &from.arrived);
            }
            for run in runs(&from.arrived) {
                let bytes = bytes_of(&run, own.len());
                let theirs = &from.staged[bytes.clone()];
                kernel::reduce(element, reduction, &mut own[bytes], theirs);
            }
        }
        // Values that lack the same contributions: those of one packet, or of one group of packets.
        let together = self.encoding.map_or(1, |e| e.group_packets());
        let sets = (0..packets).step_by(together);
        let sets = sets.map(|start| start..packets.min(start + together));
        for set in sets.filter(|_| reduction == Reduction::Mean) {
            let has_some = |from: &&&mut Contribution| from.arrived[set.clone()].contains(&true);
            let contributors = contributions.iter().filter(has_some).count();
            let contributors = u32::try_from(contributors).unwrap_or(u32::MAX);
            let bytes = bytes_of(&set, own.len());
            kernel::divide(element, &mut own[bytes], contributors);
        }
    }

    /// Transforms the reduced part of this rank back, if contributions are transformed.
    pub(super) fn decode(&self, work: &mut [u8]) {
        if let Some(encoding) = self.encoding {
            encoding.decode(&mut work[to_range(&self.receives[self.rank])]);
        }
    }
}

/// The runs of consecutive `true` values.
pub(super) fn runs(set: &[bool]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + set[at..].iter().position(|&set| set)?;
        let length = set[start..].iter().position(|&set| !set);
        at = start + length.unwrap_or(set.len() - start);
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_what_is_set() {
        let check = |set: &[bool], expected: &[Range<usize>]| {
            assert_eq!(runs(set).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[false, false], &[]);
        check(&[true, true, false, true], &[0..2, 3..4]);
        check(&[false, true, true, false, true], &[1..3, 4..5]);
    }
}
