//! The group as one rank sees it.

use crate::bounded::Hadamard;
use crate::error::CollectiveError;
use crate::operation::{Algorithm, Delivery};

/// A rank of a group, and the properties of the group that plans of operations depend on.
#[derive(Clone, Debug)]
pub(crate) struct GroupView {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The size of the packets of bounded operations in bytes.
    pub(crate) packet_bytes: u32,
    pub(crate) packets_per_segment: u32,
    /// How contributions to bounded operations are transformed.
    pub(crate) hadamard: Option<Hadamard>,
    /// How contributions to bounded all-reduces travel.
    pub(crate) bounded_algorithm: Algorithm,
    /// How the reduced parts of bounded all-reduces reach all ranks.
    pub(crate) parts: Delivery,
    /// The site of each rank. If it is empty, all ranks are near each other.
    pub(crate) sites: Vec<u32>,
}

impl GroupView {
    /// Whether bounded all-reduces run around a ring.
    pub(crate) fn has_ring(&self) -> bool {
        let is_apart = |pair: &&[u32]| pair[0] != pair[1];
        let mut sites = self.sites.clone();
        let borders = sites.windows(2).filter(is_apart).count();
        sites.sort_unstable();
        sites.dedup();
        match self.bounded_algorithm {
            // A site whose ranks follow each other has one border to the next site.
            Algorithm::Auto => self.ranks > 2 && borders > 0 && borders + 1 == sites.len(),
            algorithm => algorithm == Algorithm::Ring,
        }
    }

    /// The error for an invalid argument.
    pub(crate) fn wrong(
        &self,
        argument: &'static str,
        value: impl ToString,
        expected: impl Into<String>,
    ) -> CollectiveError {
        CollectiveError::Argument {
            rank: self.rank,
            argument,
            value: value.to_string(),
            expected: expected.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::GroupOptions;

    #[test]
    fn sites_whose_ranks_follow_each_other_make_a_ring() {
        let has_ring = |algorithm, ranks, sites: &[u32]| {
            let mut options = GroupOptions {
                sites: sites.to_vec(),
                ..GroupOptions::default()
            };
            options.bounded.algorithm = algorithm;
            options.view(0, ranks).has_ring()
        };
        let (auto, ring, direct) = (Algorithm::Auto, Algorithm::Ring, Algorithm::Direct);
        for (ranks, sites, expected) in [
            (4, &[0, 0, 1, 1][..], true),
            (3, &[7, 3, 3], true),
            (4, &[0, 1, 0, 1], false),
            (4, &[1, 1, 1, 1], false),
            (4, &[], false),
            (2, &[0, 1], false),
        ] {
            assert_eq!(has_ring(auto, ranks, sites), expected, "{sites:?}");
            assert!(has_ring(ring, ranks, sites));
            assert!(!has_ring(direct, ranks, sites));
        }
    }
}
