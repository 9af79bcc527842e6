//! The sender's end: files in, the stream and its hashes out (P8.2).

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::scan::{Scan, modified, scan};
use super::{Entry, Kind, Manifest, ScanError, Special};
use crate::{Message, Text};

/// Reads the files of a manifest as one stream, and hashes each.
///
/// The stream has the length that the manifest says, whatever becomes of the files meanwhile: one
/// that cannot be read any more, or has changed, is reported by [`Source::poll_file`], and its
/// place is filled with zeros.
#[derive(Debug)]
pub struct Source {
    manifest: Arc<Manifest>,
    tops: HashMap<u32, PathBuf>,
    skipped: Vec<PathBuf>,
    current: Option<Reading>,
    ended: VecDeque<FileRead>,
}

/// The file that is being read.
#[derive(Debug)]
struct Reading {
    index: u32,
    /// `None` after it has failed.
    file: Option<File>,
    left_bytes: u64,
    hasher: blake3::Hasher,
}

/// How the reading of a file ended.
#[derive(Debug)]
pub struct FileRead {
    /// Number of the file in the manifest.
    pub index: u32,
    /// BLAKE3 of its bytes, or why they are of no use.
    pub result: Result<[u8; 32], ReadError>,
}

impl FileRead {
    /// What to tell the receiver.
    #[must_use]
    pub fn message(&self) -> Message {
        let index = self.index;
        match &self.result {
            Ok(hash) => Message::FileHash { index, hash: *hash },
            Err(error) => Message::FileAbandoned {
                index,
                reason: Text::new(error),
            },
        }
    }
}

impl Source {
    /// Lists files and directory trees, each under the last name of its path, as `cp -r` and
    /// `scp -r` do: `a/b` and `a/b/` arrive as `b`, `a/b/.` as what `b` contains. A path that is a
    /// symbolic link stands for what it leads to; links within trees are [`Special`].
    ///
    /// # Errors
    /// A [`ScanError`] that names the path.
    pub fn scan(paths: &[PathBuf], special: Special) -> Result<Self, ScanError> {
        let Scan {
            manifest,
            tops,
            skipped,
        } = scan(paths, special)?;
        let mut source = Self {
            manifest: Arc::new(manifest),
            tops,
            skipped,
            current: None,
            ended: VecDeque::new(),
        };
        source.open_from(0);
        source.end_whole();
        Ok(source)
    }

    /// What there is to send.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// What was left out by [`Special::Skip`].
    #[must_use]
    pub fn skipped(&self) -> &[PathBuf] {
        &self.skipped
    }

    /// Where an entry is read from.
    #[must_use]
    pub fn path(&self, index: u32) -> PathBuf {
        let mut lineage = self.manifest.lineage(Some(index)).into_iter().rev();
        let top = lineage.next().and_then(|top| self.tops.get(&top));
        let mut path = top.cloned().unwrap_or_default();
        path.extend(
            lineage
                .filter_map(|index| self.manifest.get(index))
                .map(|entry| OsStr::from_bytes(&entry.name)),
        );
        path
    }

    /// Fills `out` with the next bytes of the stream; fewer than fit only at its end. Returns how
    /// many.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len()
            && let Some(mut reading) = self.current.take()
        {
            let room = out.len() - filled;
            let wanted = usize::try_from(reading.left_bytes).map_or(room, |left| left.min(room));
            let piece = &mut out[filled..filled + wanted];
            if let Err(source) = reading.read(piece) {
                // What the caller's memory held before is not to be sent.
                piece.fill(0);
                // A file that ends too early has changed; that says more than its error.
                self.check_unchanged(&mut reading);
                if reading.file.is_some() {
                    self.give_up(&mut reading, |path| ReadError::Io { path, source });
                }
            }
            filled += wanted;
            self.current = Some(reading);
            self.end_whole();
        }
        filled
    }

    /// How the reading of the next file ended, if one did. Files come in the order of the manifest.
    pub fn poll_file(&mut self) -> Option<FileRead> {
        self.ended.pop_front()
    }

    /// Opens the first file from a number on.
    fn open_from(&mut self, index: u32) {
        let Some((index, _, left_bytes)) = self.manifest.next_file(index) else {
            return;
        };
        let mut reading = Reading {
            index,
            file: None,
            left_bytes,
            hasher: blake3::Hasher::new(),
        };
        match open(&self.path(index)) {
            Ok(file) => reading.file = Some(file),
            Err(source) => self.give_up(&mut reading, |path| ReadError::Io { path, source }),
        }
        self.check_unchanged(&mut reading);
        self.current = Some(reading);
    }

    /// Ends the current file if all its bytes are read, and opens the next, until one has bytes.
    fn end_whole(&mut self) {
        while let Some(mut whole) = self.current.take_if(|reading| reading.left_bytes == 0) {
            self.check_unchanged(&mut whole);
            if whole.file.is_some() {
                self.ended.push_back(FileRead {
                    index: whole.index,
                    result: Ok(whole.hasher.finalize().into()),
                });
            }
            self.open_from(whole.index + 1);
        }
    }

    /// A file that was written to since it was listed may be neither its old nor its new self.
    fn check_unchanged(&mut self, reading: &mut Reading) {
        let entry = self.manifest.get(reading.index);
        let (Some(file), Some(entry)) = (&reading.file, entry) else {
            return;
        };
        let change = match file.metadata() {
            Err(source) => Err(source),
            Ok(metadata) if !metadata.is_file() => Ok(Some("it is no file any more".into())),
            Ok(metadata) => Ok(change(entry, &metadata)),
        };
        match change {
            Ok(None) => {}
            Ok(Some(what)) => self.give_up(reading, |path| ReadError::Changed { path, what }),
            Err(source) => self.give_up(reading, |path| ReadError::Io { path, source }),
        }
    }

    fn give_up(&mut self, reading: &mut Reading, why: impl FnOnce(PathBuf) -> ReadError) {
        reading.file = None;
        self.ended.push_back(FileRead {
            index: reading.index,
            result: Err(why(self.path(reading.index))),
        });
    }
}

impl Reading {
    /// Fills a piece, with zeros if the file has failed.
    fn read(&mut self, piece: &mut [u8]) -> io::Result<()> {
        self.left_bytes -= u64::try_from(piece.len()).unwrap_or(u64::MAX);
        let Some(file) = &mut self.file else {
            piece.fill(0);
            return Ok(());
        };
        file.read_exact(piece)?;
        self.hasher.update(piece);
        Ok(())
    }
}

/// Opens a file that was one when it was listed. Should it be something else by now, then a link is
/// not followed, and a pipe is not waited for.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// How a file differs from its entry, if it does.
fn change(entry: &Entry, metadata: &Metadata) -> Option<String> {
    let Kind::File { bytes } = entry.kind else {
        return None;
    };
    if metadata.len() != bytes {
        return Some(format!("{bytes} bytes became {}", metadata.len()));
    }
    (modified(metadata) != entry.modified).then(|| "it was written to".into())
}

/// Why a file's bytes are of no use.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system said no.
    #[error("cannot read {path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Somebody wrote to it.
    #[error("{path:?} changed while it was being sent: {what}")]
    Changed {
        /// The file.
        path: PathBuf,
        /// In what way.
        what: String,
    },
}
