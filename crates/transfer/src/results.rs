//! What has become of the files of a transfer so far.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use farwrite::fabric::threads::lock;
use farwrite_files::{FileCause, Kind, Manifest, Missing, Source};
use farwrite_keys::Text;
use serde::Serialize;

use crate::hooks::{EndedFile, FileState};

/// The number of failed files that are listed. The others are only counted, so that a peer that
/// fails a million files does not fill the memory.
const LISTED_FAILURES: usize = 1000;
/// The number of files that arrived that are listed: 5 MB of names at most.
const LISTED_ARRIVALS: usize = 10_000;
/// Things in one message that says what did not arrive: each has two texts.
pub(crate) const MISSING_BATCH: usize = 100;
/// The number of warnings of the other end that are kept.
const HEARD_WARNINGS: usize = 100;

/// A file that did not arrive.
#[derive(Debug, Serialize)]
pub struct FailedFile {
    /// Its intended path below the receiver's directory.
    pub path: Text,
    /// Why it failed, for people.
    pub reason: Text,
    /// Why it failed, for programs.
    pub cause: FileCause,
}

/// The files that arrived, and those that did not. The names of the fields in JSON are those of `docs/json.md`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FileResults {
    #[serde(rename = "files")]
    pub(crate) verified_files: u32,
    #[serde(rename = "bytes")]
    pub(crate) verified_bytes: u64,
    /// Files that were there already.
    #[serde(rename = "unchanged_files")]
    pub(crate) kept_files: u32,
    #[serde(rename = "unchanged_bytes")]
    pub(crate) kept_bytes: u64,
    /// Files that went on after an interruption, and the bytes of them that were not sent again.
    pub(crate) resumed_files: u32,
    pub(crate) resumed_bytes: u64,
    /// Files and directories that were only at the receiver.
    pub(crate) deleted_files: u32,
    /// The paths of the first files that arrived.
    pub(crate) arrived: Vec<Text>,
    /// How many did not arrive, and the first of them.
    pub(crate) failed_files: u32,
    pub(crate) failures: Vec<FailedFile>,
    #[serde(skip)]
    pub(crate) any_corrupt: bool,
    /// A few lines, whatever the number of files.
    pub(crate) warnings: Vec<String>,
    /// Warnings of this end that the other end has not been told.
    #[serde(skip)]
    pub(crate) untold: Vec<Text>,
    /// How many warnings of the other end are among the warnings.
    #[serde(skip)]
    pub(crate) heard: usize,
    /// Whether an observer wants each file.
    #[serde(skip)]
    pub(crate) keeps_ended: bool,
    /// Files that the observer has not been told.
    #[serde(skip)]
    pub(crate) ended_files: Vec<EndedFile>,
    /// Whether a sender knows of data that have arrived at the receiver, and packets of the receiver have
    /// arrived at the sender.
    #[serde(skip)]
    pub(crate) has_met: bool,
    /// Hashes of files without a verdict.
    #[serde(skip)]
    pub(crate) hashes: HashMap<u32, [u8; 32]>,
}

impl FileResults {
    /// Adds the verdict on a file. `failure` says why it did not arrive.
    pub(crate) fn add(
        &mut self,
        manifest: &Manifest,
        index: u32,
        failure: Option<(FileCause, Text)>,
        hash: Option<[u8; 32]>,
    ) {
        let state = match &failure {
            None => FileState::Arrived,
            Some((_, reason)) => FileState::Failed(reason.clone()),
        };
        self.tell(manifest, index, state, hash);
        if let Some((cause, reason)) = failure {
            let path = || Text::new(manifest.path(index).display());
            self.fail(path, cause, reason);
            return;
        }
        self.verified_files += 1;
        self.verified_bytes += manifest.stream_bytes_of(index);
        if self.arrived.len() < LISTED_ARRIVALS {
            self.arrived.push(Text::new(manifest.path(index).display()));
        }
    }

    /// Adds something that did not arrive, by its path below the receiver's directory.
    fn fail(&mut self, path: impl FnOnce() -> Text, cause: FileCause, reason: Text) {
        self.failed_files = self.failed_files.saturating_add(1);
        self.any_corrupt |= cause == FileCause::Corrupt;
        if self.failures.len() < LISTED_FAILURES {
            self.failures.push(FailedFile {
                path: path(),
                reason,
                cause,
            });
        }
    }

    /// Bytes of files that arrived in this transfer.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.verified_bytes.saturating_sub(self.resumed_bytes)
    }

    /// Notes the end of a file, if an observer wants it.
    fn tell(&mut self, manifest: &Manifest, index: u32, state: FileState, hash: Option<[u8; 32]>) {
        if !self.keeps_ended {
            return;
        }
        let is_file = manifest
            .entry(index)
            .is_some_and(|entry| matches!(entry.kind, Kind::File { .. }));
        let hash = hash.or(self.hashes.remove(&index));
        self.ended_files.push(EndedFile {
            path: Text::new(manifest.path(index).display()),
            bytes: manifest.stream_bytes_of(index),
            hash: hash.filter(|_| is_file && !matches!(state, FileState::Failed(_))),
            state,
        });
    }
}

/// The verdicts and warnings so far. Other threads add them, and one reads them when the transfer ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedResults(Arc<Mutex<FileResults>>);

impl SharedResults {
    /// Begins with what the sender could not list.
    pub(crate) fn of(source: &Source) -> Self {
        let mut results = FileResults::default();
        for it in source.unreadable() {
            let (path, reason) = (Text::new(it.path.display()), Text::new(it.reason()));
            results.fail(|| path, FileCause::Unreadable, reason);
        }
        Self(Arc::new(Mutex::new(results)))
    }

    pub(crate) fn note_hash(&self, index: u32, hash: [u8; 32]) {
        let mut results = self.lock();
        if results.keeps_ended && hash != [0; 32] {
            results.hashes.insert(index, hash);
        }
    }

    /// Returns the files that have ended since the last call.
    pub(crate) fn take_ended(&self) -> Vec<EndedFile> {
        std::mem::take(&mut self.lock().ended_files)
    }

    /// Notes that a file went on after an interruption, and how many of its bytes were not sent again.
    pub(crate) fn note_resumed(&self, bytes: u64) {
        let mut results = self.lock();
        results.resumed_files += 1;
        results.resumed_bytes += bytes;
    }

    /// How many files have a verdict.
    pub(crate) fn count(&self) -> u32 {
        let results = self.lock();
        let arrived = results.verified_files + results.kept_files;
        arrived + results.failed_files
    }

    /// Adds a file that was there already.
    pub(crate) fn keep(&self, manifest: &Manifest, index: u32) {
        let mut results = self.lock();
        results.kept_files += 1;
        results.kept_bytes += manifest.stream_bytes_of(index);
        results.tell(manifest, index, FileState::Unchanged, None);
    }

    /// Adds a warning that the verdicts do not show. Callers add a few, whatever the number of files.
    pub(crate) fn warn(&self, warning: impl fmt::Display) {
        let mut results = self.lock();
        results.untold.push(Text::new(&warning));
        results.warnings.push(warning.to_string());
    }

    /// Returns the warnings of this end since the last call, for the other end.
    pub(crate) fn take_untold(&self) -> Vec<Text> {
        std::mem::take(&mut self.lock().untold)
    }

    /// Adds warnings of the other end, which `whose` names.
    pub(crate) fn hear_warnings(&self, whose: &str, warnings: &[Text]) {
        let mut results = self.lock();
        let room = HEARD_WARNINGS.saturating_sub(results.heard);
        for warning in warnings.iter().take(room) {
            results.heard += 1;
            results.warnings.push(format!("{whose}: {warning}"));
        }
    }

    /// Adds what the other end says did not arrive.
    pub(crate) fn hear_missing(&self, cause: FileCause, missing: Vec<Missing>) {
        let mut results = self.lock();
        for Missing { path, reason } in missing {
            results.fail(|| path, cause, reason);
        }
    }

    /// Returns everything, and keeps nothing.
    pub(crate) fn take(&self) -> FileResults {
        std::mem::take(&mut self.lock())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FileResults> {
        lock(&self.0)
    }
}
