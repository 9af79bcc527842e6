//! Evaluates point after point without the interpreter's lock.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_model::ModelError;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// How long a computation ignores Ctrl-C, unless one point takes longer.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

create_exception!(
    farwrite._native,
    PointError,
    PyValueError,
    "An argument is out of its range. args are the message and the number of the point."
);

/// One column of a table of points.
pub(crate) type Column<'py> = PyReadonlyArray1<'py, f64>;

/// The type of results: one number for each point.
pub(crate) type Array<'py> = Bound<'py, PyArray1<f64>>;

/// A copy of the column, which no other thread can change while the interpreter's lock is released.
pub(crate) fn copied(column: &Column<'_>) -> Vec<f64> {
    column.as_array().to_vec()
}

/// The results of `f` for the points 0 to `count - 1`.
pub(crate) fn each<T: Send>(
    py: Python<'_>,
    count: usize,
    f: impl Fn(usize) -> Result<T, ModelError> + Sync,
) -> PyResult<Vec<T>> {
    let mut results = Vec::with_capacity(count);
    while results.len() < count {
        py.detach(|| {
            let until = Instant::now() + SIGNALS_EVERY;
            while results.len() < count && Instant::now() < until {
                results.push(f(results.len()).map_err(|error| (error, results.len()))?);
            }
            Ok(())
        })
        .map_err(|(error, point): (ModelError, usize)| {
            PointError::new_err((error.to_string(), point))
        })?;
        py.check_signals()?;
    }
    Ok(results)
}

/// The result of `f`, which another thread computes. Ctrl-C ends only the wait: the thread goes on, and its result is
/// dropped. So `f` should take seconds at most.
pub(crate) fn with_signals<T: Send + 'static>(
    py: Python<'_>,
    f: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (results, mut received) = channel();
    let thread = thread::spawn(move || results.send(f()));
    loop {
        let (back, result) = py.detach(move || {
            let result = received.recv_timeout(SIGNALS_EVERY);
            (received, result)
        });
        received = back;
        match result {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(_) => unreachable!("the thread sends its result before it ends"),
            },
        }
    }
}

/// The results of [`each`] as an array.
pub(crate) fn array<'py>(
    py: Python<'py>,
    count: usize,
    f: impl Fn(usize) -> Result<f64, ModelError> + Sync,
) -> PyResult<Array<'py>> {
    Ok(PyArray1::from_vec(py, each(py, count, f)?))
}

/// The results of [`each`], which are pairs, as two arrays.
pub(crate) fn arrays<'py>(
    py: Python<'py>,
    count: usize,
    f: impl Fn(usize) -> Result<(f64, f64), ModelError> + Sync,
) -> PyResult<(Array<'py>, Array<'py>)> {
    let (low, high) = each(py, count, f)?.into_iter().unzip();
    Ok((PyArray1::from_vec(py, low), PyArray1::from_vec(py, high)))
}
