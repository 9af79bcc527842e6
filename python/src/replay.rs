//! Computes the results of bounded operations again.

use farwrite_collectives as collectives;
use farwrite_collectives::{GroupOptions, Hadamard, Missing};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::communicator::exception;
use crate::{group_options, operation};

/// Computes the result of a bounded operation at a rank again. `algorithm` and `sites` are those of the group.
/// `inputs` are those of all ranks. `missing` has ranges of bytes of the result: start, end, and the ranks whose contributions the range lacks.
#[pyfunction]
#[pyo3(signature = (
    operation, rank, inputs, missing, *, packet_bytes, algorithm, sites, hadamard=None, element=None,
    reduction=None,
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    operation: &str,
    rank: usize,
    inputs: Vec<PyReadonlyArray1<'py, u8>>,
    missing: Vec<(u64, u64, Vec<usize>)>,
    packet_bytes: u32,
    algorithm: &str,
    sites: Vec<u32>,
    hadamard: Option<(u32, u32)>,
    element: Option<&str>,
    reduction: Option<&str>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let operation = operation::parse(
        operation,
        (element, reduction),
        (0, 0),
        (Vec::new(), Vec::new()),
    )?;
    let mut options = GroupOptions {
        packet_bytes,
        sites,
        ..GroupOptions::default()
    };
    options.bounded.algorithm = group_options::algorithm(algorithm)?;
    options.bounded.hadamard = hadamard.map(|(block, stride)| Hadamard { block, stride });
    let missing = missing.into_iter();
    let missing = missing.map(|(start, end, ranks)| Missing {
        range: start..end,
        ranks,
    });
    let missing: Vec<_> = missing.collect();
    let inputs: Result<Vec<&[u8]>, _> = inputs.iter().map(PyReadonlyArray1::as_slice).collect();
    let inputs = inputs?;
    let replayed = py.detach(|| collectives::replay(&options, rank, &operation, &inputs, &missing));
    Ok(PyArray1::from_vec(py, replayed.map_err(exception)?))
}
