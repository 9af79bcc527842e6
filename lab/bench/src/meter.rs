//! Measures wall-clock and processor time of work, and the bytes that it moved.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// A running measurement.
pub(crate) struct Meter {
    wall: Instant,
    cpu: Duration,
}

/// The time of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Wall-clock time.
    pub(crate) wall: Duration,
    /// Processor time of the whole process, user and system.
    pub(crate) cpu: Duration,
}

/// The result of moving bytes from one end to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// Payload bytes that arrived.
    pub(crate) bytes: u64,
    /// Packets sent.
    pub(crate) sent: u64,
    /// Packets that arrived.
    pub(crate) received: u64,
    /// Time of both ends together, from the first packet sent to the last one placed.
    pub(crate) usage: Usage,
}

impl Meter {
    /// Starts measuring.
    pub(crate) fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// The time used since the start.
    pub(crate) fn read(&self) -> Usage {
        Usage {
            wall: self.wall.elapsed(),
            cpu: process_cpu().saturating_sub(self.cpu),
        }
    }
}

impl Usage {
    /// Average number of busy processors.
    pub(crate) fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

impl Moved {
    /// Payload that arrived, in bits per second.
    pub(crate) fn goodput_bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.usage.wall.as_secs_f64()
    }

    /// Payload bytes that arrived per second of processor time, of both ends together.
    pub(crate) fn bytes_per_core_second(&self) -> f64 {
        self.bytes as f64 / self.usage.cpu.as_secs_f64()
    }

    /// Share of packets that did not arrive.
    pub(crate) fn loss_packet(&self) -> f64 {
        1.0 - self.received as f64 / self.sent as f64
    }
}

fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
