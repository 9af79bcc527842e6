//! A file that gets its name when it is complete.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::input::Input;
use crate::exit::{Exit, Failure, OrExit};
use crate::files::directory_of;

/// A file with a temporary name in the same directory, `.NAME.farwrite-RANDOM.part`. It is removed
/// unless it is finished.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    part: NamedTempFile,
}

impl Output {
    /// # Errors
    /// [`Exit::Usage`] if it is one of the inputs; [`Exit::Files`] if the name belongs to something
    /// that is not a file, or if no file can be created.
    ///
    /// A link to a file keeps leading to it, and the file is replaced.
    pub(super) fn create(path: &Path, inputs: &[&Input]) -> Result<Self, Failure> {
        let shown = path.display();
        if is_device_name(path) {
            let what = format!("--out {shown} is a device and no file: give another name");
            return Err(Failure::new(Exit::Files, what));
        }
        let resolved = fs::canonicalize(path);
        let path = resolved.as_deref().unwrap_or(path);
        match fs::metadata(path) {
            Ok(there) => {
                let identity = |file: &Metadata| (file.dev(), file.ino());
                let is_there = |input: &&&Input| identity(&input.metadata) == identity(&there);
                if let Some(input) = inputs.iter().find(is_there) {
                    let what = format!(
                        "--out {shown} is the input {}: give another name",
                        input.path.display()
                    );
                    return Err(Failure::new(Exit::Usage, what));
                }
                if !there.is_file() {
                    let what = format!("--out {shown} is there and no file: give another name");
                    return Err(Failure::new(Exit::Files, what));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let what = format_args!("looking at {shown}");
                return Err(Failure::caused(Exit::Files, what, &error));
            }
        }
        let Some(name) = path.file_name() else {
            let what = format!("--out {shown} names no file");
            return Err(Failure::new(Exit::Files, what));
        };
        let prefix = format!(".{}.farwrite-", name.to_string_lossy());
        let part = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".part")
            // The umask removes permissions, as for any new file.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory_of(path))
            .or_exit(Exit::Files, format_args!("making a file for {shown}"))?;
        Ok(Self {
            path: path.to_owned(),
            part,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let doing = format_args!("writing {}", self.path.display());
        self.part
            .as_file_mut()
            .write_all(bytes)
            .or_exit(Exit::Files, doing)
    }

    /// Gives the file its name, and replaces any file of that name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let doing = format!("giving {} its name", self.path.display());
        // A network file system may report only now that it has no room.
        self.part
            .as_file()
            .sync_all()
            .or_exit(Exit::Files, format_args!("writing {}", self.path.display()))?;
        let persisted = self.part.persist(&self.path);
        persisted
            .map(drop)
            .map_err(|error| Failure::caused(Exit::Files, doing, &error.error))
    }
}

/// Whether the path is in a directory whose names lead to devices, or to what is open: a new file would take the place
/// of such a name.
fn is_device_name(path: &Path) -> bool {
    fs::canonicalize(directory_of(path)).is_ok_and(|directory| {
        let is_below = |place| directory.starts_with(place);
        (is_below("/dev") && !is_below("/dev/shm")) || is_below("/proc")
    })
}
