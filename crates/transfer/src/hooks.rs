//! What a transfer needs from the program that runs it: a way to cancel, an observer of reports,
//! and where packets to the peer go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use farwrite::{Counters, PeerStats, QpStats, ReservedPort};
use farwrite_keys::Text;
use farwrite_verbs::VerbsConfig;

use crate::threads::start_thread;
use crate::{Error, ErrorKind, MemoryPool, RouteShrunk};

/// The time between two checks of whether the user cancelled.
pub(crate) const CANCEL_PERIOD: Duration = Duration::from_millis(50);

/// A flag that the user sets to end a transfer.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Watches a flag, such as one that a signal handler sets.
    #[must_use]
    pub fn watching(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Returns whether the user cancelled.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the user has cancelled.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`].
    pub fn check(&self) -> Result<(), Error> {
        if self.is_set() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    /// Runs an operation that may block for a long time, such as access to a slow disk, in its own
    /// thread and waits for it. If the user cancels, the thread continues without a waiter.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`]; [`ErrorKind::Other`] if no thread can be started.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.run_watched(work, || Ok(()))
    }

    /// Like [`Cancel::run`], but calls `watch` several times a second, and ends with its error.
    pub(crate) fn run_watched<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        mut watch: impl FnMut() -> Result<(), Error>,
    ) -> Result<T, Error> {
        let (result, finished) = channel();
        let thread = start_thread("blocking-work", move || {
            // The receiving half no longer exists if the user has cancelled.
            let _ = result.send(work());
        })?;
        loop {
            self.check()?;
            match finished.recv_timeout(CANCEL_PERIOD) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => watch()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = thread.join().expect_err("it ended without a result");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

/// Something to report while a transfer runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A line for people.
    Note(String),
    /// A line about something that the result does not show.
    Warning(String),
    /// A peer that may send was refused, because this end is busy with others.
    Busy {
        /// The name of the peer, if it has one.
        peer: Option<String>,
        /// Its address and UDP port.
        address: String,
        /// What it was told.
        reason: String,
    },
    /// The path carries only smaller packets than before. The transfer continues with these.
    RouteShrunk(RouteShrunk),
    /// Both ends have agreed on the transfer.
    Start {
        /// Address and UDP port of the other end.
        peer: String,
        /// Files and links.
        files: u32,
        /// Bytes of them, without holes.
        bytes: u64,
        /// Bytes of those files that the receiver has already, as far as this is known.
        unsent_bytes: u64,
    },
    /// A file or link has ended. Only for an observer that [wants files](Observer::wants_files).
    File(EndedFile),
    /// The progress of the transfer; several times a second.
    Progress {
        /// `sending` or `receiving`.
        label: &'static str,
        /// Bytes of the stream that are transferred.
        done_bytes: u64,
        /// Bytes of the stream.
        total_bytes: u64,
        /// Rate, time left, repairs, the current file, for people.
        detail: String,
        /// The same for programs.
        numbers: ProgressNumbers,
        /// Whether this is the last one.
        is_last: bool,
    },
    /// The counters of the endpoint: at most every 10 ms, and when all files have arrived.
    Counters(Box<EndpointCounters>),
}

/// How a file ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedFile {
    /// Its path below the receiver's directory.
    pub path: Text,
    /// Its length in the stream.
    pub bytes: u64,
    /// What became of it.
    pub state: FileState,
    /// BLAKE3 of its bytes, if an end has read or written them.
    pub hash: Option<[u8; 32]>,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileState {
    /// It has its final name.
    Arrived,
    /// The receiver had it already.
    Unchanged,
    /// It did not arrive, for this reason.
    Failed(Text),
}

/// Progress as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgressNumbers {
    /// Bits of files in a second, over the last seconds.
    pub rate_bps: f64,
    /// The same since the start.
    pub mean_bps: f64,
    /// The time left at the rate now; `None` while nothing moves.
    pub left: Option<Duration>,
    /// Files and links without a verdict.
    pub files_left: u32,
    /// At the sender, what limits the rate, as in `limited_by` of docs/json.md.
    pub limited_by: Option<&'static str>,
}

/// The counters of an endpoint since its transfer began.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointCounters {
    /// Of the queue pairs of the transfer.
    pub stats: QpStats,
    /// Of the peer.
    pub peer: PeerStats,
    /// Of the sockets.
    pub packets: Counters,
}

/// Receives the reports of a transfer.
pub trait Observer: Send + Sync {
    /// Receives an event. The thread that moves the data calls this, so it must not wait: neither
    /// for a terminal, nor for a lock whose holder waits for one.
    fn observe(&self, event: Event);

    /// Whether [`Event::File`] is reported.
    fn wants_files(&self) -> bool {
        false
    }
}

/// Returns where to send the first packets to a peer at an address; see [`unchanged`].
pub type Redirect<'a> = &'a dyn Fn(SocketAddr) -> Result<SocketAddr, Error>;

/// Is told again and again for how long nothing has shown that packets pass in both directions. Its error ends the
/// transfer. The thread that moves the data calls this, so it must not wait.
pub type WhenBlocked<'a> = &'a dyn Fn(Duration) -> Result<(), Error>;

/// What a transfer needs from the program that runs it.
#[derive(Clone, Copy)]
pub struct TransferHooks<'a> {
    /// Where to send the first packets to the peer.
    pub redirect: Redirect<'a>,
    /// Whether the user has cancelled.
    pub cancel: &'a Cancel,
    /// Receives the reports.
    pub observer: &'a dyn Observer,
    /// The UDP port of a receiver, if this process holds it between transfers.
    pub port: Option<&'a ReservedPort>,
    /// The RDMA device whose packets carry the data; `None`: UDP sockets do.
    pub device: Option<&'a VerbsConfig>,
    /// The memory of a receiver that serves several senders at once. `None`: this transfer has all of
    /// [`ReceiveSettings::memory_bytes`](crate::ReceiveSettings).
    pub memory: Option<&'a MemoryPool>,
    /// The maximum rate of a sender, if it can change.
    pub max_rate: Option<&'a MaxRate>,
    /// Looks for another way when packets no longer pass. Without it, and with an RDMA device, the transfer waits.
    pub when_blocked: Option<WhenBlocked<'a>>,
}

/// A maximum rate that changes while a transfer runs. Clones share it.
#[derive(Clone, Debug)]
pub struct MaxRate(Arc<AtomicU64>);

impl MaxRate {
    /// A rate in bits per second on the wire.
    #[must_use]
    pub fn new(bps: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bps)))
    }

    /// Changes the rate. A transfer follows within about 10 ms.
    pub fn set(&self, bps: u64) {
        self.0.store(bps, Ordering::Relaxed);
    }

    /// The rate in bits per second.
    #[must_use]
    pub fn bps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TransferHooks<'_> {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.observer.observe(Event::Note(line.into()));
    }

    pub(crate) fn tell_files(&self, ended: &[EndedFile]) {
        for file in ended {
            self.observer.observe(Event::File(file.clone()));
        }
    }

    pub(crate) fn warn(&self, line: impl Into<String>) {
        self.observer.observe(Event::Warning(line.into()));
    }
}

/// Sends packets to the address that the channel comes from.
///
/// # Errors
/// None.
pub fn unchanged(peer: SocketAddr) -> Result<SocketAddr, Error> {
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_that_blocks_is_left_when_the_user_cancels() {
        let cancel = Cancel::default();
        assert_eq!(cancel.run(|| 5).expect("no cancellation"), 5);
        let (hold, held) = channel::<()>();
        let flag = cancel.0.clone();
        let start = Instant::now();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            flag.store(true, Ordering::Relaxed);
        });
        let ended = cancel.run(move || held.recv()).expect_err("cancelled");
        assert_eq!(ended.kind(), ErrorKind::Interrupted);
        assert!(start.elapsed() < Duration::from_secs(60), "it waited");
        drop(hold);
    }
}
