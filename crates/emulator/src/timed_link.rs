//! One direction of a path in real time: which packets are due, and how late they leave.

use std::time::{Duration, Instant};

use farwrite_link::{Link, LinkCounters, Packet};
use rustix::event::Timespec;

use crate::Lateness;

/// A link that runs by the clock of this machine. Times are in nanoseconds since its start.
pub(crate) struct TimedLink<P> {
    link: Link<P>,
    start: Instant,
    lateness: Lateness,
}

impl<P: Packet> TimedLink<P> {
    pub(crate) fn new(link: Link<P>, start: Instant) -> Self {
        Self {
            link,
            start,
            lateness: Lateness::default(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        // A `u64` of nanoseconds covers five centuries.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn send(&mut self, now_ns: u64, packet: P) {
        self.link.send(now_ns, packet);
    }

    /// When the next packet is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.link.next_ns()
    }

    /// Returns a packet that is due, and since when. The caller notes its departure.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<(u64, P)> {
        let due_ns = self.link.next_ns().filter(|due_ns| *due_ns <= now_ns)?;
        Some((due_ns, self.link.poll(now_ns)?))
    }

    /// Records that packets leave now, which were due at `due_ns`.
    pub(crate) fn note_departure(&mut self, due_ns: u64, now_ns: u64, packets: u64) {
        self.lateness.record(now_ns.saturating_sub(due_ns), packets);
    }

    pub(crate) fn set_down(&mut self, down: bool) {
        self.link.set_down(down);
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        self.link.counters()
    }

    pub(crate) fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// How long a thread may sleep that has work at `at_ns`. `None`: until a packet arrives.
    pub(crate) fn sleep_until(&self, at_ns: Option<u64>) -> Option<Timespec> {
        let sleep_ns = at_ns?.saturating_sub(self.now_ns());
        Timespec::try_from(Duration::from_nanos(sleep_ns)).ok()
    }
}

/// The seeds of both directions, from the seed of an emulator.
pub(crate) fn direction_seeds(seed: u64) -> [u64; 2] {
    // The backward seed differs from the forward seeds of runs with similar seeds.
    [seed, !seed]
}
