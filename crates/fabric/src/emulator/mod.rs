//! A long path in real time: relays UDP between two ends on this machine's loopback, through the
//! link model. It needs no privileges.
//!
//! End A sends to the emulator's A side as if that were its peer; the emulator delivers to end B
//! from its B side, when the link says that the packet has arrived, and the other way round. Every
//! channel, a pair of ports of the two ends, has a pair of sockets of its own; all channels share
//! the link of their direction.
//!
//! The addresses change on the way, and the ICRC covers them, so each packet's ICRC is checked as
//! it comes and re-sealed for the way out: a right one is right again, a wrong one stays wrong, and
//! a bit flipped on the link is found by the receiver. The IPv4 identification is covered too: a
//! packet leaves with the one that the kernel will give it, its place in its batch. What is no
//! RoCEv2 packet is relayed like one whose ICRC is wrong, if not empty; an emulator can also be made
//! to relay everything as it is. TOS and TTL are not carried.
//!
//! Time is real, so the emulator may fall behind: [`DirectionCounters`] tell by how much.

mod config;
mod counters;
mod port;
mod relay;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::EventfdFlags;

pub use config::{Channel, EmulatorConfig, EmulatorError, Side};
pub use counters::{DirectionCounters, EmulatorCounters};
use relay::Relay;

/// A running emulator. Dropping it stops it; what is in flight then is lost.
#[derive(Debug)]
pub struct LinkEmulator {
    addresses: Vec<[SocketAddr; 2]>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), EmulatorError>>>,
}

/// What the handle and the thread both see.
#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    down: AtomicBool,
    /// Longest UDP payload that the links carry.
    most_bytes: AtomicUsize,
    counters: Mutex<EmulatorCounters>,
    /// Readable when the thread shall look at the two flags.
    wake: OwnedFd,
}

impl LinkEmulator {
    /// Binds the sockets and starts the thread that relays.
    ///
    /// # Errors
    /// [`EmulatorError`] for a configuration that makes no sense, an address that cannot be had, or
    /// a system that refuses a socket or a thread.
    pub fn start(config: &EmulatorConfig) -> Result<Self, EmulatorError> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| EmulatorError::system("making an eventfd", e.into()))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            down: AtomicBool::new(false),
            most_bytes: AtomicUsize::new(usize::MAX),
            counters: Mutex::default(),
            wake,
        });
        let mut relay = Relay::new(config, Arc::clone(&shared))?;
        let addresses = relay.addresses();
        let thread = thread::Builder::new()
            .name("link-emulator".into())
            .spawn(move || relay.run())
            .map_err(|e| EmulatorError::system("starting a thread", e))?;
        Ok(Self {
            addresses,
            shared,
            thread: Some(thread),
        })
    }

    /// Of each channel, where end A sends to, and where end B does.
    #[must_use]
    pub fn addresses(&self) -> &[[SocketAddr; 2]] {
        &self.addresses
    }

    /// What has been relayed so far, up to the thread's last round.
    #[must_use]
    pub fn counters(&self) -> EmulatorCounters {
        *self.shared.counters()
    }

    /// Cuts both directions or mends them. Cutting loses what is in flight. Packets sent after this
    /// returns meet the new state.
    pub fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::SeqCst);
        self.shared.wake();
    }

    /// Sets the largest UDP payload, in bytes, that either direction carries. The emulator drops
    /// longer datagrams and does not report it to the sender, like the black holes of RFC 8899,
    /// section 4.4.
    pub fn set_most_bytes(&self, bytes: usize) {
        self.shared.most_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Stops relaying and returns the last word of the counters.
    ///
    /// # Errors
    /// [`EmulatorError`] if the thread gave up before, because its sockets failed.
    pub fn stop(mut self) -> Result<EmulatorCounters, EmulatorError> {
        match self.halt() {
            Some(Ok(result)) => result?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => {}
        }
        Ok(self.counters())
    }

    /// Ends the thread; how it ended, if it had not been ended before.
    fn halt(&mut self) -> Option<thread::Result<Result<(), EmulatorError>>> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for LinkEmulator {
    fn drop(&mut self) {
        // Whoever wants to know how the thread ended calls `stop`.
        let _ = self.halt();
    }
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, EmulatorCounters> {
        // A copy of integers is whole whoever panicked.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only when the count is at its maximum, and so readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
