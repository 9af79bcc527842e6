//! A trace of this process.

use std::io;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Writes what endpoints of this process do to a file. There is at most one in a process.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct Trace(farwrite_trace::Trace);

#[pymethods]
impl Trace {
    #[new]
    fn new(file: PathBuf) -> io::Result<Self> {
        farwrite_trace::Trace::start(&file).map(Self)
    }

    /// Writes the events that are not yet in the file.
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
