//! Builds a manifest from the paths that the sender sends.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::acl;
use super::directory::Directory;
use super::interrupted::is_temporary_file;
use super::not_sent::NotSent;
use super::open_directories::OpenDirectories;
use super::root::{Roots, open_file};
use super::sparse::extents;
use super::status::{Id, Status};
use super::{
    Detail, Entry, Filter, Kind, Manifest, ManifestBuilder, ManifestError, PathError, Xattr, xattrs,
};

/// What to do with pipes, sockets and devices in a tree. None of these is ever sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Special {
    /// Leave them out. Each counts as something that could not be sent.
    #[default]
    Report,
    /// Leave them out, and list them.
    Skip,
}

/// How to list what is sent.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// What to do with pipes, sockets and devices.
    pub special: Special,
    /// Send extended attributes and access control lists.
    pub xattrs: bool,
    /// Send owners.
    pub owners: bool,
    /// What to leave out.
    pub filter: Filter,
}

/// A manifest, and where its entries are found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) manifest: Manifest,
    pub(super) roots: Roots,
    /// The identity of each entry when it was listed.
    pub(super) ids: Vec<Id>,
    pub(super) skipped: Vec<PathBuf>,
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) dropped: NotSent,
}

/// Something in a tree that could not be listed, or that is never sent: a directory whose contents
/// are missing at the receiver, a file, or something special.
#[derive(Debug)]
pub struct Unreadable {
    /// Its path below the receiver's directory.
    pub path: PathBuf,
    /// Why.
    pub error: ScanError,
}

impl Unreadable {
    /// Why, for people. The same for all things of one kind that are never sent.
    #[must_use]
    pub fn reason(&self) -> String {
        match &self.error {
            ScanError::Special { what, .. } => format!("{what} is not sent"),
            ScanError::Manifest(ManifestError::Entry { why, .. }) => why.to_string(),
            error => error.to_string(),
        }
    }
}

/// Lists what paths lead to. Leaves out the temporary files of receivers below them. See [`super::Source::scan`].
pub(super) fn scan(paths: &[PathBuf], options: &ScanOptions) -> Result<Scan, ScanError> {
    let mut scanner = Scanner {
        builder: ManifestBuilder::default(),
        found: Scan::default(),
        options,
        firsts: HashMap::new(),
    };
    let mut named: HashMap<Vec<u8>, &Path> = HashMap::new();
    let mut failed = Vec::new();
    for path in paths {
        let name = own_name(path);
        if let Some(name) = name
            && let Some(first) = named.insert(name.to_vec(), path)
        {
            return Err(ScanError::SameName {
                first: first.into(),
                second: path.clone(),
            });
        }
        let added = match name {
            Some(name) => scanner.add_named(name, path),
            None => scanner.add_contents(path),
        };
        match added {
            // The others are sent.
            Err(error @ (ScanError::Io(_) | ScanError::Special { .. })) => {
                let name = name.map_or_else(|| path.as_os_str(), OsStr::from_bytes);
                failed.push(Unreadable {
                    path: name.into(),
                    error,
                });
            }
            added => added?,
        }
    }
    match failed.pop() {
        Some(last) if failed.len() + 1 == paths.len() => {
            return Err(failed.into_iter().next().unwrap_or(last).error);
        }
        last => scanner
            .found
            .unreadable
            .extend(failed.into_iter().chain(last)),
    }
    let mut found = scanner.found;
    found.ids.shrink_to_fit();
    found.manifest = scanner.builder.build()?;
    Ok(found)
}

/// Returns the name under which a path is sent; `None` for `/` and for a path that ends in `.` or
/// `..`, which stands for the contents of the directory. A slash at the end changes nothing.
fn own_name(path: &Path) -> Option<&[u8]> {
    let mut parts = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    let last = parts.find(|part| !part.is_empty())?;
    (last != b"." && last != b"..").then_some(last)
}

struct Scanner<'a> {
    builder: ManifestBuilder,
    /// What was found. Its manifest stays empty until `builder` has built it.
    found: Scan,
    options: &'a ScanOptions,
    /// The first names of files with several names.
    firsts: HashMap<Id, u32>,
}

impl Scanner<'_> {
    /// Adds the target of a path under a name. Follows a link that the user named.
    fn add_named(&mut self, name: &[u8], path: &Path) -> Result<(), ScanError> {
        let first = self.builder.entries();
        self.found.roots.push(first, path, true);
        let failed = |source| ScanError::io(path, source);
        // Open the directory before reading its status, so that both refer to the same directory.
        let (mut status, directory) = match Directory::open(path) {
            Ok(directory) => (directory.status().map_err(failed)?, Some(directory)),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let status = Status::of_path(path).map_err(failed)?;
                if status.kind == FileType::Directory {
                    return Err(failed(error));
                }
                (status, None)
            }
            Err(error) => return Err(failed(error)),
        };
        if !matches!(status.kind, FileType::Directory | FileType::RegularFile) {
            return Err(ScanError::Special {
                path: path.into(),
                what: status.kind.into(),
            });
        }
        if !self.options.xattrs {
            status.mode = acl::mode_of(path, status.mode);
        }
        let added = self.add(None, name, &status, None)?;
        let Some(index) = added else {
            return Ok(());
        };
        match directory {
            Some(directory) => self.add_below(OpenDirectories::new(directory, added), added),
            None => self.add_file_details(index, || open_file(path)),
        }
    }

    fn add_contents(&mut self, path: &Path) -> Result<(), ScanError> {
        self.found.roots.push(self.builder.entries(), path, false);
        let directory = Directory::open(path).map_err(|source| ScanError::io(path, source))?;
        self.add_below(OpenDirectories::new(directory, None), None)
    }

    /// Adds the contents of a directory, and of all directories below it. What cannot be read below
    /// the first directory is left out and remembered.
    fn add_below(
        &mut self,
        mut directories: OpenDirectories,
        top: Option<u32>,
    ) -> Result<(), ScanError> {
        let mut pending = vec![top];
        while let Some(parent) = pending.pop() {
            let first = pending.len();
            match self.add_directory(&mut directories, parent, &mut pending) {
                Err(error @ ScanError::Io(_)) if parent != top => {
                    let path = parent.map(|index| self.builder.so_far().path(index));
                    self.found.unreadable.push(Unreadable {
                        path: path.unwrap_or_default(),
                        error,
                    });
                }
                added => added?,
            }
            // The list is last in, first out. Reverse it, so that directories too are sent in the
            // order of their names.
            pending[first..].reverse();
        }
        Ok(())
    }

    /// `pending` gets the directories in this one.
    fn add_directory(
        &mut self,
        directories: &mut OpenDirectories,
        parent: Option<u32>,
        pending: &mut Vec<Option<u32>>,
    ) -> Result<(), ScanError> {
        let entered = directories.enter(self.builder.so_far(), parent);
        let directory =
            entered.map_err(|error| ScanError::io(&self.path(Some(error.index)), error.source))?;
        let names = directory.names(|_| true);
        let names = names.map_err(|source| ScanError::io(&self.path(parent), source))?;
        if let Some(index) = parent
            && self.options.xattrs
        {
            let (xattrs, is_short) = xattrs::read(directory);
            self.found.dropped.note_xattrs(is_short);
            self.add_xattrs(index, xattrs)?;
        } else {
            self.found.dropped.look_at(directory);
        }
        for name in names {
            let status = match look(directory, &name) {
                Ok(Some(status)) => status,
                // A file that was removed since the names were listed.
                Ok(None) => continue,
                Err(source) => {
                    let error = ScanError::io(&self.below(parent, &name), source);
                    self.leave_out(parent, &name, error);
                    continue;
                }
            };
            let (mut status, target) = status;
            if is_temporary_file(&name, &status) {
                continue;
            }
            let is_directory = status.kind == FileType::Directory;
            if self.is_excluded(parent, &name, is_directory) {
                continue;
            }
            if !self.options.xattrs && status.kind != FileType::Symlink {
                status.mode = acl::mode_in(directory, &name, status.mode);
            }
            let added = self.add(parent, &name, &status, target)?;
            if is_directory {
                pending.extend(added.map(Some));
            } else if let Some(index) = added {
                self.add_file_details(index, || directory.open_to_read(&name))?;
            }
        }
        Ok(())
    }

    /// Whether the user does not want something below a path that he named.
    fn is_excluded(&self, parent: Option<u32>, name: &[u8], is_directory: bool) -> bool {
        if self.options.filter.is_empty() {
            return false;
        }
        let so_far = self.builder.so_far();
        let mut below = so_far.lineage(parent);
        if self.found.roots.last_is_entry() {
            below.pop();
        }
        let names = below
            .into_iter()
            .rev()
            .filter_map(|index| so_far.entry(index));
        let mut path: PathBuf = names.map(|entry| OsStr::from_bytes(entry.name)).collect();
        path.push(OsStr::from_bytes(name));
        self.options.filter.excludes(&path, is_directory)
    }

    /// Adds what a file has besides its entry, if any of it is sent. A file that cannot be opened fails later,
    /// when it is read.
    fn add_file_details(
        &mut self,
        index: u32,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Result<(), ScanError> {
        let entry = self.builder.so_far().entry(index).map(|entry| entry.kind);
        let Some(Kind::File { bytes, sparse }) = entry else {
            return Ok(());
        };
        if !sparse && !self.options.xattrs {
            return Ok(());
        }
        let Ok(file) = open() else { return Ok(()) };
        let data = sparse.then(|| extents(&file, bytes)).flatten();
        let data = data.filter(|data| self.builder.has_room_for_extents(data.len()));
        if data.is_some() {
            self.builder.push_detail(Detail {
                entry: index,
                data,
                ..Detail::default()
            })?;
        }
        if self.options.xattrs {
            let (xattrs, is_short) = xattrs::read(&file);
            self.found.dropped.note_xattrs(is_short);
            self.add_xattrs(index, xattrs)?;
        }
        Ok(())
    }

    fn add_xattrs(&mut self, index: u32, xattrs: Vec<Xattr>) -> Result<(), ScanError> {
        if xattrs.is_empty() {
            return Ok(());
        }
        if !self.builder.has_room_for_xattrs(&xattrs) {
            self.found.dropped.note_xattrs(true);
            let list = xattrs.iter().find(|it| it.name == acl::ACCESS);
            let mode = self.builder.so_far().entry(index).map(|entry| entry.mode);
            if let Some((list, mode)) = list.zip(mode) {
                let mode = acl::mode_without(mode, &list.value);
                self.builder.set_mode(index, mode);
            }
            return Ok(());
        }
        let detail = Detail {
            entry: index,
            xattrs,
            ..Detail::default()
        };
        Ok(self.builder.push_detail(detail)?)
    }

    /// Adds an entry. `target` is that of a symbolic link. Returns `None` if it is left out.
    fn add(
        &mut self,
        parent: Option<u32>,
        name: &[u8],
        status: &Status,
        target: Option<Vec<u8>>,
    ) -> Result<Option<u32>, ScanError> {
        let kind = match (status.kind, target) {
            (FileType::Directory, _) => Kind::Directory,
            (FileType::RegularFile, _) => self.file(status),
            (FileType::Symlink, Some(target)) => Kind::Symlink { target },
            (kind, _) => {
                self.leave_out_special(parent, name, kind);
                return Ok(None);
            }
        };
        let is_first = matches!(kind, Kind::File { .. }) && status.links > 1;
        let is_other_name = matches!(kind, Kind::HardLink { .. });
        let pushed = self.builder.push(&Entry {
            parent,
            name: name.into(),
            kind,
            mode: status.mode,
            modified: status.modified,
        });
        let index = match pushed {
            // Its path is too long or too deep, for example. The others are sent.
            Err(error @ ManifestError::Entry { .. }) => {
                self.leave_out(parent, name, error.into());
                return Ok(None);
            }
            pushed => pushed?,
        };
        self.found.ids.push(status.id);
        if self.options.owners && !is_other_name {
            self.builder.push_detail(Detail {
                entry: index,
                owner: Some(status.owner),
                ..Detail::default()
            })?;
        }
        if is_first {
            self.firsts.insert(status.id, index);
        }
        Ok(Some(index))
    }

    /// A regular file, or another name of one that is in the manifest.
    fn file(&self, status: &Status) -> Kind {
        if let Some(first) = self.firsts.get(&status.id) {
            return Kind::HardLink { first: *first };
        }
        Kind::File {
            bytes: status.bytes,
            sparse: status.allocated_bytes < status.bytes,
        }
    }

    fn leave_out_special(&mut self, parent: Option<u32>, name: &[u8], kind: FileType) {
        let path = self.below(parent, name);
        if self.options.special == Special::Skip {
            self.found.skipped.push(path);
            return;
        }
        let what = kind.into();
        self.leave_out(parent, name, ScanError::Special { path, what });
    }

    /// Leaves out something that cannot be sent.
    fn leave_out(&mut self, parent: Option<u32>, name: &[u8], error: ScanError) {
        let above = parent.map(|index| self.builder.so_far().path(index));
        self.found.unreadable.push(Unreadable {
            path: above.unwrap_or_default().join(OsStr::from_bytes(name)),
            error,
        });
    }

    /// Where a directory lies; `None` is the path that is being listed.
    fn path(&self, index: Option<u32>) -> PathBuf {
        match index {
            Some(index) => self.found.roots.path(self.builder.so_far(), index),
            None => self.found.roots.last_path(),
        }
    }

    /// Where a name in a directory lies. The path that is being listed may itself be the entry.
    fn below(&self, parent: Option<u32>, name: &[u8]) -> PathBuf {
        if parent.is_none() && self.found.roots.last_is_entry() {
            return self.found.roots.last_path();
        }
        self.path(parent).join(OsStr::from_bytes(name))
    }
}

/// Returns the status of a name, and the target if it is a symbolic link; `None` if there is no such
/// name.
fn look(directory: &Directory, name: &[u8]) -> io::Result<Option<(Status, Option<Vec<u8>>)>> {
    let Some(status) = directory.look(name)? else {
        return Ok(None);
    };
    let target = match status.kind {
        FileType::Symlink => Some(directory.read_link(name)?),
        _ => None,
    };
    Ok(Some((status, target)))
}

/// Why paths cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The operating system returned an error.
    #[error("cannot read {0}")]
    Io(#[source] PathError),
    /// Something that is never sent.
    #[error("{path:?} is {what}, which is not sent; name a file or a directory")]
    Special {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        what: SpecialKind,
    },
    /// Two paths that would have the same name at the receiver.
    #[error(
        "{first:?} and {second:?} would arrive under the same name; rename one of them, or send them into different directories"
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

/// What a path is that is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecialKind {
    /// A named pipe.
    #[error("a named pipe")]
    Pipe,
    /// A Unix socket.
    #[error("a socket")]
    Socket,
    /// A device.
    #[error("a device")]
    Device,
}

impl From<FileType> for SpecialKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Fifo => Self::Pipe,
            FileType::Socket => Self::Socket,
            _ => Self::Device,
        }
    }
}

impl ScanError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io(PathError::new(path, source))
    }
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
