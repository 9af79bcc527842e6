//! Errors of the operating system, with the paths that they are about.

use std::io;
use std::path::PathBuf;

/// An error of the operating system about a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("{path:?}: {source}")]
pub struct PathError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the operating system says.
    pub source: io::Error,
}

impl PathError {
    pub(crate) fn new(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        Self { path, source }
    }
}
