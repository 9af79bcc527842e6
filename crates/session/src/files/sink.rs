//! The receiver's end: bytes of the stream in, verified files out (P8.4).

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Manifest;
use super::part::{OpenPart, Part};
use super::tree::Tree;
use crate::{Message, Text};

/// Writes the files of a manifest into a directory, and gives each its final name once its hash is
/// that of the sender.
///
/// Nothing is written outside the directory, and no symbolic link in it is followed. A file that has
/// the final name already is replaced then, and not before. What is not verified when the sink is
/// dropped is removed.
///
/// Bytes come by [`Sink::write`], in the order of the stream; hashes by [`Sink::handle_hash`], in
/// the order of the files, before or after the bytes; verdicts go out by [`Sink::poll_verdict`].
#[derive(Debug)]
pub struct Sink {
    manifest: Arc<Manifest>,
    tree: Tree,
    current: Option<(u32, OpenPart)>,
    /// Files written whole of which the sender has said nothing yet.
    parts: HashMap<u32, Part>,
    /// What the sender said of files that are not written whole yet.
    claims: HashMap<u32, Claim>,
    /// The next file that the sender may speak of is the first from this number on.
    next_claim: u32,
    verdicts: VecDeque<Verdict>,
    summary: Summary,
}

#[derive(Debug)]
enum Claim {
    Hash(blake3::Hash),
    Abandoned(Text),
}

/// How a file ended.
#[derive(Debug)]
pub struct Verdict {
    /// Number of the file in the manifest.
    pub index: u32,
    /// Why it was thrown away; `None`: it has its final name.
    pub failure: Option<FileFailure>,
}

impl Verdict {
    /// What to tell the sender.
    #[must_use]
    pub fn message(&self) -> Message {
        match &self.failure {
            None => Message::FileVerified { index: self.index },
            Some(failure) => Message::FileFailed {
                index: self.index,
                reason: Text::new(failure),
            },
        }
    }
}

/// Why a file was thrown away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFailure {
    /// The bytes that came are not those that were sent.
    #[error("its hash is {came}, but that of the sender is {want}")]
    Hash {
        /// Hash of what came.
        came: blake3::Hash,
        /// Hash that the sender told.
        want: blake3::Hash,
    },
    /// The sender could not read it.
    #[error("the sender could not read it: {reason}")]
    Abandoned {
        /// The sender's words.
        reason: Text,
    },
}

/// What came of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that have their final names.
    pub verified_files: u32,
    /// Files that were thrown away.
    pub failed_files: u32,
}

impl Sink {
    /// Makes the manifest's directories in `directory`, which must be there.
    ///
    /// # Errors
    /// [`SinkError::Io`], also where a symbolic link or a file has the name of a directory;
    /// [`SinkError::InTheWay`].
    pub fn new(directory: &Path, manifest: Arc<Manifest>) -> Result<Self, SinkError> {
        let mut tree = Tree::open(directory)?;
        tree.prepare(&manifest)?;
        let mut sink = Self {
            manifest,
            tree,
            current: None,
            parts: HashMap::new(),
            claims: HashMap::new(),
            next_claim: 0,
            verdicts: VecDeque::new(),
            summary: Summary::default(),
        };
        sink.open_from(0)?;
        sink.close_whole()?;
        Ok(sink)
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`SinkError::Excess`]; [`SinkError::Io`] with the path, after which the sink is of no use.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), SinkError> {
        while !bytes.is_empty() {
            let Some((index, part)) = &mut self.current else {
                return Err(SinkError::Excess {
                    want: self.manifest.stream_bytes(),
                });
            };
            let index = *index;
            let written = part.write(bytes);
            let written = written.map_err(|source| self.failed("write", index, source))?;
            bytes = &bytes[written..];
            self.close_whole()?;
        }
        Ok(())
    }

    /// Takes the hash that the sender made of a file.
    ///
    /// # Errors
    /// [`SinkError::OutOfTurn`]; [`SinkError::Io`] if the final name cannot be given.
    pub fn handle_hash(&mut self, index: u32, hash: [u8; 32]) -> Result<(), SinkError> {
        self.claim(index, Claim::Hash(hash.into()))
    }

    /// Takes the sender's word that a file's bytes are of no use.
    ///
    /// # Errors
    /// As [`Sink::handle_hash`].
    pub fn handle_abandoned(
        &mut self,
        index: u32,
        reason: impl std::fmt::Display,
    ) -> Result<(), SinkError> {
        self.claim(index, Claim::Abandoned(Text::new(reason)))
    }

    /// How the next file ended, if one did.
    pub fn poll_verdict(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    /// Ends a transfer of which all bytes and hashes have come: gives the directories their
    /// permissions and times.
    ///
    /// # Errors
    /// [`SinkError::Unfinished`], [`SinkError::Io`].
    pub fn finish(mut self) -> Result<Summary, SinkError> {
        let ended = self.summary.verified_files + self.summary.failed_files;
        if ended != self.manifest.files() {
            return Err(SinkError::Unfinished {
                missing_files: self.manifest.files() - ended,
            });
        }
        self.tree.dress(&self.manifest)?;
        Ok(self.summary)
    }

    fn claim(&mut self, index: u32, claim: Claim) -> Result<(), SinkError> {
        let due = self
            .manifest
            .next_file(self.next_claim)
            .map(|(due, ..)| due);
        if due != Some(index) {
            return Err(SinkError::OutOfTurn { came: index, due });
        }
        self.next_claim = index + 1;
        self.claims.insert(index, claim);
        self.settle(index)
    }

    /// Opens the first file from a number on.
    fn open_from(&mut self, index: u32) -> Result<(), SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let Some((index, entry, bytes)) = manifest.next_file(index) else {
            return Ok(());
        };
        let directory = self.tree.enter(&manifest, entry.parent)?;
        let part = OpenPart::create(directory, &entry.name, bytes);
        let part = part.map_err(|source| self.failed("create", index, source))?;
        self.current = Some((index, part));
        Ok(())
    }

    /// Closes the current file if it is whole, and opens the next, until one wants bytes: empty files
    /// are whole at once.
    fn close_whole(&mut self) -> Result<(), SinkError> {
        while let Some((index, part)) = self.current.take_if(|(_, part)| part.is_whole()) {
            self.parts.insert(index, part.close());
            self.settle(index)?;
            self.open_from(index + 1)?;
        }
        Ok(())
    }

    /// Ends a file of which both the bytes and the sender's word have come.
    fn settle(&mut self, index: u32) -> Result<(), SinkError> {
        let (Some(part), Some(claim), Some(entry)) = (
            self.parts.get(&index),
            self.claims.get(&index),
            self.manifest.get(index),
        ) else {
            return Ok(());
        };
        let failure = match claim {
            Claim::Hash(want) if *want == part.hash => None,
            Claim::Hash(want) => Some(FileFailure::Hash {
                came: part.hash,
                want: *want,
            }),
            Claim::Abandoned(reason) => Some(FileFailure::Abandoned {
                reason: reason.clone(),
            }),
        };
        let directory = self.tree.enter(&self.manifest, entry.parent)?;
        let (tried, ended) = match failure {
            None => ("give its final name to", {
                let dressed = directory.dress_file(&part.name, entry.mode, entry.modified);
                dressed.and_then(|()| directory.rename(&part.name, &entry.name))
            }),
            Some(_) => ("remove the unverified", directory.remove(&part.name)),
        };
        ended.map_err(|source| self.failed(tried, index, source))?;
        match failure {
            None => self.summary.verified_files += 1,
            Some(_) => self.summary.failed_files += 1,
        }
        self.parts.remove(&index);
        self.claims.remove(&index);
        self.verdicts.push_back(Verdict { index, failure });
        Ok(())
    }

    fn failed(&self, tried: &'static str, index: u32, source: std::io::Error) -> SinkError {
        self.tree.failed(tried, &self.manifest, index, source)
    }
}

impl Drop for Sink {
    /// Removes what has no final name. Errors are left: there is nobody to tell, and the names
    /// (`.NAME.farwrite-RANDOM.part`) say what they are.
    fn drop(&mut self) {
        let current = self.current.take();
        let open = current.map(|(index, part)| (index, part.name().to_vec()));
        let closed = self.parts.drain().map(|(index, part)| (index, part.name));
        for (index, name) in closed.chain(open) {
            let parent = self.manifest.get(index).and_then(|entry| entry.parent);
            if let Ok(directory) = self.tree.enter(&self.manifest, parent) {
                let _ = directory.remove(&name);
            }
        }
    }
}

/// Why files could not be received.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The operating system said no.
    #[error("cannot {tried} {path:?}: {source}")]
    Io {
        /// What was tried.
        tried: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: std::io::Error,
    },
    /// A directory has the name of a file.
    #[error(
        "a directory is in the way of the file {path:?}; move it, or receive into another directory"
    )]
    InTheWay {
        /// The name.
        path: PathBuf,
    },
    /// More bytes than the manifest has.
    #[error("the sender sent more than the {want} bytes of its manifest")]
    Excess {
        /// Bytes of all files.
        want: u64,
    },
    /// The sender spoke of a file before its turn, twice, or of one that is none.
    #[error("the sender told the hash of file {came}, but {} is due", due.map_or("none".into(), |due| due.to_string()))]
    OutOfTurn {
        /// The number that came.
        came: u32,
        /// The number that was due.
        due: Option<u32>,
    },
    /// Files are missing.
    #[error("the transfer ended with {missing_files} files neither verified nor given up")]
    Unfinished {
        /// How many.
        missing_files: u32,
    },
}
