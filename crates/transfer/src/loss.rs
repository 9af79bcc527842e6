//! The loss of the path in one direction, as both ends measured it (P5.7).

use std::fmt;

use farwrite::ChunkLoss;
use serde::Serialize;

use farwrite_units::show::Percent;

/// Scripts get all counts, and people get a few words. The unit is the chunk, not the packet: a
/// lost packet loses its chunk.
#[derive(Clone, Debug, Serialize)]
pub struct PathLoss {
    /// Chunks for which it is known whether the first transmission arrived.
    judged_chunks: u64,
    /// Judged chunks whose first transmission was lost.
    lost_chunks: u64,
    /// Lost over judged.
    loss_chunk: f64,
    /// Runs of lost chunks that follow one another on the wire.
    bursts: u64,
    longest_burst_chunks: u64,
    /// Lost over bursts. `None` without bursts, like the next two.
    mean_burst_chunks: Option<f64>,
    /// The share of lost chunks among those that follow a chunk that arrived.
    p_good_to_bad: Option<f64>,
    /// The share of chunks that arrived among those that follow a lost chunk.
    p_bad_to_good: Option<f64>,
}

impl PathLoss {
    /// Returns `None` if no chunk was judged.
    #[must_use]
    pub fn of(loss: &ChunkLoss) -> Option<Self> {
        let markov = loss.markov();
        Some(Self {
            judged_chunks: loss.judged_chunks(),
            lost_chunks: loss.lost_chunks(),
            loss_chunk: loss.loss_chunk()?,
            bursts: loss.bursts(),
            longest_burst_chunks: loss.longest_burst_chunks(),
            mean_burst_chunks: loss.mean_burst_chunks(),
            p_good_to_bad: markov.map(|markov| markov.p_good_to_bad),
            p_bad_to_good: markov.map(|markov| markov.p_bad_to_good),
        })
    }

    /// The share of lost chunks.
    #[must_use]
    pub fn share(&self) -> Percent {
        Percent(self.loss_chunk)
    }
}

impl fmt::Display for PathLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share())?;
        match self.mean_burst_chunks {
            // Independent losses are sometimes adjacent.
            Some(mean) if mean >= 1.2 => write!(f, " in bursts of {mean:.1}"),
            _ => Ok(()),
        }
    }
}
