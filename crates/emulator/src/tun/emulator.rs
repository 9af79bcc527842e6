//! A running emulator and its report.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite_link::{Link, LinkCounters, LinkDirection};

use super::device::TunDevice;
use super::direction::{Direction, DirectionTotals};
use super::{TunEmulatorConfig, TunEmulatorError, TunLinkConfig};
use crate::timed_link::{TimedLink, direction_seeds};
use crate::wake::Wake;
use crate::{Lateness, Task};

/// A running emulator. Dropping it stops it: devices that it created disappear, and packets in flight
/// are lost.
pub struct TunEmulator {
    directions: [Running; 2],
    start: Instant,
    stop: Arc<Wake>,
}

struct Running {
    from: Arc<TunDevice>,
    shared: Arc<Mutex<DirectionTotals>>,
    thread: Option<JoinHandle<Result<(), TunEmulatorError>>>,
}

/// Counters of an emulator.
#[derive(Clone, Debug)]
pub struct TunReport {
    /// Time since the start of the emulator.
    pub elapsed: Duration,
    /// From end A to end B.
    pub forward: DirectionReport,
    /// From end B to end A.
    pub backward: DirectionReport,
}

/// Counters of an emulator in one direction. Each segment of a train counts as a packet.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// Counters of the link.
    pub link: LinkCounters,
    /// Lateness of the packets.
    pub lateness: Lateness,
    /// Packets or trains that the kernel dropped before the link, because the emulator did not read
    /// them in time. `None` if the device no longer exists.
    pub unread: Option<u64>,
    /// Packets that were due, but that the kernel of the other end refused. They are lost.
    pub unsent: u64,
    /// Reads from the device: packets or trains.
    pub reads: u64,
    /// Writes to the device: packets or trains.
    pub writes: u64,
}

impl TunEmulator {
    /// Opens the devices and starts a thread for each direction.
    ///
    /// # Errors
    /// [`TunEmulatorError`] for an invalid path, a namespace or a device that cannot be used, or a thread
    /// that the system refuses.
    pub fn start(config: &TunEmulatorConfig) -> Result<Self, TunEmulatorError> {
        if config.mtu < 1280 {
            return Err(TunEmulatorError::Mtu(config.mtu));
        }
        let link = |direction, path: &TunLinkConfig, seed| {
            let link = match &path.trace {
                Some(trace) => Link::traced(path.link, Arc::clone(trace), &path.steps, seed),
                None => Link::with_steps(path.link, &path.steps, seed),
            };
            link.map_err(|source| TunEmulatorError::Path { direction, source })
        };
        let [forward, backward] = direction_seeds(config.seed);
        let links = [
            link(LinkDirection::Forward, &config.forward, forward)?,
            link(LinkDirection::Backward, &config.backward, backward)?,
        ];
        let [a, b] = &config.ends;
        let a = Arc::new(TunDevice::open(a, config.mtu, config.offload)?);
        let b = Arc::new(TunDevice::open(b, config.mtu, config.offload)?);
        let system = |what| move |source| TunEmulatorError::System { what, source };
        let stop = Wake::new().map_err(system(Task::Eventfd))?;
        let mut emulator = Self {
            directions: [&a, &b].map(|from| Running {
                from: Arc::clone(from),
                shared: Arc::default(),
                thread: None,
            }),
            start: Instant::now(),
            stop: Arc::new(stop),
        };
        for ((running, link), to) in emulator.directions.iter_mut().zip(links).zip([b, a]) {
            let direction = Direction {
                from: Arc::clone(&running.from),
                to,
                link: TimedLink::new(link, emulator.start),
                offload: config.offload,
                spin: config.spin,
                stop: Arc::clone(&emulator.stop),
                shared: Arc::clone(&running.shared),
                done: DirectionTotals::default(),
                delivered_ns: 0,
            };
            let thread = thread::Builder::new()
                .name("link-emulator".into())
                .spawn(move || direction.run())
                .map_err(system(Task::Thread))?;
            running.thread = Some(thread);
        }
        Ok(emulator)
    }

    /// Whether both directions are still running. A direction stops if a device disappears.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut threads = self.directions.iter().filter_map(|d| d.thread.as_ref());
        threads.all(|thread| !thread.is_finished())
    }

    /// The counters so far; at most 100 ms old.
    #[must_use]
    pub fn report(&self) -> TunReport {
        let [forward, backward] = self.directions.each_ref().map(|running| {
            let shared = running
                .shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let done = shared.clone();
            drop(shared);
            DirectionReport {
                link: done.link,
                lateness: done.lateness,
                unread: running.from.drops(),
                unsent: done.unsent,
                reads: done.reads,
                writes: done.writes,
            }
        });
        TunReport {
            elapsed: self.start.elapsed(),
            forward,
            backward,
        }
    }

    /// Stops relaying. Returns the final counters, and the error of a direction that had stopped
    /// before.
    pub fn stop(mut self) -> (TunReport, Result<(), TunEmulatorError>) {
        let result = self.halt();
        (self.report(), result)
    }

    fn halt(&mut self) -> Result<(), TunEmulatorError> {
        self.stop.wake();
        let threads = self.directions.iter_mut().filter_map(|d| d.thread.take());
        let ended: Vec<_> = threads.map(JoinHandle::join).collect();
        for end in ended {
            match end {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }
}

impl Drop for TunEmulator {
    fn drop(&mut self) {
        // Only `stop` returns the results of the threads. A panic during this drop would abort the
        // process.
        self.stop.wake();
        for running in &mut self.directions {
            if let Some(thread) = running.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
