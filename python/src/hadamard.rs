//! The Hadamard transform of `farwrite-codes`, on the bytes of a tensor.

use bytemuck::{Pod, cast_slice, pod_collect_to_vec};
use farwrite_codes::hadamard::{Element, Interleave, Transform};
use half::{bf16, f16};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Transforms values to coefficients; with `inverse`, coefficients to values. `segment_ends` are the ends
/// of the segments, as numbers of values.
#[pyfunction]
#[pyo3(signature = (values, *, element, block, packet, stride, segment_ends, inverse))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn hadamard<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, u8>,
    element: &str,
    block: usize,
    packet: usize,
    stride: usize,
    segment_ends: Vec<usize>,
    inverse: bool,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let interleave = Interleave::new(block, packet, stride).map_err(|why| error(&why))?;
    let work = Work {
        transform: Transform::new(interleave),
        segment_ends: &segment_ends,
        inverse,
    };
    let values = values.as_slice()?;
    let transformed = py.detach(|| match element {
        "float32" => work.on::<f32>(values),
        "float16" => work.on::<f16>(values),
        "bfloat16" => work.on::<bf16>(values),
        other => Err(PyValueError::new_err(format!(
            "element = {other:?}: must be float32, float16 or bfloat16"
        ))),
    })?;
    Ok(PyArray1::from_vec(py, transformed))
}

struct Work<'a> {
    transform: Transform,
    segment_ends: &'a [usize],
    inverse: bool,
}

impl Work<'_> {
    fn on<T: Element + Pod>(&self, bytes: &[u8]) -> PyResult<Vec<u8>> {
        // The memory of a tensor may have any alignment.
        let source: Vec<T> = pod_collect_to_vec(bytes);
        let mut target = vec![T::zeroed(); source.len()];
        let done = if self.inverse {
            self.transform
                .decode(&source, &mut target, self.segment_ends)
        } else {
            self.transform
                .encode(&source, &mut target, self.segment_ends)
        };
        done.map_err(|why| error(&why))?;
        Ok(cast_slice(&target).to_vec())
    }
}

fn error(why: &farwrite_codes::hadamard::TransformError) -> PyErr {
    PyValueError::new_err(why.to_string())
}
