//! The emulator between UDP ends relays datagrams between two ends on this machine's loopback
//! interface, through the link model. It needs no privileges.
//!
//! End A sends to the emulator's A side as if that were its peer. The emulator delivers the packet
//! to end B from its B side, at the time at which the link model says that it arrives. The opposite
//! direction works the same way. Every channel, a pair of ports of the two ends, has its own pair
//! of sockets. All channels share the link of their direction.
//!
//! The emulator changes the addresses of packets, and the ICRC covers the addresses. So it checks
//! the ICRC of each packet at arrival and re-seals it for departure: a correct ICRC stays correct,
//! a wrong one stays wrong, and the receiver detects a bit flipped on the link. The ICRC also
//! covers the IPv4 identification. A packet is therefore sealed with the identification that the
//! kernel will give it, its index in its batch. A datagram that is not a RoCEv2 packet is relayed
//! like a packet with a wrong ICRC, unless it is empty. An emulator can also be configured to relay
//! every datagram unchanged. TOS and TTL are not preserved.
//!
//! The emulator runs in real time, so it may fall behind: [`DirectionCounters`] measure its
//! lateness.

mod config;
mod counters;
mod port;
mod thread;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::Task;
use crate::wake::Wake;
pub use config::{PortPair, Side, UdpEmulatorConfig, UdpEmulatorError};
pub use counters::{DirectionCounters, UdpEmulatorCounters};
use thread::UdpThread;

/// A running emulator. Dropping it stops it; packets in flight are then lost.
#[derive(Debug)]
pub struct UdpEmulator {
    addresses: Vec<[SocketAddr; 2]>,
    shared: Arc<UdpControl>,
    thread: Option<JoinHandle<Result<(), UdpEmulatorError>>>,
}

/// State that the handle and the thread share.
#[derive(Debug)]
struct UdpControl {
    stop: AtomicBool,
    down: AtomicBool,
    /// Longest UDP payload that the links carry.
    most_bytes: AtomicUsize,
    counters: Mutex<UdpEmulatorCounters>,
    /// Wakes the thread, which must check the two flags.
    wake: Wake,
}

impl UdpEmulator {
    /// Binds the sockets and starts the thread.
    ///
    /// # Errors
    /// [`UdpEmulatorError`] for an invalid configuration, an address that cannot be bound, or a socket
    /// or thread that the system refuses.
    pub fn start(config: &UdpEmulatorConfig) -> Result<Self, UdpEmulatorError> {
        let wake = Wake::new().map_err(|e| UdpEmulatorError::system(Task::Eventfd, e))?;
        let shared = Arc::new(UdpControl {
            stop: AtomicBool::new(false),
            down: AtomicBool::new(false),
            most_bytes: AtomicUsize::new(usize::MAX),
            counters: Mutex::default(),
            wake,
        });
        let mut relaying = UdpThread::new(config, Arc::clone(&shared))?;
        let addresses = relaying.addresses();
        let thread = std::thread::Builder::new()
            .name("link-emulator".into())
            .spawn(move || relaying.run())
            .map_err(|e| UdpEmulatorError::system(Task::Thread, e))?;
        Ok(Self {
            addresses,
            shared,
            thread: Some(thread),
        })
    }

    /// For each channel, the addresses to which end A and end B send.
    #[must_use]
    pub fn addresses(&self) -> &[[SocketAddr; 2]] {
        &self.addresses
    }

    /// The counters up to the thread's last round.
    #[must_use]
    pub fn counters(&self) -> UdpEmulatorCounters {
        *self.shared.counters()
    }

    /// Cuts or restores both directions. Cutting loses all packets in flight. The change applies to
    /// packets sent after this returns.
    pub fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::SeqCst);
        self.shared.wake.wake();
    }

    /// Sets the largest UDP payload, in bytes, that either direction carries. The emulator drops
    /// longer datagrams and does not report it to the sender, like the black holes of RFC 8899,
    /// section 4.4.
    pub fn set_most_bytes(&self, bytes: usize) {
        self.shared.most_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Stops relaying and returns the final counters.
    ///
    /// # Errors
    /// [`UdpEmulatorError`] if the thread stopped earlier because its sockets failed.
    pub fn stop(mut self) -> Result<UdpEmulatorCounters, UdpEmulatorError> {
        match self.halt() {
            Some(Ok(result)) => result?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => {}
        }
        Ok(self.counters())
    }

    /// Stops the thread. Returns its result, if it was not stopped before.
    fn halt(&mut self) -> Option<std::thread::Result<Result<(), UdpEmulatorError>>> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake.wake();
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for UdpEmulator {
    fn drop(&mut self) {
        // A caller that needs the result of the thread calls `stop`.
        let _ = self.halt();
    }
}

impl UdpControl {
    fn counters(&self) -> MutexGuard<'_, UdpEmulatorCounters> {
        // The counters are integers, so they are valid even after a panic of another thread.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
