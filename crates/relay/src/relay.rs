//! A relay under way.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite_link::{Link, LinkCounters};
use rustix::event::EventfdFlags;

use crate::device::Device;
use crate::direction::{Direction, Done};
use crate::{Lateness, PathConfig, RelayConfig, RelayError};

/// A running relay. Dropping it stops it: devices that it created are gone then, and packets in
/// flight are lost.
pub struct Relay {
    directions: [Running; 2],
    start: Instant,
    stop: Arc<OwnedFd>,
}

struct Running {
    from: Arc<Device>,
    shared: Arc<Mutex<Done>>,
    thread: Option<JoinHandle<Result<(), RelayError>>>,
}

/// What a relay has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// Since the relay was started.
    pub elapsed: Duration,
    /// From end A to end B.
    pub forward: DirectionReport,
    /// From end B to end A.
    pub backward: DirectionReport,
}

/// What a relay has done in one direction. A segment of a train is a packet.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// What the link did.
    pub link: LinkCounters,
    /// How late packets left.
    pub lateness: Lateness,
    /// Dropped by the kernel before the link, because the relay did not read them in time; packets
    /// or trains. `None` if the device is gone.
    pub unread: Option<u64>,
    /// Due, but refused by the kernel of the other end, and so lost.
    pub unsent: u64,
    /// Reads from the device: packets or trains.
    pub reads: u64,
    /// Writes to the device: packets or trains.
    pub writes: u64,
}

impl Relay {
    /// Opens the devices and starts a thread for each direction.
    ///
    /// # Errors
    /// [`RelayError`] for a path that cannot be, a namespace or a device that cannot be had, or a
    /// system that refuses a thread.
    pub fn start(config: &RelayConfig) -> Result<Self, RelayError> {
        if config.mtu < 1280 {
            return Err(RelayError::Mtu(config.mtu));
        }
        let link = |direction, path: &PathConfig, seed| {
            Link::with_steps(path.link, &path.steps, seed)
                .map_err(|source| RelayError::Path { direction, source })
        };
        let links = [
            link("forward", &config.forward, config.seed)?,
            // Any other seed that is not the forward one of a run nearby.
            link("backward", &config.backward, !config.seed)?,
        ];
        let [a, b] = &config.ends;
        let a = Arc::new(Device::open(a, config.mtu, config.offload)?);
        let b = Arc::new(Device::open(b, config.mtu, config.offload)?);
        let system = |what| move |source| RelayError::System { what, source };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("making an eventfd")(error.into()))?;
        let mut relay = Self {
            directions: [&a, &b].map(|from| Running {
                from: Arc::clone(from),
                shared: Arc::default(),
                thread: None,
            }),
            start: Instant::now(),
            stop: Arc::new(stop),
        };
        for ((running, link), to) in relay.directions.iter_mut().zip(links).zip([b, a]) {
            let direction = Direction {
                from: Arc::clone(&running.from),
                to,
                link,
                offload: config.offload,
                spin: config.spin,
                start: relay.start,
                stop: Arc::clone(&relay.stop),
                shared: Arc::clone(&running.shared),
                done: Done::default(),
                delivered_ns: 0,
            };
            let thread = thread::Builder::new()
                .name("relay".into())
                .spawn(move || direction.run())
                .map_err(system("starting a thread"))?;
            running.thread = Some(thread);
        }
        Ok(relay)
    }

    /// Whether both directions are still relayed. They are until a device is gone.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut threads = self.directions.iter().filter_map(|d| d.thread.as_ref());
        threads.all(|thread| !thread.is_finished())
    }

    /// What has been relayed so far; up to 100 ms old.
    #[must_use]
    pub fn report(&self) -> Report {
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
        Report {
            elapsed: self.start.elapsed(),
            forward,
            backward,
        }
    }

    /// Stops relaying; returns all that was done, and why a direction had ended before, if one had.
    pub fn stop(mut self) -> (Report, Result<(), RelayError>) {
        let result = self.halt();
        (self.report(), result)
    }

    fn wake(&self) {
        // Fails only when the count is at its maximum, and so readable already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    fn halt(&mut self) -> Result<(), RelayError> {
        self.wake();
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

impl Drop for Relay {
    fn drop(&mut self) {
        // `stop` returns how the threads ended. A panic while dropping would end the process.
        self.wake();
        for running in &mut self.directions {
            if let Some(thread) = running.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
