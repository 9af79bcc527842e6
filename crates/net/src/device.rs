//! The border to hosts and boxes.

use crate::Frame;
use crate::port::Port;

/// Something that sends and receives frames: the end of a path (a host), or a box in the path, such
/// as one that adds parity or repairs losses.
///
/// The network calls [`handle`](Self::handle) when a frame has come in whole. It calls
/// [`poll`](Self::poll) until it returns `None`: after each frame that came in, when
/// [`next_ns`](Self::next_ns) is reached, when a port becomes free, and when a pause changes.
/// `now_ns` counts nanoseconds since the network began.
pub trait Device {
    /// Takes in a frame that came by one of the device's ports.
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame);

    /// The next thing to do. If the port is busy or paused, the frame waits in the port's queue. A
    /// device that wants to choose as late as possible sends only if [`Ports::ready`] is true.
    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output>;

    /// When to call [`poll`](Self::poll) even if nothing else happens; `None` for never.
    fn next_ns(&self) -> Option<u64>;
}

/// What a device does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends a frame.
    Send {
        /// By which of its ports. The network panics if the device has no such port.
        port: usize,
        /// What.
        frame: Frame,
    },
    /// Asks the node at the other end of a cable to stop or resume a priority, by a PFC frame (IEEE
    /// 802.1Qbb), which overtakes all frames that wait.
    Pause {
        /// By which of its ports.
        port: usize,
        /// Which priority, 0 to 7.
        priority: u8,
        /// `true` to stop, `false` to resume.
        stop: bool,
    },
}

/// A device's own ports.
#[derive(Clone, Copy, Debug)]
pub struct Ports<'a> {
    pub(crate) ports: &'a [Port],
    pub(crate) now_ns: u64,
}

impl Ports<'_> {
    /// The number of ports. They are numbered from 0 in the order in which
    /// [`Topology::connect`](crate::Topology::connect) made their cables.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ports.len()
    }

    /// Whether a frame of this priority would leave at once. `false` if the port does not exist.
    #[must_use]
    pub fn ready(&self, port: usize, priority: u8) -> bool {
        let port = self.ports.get(port);
        port.is_some_and(|port| port.is_ready(self.now_ns) && !port.is_paused(priority))
    }

    /// Whether the node at the other end has asked to stop this priority.
    #[must_use]
    pub fn paused(&self, port: usize, priority: u8) -> bool {
        self.ports
            .get(port)
            .is_some_and(|port| port.is_paused(priority))
    }

    /// Bytes that wait at a port.
    #[must_use]
    pub fn queued_bytes(&self, port: usize) -> u64 {
        self.ports.get(port).map_or(0, Port::queued_bytes)
    }

    /// Bits a second of a port's cable.
    #[must_use]
    pub fn rate_bps(&self, port: usize) -> u64 {
        self.ports.get(port).map_or(0, Port::rate_bps)
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        (**self).handle(now_ns, port, frame);
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        (**self).poll(now_ns, ports)
    }

    fn next_ns(&self) -> Option<u64> {
        (**self).next_ns()
    }
}
