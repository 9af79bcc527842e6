//! The receiver's end: bytes of the stream in, verified files out (P8.4).

mod error;
mod verdict;
mod work;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::attributes::{Warning, Warnings};
use super::final_name::Named;
use super::tree::Tree;
use super::{CommitGate, Kind, Manifest};
use crate::Text;
pub use error::SinkError;
pub(super) use error::is_full;
pub use verdict::{FileFailure, Summary, Verdict};
use work::{Current, Written};

/// Files that may wait for the sender's word and keep the lock of their temporary name; each of
/// them is an open file. A sender says its words before the bytes arrive, so few files ever wait.
const LOCKED_FILES: usize = 256;

/// Writes the files of a manifest into a directory, and gives each its final name once its hash is
/// that of the sender.
///
/// Nothing is written outside the directory, and no symbolic link in it is followed. A file that
/// has the final name already is replaced then, and not before. What is not verified when the sink
/// is dropped is removed.
///
/// Bytes come by [`Sink::write`], in the order of the stream; the sender's word about each file by
/// [`Sink::handle_hash`] or [`Sink::handle_abandoned`], in the order of the files, before or after
/// the bytes. That a file is abandoned must be known before bytes of the next file come. Verdicts
/// go out by [`Sink::poll_verdict`], warnings by [`Sink::poll_warning`].
#[derive(Debug)]
pub struct Sink {
    manifest: Arc<Manifest>,
    tree: Tree,
    gate: CommitGate,
    named: Named,
    warnings: Warnings,
    /// The file whose bytes come next.
    current: Option<Current>,
    /// Files before the current one of which the sender has said nothing yet.
    written: VecDeque<(u32, Written)>,
    /// What the sender said of the current file and of later ones. Empty unless `written` is.
    claims: VecDeque<(u32, Claim)>,
    /// The next file that the sender may speak of is the first from this number on.
    next_claim: u32,
    /// Bytes of the stream that came.
    taken_bytes: u64,
    verdicts: VecDeque<Verdict>,
    summary: Summary,
}

/// What the sender says of a file.
#[derive(Debug)]
enum Claim {
    Hash(blake3::Hash),
    Abandoned { sent_bytes: u64, reason: Text },
}

impl Sink {
    /// Makes the manifest's directories in `directory`, which must be there, and removes the
    /// temporary files of killed receivers from those that were there before. Files get final names
    /// until `gate` is closed.
    ///
    /// # Errors
    /// [`SinkError::Io`], also where a symbolic link or a file has the name of a directory;
    /// [`SinkError::Full`]; [`SinkError::InTheWay`]; [`SinkError::SameDirectory`].
    pub fn new(
        directory: &Path,
        manifest: Arc<Manifest>,
        gate: CommitGate,
    ) -> Result<Self, SinkError> {
        let mut sink = Self {
            tree: Tree::prepare(directory, Arc::clone(&manifest))?,
            manifest,
            gate,
            named: Named::default(),
            warnings: Warnings::default(),
            current: None,
            written: VecDeque::new(),
            claims: VecDeque::new(),
            next_claim: 0,
            taken_bytes: 0,
            verdicts: VecDeque::new(),
            summary: Summary::default(),
        };
        sink.go_to(0);
        Ok(sink)
    }

    /// Takes the next bytes of the stream. A file that cannot be written fails by itself.
    ///
    /// # Errors
    /// [`SinkError::Excess`], [`SinkError::Full`], [`SinkError::Stopped`].
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), SinkError> {
        while !bytes.is_empty() {
            self.leave_whole()?;
            let Some(mut current) = self.current.take() else {
                return Err(SinkError::Excess {
                    taken_bytes: self.taken_bytes,
                });
            };
            let room = self.missing_bytes(&current);
            let room = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (piece, rest) = bytes.split_at(room);
            let taken = self.take(&mut current, piece);
            self.current = Some(current);
            taken?;
            bytes = rest;
            self.taken_bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.settle()?;
        }
        Ok(())
    }

    /// Takes the hash that the sender made of a file.
    ///
    /// # Errors
    /// [`SinkError::OutOfTurn`], [`SinkError::Full`], [`SinkError::Stopped`].
    pub fn handle_hash(&mut self, index: u32, hash: [u8; 32]) -> Result<(), SinkError> {
        self.check_turn(index)?;
        self.handle_claim(index, Claim::Hash(hash.into()))
    }

    /// Takes the sender's word that the stream has only the first `sent_bytes` of a file and that
    /// these are of no use. The file is cut there.
    ///
    /// # Errors
    /// As [`Sink::handle_hash`]; [`SinkError::AbandonedBeyondEnd`]; [`SinkError::AbandonedLate`] if
    /// more bytes than that were taken for the file.
    pub fn handle_abandoned(
        &mut self,
        index: u32,
        sent_bytes: u64,
        reason: impl std::fmt::Display,
    ) -> Result<(), SinkError> {
        self.check_turn(index)?;
        let bytes = self.bytes(index);
        if sent_bytes > bytes {
            return Err(SinkError::AbandonedBeyondEnd {
                index,
                sent_bytes,
                bytes,
            });
        }
        let taken_bytes = match &self.current {
            Some(current) if current.index < index => 0,
            Some(current) if current.index == index => current.taken_bytes,
            _ => bytes,
        };
        if taken_bytes > sent_bytes {
            return Err(SinkError::AbandonedLate {
                index,
                sent_bytes,
                taken_bytes,
            });
        }
        let reason = Text::new(reason);
        self.handle_claim(index, Claim::Abandoned { sent_bytes, reason })
    }

    /// How the next file ended, if one did.
    pub fn poll_verdict(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    /// What the file system refuses and the transfer can do without: at most one warning for each
    /// attribute of each kind of thing.
    pub fn poll_warning(&mut self) -> Option<Warning> {
        self.warnings.poll()
    }

    /// Ends a transfer of which all files have ended: gives the directories their permissions and
    /// times. More warnings may come of that.
    ///
    /// # Errors
    /// [`SinkError::Unfinished`].
    pub fn finish(&mut self) -> Result<Summary, SinkError> {
        let ended = self.summary.verified_files + self.summary.failed_files;
        if ended != self.manifest.files() {
            return Err(SinkError::Unfinished {
                missing_files: self.manifest.files() - ended,
            });
        }
        self.tree.dress(&mut self.warnings);
        Ok(self.summary)
    }

    fn check_turn(&self, index: u32) -> Result<(), SinkError> {
        let due = self.manifest.next_file(self.next_claim);
        let due = due.map(|due| due.index);
        if due == Some(index) {
            return Ok(());
        }
        Err(SinkError::OutOfTurn { came: index, due })
    }

    fn handle_claim(&mut self, index: u32, claim: Claim) -> Result<(), SinkError> {
        self.next_claim = index + 1;
        self.claims.push_back((index, claim));
        self.settle()
    }

    /// Ends all files of which both the bytes and the sender's word have come.
    fn settle(&mut self) -> Result<(), SinkError> {
        while !self.claims.is_empty() {
            let (index, written) = match self.written.pop_front() {
                Some(first) => first,
                None => match self.take_whole()? {
                    Some(current) => current,
                    None => break,
                },
            };
            // Files and the sender's words about them come in one order, so they belong together.
            if let Some((_, claim)) = self.claims.pop_front() {
                self.end_file(index, written, claim)?;
            }
        }
        Ok(())
    }

    /// Leaves the files of which all bytes have come and the sender's word has not.
    fn leave_whole(&mut self) -> Result<(), SinkError> {
        while let Some((index, mut written)) = self.take_whole()? {
            if self.written.len() >= LOCKED_FILES {
                written.unlock();
            }
            self.written.push_back((index, written));
        }
        Ok(())
    }

    /// Takes the current file if all its bytes have come, and goes to the next.
    fn take_whole(&mut self) -> Result<Option<(u32, Written)>, SinkError> {
        let whole = match &self.current {
            Some(current) if self.missing_bytes(current) == 0 => self.current.take(),
            _ => None,
        };
        let Some(whole) = whole else {
            return Ok(None);
        };
        let index = whole.index;
        self.go_to(index + 1);
        Ok(Some((index, self.end_writing(whole)?)))
    }

    /// Goes to the first file from a number on.
    fn go_to(&mut self, index: u32) {
        self.current = self.manifest.next_file(index).map(Current::new);
    }

    /// Bytes of the stream that are still to come for the current file.
    fn missing_bytes(&self, current: &Current) -> u64 {
        let end = match self.claims.front() {
            Some((index, Claim::Abandoned { sent_bytes, .. })) if *index == current.index => {
                *sent_bytes
            }
            _ => current.bytes,
        };
        end.saturating_sub(current.taken_bytes)
    }

    /// Length of a file.
    fn bytes(&self, index: u32) -> u64 {
        match self.manifest.entry(index).map(|entry| entry.kind) {
            Some(Kind::File { bytes, .. }) => bytes,
            Some(Kind::Directory) | None => 0,
        }
    }
}
