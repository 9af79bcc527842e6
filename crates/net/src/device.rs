//! The interface between the network and the code of hosts and boxes.

use crate::Frame;
use crate::port::Port;

/// A node that sends and receives frames: the end of a path (a host), or a box in the path, for
/// example one that adds parity or retransmits.
///
/// The network calls [`handle`](Self::handle) when the last bit of a frame has arrived. It calls
/// [`poll`](Self::poll) repeatedly until the method returns `None`: after each received frame, when
/// [`next_ns`](Self::next_ns) is reached, when a port becomes free, and when a PFC pause changes.
/// `now_ns` is in nanoseconds since the network began.
pub trait Device {
    /// Receives a frame through one of the device's ports.
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame);

    /// The device's next action. If the port is busy or paused, the frame waits in the port's
    /// egress queue. A device that wants to choose as late as possible sends only if
    /// [`Ports::ready`] is true.
    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output>;

    /// When to call [`poll`](Self::poll) even if nothing else happens; `None` for never.
    fn next_ns(&self) -> Option<u64>;
}

/// An action of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends a frame.
    Send {
        /// Index of the device's port. The network panics if the device has no such port.
        port: usize,
        /// The frame to send.
        frame: Frame,
    },
    /// Asks the node at the other end of a cable to stop or resume a priority, by a PFC frame (IEEE
    /// 802.1Qbb). The PFC frame overtakes all frames in the egress queues.
    Pause {
        /// Index of the device's port.
        port: usize,
        /// The priority, 0 to 7.
        priority: u8,
        /// `true` to stop, `false` to resume.
        stop: bool,
    },
}

/// The state of a device's own ports.
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
        self.ready_priorities(port) & 1 << priority.min(7) != 0
    }

    /// The priorities, one bit each, whose frames would leave at once; 0 if the port does not
    /// exist.
    #[must_use]
    pub fn ready_priorities(&self, port: usize) -> u8 {
        let port = self.ports.get(port);
        let port = port.filter(|port| port.is_ready(self.now_ns));
        port.map_or(0, Port::running)
    }

    /// Whether the node at the other end has asked to stop this priority.
    #[must_use]
    pub fn paused(&self, port: usize, priority: u8) -> bool {
        self.ports
            .get(port)
            .is_some_and(|port| port.is_paused(priority))
    }

    /// Bytes in the egress queues of a port.
    #[must_use]
    pub fn queued_bytes(&self, port: usize) -> u64 {
        self.ports.get(port).map_or(0, Port::queued_bytes)
    }

    /// Rate of a port's cable in bits per second.
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
