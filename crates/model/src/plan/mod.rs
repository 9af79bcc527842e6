//! The planner: which scheme for this message on this path, at what cost, and how sure.

mod question;
mod sensitivity;

use crate::error::ModelError;
use crate::scheme::Scheme;

pub use question::{Coding, Objective, Question};
pub use sensitivity::{Border, Input, Sensitivity, Stake};

/// What one scheme would cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// The scheme.
    pub scheme: Scheme,
    /// What was asked to be small, in seconds.
    pub objective_s: f64,
    /// Mean completion time in seconds.
    pub mean_s: f64,
    /// Time within which 99 of 100 messages complete, in seconds.
    pub p99_s: f64,
    /// Time within which 999 of 1000 messages complete, in seconds.
    pub p999_s: f64,
    /// The objective over what the message takes without any loss or parity.
    pub slowdown: f64,
    /// Parity chunks for each data chunk.
    pub parity_overhead: f64,
    /// Cores that keep up with the path at either end.
    pub cores: f64,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug)]
pub struct Plan {
    question: Question,
    alternatives: Vec<Alternative>,
    chosen: usize,
    left_out: Vec<(Scheme, ModelError)>,
}

impl Plan {
    pub(crate) fn new(question: &Question) -> Result<Self, ModelError> {
        let mut alternatives = Vec::new();
        let mut left_out = Vec::new();
        for scheme in question.affordable()? {
            match question.cost(scheme) {
                Ok(alternative) => alternatives.push(alternative),
                Err(error @ ModelError::Unsupported { .. }) => left_out.push((scheme, error)),
                Err(error) => return Err(error),
            }
        }
        alternatives.sort_by(|x, y| x.objective_s.total_cmp(&y.objective_s));
        let Some(fastest) = alternatives.first() else {
            return Err(ModelError::Word {
                argument: "candidates",
                value: "none that can be afforded and evaluated".to_owned(),
                wants: "at least one scheme without parity",
            });
        };
        let enough = fastest.objective_s * (1.0 + question.close);
        let price = |at: &Alternative| (at.parity_overhead, at.cores, at.objective_s);
        let mut chosen = 0;
        for (rank, alternative) in alternatives.iter().enumerate() {
            let cheaper = price(alternative) < price(&alternatives[chosen]);
            if alternative.objective_s <= enough && cheaper {
                chosen = rank;
            }
        }
        Ok(Self {
            question: question.clone(),
            alternatives,
            chosen,
            left_out,
        })
    }

    /// The cheapest scheme, by parity and then by cores, of those whose objective is next to the
    /// least.
    pub fn best(&self) -> &Alternative {
        &self.alternatives[self.chosen]
    }

    /// All schemes that can be afforded, the least objective first.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.alternatives
    }

    /// Schemes that can be afforded but not evaluated, and why.
    pub fn left_out(&self) -> &[(Scheme, ModelError)] {
        &self.left_out
    }

    /// The objective of `scheme` over that of [`Self::best`], if it is among the alternatives. One
    /// who is using `scheme` and does not want to change back and forth stays with it while this is
    /// below 1 plus some margin.
    pub fn relative_cost(&self, scheme: Scheme) -> Option<f64> {
        let found = self.alternatives.iter().find(|at| at.scheme == scheme);
        found.map(|at| at.objective_s / self.best().objective_s)
    }

    /// How the answer depends on each input.
    ///
    /// # Errors
    ///
    /// None that [`Question::plan`] would not have had.
    pub fn sensitivity(&self) -> Result<Vec<Sensitivity>, ModelError> {
        sensitivity::of(&self.question, self.best().scheme)
    }
}
