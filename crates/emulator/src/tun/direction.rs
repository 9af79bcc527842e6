//! The thread of one direction.

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use farwrite_link::LinkCounters;
use farwrite_trains::{Scratch, Segment, SegmentRun, Train, VNET_BYTES};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::device::TunDevice;
use super::{DeviceTask, TunEmulatorError};
use crate::timed_link::TimedLink;
use crate::wake::Wake;
use crate::{Lateness, Task};

/// Shortest interval between two delivery rounds. Segments of a train that are due within it are
/// sent in one piece.
const ROUND_NS: u64 = 50_000;
/// A spinning thread sleeps until this long before the next round.
const SPIN_NS: u64 = 50_000;
/// Timer slack: how late the kernel may wake the thread in order to wake several threads together.
const TIMER_SLACK_NS: u64 = 5_000;
/// Largest number of reads, and of writes, in a round. It bounds how long one delays the other.
const BATCH: usize = 64;
/// Size of the longest train with the headers before it.
const BUFFER: usize = (1 << 16) + 512;

#[derive(Clone, Debug, Default)]
pub(super) struct DirectionTotals {
    pub(super) link: LinkCounters,
    pub(super) lateness: Lateness,
    /// Packets that the kernel refused to send.
    pub(super) unsent: u64,
    /// Reads from and writes to the devices, in packets or trains.
    pub(super) reads: u64,
    pub(super) writes: u64,
}

pub(super) struct Direction {
    pub(super) from: Arc<TunDevice>,
    pub(super) to: Arc<TunDevice>,
    pub(super) link: TimedLink<Segment>,
    pub(super) offload: bool,
    pub(super) spin: bool,
    /// Readable when the thread must end.
    pub(super) stop: Arc<Wake>,
    /// Copy of the counters for other threads.
    pub(super) shared: Arc<Mutex<DirectionTotals>>,
    pub(super) done: DirectionTotals,
    /// Start of the last delivery round.
    pub(super) delivered_ns: u64,
}

/// Interval between two updates of the copy.
const REPORT_NS: u64 = 100_000_000;

impl Direction {
    /// Relays until the handle stops the thread or a device disappears.
    pub(super) fn run(mut self) -> Result<(), TunEmulatorError> {
        // If the system does not allow this, the lateness counters show the effect.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        if !self.spin {
            // A spinning thread with this priority would take its core from all other threads.
            let _ = super::priority::raise();
        }
        let mut buffer = vec![0; BUFFER];
        let mut reported_ns = 0;
        let result = loop {
            match self.wait() {
                Ok(Woken::Stop) => break Ok(()),
                Ok(Woken::Work) => {}
                Err(error) => break Err(error),
            }
            if let Err(error) = self.take(&mut buffer) {
                break Err(error);
            }
            if self
                .round_ns()
                .is_some_and(|at_ns| at_ns <= self.link.now_ns())
            {
                self.deliver();
            }
            if self.link.now_ns() >= reported_ns + REPORT_NS {
                reported_ns = self.link.now_ns();
                self.report();
            }
        };
        self.report();
        result
    }

    /// Start of the next delivery round.
    fn round_ns(&self) -> Option<u64> {
        let due_ns = self.link.next_ns()?;
        Some(due_ns.max(self.delivered_ns + ROUND_NS))
    }

    /// Sleeps until a packet arrives or the next round begins. A spinning thread ends its sleep
    /// earlier, and returns at once when the round is near.
    fn wait(&self) -> Result<Woken, TunEmulatorError> {
        let early_ns = if self.spin { SPIN_NS } else { 0 };
        let until_ns = self.round_ns().map(|at_ns| at_ns.saturating_sub(early_ns));
        let timeout = self.link.sleep_until(until_ns);
        let mut fds = [
            PollFd::new(&*self.from, PollFlags::IN),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                return Err(TunEmulatorError::System {
                    what: Task::Wait,
                    source: error.into(),
                });
            }
        }
        let stop = fds[1].revents().contains(PollFlags::IN);
        Ok(if stop { Woken::Stop } else { Woken::Work })
    }

    /// Reads packets, and offers them to the link.
    fn take(&mut self, buffer: &mut [u8]) -> Result<(), TunEmulatorError> {
        for _ in 0..BATCH {
            let bytes = match rustix::io::read(&*self.from, &mut *buffer) {
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(self.from.failed(DeviceTask::Read, error)),
            };
            self.done.reads += 1;
            let now_ns = self.link.now_ns();
            for segment in train(&buffer[..bytes], self.offload).into_segments() {
                self.link.send(now_ns, segment);
            }
        }
        Ok(())
    }

    /// Sends the packets that are due.
    fn deliver(&mut self) {
        let now_ns = self.link.now_ns();
        self.delivered_ns = now_ns;
        let mut pending: Option<(u64, SegmentRun)> = None;
        let mut writes = 0;
        while writes < BATCH
            && let Some((due_ns, segment)) = self.link.take_due(now_ns)
        {
            let segment = match &mut pending {
                Some((_, run)) => match run.extend(segment) {
                    Ok(()) => continue,
                    Err(other) => other,
                },
                None => segment,
            };
            let run = SegmentRun::new(segment);
            if let Some((first_ns, run)) = pending.replace((due_ns, run)) {
                self.write(first_ns, &run);
                writes += 1;
            }
        }
        if let Some((first_ns, run)) = pending {
            self.write(first_ns, &run);
        }
    }

    /// Writes a run of segments whose first one is due. The lateness of the first segment counts
    /// for all of them.
    fn write(&mut self, due_ns: u64, run: &SegmentRun) {
        let now_ns = self.link.now_ns();
        self.link.note_departure(due_ns, now_ns, run.len());
        let mut scratch = Scratch::default();
        let [vnet, headers, payload] = run.parts(&mut scratch).map(IoSlice::new);
        let parts = [vnet, headers, payload];
        let parts = if self.offload {
            &parts[..]
        } else {
            &parts[1..]
        };
        match rustix::io::writev(&*self.to, parts) {
            Ok(_) => self.done.writes += 1,
            // The device is down or refuses the packet. A missing host would lose it as well.
            Err(_) => self.done.unsent += run.len(),
        }
    }

    fn report(&mut self) {
        self.done.link = self.link.counters();
        self.done.lateness.clone_from(self.link.lateness());
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone_from(&self.done);
    }
}

enum Woken {
    Work,
    Stop,
}

/// Parses the bytes of one read.
fn train(bytes: &[u8], offload: bool) -> Train {
    match bytes.split_first_chunk::<VNET_BYTES>() {
        Some((vnet, packet)) if offload => Train::new(*vnet, packet),
        _ => Train::new([0; VNET_BYTES], bytes),
    }
}
