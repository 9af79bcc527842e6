//! What the sender has to send: from paths to a manifest.

use std::collections::HashMap;
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::entry::{MODE_BITS, NANOS};
use super::{Entry, Kind, Manifest, ManifestBuilder, ManifestError, Time};

/// What to do with what is neither file nor directory: symbolic links, pipes, sockets, devices.
/// None of these is ever sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Fail at the first.
    Refuse,
    /// Leave them out, and list them.
    Skip,
}

/// A manifest, and where its entries are found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) manifest: Manifest,
    /// Real paths of the entries without parent.
    pub(super) tops: HashMap<u32, PathBuf>,
    pub(super) skipped: Vec<PathBuf>,
}

/// Lists what paths lead to. See [`super::Source::scan`].
pub(super) fn scan(paths: &[PathBuf], special: Special) -> Result<Scan, ScanError> {
    let mut scanner = Scanner {
        builder: ManifestBuilder::default(),
        scan: Scan::default(),
        special,
        pending: Vec::new(),
    };
    let mut named: HashMap<Vec<u8>, &Path> = HashMap::new();
    for path in paths {
        // A link that the user named is what it leads to.
        let real = fs::canonicalize(path).map_err(|source| ScanError::Io {
            path: path.clone(),
            source,
        })?;
        match own_name(path) {
            Some(name) => {
                if let Some(first) = named.insert(name.to_vec(), path) {
                    return Err(ScanError::SameName {
                        first: first.into(),
                        second: path.clone(),
                    });
                }
                scanner.add(None, name, real)?;
            }
            None => scanner.add_contents(None, &real)?,
        }
        scanner.drain()?;
    }
    Ok(Scan {
        manifest: scanner.builder.build()?,
        ..scanner.scan
    })
}

/// The name that a path is sent under; `None` for one that ends in `.` or `..` or is `/`, which
/// stands for what the directory contains. A slash at the end changes nothing.
fn own_name(path: &Path) -> Option<&[u8]> {
    let mut parts = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    let last = parts.find(|part| !part.is_empty())?;
    (last != b"." && last != b"..").then_some(last)
}

struct Scanner {
    builder: ManifestBuilder,
    scan: Scan,
    special: Special,
    /// Directories whose contents are still to be listed.
    pending: Vec<(u32, PathBuf)>,
}

impl Scanner {
    fn drain(&mut self) -> Result<(), ScanError> {
        while let Some((index, path)) = self.pending.pop() {
            self.add_contents(Some(index), &path)?;
        }
        Ok(())
    }

    fn add_contents(&mut self, parent: Option<u32>, path: &Path) -> Result<(), ScanError> {
        let io = |source| ScanError::Io {
            path: path.into(),
            source,
        };
        let mut names = fs::read_dir(path)
            .map_err(io)?
            .map(|item| Ok(item?.file_name()))
            .collect::<io::Result<Vec<_>>>()
            .map_err(io)?;
        // The order in which a directory lists them is an accident.
        names.sort_unstable();
        let first = self.pending.len();
        for name in names {
            self.add(parent, name.as_bytes(), path.join(&name))?;
        }
        // Last in, first out: turned round, directories too are sent in the order of their names.
        self.pending[first..].reverse();
        Ok(())
    }

    fn add(&mut self, parent: Option<u32>, name: &[u8], path: PathBuf) -> Result<(), ScanError> {
        let metadata = fs::symlink_metadata(&path).map_err(|source| ScanError::Io {
            path: path.clone(),
            source,
        })?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::File {
                bytes: metadata.len(),
            },
            kind => return self.special(path, kind),
        };
        let index = self.builder.push(Entry {
            parent,
            name: name.into(),
            kind,
            mode: permissions(&metadata),
            modified: modified(&metadata),
        })?;
        if parent.is_none() {
            self.scan.tops.insert(index, path.clone());
        }
        if kind == Kind::Directory {
            self.pending.push((index, path));
        }
        Ok(())
    }

    fn special(&mut self, path: PathBuf, kind: FileType) -> Result<(), ScanError> {
        if self.special == Special::Skip {
            self.scan.skipped.push(path);
            return Ok(());
        }
        let what = match () {
            () if kind.is_symlink() => "a symbolic link",
            () if kind.is_fifo() => "a named pipe",
            () if kind.is_socket() => "a socket",
            () => "a device",
        };
        Err(ScanError::Special { path, what })
    }
}

fn permissions(metadata: &Metadata) -> u16 {
    u16::try_from(metadata.mode() & u32::from(MODE_BITS)).unwrap_or(0)
}

/// When a file was last written.
pub(super) fn modified(metadata: &Metadata) -> Time {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Time {
        seconds: metadata.mtime(),
        nanos: nanos.min(NANOS - 1),
    }
}

/// Why paths cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The operating system said no.
    #[error("cannot read {path:?}: {source}")]
    Io {
        /// About what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Something that is never sent.
    #[error("{path:?} is {what}; only files and directories are sent")]
    Special {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Two paths that would arrive as one.
    #[error(
        "{first:?} and {second:?} would arrive under the same name; send them one after the other"
    )]
    SameName {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Too many entries, too deep, or the like.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_cp_takes_them() {
        for (path, name) in [
            ("a", Some("a")),
            ("a/", Some("a")),
            ("/x/a//", Some("a")),
            ("a/.", None),
            ("a/./", None),
            (".", None),
            ("..", None),
            ("a/..", None),
            ("/", None),
            ("...", Some("...")),
        ] {
            assert_eq!(own_name(Path::new(path)), name.map(str::as_bytes), "{path}");
        }
    }
}
