//! Counts of chunk losses.

use farwrite_wire::control::LossCounts;

/// Chunks of one direction of a queue pair that were lost on their first way, out of those of which
/// that can be told, and in what bursts.
///
/// Where a chunk has several packets this is loss of chunks: one lost packet loses its chunk.
/// Always `bursts <= lost_chunks <= judged_chunks`, and the longest burst is no longer than that
/// allows.
///
/// ```
/// use farwrite_schemes::chunk_loss::ChunkLoss;
/// use farwrite_wire::control::LossCounts;
///
/// let loss = ChunkLoss::from_counts(LossCounts {
///     judged_chunks: 1_000,
///     lost_chunks: 12,
///     bursts: 4,
///     longest_burst_chunks: 6,
/// });
/// assert_eq!(loss.loss_chunk(), Some(0.012));
/// assert_eq!(loss.mean_burst_chunks(), Some(3.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkLoss(LossCounts);

impl ChunkLoss {
    /// Creates it from a peer's numbers, which may have any value. A number that contradicts the
    /// ones before it is reduced to the most that they allow.
    pub fn from_counts(counts: LossCounts) -> Self {
        let judged_chunks = counts.judged_chunks;
        let lost_chunks = counts.lost_chunks.min(judged_chunks);
        let bursts = counts.bursts.min(lost_chunks).max(lost_chunks.min(1));
        // Every other burst has at least one chunk, and none is longer than the longest.
        let most = lost_chunks - bursts.saturating_sub(1);
        let least = lost_chunks.div_ceil(bursts.max(1));
        Self(LossCounts {
            judged_chunks,
            lost_chunks,
            bursts,
            longest_burst_chunks: counts.longest_burst_chunks.clamp(least, most.max(least)),
        })
    }

    /// The counts as a control message carries them.
    pub fn counts(&self) -> LossCounts {
        self.0
    }

    /// Chunks for which it is known whether their first transmission arrived.
    pub fn judged_chunks(&self) -> u64 {
        self.0.judged_chunks
    }

    /// Judged chunks whose first transmission was lost.
    pub fn lost_chunks(&self) -> u64 {
        self.0.lost_chunks
    }

    /// Runs of lost chunks that are consecutive on the wire.
    pub fn bursts(&self) -> u64 {
        self.0.bursts
    }

    /// Number of chunks in the longest run.
    pub fn longest_burst_chunks(&self) -> u64 {
        self.0.longest_burst_chunks
    }

    /// Fraction of the judged chunks that were lost; `None` if none was judged.
    pub fn loss_chunk(&self) -> Option<f64> {
        ratio(self.0.lost_chunks, self.0.judged_chunks)
    }

    /// Mean number of chunks in a burst; `None` without bursts. Independent losses with probability
    /// `loss_chunk` have bursts of `1 / (1 - loss_chunk)` chunks.
    pub fn mean_burst_chunks(&self) -> Option<f64> {
        ratio(self.0.lost_chunks, self.0.bursts)
    }

    /// The most likely two-state chain for these losses, in which every chunk in the bad state is
    /// lost and no chunk in the good state is (Gilbert 1960). `None` if no chunk arrived or none
    /// was lost.
    pub fn markov(&self) -> Option<Markov> {
        Some(Markov {
            p_good_to_bad: ratio(self.0.bursts, self.0.judged_chunks - self.0.lost_chunks)?
                .min(1.0),
            p_bad_to_good: ratio(self.0.bursts, self.0.lost_chunks)?,
        })
    }

    /// Combines two counts, as if one measurement followed the other.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (a, b) = (self.0, other.0);
        Self(LossCounts {
            judged_chunks: a.judged_chunks.saturating_add(b.judged_chunks),
            lost_chunks: a.lost_chunks.saturating_add(b.lost_chunks),
            bursts: a.bursts.saturating_add(b.bursts),
            longest_burst_chunks: a.longest_burst_chunks.max(b.longest_burst_chunks),
        })
    }
}

/// A two-state chain that makes one step per chunk. Each stay in the bad state is a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Markov {
    /// Probability, after a chunk that arrived, that the next is lost.
    pub p_good_to_bad: f64,
    /// Probability, after a lost chunk, that the next arrives.
    pub p_bad_to_good: f64,
}

#[allow(
    clippy::cast_precision_loss,
    reason = "shares need no more than 53 bits"
)]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(numbers: [u64; 4]) -> LossCounts {
        let [judged_chunks, lost_chunks, bursts, longest_burst_chunks] = numbers;
        LossCounts {
            judged_chunks,
            lost_chunks,
            bursts,
            longest_burst_chunks,
        }
    }

    #[test]
    fn shares_and_means_follow_from_the_counts() {
        let loss = ChunkLoss::from_counts(counts([1_000, 40, 10, 9]));
        assert_eq!(loss.counts(), counts([1_000, 40, 10, 9]));
        assert_eq!(loss.loss_chunk(), Some(0.04));
        assert_eq!(loss.mean_burst_chunks(), Some(4.0));
        let markov = loss.markov().unwrap();
        assert_eq!(markov.p_bad_to_good, 0.25);
        assert_eq!(markov.p_good_to_bad, 10.0 / 960.0);
        // Without data there is no result.
        let none = ChunkLoss::default();
        assert_eq!((none.loss_chunk(), none.mean_burst_chunks()), (None, None));
        assert_eq!(ChunkLoss::from_counts(counts([5, 0, 0, 0])).markov(), None);
        assert_eq!(ChunkLoss::from_counts(counts([5, 5, 1, 5])).markov(), None);
    }

    proptest! {
        #[test]
        fn whatever_a_peer_tells_is_made_possible(
            numbers in any::<[u64; 4]>(),
            small in any::<[u8; 4]>(),
        ) {
            for numbers in [numbers, small.map(u64::from)] {
                let loss = ChunkLoss::from_counts(counts(numbers));
                prop_assert_eq!(loss.judged_chunks(), numbers[0]);
                prop_assert!(loss.lost_chunks() <= loss.judged_chunks());
                prop_assert!(loss.bursts() <= loss.lost_chunks());
                prop_assert_eq!(loss.bursts() == 0, loss.lost_chunks() == 0);
                prop_assert!(loss.longest_burst_chunks() <= loss.lost_chunks());
                let all = u128::from(loss.longest_burst_chunks()) * u128::from(loss.bursts());
                prop_assert!(all >= u128::from(loss.lost_chunks()));
                let shares = [loss.loss_chunk(), loss.markov().map(|m| m.p_good_to_bad)];
                for share in shares.into_iter().flatten() {
                    prop_assert!((0.0..=1.0).contains(&share));
                }
                prop_assert_eq!(ChunkLoss::from_counts(loss.counts()), loss);
            }
        }
    }
}
