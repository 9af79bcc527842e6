//! Writes segments to files, in its own thread.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use farwrite::Region;
use farwrite_files::{
    CommitGate, FileCause, KEPT_DAYS, Manifest, Message, Missing, Sink, SinkError, Verdict, due,
};
use farwrite_keys::Text;

use super::Event;
use crate::channel_writer::{Closed, Outbox};
use crate::progress_counts::OwnCounts;
use crate::results::{FileResults, MISSING_BATCH, SharedResults};
use crate::waking::Waking;
use crate::{Error, ErrorKind};

/// Bytes of one write. The size is small, so that a slow disk still shows progress.
const SLICE_BYTES: usize = 256 << 10;

/// How long a file waits for others that become durable together with it. A slow path does not make
/// the disk sync more often than this.
const COMMIT_PERIOD: Duration = Duration::from_millis(500);

/// Why a directory cannot exist.
const NO_DIRECTORY: &str =
    "something else has this name at the receiver; with --delete, the directory replaces it";

/// Work for the disk, in order of arrival.
pub(super) enum Job {
    /// The next bytes of the stream.
    Segment(Segment),
    /// The sender's report on a file.
    Report(Message),
    /// The sender has reported every file, and the stream has this length.
    StreamEnd { stream_bytes: u64 },
}

/// The first `bytes` of `buffer`.
pub(super) struct Segment {
    pub(super) buffer: Region,
    pub(super) bytes: usize,
    /// Files up to the end of the segment whose bytes are not all in the stream. The disk's thread must know
    /// all of them before it can assign each byte to a file.
    pub(super) abandoned: u32,
}

/// Why the disk's thread stops early.
enum Stop {
    Failed(Error),
    /// The transfer has ended for a reason that another thread reports.
    Quiet,
}

impl From<SinkError> for Stop {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Stopped => Self::Quiet,
            error => Self::Failed(Error::of_sink(&error)),
        }
    }
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Quiet
    }
}

/// Writes files, compares hashes, and sends the verdicts.
pub(super) struct DiskWriter {
    pub(super) sink: Sink,
    pub(super) gate: CommitGate,
    pub(super) manifest: Arc<Manifest>,
    pub(super) shared_results: SharedResults,
    pub(super) outbox: Outbox,
    pub(super) heartbeat: Arc<OwnCounts>,
    pub(super) jobs: Receiver<Job>,
    pub(super) empties: Waking<Sender<Region>>,
    pub(super) events: Waking<Sender<Event>>,
}

/// The work that is done so far.
#[derive(Default)]
struct Progress {
    /// Segments that wait for the sender's reports on abandoned files.
    waiting: VecDeque<Segment>,
    /// Files that the sender reported as abandoned, as the same, or as compared.
    abandoned: u32,
    written_bytes: u64,
    /// The length of the stream, once the sender has reported it.
    stream_bytes: Option<u64>,
    /// Since when files wait to become durable.
    uncommitted_since: Option<Instant>,
}

impl DiskWriter {
    /// Works until all bytes and hashes have arrived, or the transfer has ended. Dropping the sink
    /// then removes files without a final name.
    pub(super) fn run(mut self) {
        let mut progress = Progress::default();
        let worked = self.work(&mut progress);
        if let Err(Stop::Failed(_)) = &worked {
            // What is whole does not get lost because another file has no room.
            let _ = self.commit(&mut progress);
        }
        let worked = worked.and_then(|()| self.finish());
        // Some files may have got their final names just before a failure.
        while let Some(verdict) = self.sink.poll_verdict() {
            self.note(&verdict);
        }
        self.note_warnings();
        if worked.is_err() {
            self.note_kept_parts();
            self.tell_warnings();
        }
        match worked {
            Ok(results) => {
                let files = results.deleted_files;
                let _ = self.events.send(Event::Disk(Ok(results)));
                // Send this last: the sender answers by closing the channel, and that must not look
                // like a failure here. The transfer is complete even if this message is lost.
                if files > 0 {
                    let _ = self.outbox.send(Message::Deleted { files });
                }
                let _ = self.outbox.send(Message::Done);
            }
            Err(Stop::Failed(error)) => {
                let _ = self.events.send(Event::Disk(Err(error)));
            }
            Err(Stop::Quiet) => {}
        }
    }

    fn finish(&mut self) -> Result<FileResults, Stop> {
        let summary = {
            let _operation = self.heartbeat.disk_operation();
            self.sink.finish()?
        };
        self.note_warnings();
        self.tell_warnings();
        Ok(FileResults {
            deleted_files: summary.deleted_files,
            ..self.shared_results.take()
        })
    }

    fn work(&mut self, progress: &mut Progress) -> Result<(), Stop> {
        self.tell_unmade()?;
        self.send_verdicts()?;
        while progress.stream_bytes != Some(progress.written_bytes) {
            if self.gate.is_closed() {
                return Err(Stop::Quiet);
            }
            let Some(job) = self.next_job(progress)? else {
                self.commit(progress)?;
                continue;
            };
            match job {
                Job::Segment(segment) => progress.waiting.push_back(segment),
                Job::Report(report) => self.take(report, progress)?,
                Job::StreamEnd { stream_bytes } => progress.stream_bytes = Some(stream_bytes),
            }
            self.write_ready(progress)?;
            self.send_verdicts()?;
        }
        self.commit(progress)
    }

    /// Takes the sender's report on a file.
    fn take(&mut self, report: Message, progress: &mut Progress) -> Result<(), Stop> {
        let _operation = self.heartbeat.disk_operation();
        match report {
            Message::FileHash { index, hash } => return Ok(self.sink.handle_hash(index, hash)?),
            Message::FileSame { index } => self.sink.handle_same(index)?,
            Message::BlocksCompared { index, runs } => {
                let resumed_bytes = self.sink.handle_compared(index, runs)?;
                self.shared_results.note_resumed(resumed_bytes);
            }
            Message::FileAbandoned {
                index,
                sent_bytes,
                reason,
            } => self.sink.handle_abandoned(index, sent_bytes, reason)?,
            other => {
                let error = other.unexpected(due::ABOUT_FILES);
                return Err(Stop::Failed(Error::of_message("receiving", &error)));
            }
        }
        progress.abandoned += 1;
        Ok(())
    }

    /// Waits for the next job. Returns `None` when files have waited long enough to become durable.
    fn next_job(&mut self, progress: &mut Progress) -> Result<Option<Job>, Stop> {
        if self.sink.uncommitted_files() == 0 {
            progress.uncommitted_since = None;
            return self.jobs.recv().map(Some).map_err(|_| Stop::Quiet);
        }
        let since = progress.uncommitted_since.get_or_insert_with(Instant::now);
        let left = COMMIT_PERIOD.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        match self.jobs.recv_timeout(left) {
            Ok(job) => Ok(Some(job)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Stop::Quiet),
        }
    }

    /// Makes the files durable that are whole, and sends their verdicts.
    fn commit(&mut self, progress: &mut Progress) -> Result<(), Stop> {
        let committed = {
            let _operation = self.heartbeat.disk_operation();
            self.sink.commit()
        };
        progress.uncommitted_since = None;
        self.send_verdicts()?;
        Ok(committed?)
    }

    /// Writes the segments for which the file of every byte is known.
    fn write_ready(&mut self, progress: &mut Progress) -> Result<(), Stop> {
        while let Some(segment) = progress.waiting.front()
            && segment.abandoned <= progress.abandoned
            && let Some(segment) = progress.waiting.pop_front()
        {
            let bytes = segment.buffer.get(..segment.bytes);
            for slice in bytes.unwrap_or_default().chunks(SLICE_BYTES) {
                if self.gate.is_closed() {
                    return Err(Stop::Quiet);
                }
                {
                    let _operation = self.heartbeat.disk_operation();
                    self.sink.write(slice)?;
                }
                self.heartbeat.stream_bytes.add(slice.len() as u64);
                progress.written_bytes += slice.len() as u64;
            }
            // The sender of the buffers does not take back the last ones.
            let _ = self.empties.send(segment.buffer);
            self.send_verdicts()?;
        }
        let end = progress.stream_bytes;
        if end.is_some_and(|end| progress.written_bytes > end) {
            let what = format!(
                "the sender sent {} bytes and said that there are {}",
                progress.written_bytes,
                end.unwrap_or(0)
            );
            return Err(Stop::Failed(Error::new(ErrorKind::Other, what)));
        }
        Ok(())
    }

    fn send_verdicts(&mut self) -> Result<(), Stop> {
        while let Some(verdict) = self.sink.poll_verdict() {
            self.heartbeat.files.add(1);
            self.note(&verdict);
            self.outbox.send(verdict.message())?;
        }
        Ok(())
    }

    fn note(&self, verdict: &Verdict) {
        if verdict.is_kept && verdict.failure.is_none() {
            self.shared_results.keep(&self.manifest, verdict.index);
            return;
        }
        let failure = verdict.failure.as_ref();
        let failure = failure.map(|failure| (failure.cause(), Text::new(failure)));
        let mut results = self.shared_results.lock();
        results.add(&self.manifest, verdict.index, failure, verdict.hash);
    }

    /// Says where interrupted files wait for their transfer to go on.
    fn note_kept_parts(&mut self) {
        let _operation = self.heartbeat.disk_operation();
        for kept in self.sink.keep_parts() {
            self.shared_results.warn(format_args!(
                "{:?} is interrupted; the same command goes on with what has arrived, which is kept for \
                 {KEPT_DAYS} days in {:?}",
                kept.path, kept.part
            ));
        }
    }

    /// Notes the directories that cannot exist, and tells the sender.
    fn tell_unmade(&mut self) -> Result<(), Stop> {
        let unmade = iter::from_fn(|| self.sink.poll_unmade());
        let missing = unmade.map(|path| Missing {
            path: Text::new(path.display()),
            reason: Text::new(NO_DIRECTORY),
        });
        let missing: Vec<_> = missing.collect();
        for missing in missing.chunks(MISSING_BATCH) {
            let results = &self.shared_results;
            results.hear_missing(FileCause::Unwritable, missing.to_vec());
            self.outbox.send(Message::Missing(missing.to_vec()))?;
        }
        Ok(())
    }

    fn tell_warnings(&self) {
        let warnings = self.shared_results.take_untold();
        if !warnings.is_empty() {
            // If the channel has ended, the sender learns less, and this end shows the warnings itself.
            let _ = self.outbox.send(Message::Warnings(warnings));
        }
    }

    fn note_warnings(&mut self) {
        while let Some(warning) = self.sink.poll_warning() {
            self.shared_results.warn(warning);
        }
    }
}
