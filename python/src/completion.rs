//! Completion times: one distribution for each point.

use farwrite_model::CompletionTime;
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::points::{Array, Column, array, arrays, copied, each};

/// Completion times: one distribution for each point.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct CompletionTimes {
    times: Vec<CompletionTime>,
}

impl CompletionTimes {
    pub(crate) fn new(times: Vec<CompletionTime>) -> Self {
        Self { times }
    }
}

#[pymethods]
impl CompletionTimes {
    /// The time in seconds that each point takes without losses and without parity.
    fn lossless_s<'py>(&self, py: Python<'py>) -> PyResult<Array<'py>> {
        array(py, self.times.len(), |at| Ok(self.times[at].lossless_s()))
    }

    /// The mean of each point, in seconds.
    fn mean<'py>(&self, py: Python<'py>) -> PyResult<Array<'py>> {
        array(py, self.times.len(), |at| Ok(self.times[at].mean()))
    }

    /// A lower and an upper bound of the mean of each point, in seconds.
    fn mean_bounds<'py>(&self, py: Python<'py>) -> PyResult<(Array<'py>, Array<'py>)> {
        arrays(py, self.times.len(), |at| Ok(self.times[at].mean_bounds()))
    }

    /// Quantile `q[i]` of point `points[i]`, in seconds.
    fn quantile<'py>(
        &self,
        py: Python<'py>,
        points: Vec<usize>,
        q: Column<'py>,
    ) -> PyResult<Array<'py>> {
        let q = copied(&q);
        array(py, q.len(), |at| self.times[points[at]].quantile(q[at]))
    }

    /// A lower and an upper bound of each quantile, in seconds.
    fn quantile_bounds<'py>(
        &self,
        py: Python<'py>,
        points: Vec<usize>,
        q: Column<'py>,
    ) -> PyResult<(Array<'py>, Array<'py>)> {
        let q = copied(&q);
        arrays(py, q.len(), |at| {
            self.times[points[at]].quantile_bounds(q[at])
        })
    }

    /// Probability that point `points[i]` takes at most `t_s[i]` seconds.
    fn cdf<'py>(
        &self,
        py: Python<'py>,
        points: Vec<usize>,
        t_s: Column<'py>,
    ) -> PyResult<Array<'py>> {
        let t_s = copied(&t_s);
        array(py, t_s.len(), |at| self.times[points[at]].cdf(t_s[at]))
    }

    /// A lower and an upper bound of each probability.
    fn cdf_bounds<'py>(
        &self,
        py: Python<'py>,
        points: Vec<usize>,
        t_s: Column<'py>,
    ) -> PyResult<(Array<'py>, Array<'py>)> {
        let t_s = copied(&t_s);
        arrays(py, t_s.len(), |at| {
            self.times[points[at]].cdf_bounds(t_s[at])
        })
    }

    /// Probability that point `points[i]` takes longer than `t_s[i]` seconds.
    fn survival<'py>(
        &self,
        py: Python<'py>,
        points: Vec<usize>,
        t_s: Column<'py>,
    ) -> PyResult<Array<'py>> {
        let t_s = copied(&t_s);
        array(py, t_s.len(), |at| self.times[points[at]].survival(t_s[at]))
    }

    /// `n` draws of each point in seconds, one point after the other. Point `i` has the seed `seed + i`.
    fn sample<'py>(&self, py: Python<'py>, n: usize, seed: u64) -> PyResult<Array<'py>> {
        let draws = each(py, self.times.len(), |at| {
            Ok(self.times[at].sample(n, seed.wrapping_add(at as u64)))
        })?;
        Ok(PyArray1::from_vec(py, draws.concat()))
    }
}
