//! The planner: chooses a scheme for a message on a path, with its cost and its sensitivity to the
//! inputs.

mod estimate;
mod lowar;
mod question;
mod ring;
mod sensitivity;

use crate::error::ModelError;
use crate::scheme::Scheme;

pub use lowar::Lowar;
pub use question::{Coding, Objective, Question};
pub use ring::{
    MOST_ORDERED_SITES, MOST_RING_SITES, RING_SEED, Ring, RingLink, RingPlan, RingTime,
};
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
    /// Parity chunks per data chunk of the message, with a short last group.
    pub parity_overhead: f64,
    /// Number of cores at each end that code at the rate of the path.
    pub cores: f64,
    /// If the times are drawn: from how many draws. `None`: they are exact.
    pub drawn: Option<Drawn>,
}

/// How sure drawn times are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Messages that were simulated, always with the same seed.
    pub draws: usize,
    /// Where the objective lies.
    pub objective: Interval,
    /// Where the mean lies.
    pub mean: Interval,
    /// Where the 99th percentile lies.
    pub p99: Interval,
    /// Where the 99.9th percentile lies.
    pub p999: Interval,
}

/// An interval that holds a time with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end, in seconds.
    pub low_s: f64,
    /// Its upper end. `None`: the draws are too few for a bound.
    pub high_s: Option<f64>,
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
        question.check()?;
        let (mut schemes, mut times, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for scheme in &question.candidates {
            match question
                .affords(*scheme)
                .and_then(|()| question.time(*scheme))
            {
                Ok(time) => {
                    schemes.push(*scheme);
                    times.push(time);
                }
                Err(error) if error.is_of_scheme() => left_out.push((*scheme, error)),
                Err(error) => return Err(error),
            }
        }
        let Question {
            objective,
            close,
            draw_work,
            ..
        } = *question;
        estimate::race(&mut times, objective, close, draw_work)?;
        let costs = schemes.iter().zip(&times);
        let costs = costs.map(|(scheme, time)| question.cost(*scheme, time));
        let mut alternatives = costs.collect::<Result<Vec<_>, _>>()?;
        alternatives.sort_by(|x, y| x.objective_s.total_cmp(&y.objective_s));
        let Some(fastest) = alternatives.first() else {
            return Err(ModelError::NoCandidate(left_out));
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

    /// Candidates that are beyond the budgets or cannot be evaluated, with the reason.
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

    /// The schemes that [`Self::sensitivity`] compares: all, or, if times are drawn, which takes
    /// long, the best one, the best of each kind that can be best, and the code with the most parity.
    pub fn rivals(&self) -> Vec<Scheme> {
        let all = &self.alternatives;
        if all.iter().all(|at| at.drawn.is_none()) {
            return all.iter().map(|at| at.scheme).collect();
        }
        let mut rivals = vec![self.best().scheme];
        for at in all {
            // `sr-nack` is faster than these two.
            let is_slow = matches!(at.scheme, Scheme::SrRto | Scheme::GoBackN);
            if !is_slow && !rivals.iter().any(|known| known.is_alike(at.scheme)) {
                rivals.push(at.scheme);
            }
        }
        let coded = all.iter().map(|at| at.scheme);
        let coded = coded.filter(|scheme| scheme.parity_overhead() > 0.0);
        let most = coded.max_by(|x, y| x.parity_overhead().total_cmp(&y.parity_overhead()));
        rivals.extend(most);
        rivals.sort_unstable_by_key(ToString::to_string);
        rivals.dedup();
        rivals
    }

    /// How the answer depends on each input. Where times are drawn, each is from few draws.
    ///
    /// # Errors
    ///
    /// The errors of [`Question::plan`].
    pub fn sensitivity(&self) -> Result<Vec<Sensitivity>, ModelError> {
        let among = Question {
            candidates: self.rivals(),
            ..self.question.clone()
        };
        sensitivity::of(&among, self.best().scheme)
    }
}
