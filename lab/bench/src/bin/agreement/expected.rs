//! The model's prediction for a shipped protocol.

use farwrite_model::{Collective, CompletionTime, ModelError};
use farwrite_units::stats;

use crate::Failure;
use crate::cell::{Cell, ModelWaits};

/// Number of messages drawn from the model where it has no exact evaluation.
const MESSAGES: usize = 10_000;
/// Number of all-reduces drawn from the model.
const DRAWS: usize = 100_000;
const DRAWS_SEED: u64 = 1;

/// The model's completion time.
pub(crate) enum Expected {
    /// The exact distribution of a message.
    Exact(Box<CompletionTime>),
    /// Samples of messages or rings, in seconds, ascending.
    Drawn(Vec<f64>),
}

impl Expected {
    pub(crate) fn new(cell: &Cell, waits: ModelWaits) -> Result<Self, Failure> {
        let setting = cell.model(waits)?;
        let mut times_s = match cell.sites {
            None => match setting.completion_time() {
                Ok(time) => return Ok(Self::Exact(Box::new(time))),
                // Losses in bursts.
                Err(ModelError::Unsupported(_)) => setting.sample(MESSAGES, DRAWS_SEED)?,
                Err(error) => return Err(error.into()),
            },
            Some(sites) => {
                let ring = Collective::Ring.completion_time(sites, &setting)?;
                ring.sample(DRAWS, DRAWS_SEED)
            }
        };
        times_s.sort_by(f64::total_cmp);
        Ok(Self::Drawn(times_s))
    }

    pub(crate) fn mean(&self) -> f64 {
        match self {
            Self::Exact(time) => time.mean(),
            Self::Drawn(times_s) => stats::mean(times_s),
        }
    }

    /// The shortest time within which a share `q` of all messages or rings ends.
    pub(crate) fn quantile(&self, q: f64) -> Result<f64, Failure> {
        match self {
            Self::Exact(time) => Ok(time.quantile(q)?),
            Self::Drawn(times_s) => Ok(stats::quantile(times_s, q).unwrap_or(f64::NAN)),
        }
    }
}
