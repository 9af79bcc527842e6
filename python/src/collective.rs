//! Completion times of collectives, for each point.

use farwrite_model::{CollectiveTime, StageSum};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::points::{Array, Column, array, arrays, copied, each};

/// Completion times of collectives: for each point, a lower distribution `path` and an upper one `barrier`.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct CollectiveTimes {
    times: Vec<CollectiveTime>,
}

impl CollectiveTimes {
    pub(crate) fn new(times: Vec<CollectiveTime>) -> Self {
        Self { times }
    }

    fn bound(&self, point: usize, barrier: bool) -> &StageSum {
        let time = &self.times[point];
        if barrier { time.barrier() } else { time.path() }
    }
}

#[pymethods]
impl CollectiveTimes {
    /// The mean of `barrier`, or else of `path`, in seconds.
    fn mean<'py>(&self, py: Python<'py>, barrier: bool) -> PyResult<Array<'py>> {
        array(py, self.times.len(), |at| {
            Ok(self.bound(at, barrier).mean())
        })
    }

    /// Quantile `q[i]` of point `points[i]`, in seconds.
    fn quantile<'py>(
        &self,
        py: Python<'py>,
        barrier: bool,
        points: Vec<usize>,
        q: Column<'py>,
    ) -> PyResult<Array<'py>> {
        let q = copied(&q);
        array(py, q.len(), |at| {
            self.bound(points[at], barrier).quantile(q[at])
        })
    }

    /// A lower and an upper bound of each quantile, in seconds.
    fn quantile_bounds<'py>(
        &self,
        py: Python<'py>,
        barrier: bool,
        points: Vec<usize>,
        q: Column<'py>,
    ) -> PyResult<(Array<'py>, Array<'py>)> {
        let q = copied(&q);
        arrays(py, q.len(), |at| {
            self.bound(points[at], barrier).quantile_bounds(q[at])
        })
    }

    /// `n` draws of each point in seconds, one point after the other. Point `i` has the seed `seed + i`.
    fn sample<'py>(&self, py: Python<'py>, n: usize, seed: u64) -> PyResult<Array<'py>> {
        let draws = each(py, self.times.len(), |at| {
            Ok(self.times[at].sample(n, seed.wrapping_add(at as u64)))
        })?;
        Ok(PyArray1::from_vec(py, draws.concat()))
    }
}
