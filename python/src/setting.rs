//! Settings, for each point.

use farwrite_model::{Compute, Loss, ModelError, Setting, Variant};
use pyo3::prelude::*;

use crate::collective::CollectiveTimes;
use crate::completion::CompletionTimes;
use crate::points::{Column, PointError, copied, each};

/// The settings of all points.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct Settings {
    settings: Vec<Setting>,
}

/// How chunks are lost at each point.
enum Losses {
    Iid(Vec<f64>),
    Markov([Vec<f64>; 4], Vec<u32>),
}

impl Losses {
    fn at(&self, point: usize) -> Loss {
        match self {
            Self::Iid(loss) => Loss::iid(loss[point]),
            Self::Markov([to_bad, to_good, good, bad], packets) => Loss::Markov {
                p_good_to_bad: to_bad[point],
                p_bad_to_good: to_good[point],
                loss_good: good[point],
                loss_bad: bad[point],
                packets_per_chunk: packets[point],
            },
        }
    }
}

/// An error that concerns all points.
pub(crate) fn refused(error: &ModelError) -> PyErr {
    PointError::new_err((error.to_string(), None::<usize>))
}

#[pymethods]
impl Settings {
    /// Takes columns of equal length. `loss` has one column for independent losses. For bursts it has
    /// four columns, and `packets_per_chunk` is a list.
    #[new]
    #[pyo3(signature = (*, scheme, message_bytes, bandwidth_bps, rtt_s, loss, packets_per_chunk,
        chunk_bytes, rto_rtts, beta, variant, encode_bps, decode_bps))]
    #[expect(clippy::too_many_arguments, reason = "one a column, all named")]
    fn new(
        py: Python<'_>,
        scheme: Vec<String>,
        message_bytes: Column<'_>,
        bandwidth_bps: Column<'_>,
        rtt_s: Column<'_>,
        loss: Vec<Column<'_>>,
        packets_per_chunk: Option<Vec<u32>>,
        chunk_bytes: Column<'_>,
        rto_rtts: Option<Column<'_>>,
        beta: Column<'_>,
        variant: &str,
        encode_bps: Option<Column<'_>>,
        decode_bps: Option<Column<'_>>,
    ) -> PyResult<Self> {
        let variant: Variant = variant.parse().map_err(|error| refused(&error))?;
        let losses: Vec<Vec<f64>> = loss.iter().map(copied).collect();
        let losses = match (<[Vec<f64>; 4]>::try_from(losses), packets_per_chunk) {
            (Ok(columns), Some(packets)) => Losses::Markov(columns, packets),
            (Err(mut columns), None) if columns.len() == 1 => Losses::Iid(columns.remove(0)),
            _ => return Err(PyErr::new::<pyo3::exceptions::PyTypeError, _>("loss")),
        };
        let message_bytes = copied(&message_bytes);
        let bandwidth_bps = copied(&bandwidth_bps);
        let rtt_s = copied(&rtt_s);
        let chunk_bytes = copied(&chunk_bytes);
        let beta = copied(&beta);
        let [rto_rtts, encode_bps, decode_bps] =
            [rto_rtts, encode_bps, decode_bps].map(|column| column.as_ref().map(copied));
        let settings = each(py, scheme.len(), |point| {
            let optional = |column: &Option<Vec<f64>>| column.as_ref().map(|values| values[point]);
            Ok(Setting {
                scheme: scheme[point].parse()?,
                message_bytes: message_bytes[point],
                bandwidth_bps: bandwidth_bps[point],
                rtt_s: rtt_s[point],
                loss: losses.at(point),
                chunk_bytes: chunk_bytes[point],
                rto_rtts: optional(&rto_rtts),
                beta: beta[point],
                variant,
                compute: Compute {
                    encode_bps: optional(&encode_bps),
                    decode_bps: optional(&decode_bps),
                },
            })
        })?;
        Ok(Self { settings })
    }

    /// The distribution of each point.
    fn completion_times(&self, py: Python<'_>) -> PyResult<CompletionTimes> {
        let times = each(py, self.settings.len(), |point| {
            self.settings[point].completion_time()
        })?;
        Ok(CompletionTimes::new(times))
    }

    /// The times of a collective among `sites[i]` sites, whose transfers have the settings of point `i`.
    fn collective_times(
        &self,
        py: Python<'_>,
        collective: &str,
        sites: Vec<u32>,
    ) -> PyResult<CollectiveTimes> {
        let collective: farwrite_model::Collective =
            collective.parse().map_err(|error| refused(&error))?;
        let times = each(py, self.settings.len(), |point| {
            collective.completion_time(sites[point], &self.settings[point])
        })?;
        Ok(CollectiveTimes::new(times))
    }
}
