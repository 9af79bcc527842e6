//! Probabilities that do not depend on the path.

use farwrite_model::{ModelError, Scheme};
use pyo3::prelude::*;

use crate::points::{Array, Column, array, copied};
use crate::setting::refused;

/// Probability that a chunk of `packets[i]` packets is lost.
#[pyfunction]
pub(crate) fn chunk_loss<'py>(
    py: Python<'py>,
    loss_packet: Column<'py>,
    packets: Vec<u32>,
) -> PyResult<Array<'py>> {
    let loss = copied(&loss_packet);
    array(py, loss.len(), |at| {
        farwrite_model::chunk_loss(loss[at], packets[at])
    })
}

/// Mean number of consecutive losses in bursts, from the mean duration of a burst.
#[pyfunction]
pub(crate) fn losses_in_burst<'py>(
    py: Python<'py>,
    loss: Column<'py>,
    mean_burst_s: Column<'py>,
    interval_s: Column<'py>,
) -> PyResult<Array<'py>> {
    let [loss, burst_s, interval_s] =
        [loss, mean_burst_s, interval_s].map(|column| copied(&column));
    array(py, loss.len(), |at| {
        farwrite_model::losses_in_burst(loss[at], burst_s[at], interval_s[at])
    })
}

/// Probability that a group of `scheme[i]` cannot be decoded.
#[pyfunction]
pub(crate) fn group_failure<'py>(
    py: Python<'py>,
    scheme: Vec<String>,
    loss_chunk: Column<'py>,
) -> PyResult<Array<'py>> {
    let loss = copied(&loss_chunk);
    array(py, loss.len(), |at| match scheme[at].parse()? {
        Scheme::Ec { code, k, m } => farwrite_model::group_failure(code, k, m, loss[at]),
        _ => Err(ModelError::NoGroups(scheme[at].clone())),
    })
}

/// Number of parity chunks that a scheme sends for each data chunk.
#[pyfunction]
pub(crate) fn parity_overhead(scheme: &str) -> PyResult<f64> {
    let scheme: Scheme = scheme.parse().map_err(|error| refused(&error))?;
    Ok(scheme.parity_overhead())
}
