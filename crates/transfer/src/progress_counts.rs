//! Signs of life: the progress of each end, in numbers that any thread can read at any time.
//!
//! The disk's thread and the endpoint's thread write them. The channel writer sends them to the
//! peer several times a second. So an end with a slow disk or a blocked terminal still sends them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farwrite::fabric::threads::lock;
use farwrite_files::Progress;

/// Steps for which a file counts that was read to its end, or that has its verdict (P8.13). It is as many
/// as a transfer must make in its time limit, so a file that ends is always progress.
pub(crate) const FILE_STEPS: u64 = 4096;

/// A number that any thread can read and change.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the number, unless it is larger already.
    pub(crate) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// The progress of this end. Counts only grow.
#[derive(Debug, Default)]
pub(crate) struct OwnCounts {
    /// Bytes of the stream that were read or written.
    pub(crate) stream_bytes: Number,
    /// Bytes of the stream that have arrived, in the memory of a receiver or on its disk.
    pub(crate) arrived_bytes: Number,
    /// Files that were read to their end, or that have their verdict.
    pub(crate) files: Number,
    /// Bytes of new data that arrived, at this end or from it at the peer.
    pub(crate) received: Number,
    /// Bytes that were read only to compare them with those of the peer.
    pub(crate) compared: Number,
    /// The start of the current disk operation, if there is one.
    disk_since: Mutex<Option<Instant>>,
    /// Bits per second that a sender may send; 0 while it is not known, and at a receiver.
    pub(crate) rate_bps: Number,
}

impl OwnCounts {
    /// Marks the disk as busy until the returned value is dropped.
    pub(crate) fn disk_operation(&self) -> DiskOperation<'_> {
        *lock(&self.disk_since) = Some(Instant::now());
        DiskOperation(self)
    }

    /// A count that grows with every step of this end, in bytes.
    pub(crate) fn moved(&self) -> u64 {
        let files = self.files.get().saturating_mul(FILE_STEPS);
        let bytes = [&self.stream_bytes, &self.received, &self.compared];
        let bytes = bytes.map(Number::get).into_iter();
        bytes.fold(files, u64::saturating_add)
    }

    /// How long the current disk operation has taken at `now`; zero if there is none.
    pub(crate) fn disk_busy(&self, now: Instant) -> Duration {
        let since = *lock(&self.disk_since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The progress to send to the peer.
    pub(crate) fn progress(&self, now: Instant) -> Progress {
        let disk_ms = self.disk_busy(now).as_millis();
        Progress {
            stream_bytes: self.stream_bytes.get().max(self.arrived_bytes.get()),
            moved: self.moved(),
            disk_ms: u64::try_from(disk_ms).unwrap_or(u64::MAX),
        }
    }
}

pub(crate) struct DiskOperation<'a>(&'a OwnCounts);

impl Drop for DiskOperation<'_> {
    fn drop(&mut self) {
        *lock(&self.0.disk_since) = None;
    }
}

/// The peer's last report on itself.
#[derive(Debug, Default)]
pub(crate) struct PeerCounts {
    /// Messages and notices that were read.
    pub(crate) messages: Number,
    /// Whether the channel reader waits for this end's disk, and therefore does not read the channel.
    is_held_up: AtomicBool,
    progress: Mutex<Progress>,
}

impl PeerCounts {
    pub(crate) fn set_progress(&self, progress: Progress) {
        *lock(&self.progress) = progress;
    }

    pub(crate) fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    /// Runs an operation during which the channel reader does not read the channel.
    pub(crate) fn while_held_up<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.is_held_up.store(true, Ordering::Relaxed);
        let result = wait();
        self.is_held_up.store(false, Ordering::Relaxed);
        result
    }

    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_counts_until_it_ends() {
        let heartbeat = OwnCounts::default();
        let later = Instant::now() + Duration::from_secs(90);
        assert_eq!(heartbeat.progress(later).disk_ms, 0);
        let operation = heartbeat.disk_operation();
        assert!(heartbeat.disk_busy(later) >= Duration::from_secs(80));
        assert!(heartbeat.progress(later).disk_ms >= 80_000);
        drop(operation);
        assert_eq!(heartbeat.disk_busy(later), Duration::ZERO);
    }

    #[test]
    fn every_step_counts_as_movement() {
        let heartbeat = OwnCounts::default();
        heartbeat.stream_bytes.add(10);
        heartbeat.files.add(1);
        heartbeat.received.set(5);
        heartbeat.compared.set(3);
        assert_eq!(heartbeat.moved(), 10 + FILE_STEPS + 5 + 3);
    }
}
