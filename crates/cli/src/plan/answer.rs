//! The planner's answer, for scripts and for people.

use farwrite_model::plan::{self, Input, Plan, Question};
use farwrite_model::{Loss, ModelError};
use farwrite_units::Burst;
use serde::Serialize;

use super::nics::Nics;
use super::path::PlannedPath;
use super::show;

/// The complete answer. The text for people is made from it.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) question: Asked,
    /// The recommended scheme, which is one of the alternatives.
    pub(super) best: Alternative,
    /// The alternatives, in ascending order of the objective.
    pub(super) alternatives: Vec<Alternative>,
    /// Candidates that are beyond a budget, or that the model cannot evaluate here.
    pub(super) left_out: Vec<LeftOut>,
    /// The schemes that the best one is compared with when a number changes.
    pub(super) rivals: Vec<String>,
    pub(super) sensitivity: Vec<Sensitivity>,
    pub(super) nics: Nics,
    /// The least and the usual greatest number of round trips in which a long message finds the rate
    /// of a path that is new. The times do not include them.
    pub(super) search_round_trips: [u32; 2],
}

/// The question, in the units of the model.
#[derive(Debug, Serialize)]
pub(super) struct Asked {
    pub(super) message_bytes: f64,
    /// The senders that share the path.
    pub(super) senders: u32,
    /// The rate of a sender, and the part of it that is payload.
    pub(super) rate_bps: f64,
    pub(super) bandwidth_bps: f64,
    pub(super) rtt_s: f64,
    pub(super) chunk_bytes: f64,
    pub(super) loss_chunk: f64,
    /// The Markov chain of losses in bursts; `None` if losses are independent.
    pub(super) p_good_to_bad: Option<f64>,
    pub(super) p_bad_to_good: Option<f64>,
    /// The mean time of a burst, where it was given as a time.
    pub(super) burst_s: Option<f64>,
    /// The number of packets in a chunk that the chain steps over.
    pub(super) packets_per_chunk: Option<u32>,
    pub(super) objective: String,
    pub(super) max_parity_overhead: f64,
    pub(super) cores: f64,
    /// Schemes whose objective is this close to the minimum count as good.
    pub(super) close: f64,
}

/// The costs of a scheme.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Alternative {
    pub(super) scheme: String,
    pub(super) objective_s: f64,
    pub(super) mean_s: f64,
    pub(super) p99_s: f64,
    pub(super) p999_s: f64,
    /// The objective divided by that of the best scheme.
    pub(super) relative_cost: f64,
    /// The objective divided by the time of the message without loss and parity.
    pub(super) slowdown: f64,
    pub(super) parity_overhead: f64,
    pub(super) cores: f64,
    /// The number of simulated messages that the times are from; `None`: they are exact.
    pub(super) draws: Option<usize>,
    /// The interval that holds the objective with a probability of 95 %. An exact value has none,
    /// and with few draws there is no upper bound.
    pub(super) objective_low_s: Option<f64>,
    pub(super) objective_high_s: Option<f64>,
    /// How sure all of its times are, for the text.
    #[serde(skip)]
    pub(super) drawn: Option<plan::Drawn>,
}

#[derive(Debug, Serialize)]
pub(super) struct LeftOut {
    pub(super) scheme: String,
    pub(super) reason: String,
}

/// How the answer depends on one number.
#[derive(Debug, Serialize)]
pub(super) struct Sensitivity {
    pub(super) input: &'static str,
    pub(super) value: f64,
    /// Where the best scheme is no longer good; `None` if that is not within a factor of 1024.
    pub(super) below: Option<Border>,
    pub(super) above: Option<Border>,
    pub(super) stakes: Vec<Stake>,
}

#[derive(Debug, Serialize)]
pub(super) struct Border {
    pub(super) value: f64,
    /// The scheme that is better beyond the border.
    pub(super) scheme: String,
}

/// The cost of using the best scheme if the number differs.
#[derive(Debug, Serialize)]
pub(super) struct Stake {
    pub(super) factor: f64,
    pub(super) value: f64,
    pub(super) best: String,
    /// The objective of the best scheme there, divided by the minimum.
    pub(super) cost: f64,
}

impl Answer {
    pub(super) fn new(
        question: &Question,
        path: &PlannedPath,
        plan: &Plan,
        sensitivity: &[plan::Sensitivity],
        nics: Nics,
    ) -> Result<Self, ModelError> {
        let best_s = plan.best().objective_s;
        let alternative = |at: &plan::Alternative| Alternative::new(at, best_s);
        let left_out = plan.left_out().iter().map(|(scheme, reason)| LeftOut {
            scheme: scheme.to_string(),
            reason: reason.to_string(),
        });
        let sensitivity = sensitivity.iter().map(|of| Sensitivity::new(question, of));
        Ok(Self {
            question: Asked::new(question, path)?,
            best: alternative(plan.best()),
            alternatives: plan.alternatives().iter().map(alternative).collect(),
            left_out: left_out.collect(),
            rivals: plan.rivals().iter().map(ToString::to_string).collect(),
            sensitivity: sensitivity.collect::<Result<_, _>>()?,
            nics,
            search_round_trips: path.search_round_trips(),
        })
    }

    /// The text for people, with all alternatives if `all` is true, otherwise with the most
    /// relevant ones.
    pub(super) fn text(&self, all: bool) -> String {
        show::text(self, all)
    }
}

impl Alternative {
    /// `best_s` is the objective of the best scheme.
    pub(super) fn new(at: &plan::Alternative, best_s: f64) -> Self {
        Self {
            scheme: at.scheme.to_string(),
            objective_s: at.objective_s,
            mean_s: at.mean_s,
            p99_s: at.p99_s,
            p999_s: at.p999_s,
            relative_cost: at.objective_s / best_s,
            slowdown: at.slowdown,
            parity_overhead: at.parity_overhead,
            cores: at.cores,
            draws: at.drawn.map(|drawn| drawn.draws),
            objective_low_s: at.drawn.map(|drawn| drawn.objective.low_s),
            objective_high_s: at.drawn.and_then(|drawn| drawn.objective.high_s),
            drawn: at.drawn,
        }
    }
}

impl Asked {
    fn new(question: &Question, path: &PlannedPath) -> Result<Self, ModelError> {
        let (chain, packets_per_chunk) = match question.loss {
            Loss::Iid { .. } => (None, None),
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                packets_per_chunk,
                ..
            } => (
                Some([p_good_to_bad, p_bad_to_good]),
                Some(packets_per_chunk),
            ),
        };
        Ok(Self {
            message_bytes: question.message_bytes,
            senders: path.senders,
            rate_bps: path.rate_bps,
            bandwidth_bps: question.bandwidth_bps,
            rtt_s: question.rtt_s,
            chunk_bytes: question.chunk_bytes,
            loss_chunk: question.loss.loss_chunk()?,
            p_good_to_bad: chain.map(|[to_bad, _]| to_bad),
            p_bad_to_good: chain.map(|[_, to_good]| to_good),
            burst_s: match path.burst {
                Some(Burst::Time(time)) => Some(time.as_secs_f64()),
                _ => None,
            },
            packets_per_chunk,
            objective: question.objective.to_string(),
            max_parity_overhead: question.max_parity_overhead,
            cores: question.coding.cores,
            close: question.close,
        })
    }
}

impl Sensitivity {
    fn new(question: &Question, of: &plan::Sensitivity) -> Result<Self, ModelError> {
        let border = |border: Option<plan::Border>| -> Result<_, ModelError> {
            let Some(border) = border else {
                return Ok(None);
            };
            Ok(Some(Border {
                value: shown_value(question, of.input, border.value)?,
                scheme: border.scheme.to_string(),
            }))
        };
        let stakes = of.stakes.iter().map(|stake| {
            Ok(Stake {
                factor: stake.factor,
                value: shown_value(question, of.input, stake.value)?,
                best: stake.best.to_string(),
                cost: stake.cost,
            })
        });
        Ok(Self {
            input: match of.input {
                Input::Loss => "loss_chunk",
                Input::Rtt => "rtt_s",
                Input::Bandwidth => "bandwidth_bps",
                Input::Message => "message_bytes",
            },
            value: shown_value(question, of.input, of.value)?,
            below: border(of.below)?,
            above: border(of.above)?,
            stakes: stakes.collect::<Result<_, _>>()?,
        })
    }
}

/// The value of an input. For losses in bursts, it is the resulting loss, because only one
/// probability of the chain is varied.
fn shown_value(question: &Question, input: Input, value: f64) -> Result<f64, ModelError> {
    match (input, question.loss) {
        (
            Input::Loss,
            Loss::Markov {
                p_bad_to_good,
                loss_good,
                loss_bad,
                packets_per_chunk,
                ..
            },
        ) => Loss::Markov {
            p_good_to_bad: value,
            p_bad_to_good,
            loss_good,
            loss_bad,
            packets_per_chunk,
        }
        .loss_chunk(),
        _ => Ok(value),
    }
}
