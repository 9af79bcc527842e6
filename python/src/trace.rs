//! A trace of this process.

use std::io;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Records the events of the endpoints of this process in a file. A process has at most one trace.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct Trace(farwrite_trace::Trace);

#[pymethods]
impl Trace {
    #[new]
    fn new(file: PathBuf) -> io::Result<Self> {
        farwrite_trace::Trace::start(&file).map(Self)
    }

    /// Writes the events that are not in the file yet.
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
