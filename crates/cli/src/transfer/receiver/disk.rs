//! From segments to files, in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use farwrite::Region;
use farwrite_session::files::{FileFailure, Manifest, Sink, SinkError};
use farwrite_session::{Error, Message, Text};

use super::Event;
use crate::exit::{Exit, Failure};
use crate::transfer::failure::{of_sink, sort};
use crate::transfer::report::FailedFile;
use crate::transfer::talk::Voice;

/// What there is to do for the disk, in the order of its coming.
pub(super) enum Job {
    /// The next bytes of the stream: the first `bytes` of `buffer`.
    Segment { buffer: Region, bytes: usize },
    /// The sender's hash of a file.
    Hash { index: u32, hash: [u8; 32] },
    /// The sender could not read a file.
    Abandoned { index: u32, reason: Text },
    /// No more hashes come.
    Done,
}

/// What became of the files.
pub(super) struct Tally {
    pub(super) verified_files: u32,
    pub(super) failures: Vec<FailedFile>,
}

/// How far the disk is; each number only grows.
#[derive(Debug, Default)]
pub(super) struct Written {
    bytes: AtomicU64,
    files: AtomicU64,
}

impl Written {
    /// Bytes of the stream.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files that are over, well or not.
    pub(super) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }
}

/// Why the disk's thread stops before its work is done.
enum Stop {
    Failed(Failure),
    /// The transfer is over for a reason that others tell.
    Quiet,
}

impl From<SinkError> for Stop {
    fn from(error: SinkError) -> Self {
        Self::Failed(of_sink(&error))
    }
}

/// Writes files, compares hashes and tells the sender how each file ended.
pub(super) struct Disk {
    sink: Sink,
    manifest: Arc<Manifest>,
    voice: Voice,
    jobs: Receiver<Job>,
    empties: Sender<Region>,
    written: Arc<Written>,
    failures: Vec<FailedFile>,
}

impl Disk {
    pub(super) fn new(
        sink: Sink,
        manifest: Arc<Manifest>,
        voice: Voice,
        jobs: Receiver<Job>,
        empties: Sender<Region>,
    ) -> Self {
        Self {
            sink,
            manifest,
            voice,
            jobs,
            empties,
            written: Arc::default(),
            failures: Vec::new(),
        }
    }

    /// How far it is, to look at from another thread.
    pub(super) fn written(&self) -> Arc<Written> {
        Arc::clone(&self.written)
    }

    /// Works until all bytes and hashes are there, or nobody can bring more. Whatever has no final
    /// name then is removed with the sink.
    pub(super) fn run(mut self, tell: &Sender<Event>) {
        let voice = self.voice.clone();
        let worked = match self.work() {
            Ok(()) => self.finish(),
            Err(stop) => Err(stop),
        };
        let event = match worked {
            Ok(tally) => Ok(tally),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::Quiet) => return,
        };
        let all_done = event.is_ok();
        // Nobody waits for it when the transfer failed before.
        let _ = tell.send(Event::Disk(event));
        if all_done {
            // Only now: the sender answers by closing the channel, which must not look like a failure
            // here. All is well even if it does not hear of it any more.
            let _ = voice.say(&Message::Done);
        }
    }

    fn work(&mut self) -> Result<(), Stop> {
        let mut done = false;
        self.tell_verdicts()?;
        while !(done && self.written.bytes() == self.manifest.stream_bytes()) {
            match self.jobs.recv().map_err(|_| Stop::Quiet)? {
                Job::Segment { buffer, bytes } => self.write(buffer, bytes)?,
                Job::Hash { index, hash } => self.sink.handle_hash(index, hash)?,
                Job::Abandoned { index, reason } => self.sink.handle_abandoned(index, reason)?,
                Job::Done => done = true,
            }
            self.tell_verdicts()?;
        }
        Ok(())
    }

    fn write(&mut self, buffer: Region, bytes: usize) -> Result<(), Stop> {
        let segment = buffer.get(..bytes).unwrap_or_default();
        self.sink.write(segment)?;
        let bytes = u64::try_from(segment.len()).unwrap_or(u64::MAX);
        self.written.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Not wanted for the last segments.
        let _ = self.empties.send(buffer);
        Ok(())
    }

    fn tell_verdicts(&mut self) -> Result<(), Stop> {
        while let Some(verdict) = self.sink.poll_verdict() {
            self.written.files.fetch_add(1, Ordering::Relaxed);
            if let Some(failure) = &verdict.failure {
                let exit = match failure {
                    FileFailure::Hash { .. } => Exit::Corrupt,
                    FileFailure::Abandoned { .. } => Exit::Other,
                };
                let reason = Text::new(failure);
                let failed = FailedFile::new(&self.manifest, verdict.index, reason, exit);
                self.failures.push(failed);
            }
            self.voice
                .say(&verdict.message())
                .map_err(|error| match error {
                    Error::Timeout { .. } => Stop::Failed(sort("receiving", &error)),
                    // The listener hears why the channel ended.
                    _ => Stop::Quiet,
                })?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Tally, Stop> {
        let summary = self.sink.finish()?;
        Ok(Tally {
            verified_files: summary.verified_files,
            failures: self.failures,
        })
    }
}
