//! A running network.

use farwrite_link::ConfigError;

use crate::core::{Change, Core};
use crate::device::{Device, Output, Ports};
use crate::events::Event;
use crate::ids::PortId;
use crate::options::{NetworkError, Options};
use crate::pauses::{PauseEvent, PauseLog};
use crate::topology::{Node, Role, Topology};
use crate::{CableId, NodeId, PortCounters};

/// A network in virtual time: a topology with a device at each host and box. The clock moves only
/// while the network runs.
pub struct Network<D> {
    core: Core,
    /// The device of each node; `None` at switches.
    devices: Vec<Option<AttachedDevice<D>>>,
    handled: u64,
}

/// A device and the time of its next scheduled poll.
struct AttachedDevice<D> {
    device: D,
    wake_ns: Option<u64>,
}

impl<D: Device> Network<D> {
    /// Makes a network at time 0. `device` makes the device of each host and box. `seed`, the
    /// devices and the order of calls determine everything that happens.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn new(
        topology: &Topology,
        options: &Options,
        seed: u64,
        mut device: impl FnMut(NodeId, &Node) -> D,
    ) -> Result<Self, NetworkError> {
        let mut network = Self {
            core: Core::new(topology, options, seed)?,
            devices: Vec::with_capacity(topology.nodes().len()),
            handled: 0,
        };
        for (node, id) in topology.nodes().iter().zip(0..) {
            let id = NodeId(id);
            let plug = (node.role != Role::Switch).then(|| AttachedDevice {
                device: device(id, node),
                wake_ns: None,
            });
            network.devices.push(plug);
            network.wake(id);
        }
        Ok(network)
    }

    /// The current time, in nanoseconds since the network began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// Time of the next event. `None` means that nothing happens until the caller gives a device
    /// something to do.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.core.events.next_ns()
    }

    /// Handles the next event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.step_until(u64::MAX)
    }

    /// Handles all events up to and including `until_ns`, and moves the clock there.
    pub fn run_until(&mut self, until_ns: u64) {
        while self.step_until(until_ns) {}
        self.core.now_ns = self.core.now_ns.max(until_ns);
    }

    /// Handles events until there are none. This never returns if a device always has more to do.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// The device of a host or box; `None` for a switch.
    #[must_use]
    pub fn device(&self, node: NodeId) -> Option<&D> {
        let plug = self.devices.get(node.index())?.as_ref();
        plug.map(|plug| &plug.device)
    }

    /// The device of a host or box, for giving it something to do. The network polls the device as
    /// soon as it runs.
    pub fn device_mut(&mut self, node: NodeId) -> Option<&mut D> {
        self.wake(node);
        let plug = self.devices.get_mut(node.index())?.as_mut();
        plug.map(|plug| &mut plug.device)
    }

    /// Schedules a change of a cable. A time in the past means now.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration of a [`Change::Config`] is invalid.
    ///
    /// # Panics
    /// If there is no such cable.
    pub fn plan(&mut self, at_ns: u64, cable: CableId, change: Change) -> Result<(), ConfigError> {
        self.core.plan(at_ns, cable, change)
    }

    /// The counters of each port of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn counters(&self, node: NodeId) -> impl Iterator<Item = PortCounters> + '_ {
        let ports = self.core.nodes[node.index()].ports();
        let now_ns = self.core.now_ns;
        let ports = self.core.ports[ports].iter();
        ports.map(move |port| port.counters_at(now_ns))
    }

    /// The sum of the counters of all ports.
    #[must_use]
    pub fn totals(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for port in &self.core.ports {
            sum += port.counters_at(self.core.now_ns);
        }
        sum
    }

    /// The ports at both ends of a cable: the node, and the number of the port at that node.
    ///
    /// # Panics
    /// If there is no such cable.
    #[must_use]
    pub fn ends(&self, cable: CableId) -> [(NodeId, usize); 2] {
        self.core.ends(cable).map(|end| {
            let port = &self.core.ports[end.index()];
            (port.node, usize::from(port.number))
        })
    }

    /// Bytes in the queue of a priority, 0 to 7, at a port.
    ///
    /// # Panics
    /// If there is no such node or port.
    #[must_use]
    pub fn queue_bytes(&self, node: NodeId, port: usize, priority: u8) -> u64 {
        let port = self.core.port_of(node, port);
        self.core.ports[port.index()].queue_bytes(priority)
    }

    /// Bytes in all queues of a port.
    ///
    /// # Panics
    /// If there is no such node or port.
    #[must_use]
    pub fn port_bytes(&self, node: NodeId, port: usize) -> u64 {
        let port = self.core.port_of(node, port);
        self.core.ports[port.index()].queued_bytes()
    }

    /// Bytes of a switch's shared buffer in use, without headroom; 0 for hosts and boxes.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn buffer_bytes(&self, node: NodeId) -> u64 {
        self.core.buffer_bytes(node)
    }

    /// Bytes of a switch's shared buffer: the buffer without all headroom; 0 for hosts and boxes.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn shared_buffer_bytes(&self, node: NodeId) -> u64 {
        self.core.shared_buffer_bytes(node)
    }

    /// Frames that devices have sent. Each of them was delivered to a device, was dropped, or is
    /// [`in_flight`](Self::in_flight).
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.core.sent
    }

    /// Frames that devices have received.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.core.delivered
    }

    /// Frames in queues and on cables now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core.arena.len()
    }

    /// The ports of switches, by node and number, that wait for each other in a circle because of PFC; none
    /// without such a circle. Once nothing else moves, they never send again.
    #[must_use]
    pub fn deadlock(&self) -> Vec<(NodeId, usize)> {
        let ports = self.core.deadlock().into_iter();
        ports
            .map(|port| {
                let port = &self.core.ports[port.index()];
                (port.node, usize::from(port.number))
            })
            .collect()
    }

    /// Keeps the first `most` changes that PFC frames make to ports from now on.
    pub fn record_pauses(&mut self, most: usize) {
        self.core.pauses = Some(PauseLog::new(most));
    }

    /// Removes and returns what was recorded, and the number of changes beyond it.
    pub fn take_pauses(&mut self) -> (Vec<PauseEvent>, u64) {
        let pauses = self.core.pauses.take();
        pauses.map(PauseLog::into_events).unwrap_or_default()
    }

    /// A hash of everything that has happened to frames so far. The same seed, devices and calls
    /// give the same number on every machine.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.core.trace.hash()
    }

    /// Events handled so far: a measure of the work of the simulator.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.handled
    }

    /// Handles the next event, unless it is after `until_ns`. Otherwise returns `false` and leaves
    /// the clock as it is.
    pub fn step_until(&mut self, until_ns: u64) -> bool {
        let Some(event) = self.core.next_event(until_ns) else {
            return false;
        };
        self.handled += 1;
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive { port, frame, epoch } => {
                if !self.core.arrive(port, frame, epoch) {
                    return;
                }
                if self.core.is_at_switch(port) {
                    self.core.forward(port, frame);
                } else {
                    self.deliver(port, frame);
                }
            }
            Event::PortFree(port) => {
                self.core.free(port);
                self.poll_at(port);
            }
            Event::Pause {
                port,
                stopped,
                epoch,
            } => {
                if self.core.pause(port, stopped, epoch) {
                    self.poll_at(port);
                }
            }
            Event::Wake(node) => {
                let plug = self.devices[node.index()].as_mut();
                if let Some(plug) = plug.filter(|plug| plug.wake_ns == Some(self.core.now_ns)) {
                    plug.wake_ns = None;
                    self.poll(node);
                }
            }
            Event::Change(number) => {
                // The change may have ended PFC pauses.
                for end in self.core.change(number) {
                    self.poll_at(end);
                }
            }
            Event::Reroute => self.core.reroute(),
        }
    }

    fn deliver(&mut self, port: PortId, frame: crate::arena::FrameId) {
        let Core { now_ns, ports, .. } = &self.core;
        let (now_ns, at) = (*now_ns, &ports[port.index()]);
        let (node, number) = (at.node, usize::from(at.number));
        self.core.delivered += 1;
        let frame = self.core.arena.remove(frame);
        if let Some(plug) = &mut self.devices[node.index()] {
            plug.device.handle(now_ns, number, frame);
        }
        self.poll(node);
    }

    /// Polls the device of a port that became free or whose PFC pause changed.
    fn poll_at(&mut self, port: PortId) {
        if self.core.is_at_switch(port) {
            return;
        }
        self.poll(self.core.ports[port.index()].node);
    }

    fn poll(&mut self, node: NodeId) {
        let Some(plug) = &mut self.devices[node.index()] else {
            return;
        };
        let now_ns = self.core.now_ns;
        loop {
            let ports = &self.core.ports[self.core.nodes[node.index()].ports()];
            match plug.device.poll(now_ns, &Ports { ports, now_ns }) {
                Some(Output::Send { port, frame }) => self.core.send(node, port, frame),
                Some(Output::Pause {
                    port,
                    priority,
                    stop,
                }) => self.core.request_pause(node, port, priority, stop),
                None => break,
            }
        }
        // A wake-up time that is not in the future needs no event: the device has just been polled.
        let next_ns = plug.device.next_ns().filter(|&at_ns| at_ns > now_ns);
        if let Some(at_ns) = next_ns.filter(|&at| plug.wake_ns.is_none_or(|wake| at < wake)) {
            plug.wake_ns = Some(at_ns);
            self.core.events.add(at_ns, Event::Wake(node));
        }
    }

    /// Schedules a poll of a device for the current instant.
    fn wake(&mut self, node: NodeId) {
        let now_ns = self.core.now_ns;
        if let Some(Some(plug)) = self.devices.get_mut(node.index())
            && plug.wake_ns != Some(now_ns)
        {
            plug.wake_ns = Some(now_ns);
            self.core.events.add(now_ns, Event::Wake(node));
        }
    }
}
