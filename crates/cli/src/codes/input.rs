//! A file that is read from its beginning to its end.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure, OrExit};

#[derive(Debug)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    file: File,
    pub(super) metadata: Metadata,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let doing = format_args!("opening {}", path.display());
        let file = farwrite_units::input::open(path).or_exit(Exit::Files, doing)?;
        let metadata = file.metadata().or_exit(Exit::Files, doing)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            metadata,
        })
    }

    /// [`Self::open`] for a file that has a length.
    pub(super) fn open_file(path: &Path) -> Result<Self, Failure> {
        let input = Self::open(path)?;
        if input.metadata.is_file() {
            return Ok(input);
        }
        let what = format!("{} is no file", path.display());
        Err(Failure::new(Exit::Files, what))
    }

    /// The size of the file when it was opened; 0 if it has no length, such as a pipe.
    pub(super) fn bytes(&self) -> u64 {
        self.metadata.len()
    }

    /// Replaces the content of the buffer by the next `bytes` bytes, or fewer if the file ends.
    pub(super) fn read(&mut self, bytes: usize, buffer: &mut Vec<u8>) -> Result<(), Failure> {
        buffer.clear();
        let mut next = (&self.file).take(bytes as u64);
        next.read_to_end(buffer)
            .or_exit(Exit::Files, format_args!("reading {}", self.path.display()))?;
        Ok(())
    }
}
