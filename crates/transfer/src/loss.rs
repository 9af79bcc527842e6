//! What the path lost in one direction, as both ends measured it (P5.7).

use std::fmt;

use farwrite::ChunkLoss;
use serde::Serialize;

use farwrite_units::show::Percent;

/// For scripts all there is to know, for people a few words. Chunks, not packets: a lost packet
/// loses its chunk.
#[derive(Clone, Debug, Serialize)]
pub struct PathLoss {
    /// Chunks of which it is known whether they arrived at their first sending.
    judged_chunks: u64,
    /// Those that did not.
    lost_chunks: u64,
    /// Lost over judged.
    loss_chunk: f64,
    /// Runs of lost chunks that follow one another on the wire.
    bursts: u64,
    longest_burst_chunks: u64,
    /// Lost over bursts; none without bursts, as the next two.
    mean_burst_chunks: Option<f64>,
    /// After a chunk that arrived, the share of those that were lost.
    p_good_to_bad: Option<f64>,
    /// After a lost chunk, the share of those that arrived.
    p_bad_to_good: Option<f64>,
}

impl PathLoss {
    /// `None` where nothing was judged.
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

    /// Of the chunks, those that were lost.
    #[must_use]
    pub fn share(&self) -> Percent {
        Percent(self.loss_chunk)
    }
}

impl fmt::Display for PathLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share())?;
        match self.mean_burst_chunks {
            // Independent losses follow one another now and then.
            Some(mean) if mean >= 1.2 => write!(f, " in bursts of {mean:.1}"),
            _ => Ok(()),
        }
    }
}
