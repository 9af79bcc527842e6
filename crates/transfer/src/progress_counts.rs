//! Signs of life: the progress of each end, in numbers that any thread can read at any time.
//!
//! The disk's thread and the endpoint's thread write them. The channel writer sends them to the
//! peer several times a second. So an end with a slow disk or a blocked terminal still sends them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farwrite::fabric::threads::lock;
use farwrite_files::Progress;

/// Steps for which a file counts that was read to its end, or that has its verdict (P8.13). It is as many
/// as a transfer must make in its time limit, so a file that ends is always progress.
pub(crate) const FILE_STEPS: u64 = 4096;

/// The progress of this end. Counts only grow.
#[derive(Debug, Default)]
pub(crate) struct OwnCounts {
    stream_bytes: AtomicU64,
    /// Bytes of the stream that have arrived at a receiver.
    arrived_bytes: AtomicU64,
    files: AtomicU64,
    /// Bytes of new data that arrived, as counted by the endpoint's thread.
    received: AtomicU64,
    /// Bytes that were read only to compare them with those of the peer.
    compared: AtomicU64,
    /// The start of the current disk operation, if there is one.
    disk_since: Mutex<Option<Instant>>,
    /// Bits per second that a sender may send; 0 while it is not known, and at a receiver.
    rate_bps: AtomicU64,
}

impl OwnCounts {
    /// Bits per second that this end may send to the peer, if it knows that.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        Some(self.rate_bps.load(Ordering::Relaxed)).filter(|bps| *bps > 0)
    }

    pub(crate) fn set_rate_bps(&self, bps: u64) {
        self.rate_bps.store(bps, Ordering::Relaxed);
    }

    /// Marks the disk as busy until the returned value is dropped.
    pub(crate) fn disk_operation(&self) -> DiskOperation<'_> {
        *lock(&self.disk_since) = Some(Instant::now());
        DiskOperation(self)
    }

    /// Bytes of the stream that were read or written.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_stream_bytes(&self, bytes: u64) {
        self.stream_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of the stream that have arrived, in the memory of a receiver or on its disk.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes of the stream that have arrived. The count never falls.
    pub(crate) fn set_arrived_bytes(&self, bytes: u64) {
        self.arrived_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Counts a file that was read to its end, or that has its verdict.
    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_compared(&self, bytes: u64) {
        self.compared.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_compared(&self, bytes: u64) {
        self.compared.store(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes of new data that arrived, at this end or from it at the peer.
    pub(crate) fn set_received(&self, bytes: u64) {
        self.received.store(bytes, Ordering::Relaxed);
    }

    /// A count that grows with every step of this end, in bytes.
    pub(crate) fn moved(&self) -> u64 {
        let files = self.files.load(Ordering::Relaxed);
        self.stream_bytes()
            .saturating_add(files.saturating_mul(FILE_STEPS))
            .saturating_add(self.received.load(Ordering::Relaxed))
            .saturating_add(self.compared.load(Ordering::Relaxed))
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
            stream_bytes: self.stream_bytes().max(self.arrived_bytes()),
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
    messages: AtomicU64,
    /// Whether the channel reader waits for this end's disk, and therefore does not read the channel.
    held_up: AtomicU64,
    stream_bytes: AtomicU64,
    moved: AtomicU64,
    disk_ms: AtomicU64,
}

impl PeerCounts {
    pub(crate) fn add_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, progress: Progress) {
        self.stream_bytes
            .store(progress.stream_bytes, Ordering::Relaxed);
        self.moved.store(progress.moved, Ordering::Relaxed);
        self.disk_ms.store(progress.disk_ms, Ordering::Relaxed);
    }

    /// Runs an operation during which the channel reader does not read the channel.
    pub(crate) fn while_held_up<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.held_up.store(1, Ordering::Relaxed);
        let result = wait();
        self.held_up.store(0, Ordering::Relaxed);
        result
    }

    pub(crate) fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// The bytes of the stream that the peer has read, or that have arrived at it.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    /// The peer's count of its steps.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// How long the peer's current disk operation has taken, according to its last report.
    pub(crate) fn disk_busy(&self) -> Duration {
        Duration::from_millis(self.disk_ms.load(Ordering::Relaxed))
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
        heartbeat.add_stream_bytes(10);
        heartbeat.add_file();
        heartbeat.set_received(5);
        let all = 10 + FILE_STEPS + 5;
        assert_eq!((heartbeat.moved(), heartbeat.stream_bytes()), (all, 10));
    }
}
