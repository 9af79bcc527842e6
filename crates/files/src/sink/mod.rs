//! The receiver's end: converts bytes of the stream to verified files (P8.4).

mod commit;
mod error;
mod resume;
mod verdict;
mod work;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farwrite_keys::Text;

use super::attributes::{Warning, Warnings};
use super::directory_tree::DirectoryTree;
use super::final_name::Named;
use super::open_files::{Counted, part_of_sink};
use super::prefix::Checked;
use super::status::Id;
use super::{CommitGate, Compare, Delete, Manifest, Partial, Policy, Present};
use commit::Whole;
pub use error::SinkError;
pub(super) use error::is_full;
use resume::Again;
pub use resume::KeptPart;
pub use verdict::{FileFailure, FileStep, Summary, Verdict};
use work::{Current, Written};

/// Files that may wait for the sender's report and stay open, in all sinks of this process. A sender reports before
/// the bytes arrive, so few files ever wait.
const LOCKED_FILES: usize = 256;

/// Writes the files of a manifest into a directory, and gives each file its final name once its
/// hash equals the hash of the sender.
///
/// With [`Policy::sync`], the sink collects such files, syncs them together, renames them, and syncs
/// their directories. Only then it gives their verdicts, so what it says is verified survives a
/// power failure. [`Sink::commit`] does that early.
///
/// The sink writes nothing outside the directory and follows no symbolic link in it. It replaces an
/// existing file of the final name only at that moment. When the sink is dropped, it removes all
/// files that are not verified.
///
/// [`Sink::write`] takes bytes in the order of the stream. [`Sink::handle_hash`] and
/// [`Sink::handle_abandoned`] take the sender's reports in the order of the files, before or after
/// the bytes. The report that a file is abandoned must arrive before bytes of the next file.
/// [`Sink::poll_verdict`] returns verdicts, and [`Sink::poll_warning`] returns warnings.
#[derive(Debug)]
pub struct Sink {
    _counted: Counted,
    manifest: Arc<Manifest>,
    policy: Policy,
    tree: DirectoryTree,
    gate: CommitGate,
    named: Named,
    /// Identities of the files that have further names in the manifest, once they have their first.
    firsts: HashMap<u32, Id>,
    warnings: Warnings,
    /// The file whose bytes come next.
    current: Option<Current>,
    /// Files before the current one that the sender has not reported yet.
    written: VecDeque<(u32, Written)>,
    /// Files whose bytes and report have arrived, and that wait for their verdict.
    whole: VecDeque<(u32, Whole)>,
    /// The sender's reports on the current file and on later ones. Empty unless `written` is empty.
    claims: VecDeque<(u32, SenderReport)>,
    /// The next report must be for the first file from this number on.
    next_claim: u32,
    /// Bytes of the stream that have arrived.
    taken_bytes: u64,
    verdicts: VecDeque<Verdict>,
    summary: Summary,
    /// Files that go on after an interruption, in ascending order.
    partials: Vec<Partial>,
    /// What of them this end has read.
    checked: Checked,
    /// The blocks that come again, of the files for which the sender has said so.
    again: BTreeMap<u32, Again>,
    /// The file system is full, so interrupted files give their room back.
    is_full: bool,
}

#[derive(Debug)]
enum SenderReport {
    Hash(blake3::Hash),
    /// The file that is there already is the same.
    Same,
    Abandoned {
        sent_bytes: u64,
        reason: Text,
    },
}

impl Sink {
    /// Makes the manifest's directories in `directory`, which must exist. Removes the temporary
    /// files of killed receivers from directories that existed before. Files get final names until
    /// `gate` is closed.
    ///
    /// # Errors
    /// [`SinkError::Open`]; [`SinkError::NoRoom`]; [`SinkError::NoInodes`]; [`SinkError::Prepare`];
    /// [`SinkError::Full`]; [`SinkError::SameDirectory`].
    pub fn new(
        directory: &Path,
        manifest: Arc<Manifest>,
        gate: CommitGate,
        policy: Policy,
    ) -> Result<Self, SinkError> {
        Self::mirroring(directory, manifest, gate, policy, (Compare::Nothing, None))
    }

    /// Makes a sink that also looks for files which the receiver has already ([`Sink::present`]). If [`Policy::delete`]
    /// allows it, this sink also removes files that the sender does not have. It removes them at the end if no file
    /// failed. It removes a file at once if an entry of another kind has the name of this file.
    ///
    /// # Errors
    /// As [`Sink::new`]; [`SinkError::TooMuchToReplace`].
    pub fn mirroring(
        directory: &Path,
        manifest: Arc<Manifest>,
        gate: CommitGate,
        policy: Policy,
        (compare, delete): (Compare, Option<Delete>),
    ) -> Result<Self, SinkError> {
        let wishes = (compare, delete.filter(|_| policy.delete));
        let mut sink = Self {
            _counted: Counted::new(),
            tree: DirectoryTree::prepare(directory, Arc::clone(&manifest), policy, wishes)?,
            named: Named::new(&manifest),
            manifest,
            policy,
            gate,
            firsts: HashMap::new(),
            warnings: Warnings::default(),
            current: None,
            written: VecDeque::new(),
            whole: VecDeque::new(),
            claims: VecDeque::new(),
            next_claim: 0,
            taken_bytes: 0,
            verdicts: VecDeque::new(),
            summary: Summary::default(),
            partials: Vec::new(),
            checked: Checked::default(),
            again: BTreeMap::new(),
            is_full: false,
        };
        sink.partials = sink.tree.interrupted.partials().collect();
        sink.go_to(0);
        Ok(sink)
    }

    /// Processes the next bytes of the stream. If a file cannot be written, only that file fails.
    ///
    /// # Errors
    /// [`SinkError::Excess`], [`SinkError::Full`], [`SinkError::Reserve`], [`SinkError::Stopped`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let written = self.write_all(bytes);
        self.is_full |= matches!(
            written,
            Err(SinkError::Full { .. } | SinkError::Reserve { .. })
        );
        written
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), SinkError> {
        while !bytes.is_empty() {
            self.leave_whole()?;
            let excess = SinkError::Excess {
                file_bytes: self.taken_bytes,
            };
            let Some(mut current) = self.current.take() else {
                return Err(excess);
            };
            let room = self.missing_bytes(&current);
            let room = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            if room == 0 {
                // Nobody knows which blocks come again.
                self.current = Some(current);
                return Err(excess);
            }
            let (piece, rest) = bytes.split_at(room);
            let taken = self.take(&mut current, piece);
            self.current = Some(current);
            taken?;
            bytes = rest;
            let piece_bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.taken_bytes += piece_bytes;
            self.tree.keep_reserve(piece_bytes)?;
            self.settle()?;
        }
        Ok(())
    }

    /// Processes the hash that the sender computed for a file.
    ///
    /// # Errors
    /// [`SinkError::OutOfTurn`], [`SinkError::Full`], [`SinkError::Reserve`], [`SinkError::NoInodes`],
    /// [`SinkError::Stopped`].
    pub fn handle_hash(&mut self, index: u32, hash: [u8; 32]) -> Result<(), SinkError> {
        self.check_turn(index)?;
        if self.is_open_end(index) {
            return Err(SinkError::BadBlocks { index });
        }
        self.handle_claim(index, SenderReport::Hash(hash.into()))
    }

    /// Returns the files that are there already, in ascending order of their entries.
    #[must_use]
    pub fn present(&self) -> &[Present] {
        &self.tree.present
    }

    /// Processes the report that a file of [`Sink::present`] is the same, and has no bytes in the stream.
    ///
    /// # Errors
    /// As [`Sink::handle_hash`]; [`SinkError::NotPresent`]; [`SinkError::AbandonedLate`] if bytes were already
    /// counted for the file.
    pub fn handle_same(&mut self, index: u32) -> Result<(), SinkError> {
        self.check_turn(index)?;
        let present = self.present().binary_search_by_key(&index, |it| it.entry);
        if present.is_err() {
            return Err(SinkError::NotPresent { index });
        }
        self.check_taken(index, 0)?;
        self.handle_claim(index, SenderReport::Same)
    }

    /// Processes the report that the stream has only the first `sent_bytes` of a file, and that
    /// these bytes are useless. The file ends there.
    ///
    /// # Errors
    /// As [`Sink::handle_hash`]; [`SinkError::AbandonedBeyondEnd`]; [`SinkError::AbandonedLate`] if
    /// more than `sent_bytes` bytes were already counted for the file.
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
        self.check_taken(index, sent_bytes)?;
        let reason = Text::new(reason);
        self.handle_claim(index, SenderReport::Abandoned { sent_bytes, reason })
    }

    /// Checks that no bytes of the next file were counted for a file.
    fn check_taken(&self, index: u32, sent_bytes: u64) -> Result<(), SinkError> {
        let taken_bytes = match &self.current {
            Some(current) if current.index < index => 0,
            Some(current) if current.index == index => current.taken_bytes,
            _ => self.bytes(index),
        };
        if taken_bytes > sent_bytes {
            return Err(SinkError::AbandonedLate {
                index,
                sent_bytes,
                taken_bytes,
            });
        }
        Ok(())
    }

    /// Returns how the next file ended, if a file has ended.
    pub fn poll_verdict(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    /// Returns an attribute that the file system refuses and that the transfer does not need: one warning
    /// with a count for each attribute of each kind of thing. Complete when the transfer has ended.
    pub fn poll_warning(&mut self) -> Option<Warning> {
        self.warnings.poll()
    }

    /// Returns the path of a directory that cannot exist, because something else has its name: what it should contain
    /// fails. Complete when the sink is made.
    pub fn poll_unmade(&mut self) -> Option<PathBuf> {
        self.tree.poll_unmade()
    }

    /// Finishes a transfer after all files have ended: gives the last verdicts, and gives the
    /// directories their permissions and times. This may produce more warnings.
    ///
    /// # Errors
    /// [`SinkError::Unfinished`], and those of [`Sink::commit`].
    pub fn finish(&mut self) -> Result<Summary, SinkError> {
        self.commit()?;
        let ended =
            self.summary.verified_files + self.summary.kept_files + self.summary.failed_files;
        if ended != self.manifest.files() {
            return Err(SinkError::Unfinished {
                files: self.manifest.files() - ended,
            });
        }
        if self.summary.failed_files == 0 {
            self.tree.remove_extra(&self.gate, &mut self.warnings)?;
        }
        self.summary.deleted_files = self.tree.removed();
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

    fn handle_claim(&mut self, index: u32, claim: SenderReport) -> Result<(), SinkError> {
        self.next_claim = index + 1;
        self.claims.push_back((index, claim));
        self.settle()
    }

    /// Ends all files for which both the bytes and the sender's report have arrived.
    fn settle(&mut self) -> Result<(), SinkError> {
        while !self.claims.is_empty() {
            let (index, written) = match self.written.pop_front() {
                Some(first) => first,
                None => match self.take_whole()? {
                    Some(current) => current,
                    None => break,
                },
            };
            // Files and the sender's reports arrive in one order, so they match.
            if let Some((_, claim)) = self.claims.pop_front() {
                self.end_file(index, written, claim)?;
            }
        }
        Ok(())
    }

    /// Stores the files whose bytes have all arrived but whose report has not.
    fn leave_whole(&mut self) -> Result<(), SinkError> {
        while let Some((index, mut written)) = self.take_whole()? {
            if self.written.len() >= part_of_sink(LOCKED_FILES) {
                let wanted = self.tree.interrupted.wanted.clone();
                if let Ok(around) = self.tree.around(index) {
                    written.unlock(around, &wanted);
                }
            }
            self.written.push_back((index, written));
        }
        Ok(())
    }

    /// Takes the current file if all its bytes have arrived, and moves to the next file.
    fn take_whole(&mut self) -> Result<Option<(u32, Written)>, SinkError> {
        let whole = match &self.current {
            Some(current)
                if self.missing_bytes(current) == 0 && !self.is_open_end(current.index) =>
            {
                self.current.take()
            }
            _ => None,
        };
        let Some(whole) = whole else {
            return Ok(None);
        };
        let index = whole.index;
        self.go_to(index + 1);
        Ok(Some((index, self.end_writing(whole)?)))
    }

    /// Moves to the first file from a number on.
    fn go_to(&mut self, index: u32) {
        self.current = self.manifest.next_file(index).map(Current::new);
    }

    /// Returns how many bytes of the current file have not arrived yet.
    fn missing_bytes(&self, current: &Current) -> u64 {
        let end = match self.claims.front() {
            Some((index, SenderReport::Abandoned { sent_bytes, .. }))
                if *index == current.index =>
            {
                *sent_bytes
            }
            Some((index, SenderReport::Same)) if *index == current.index => 0,
            _ => self.bytes(current.index),
        };
        end.saturating_sub(current.taken_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::super::{PeerKey, ScanOptions, Source};
    use super::*;

    /// A sender that reports no hashes cannot make the receiver keep each long file open.
    #[test]
    fn few_files_that_wait_for_their_report_stay_open() {
        let (from, to) = (place(), place());
        for name in 0..4 {
            let file = File::create(from.path().join(name.to_string())).expect("create");
            file.set_len(18 << 20).expect("length");
            file.write_all_at(b"end", (18 << 20) - 3).expect("write");
        }
        let from = from.path().join(".");
        let mut source = Source::scan(&[from], &ScanOptions::default()).expect("scan");
        let policy = Policy {
            resume: Some(PeerKey::of_remote_shell(b"")),
            ..Policy::default()
        };
        let manifest = Arc::clone(source.manifest());
        let sink = Sink::new(to.path(), manifest, CommitGate::default(), policy);
        let mut sink = sink.expect("sink");
        let others: Vec<_> = (0..LOCKED_FILES).map(|_| Counted::new()).collect();
        let mut segment = vec![0; 1 << 20];
        let mut hashes = Vec::new();
        while !source.is_over() {
            let read = source.read(&mut segment);
            while let Some(read) = source.poll_file() {
                hashes.push((read.index, read.result.expect("read")));
            }
            sink.write(&segment[..read]).expect("write");
        }
        let lasting = sink.keep_parts().len();
        assert_eq!(lasting, 2, "the first, and the last, which is under way");
        for (index, hash) in hashes {
            sink.handle_hash(index, hash).expect("in order");
        }
        assert_eq!(sink.finish().expect("whole").verified_files, 4);
        drop(others);
    }

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().expect("directory")
    }
}
