//! The choice of the scheme for a message.

use farwrite_model::plan::{self, Border, Coding, Objective, Question};
use farwrite_model::{Loss, ModelError, Scheme};
use pyo3::prelude::*;

use crate::points::{PointError, with_signals};
use crate::setting::refused;

/// The scheme; objective, mean, p99 and p99.9 in seconds, slowdown, parity overhead, cores; and, if the times
/// are drawn, the number of draws and the interval of the objective in seconds.
type Alternative = (String, [f64; 7], Option<(usize, f64, Option<f64>)>);
/// The value at a border, and the best scheme beyond it.
type Edge = Option<(f64, String)>;
/// The name and the value of an input, the borders below and above, and (value, best scheme, cost) of each
/// stake.
type Dependence = (&'static str, f64, Edge, Edge, Vec<(f64, String, f64)>);

/// The chosen scheme, and the schemes that it was compared with.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct Plan {
    plan: plan::Plan,
}

#[pymethods]
impl Plan {
    /// `loss` has one value, `loss_chunk`, or the four probabilities of a chain with `packets_per_chunk`.
    #[new]
    #[pyo3(signature = (*, message_bytes, bandwidth_bps, rtt_s, loss, packets_per_chunk, chunk_bytes,
        objective, max_parity_overhead, cores, xor_bps, mds_bps, candidates, close))]
    #[expect(clippy::too_many_arguments, reason = "one a field, all named")]
    fn new(
        py: Python<'_>,
        message_bytes: f64,
        bandwidth_bps: f64,
        rtt_s: f64,
        loss: Vec<f64>,
        packets_per_chunk: u32,
        chunk_bytes: f64,
        objective: &str,
        max_parity_overhead: f64,
        cores: Option<f64>,
        xor_bps: Option<f64>,
        mds_bps: Option<f64>,
        candidates: Option<Vec<String>>,
        close: f64,
    ) -> PyResult<Self> {
        let loss = match loss[..] {
            [p_good_to_bad, p_bad_to_good, loss_good, loss_bad] => Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
                packets_per_chunk,
            },
            _ => Loss::iid(loss.first().copied().unwrap_or(f64::NAN)),
        };
        let usual = Coding::default();
        let mut question = Question {
            loss,
            chunk_bytes,
            objective: (objective.parse::<Objective>()).map_err(|error| refused(&error))?,
            max_parity_overhead,
            coding: Coding {
                cores: cores.unwrap_or(usual.cores),
                xor_bps: xor_bps.unwrap_or(usual.xor_bps),
                mds_bps: mds_bps.unwrap_or(usual.mds_bps),
            },
            close,
            ..Question::new(message_bytes, bandwidth_bps, rtt_s, 0.0)
        };
        question.candidates = match candidates {
            None => question.affordable_candidates(),
            Some(names) => named(&names)?,
        };
        let plan = with_signals(py, move || question.plan())?;
        plan.map(|plan| Self { plan })
            .map_err(|error| refused(&error))
    }

    /// The chosen scheme.
    fn best(&self) -> Alternative {
        row(self.plan.best())
    }

    /// All schemes that keep within the parity and the cores, in ascending order of the objective.
    fn alternatives(&self) -> Vec<Alternative> {
        self.plan.alternatives().iter().map(row).collect()
    }

    /// The candidates that exceed a limit or cannot be evaluated, each with the reason.
    fn left_out(&self) -> Vec<(String, String)> {
        let text = |(scheme, error): &(Scheme, ModelError)| (scheme.to_string(), error.to_string());
        self.plan.left_out().iter().map(text).collect()
    }

    /// How the choice depends on each input.
    fn sensitivity(&self, py: Python<'_>) -> PyResult<Vec<Dependence>> {
        let plan = self.plan.clone();
        let found = with_signals(py, move || plan.sensitivity())?;
        let edge = |border: Option<Border>| border.map(|at| (at.value, at.scheme.to_string()));
        let rows = found.map_err(|error| refused(&error))?.into_iter();
        let rows = rows.map(|of| {
            let stakes = of.stakes.iter();
            let stakes = stakes.map(|at| (at.value, at.best.to_string(), at.cost));
            (
                of.name,
                of.value,
                edge(of.below),
                edge(of.above),
                stakes.collect(),
            )
        });
        Ok(rows.collect())
    }
}

/// The schemes with these names, which are the argument `candidates`.
fn named(names: &[String]) -> PyResult<Vec<Scheme>> {
    let schemes = names.iter().map(|name| name.parse::<Scheme>());
    let schemes: Result<_, ModelError> = schemes.collect();
    schemes.map_err(|error| PointError::new_err((format!("candidates: {error}"), None::<usize>)))
}

fn row(of: &plan::Alternative) -> Alternative {
    let numbers = [
        of.objective_s,
        of.mean_s,
        of.p99_s,
        of.p999_s,
        of.slowdown,
        of.parity_overhead,
        of.cores,
    ];
    let drawn = of
        .drawn
        .map(|of| (of.draws, of.objective.low_s, of.objective.high_s));
    (of.scheme.to_string(), numbers, drawn)
}
