//! The planner: chooses a scheme for a message on a path, with its cost and its sensitivity to the
//! inputs.

mod lowar;
mod question;
mod sensitivity;

use crate::error::ModelError;
use crate::scheme::Scheme;

pub use lowar::Lowar;
pub use question::{Coding, Objective, Question};
pub use sensitivity::{Border, Input, Sensitivity, Stake};

/// The cost of a scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// The scheme.
    pub scheme: Scheme,
    /// The objective, in seconds.
    pub objective_s: f64,
    /// Mean completion time in seconds.
    pub mean_s: f64,
    /// Time within which 99 of 100 messages complete, in seconds.
    pub p99_s: f64,
    /// Time within which 999 of 1000 messages complete, in seconds.
    pub p999_s: f64,
    /// The objective divided by the completion time without loss and parity.
    pub slowdown: f64,
    /// Parity chunks per data chunk.
    pub parity_overhead: f64,
    /// Number of cores at each end that code at the rate of the path.
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
                Err(error @ ModelError::Unsupported(_)) => left_out.push((scheme, error)),
                Err(error) => return Err(error),
            }
        }
        alternatives.sort_by(|x, y| x.objective_s.total_cmp(&y.objective_s));
        let Some(fastest) = alternatives.first() else {
            return Err(ModelError::NoCandidate);
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

    /// The cheapest scheme, by parity and then by cores, among those whose objective is close to
    /// the lowest.
    pub fn best(&self) -> &Alternative {
        &self.alternatives[self.chosen]
    }

    /// All schemes within the budgets, in ascending order of the objective.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.alternatives
    }

    /// Schemes within the budgets that cannot be evaluated, with the reason.
    pub fn left_out(&self) -> &[(Scheme, ModelError)] {
        &self.left_out
    }

    /// The objective of `scheme` divided by that of [`Self::best`], if `scheme` is among the
    /// alternatives. To avoid frequent changes, a user of `scheme` can keep it while this is below
    /// 1 plus a margin.
    pub fn relative_cost(&self, scheme: Scheme) -> Option<f64> {
        let found = self.alternatives.iter().find(|at| at.scheme == scheme);
        found.map(|at| at.objective_s / self.best().objective_s)
    }

    /// How the answer depends on each input.
    ///
    /// # Errors
    ///
    /// The errors of [`Question::plan`].
    pub fn sensitivity(&self) -> Result<Vec<Sensitivity>, ModelError> {
        sensitivity::of(&self.question, self.best().scheme)
    }
}
