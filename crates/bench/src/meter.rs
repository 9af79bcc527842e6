//! Wall and processor time of a piece of work.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A running measurement.
pub(crate) struct Meter {
    wall: Instant,
    cpu: Duration,
}

/// What a piece of work took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Time on the clock.
    pub(crate) wall: Duration,
    /// Processor time of the whole process, user and system.
    pub(crate) cpu: Duration,
}

impl Meter {
    /// Starts measuring.
    pub(crate) fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// Ends the measurement.
    pub(crate) fn stop(self) -> Usage {
        Usage {
            wall: self.wall.elapsed(),
            cpu: process_cpu().saturating_sub(self.cpu),
        }
    }
}

impl Usage {
    /// Processors kept busy, on average.
    pub(crate) fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

fn process_cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(t).unwrap_or_default()
}
