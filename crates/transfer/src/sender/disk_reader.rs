//! Reads files into buffers, in its own thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use farwrite::Region;
use farwrite_files::{Message, Missing, Source};
use farwrite_keys::Text;

use crate::channel_writer::{Closed, Outbox};
use crate::progress_counts::OwnCounts;
use crate::results::{MISSING_BATCH, SharedResults};
use crate::waking::Waking;

/// Bytes of one read. The size is small, so that a slow disk still shows progress.
const SLICE_BYTES: usize = 256 << 10;

/// How long to wait for hashes of the receiver before this end counts its own.
const WAIT: Duration = Duration::from_millis(100);

/// A buffer with the next bytes of the stream.
pub(super) struct Filled {
    pub(super) buffer: Region,
    pub(super) bytes: u64,
    /// How many reports the sender has made, up to the end of this buffer, that change where bytes belong:
    /// on abandoned, same and compared files. The receiver must know all of them before it can assign each
    /// byte to a file.
    pub(super) reports: u32,
}

/// Reads files into buffers, and queues their hashes for the receiver.
pub(super) struct DiskReader {
    pub(super) outbox: Outbox,
    pub(super) heartbeat: Arc<OwnCounts>,
    /// Bytes of a buffer.
    pub(super) segment_bytes: usize,
    /// Buffers that may still be made.
    pub(super) budget: u64,
    /// Buffers whose message has ended.
    pub(super) empties: Receiver<Region>,
    pub(super) filled: Waking<SyncSender<Filled>>,
    pub(super) shared_results: SharedResults,
}

impl DiskReader {
    /// Reads to the end of the stream, or until the transfer ends. Then it adds the warnings about the
    /// files that were read to the shared results.
    pub(super) fn run(mut self, mut source: Source) {
        let stream_bytes = self.read(&mut source);
        for warning in source.warnings() {
            self.shared_results.warn(warning);
        }
        if self.tell(&source).is_err() {
            return;
        }
        if let Some(stream_bytes) = stream_bytes {
            // The peer notices a closed channel itself.
            let _ = self.outbox.send(Message::StreamEnd { stream_bytes });
        }
    }

    /// Tells the receiver what this end warns of, and what it could not list.
    fn tell(&self, source: &Source) -> Result<(), Closed> {
        let warnings = self.shared_results.take_untold();
        if !warnings.is_empty() {
            self.outbox.send(Message::Warnings(warnings))?;
        }
        for unreadable in source.unreadable().chunks(MISSING_BATCH) {
            let missing = unreadable.iter().map(|it| Missing {
                path: Text::new(it.path.display()),
                reason: Text::new(it.reason()),
            });
            self.outbox.send(Message::Missing(missing.collect()))?;
        }
        Ok(())
    }

    /// Returns the length of the stream; `None` when the transfer has ended.
    fn read(&mut self, source: &mut Source) -> Option<u64> {
        let mut reports = 0;
        let mut stream_bytes = 0;
        loop {
            let mut buffer = self.buffer()?;
            let bytes = self.fill(source, &mut buffer, &mut reports).ok()?;
            if bytes == 0 {
                return Some(stream_bytes);
            }
            stream_bytes += bytes;
            let filled = Filled {
                buffer,
                bytes,
                reports,
            };
            self.filled.send(filled).ok()?;
        }
    }

    /// Reads the next bytes of the stream, slice by slice, and reports each file that ends.
    fn fill(&self, source: &mut Source, out: &mut [u8], reports: &mut u32) -> Result<u64, Closed> {
        let mut filled = 0;
        while filled < out.len() && !source.is_over() {
            let end = out.len().min(filled + SLICE_BYTES);
            let read = {
                let _operation = self.heartbeat.disk_operation();
                source.read(&mut out[filled..end])
            };
            filled += read;
            self.heartbeat.stream_bytes.add(read as u64);
            let compared_bytes = source.prefix_hashes().read_bytes();
            self.heartbeat.compared.set(compared_bytes);
            while let Some(file) = source.poll_file() {
                *reports += u32::from(file.result.is_err() || file.is_same);
                if let Ok(hash) = file.result {
                    self.shared_results.note_hash(file.index, hash);
                }
                self.outbox.send(file.message())?;
            }
            if let Some(compared) = source.poll_compared() {
                *reports += 1;
                self.shared_results.note_resumed(compared.resumed_bytes);
                self.outbox.send(Message::BlocksCompared {
                    index: compared.index,
                    runs: compared.runs,
                })?;
            } else if read == 0 && source.is_waiting() && !source.wait(WAIT) {
                return Err(Closed);
            }
        }
        Ok(u64::try_from(filled).unwrap_or(u64::MAX))
    }

    /// Returns a used buffer, or a new one if the budget allows; `None` when the transfer has
    /// ended.
    fn buffer(&mut self) -> Option<Region> {
        match self.empties.try_recv() {
            Ok(buffer) => Some(buffer),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) if self.budget > 0 => {
                self.budget -= 1;
                Some(Region::owned(vec![0_u8; self.segment_bytes]))
            }
            Err(TryRecvError::Empty) => self.empties.recv().ok(),
        }
    }
}
