//! The planner's answer, and its form for scripts.

use farwrite_model::plan::{self, Input, Plan, Question};
use farwrite_model::{Loss, ModelError, Scheme};
use farwrite_units::Burst;
use serde::Serialize;
use serde_json::{Value, json};

use super::nics::Nics;
use super::path::PlannedPath;

pub(super) struct Answer<'a> {
    pub(super) question: &'a Question,
    pub(super) path: &'a PlannedPath,
    pub(super) plan: &'a Plan,
    /// For losses in bursts, the values of [`Input::Loss`] are losses of chunks. Those of the model are probabilities
    /// of the chain.
    pub(super) sensitivity: Vec<plan::Sensitivity>,
    pub(super) loss_chunk: f64,
    pub(super) nics: Nics,
}

/// A candidate that is beyond a budget, or that the model cannot evaluate here.
#[derive(Debug, Serialize)]
pub(super) struct LeftOut {
    pub(super) scheme: String,
    pub(super) reason: String,
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        question: &'a Question,
        path: &'a PlannedPath,
        plan: &'a Plan,
    ) -> Result<Self, ModelError> {
        let mut sensitivity = plan.sensitivity()?;
        for of in sensitivity.iter_mut().filter(|of| of.input == Input::Loss) {
            show_losses(question.loss, of)?;
        }
        Ok(Self {
            question,
            path,
            plan,
            sensitivity,
            loss_chunk: question.loss.loss_chunk()?,
            nics: Nics::new(&path.of_packets(question)),
        })
    }

    /// The answer for scripts; `docs/json.md` describes it.
    pub(super) fn json(&self) -> Value {
        let plan = self.plan;
        let best_s = plan.best().objective_s;
        let alternatives = plan.alternatives().iter();
        let alternatives = alternatives.map(|at| alternative(at, best_s));
        let left_out = |(scheme, reason): &(Scheme, ModelError)| LeftOut {
            scheme: scheme.to_string(),
            reason: reason.to_string(),
        };
        json!({
            "question": self.asked(),
            "best": alternative(plan.best(), best_s),
            "alternatives": alternatives.collect::<Vec<_>>(),
            "left_out": plan.left_out().iter().map(left_out).collect::<Vec<_>>(),
            "rivals": plan.rivals().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "sensitivity": self.sensitivity.iter().map(sensitivity).collect::<Vec<_>>(),
            "nics": self.nics,
            "search_round_trips": self.path.search_round_trips(),
        })
    }

    /// The question, in the units of the model.
    fn asked(&self) -> Value {
        let Self { question, path, .. } = self;
        let (p_good_to_bad, p_bad_to_good, packets_per_chunk) = match question.loss {
            Loss::Iid { .. } => (None, None, None),
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                packets_per_chunk,
                ..
            } => (
                Some(p_good_to_bad),
                Some(p_bad_to_good),
                Some(packets_per_chunk),
            ),
        };
        let burst_s = match path.burst {
            Some(Burst::Time(time)) => Some(time.as_secs_f64()),
            _ => None,
        };
        json!({
            "message_bytes": question.message_bytes,
            "senders": path.senders,
            "rate_bps": path.rate_bps,
            "bandwidth_bps": question.bandwidth_bps,
            "rtt_s": question.rtt_s,
            "chunk_bytes": question.chunk_bytes,
            "loss_chunk": self.loss_chunk,
            "p_good_to_bad": p_good_to_bad,
            "p_bad_to_good": p_bad_to_good,
            "burst_s": burst_s,
            "packets_per_chunk": packets_per_chunk,
            "objective": question.objective.to_string(),
            "max_parity_overhead": question.max_parity_overhead,
            "cores": question.coding.cores,
            "close": question.close,
        })
    }
}

/// The costs of a scheme. `best_s` is the objective of the best one.
pub(super) fn alternative(at: &plan::Alternative, best_s: f64) -> Value {
    let fields = json!({
        "scheme": at.scheme.to_string(),
        "relative_cost": at.objective_s / best_s,
        "slowdown": at.slowdown,
        "parity_overhead": at.parity_overhead,
        "cores": at.cores,
    });
    let times = [at.objective_s, at.mean_s, at.p99_s, at.p999_s];
    with_times(fields, times, at.drawn)
}

/// The fields of a scheme, or of an order of sites, with its times.
pub(super) fn with_times(mut fields: Value, times: [f64; 4], drawn: Option<plan::Drawn>) -> Value {
    let names = ["objective_s", "mean_s", "p99_s", "p999_s"];
    for (name, time_s) in names.iter().zip(times) {
        fields[name] = time_s.into();
    }
    let objective = drawn.map(|drawn| drawn.objective);
    fields["draws"] = drawn.map(|drawn| drawn.draws).into();
    fields["objective_low_s"] = objective.map(|interval| interval.low_s).into();
    fields["objective_high_s"] = objective.and_then(|interval| interval.high_s).into();
    fields
}

/// How the answer depends on one number.
fn sensitivity(of: &plan::Sensitivity) -> Value {
    let input = match of.input {
        Input::Loss => "loss_chunk",
        Input::Rtt => "rtt_s",
        Input::Bandwidth => "bandwidth_bps",
        Input::Message => "message_bytes",
    };
    let border = |border: plan::Border| json!({ "value": border.value, "scheme": border.scheme.to_string() });
    let stake = |stake: &plan::Stake| {
        json!({
            "factor": stake.factor,
            "value": stake.value,
            "best": stake.best.to_string(),
            "cost": stake.cost,
        })
    };
    json!({
        "input": input,
        "value": of.value,
        "below": of.below.map(border),
        "above": of.above.map(border),
        "stakes": of.stakes.iter().map(stake).collect::<Vec<_>>(),
    })
}

/// For losses in bursts, replaces each value by the resulting loss, because only one probability of the chain is
/// varied.
fn show_losses(mut loss: Loss, of: &mut plan::Sensitivity) -> Result<(), ModelError> {
    let borders = [&mut of.below, &mut of.above].into_iter().flatten();
    let borders = borders.map(|border| &mut border.value);
    let stakes = of.stakes.iter_mut().map(|stake| &mut stake.value);
    for value in borders.chain(stakes).chain([&mut of.value]) {
        if let Loss::Markov { p_good_to_bad, .. } = &mut loss {
            *p_good_to_bad = *value;
            *value = loss.loss_chunk()?;
        }
    }
    Ok(())
}
