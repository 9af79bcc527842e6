//! What commands do with files and directories that the user names.

use std::fs;
use std::path::Path;

use crate::exit::{Exit, Failure, OrExit};

pub(crate) fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    fs::write(file, content).or_exit(Exit::Files, format_args!("writing {}", file.display()))
}

/// Makes a directory, unless it is there.
pub(crate) fn make_directory(dir: &Path) -> Result<(), Failure> {
    let what = format_args!("making directory {}", dir.display());
    fs::create_dir_all(dir).or_exit(Exit::Files, what)
}

/// The directory of a file.
pub(crate) fn directory_of(file: &Path) -> &Path {
    let parent = file.parent().filter(|parent| *parent != Path::new(""));
    parent.unwrap_or(Path::new("."))
}
