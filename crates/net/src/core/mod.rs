//! The state of a network, except its devices.

mod change;
mod deadlock;
mod forward;
mod transmit;

use std::ops::Range;

use farwrite_link::Rng;

pub use change::Change;

use crate::arena::{Arena, FrameId};
use crate::counters::FrameDrop;
use crate::event_hash::{EventKind, Trace};
use crate::events::{Event, Events};
use crate::ids::{PortId, next_id};
use crate::options::{NetworkError, Options};
use crate::pauses::PauseLog;
use crate::port::{Port, PortIdentity};
use crate::switch::Switch;
use crate::topology::{Role, Topology};
use crate::{CableId, Frame, NodeId, PRIORITIES, SwitchError, routes};

/// The state of a network.
pub(crate) struct Core {
    pub(crate) now_ns: u64,
    pub(crate) events: Events,
    pub(crate) arena: Arena,
    pub(crate) ports: Vec<Port>,
    /// For each port, whether its node is a switch.
    at_switch: Vec<bool>,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) trace: Trace,
    /// Frames that devices have sent.
    pub(crate) sent: u64,
    /// Frames that devices have received.
    pub(crate) delivered: u64,
    switches: Vec<Switch>,
    /// Both ends of each cable.
    cables: Vec<[PortId; 2]>,
    changes: Vec<change::ScheduledChange>,
    framing_bytes: u32,
    /// What PFC does to ports, if someone reads it.
    pub(crate) pauses: Option<PauseLog>,
    /// Whether a device has sent a frame that collects telemetry.
    has_telemetry: bool,
    reroute_ns: Option<u64>,
    /// The generator from which all seeds are drawn.
    rng: Rng,
}

/// The state of one node.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) role: Role,
    /// Index among the nodes of the same role.
    pub(crate) number: usize,
    /// Time from the arrival of a frame until the node handles it.
    pub(crate) latency_ns: u64,
    ports: Range<usize>,
}

impl NodeState {
    /// The indices of the node's ports among all ports.
    pub(crate) fn ports(&self) -> Range<usize> {
        self.ports.clone()
    }
}

impl Core {
    pub(crate) fn new(
        topology: &Topology,
        options: &Options,
        seed: u64,
    ) -> Result<Self, NetworkError> {
        topology.validate()?;
        options.validate(topology)?;
        let mut rng = Rng::new(seed);
        let nodes = lay_out(topology, options);
        let (ports, cables) = plug_in(topology, options, &nodes, &mut rng)?;
        let at_switch = ports.iter().map(|port| port.switch.is_some()).collect();
        let mut core = Self {
            now_ns: 0,
            events: Events::default(),
            arena: Arena::default(),
            ports,
            at_switch,
            nodes,
            trace: Trace::default(),
            sent: 0,
            delivered: 0,
            switches: Vec::new(),
            cables,
            changes: Vec::new(),
            framing_bytes: options.framing_bytes,
            pauses: None,
            has_telemetry: false,
            reroute_ns: options.reroute_ns(),
            rng,
        };
        core.add_switches(topology, options)?;
        let tables = topology.tables.get(&core.nodes, &core.ports).clone();
        core.set_tables(tables);
        Ok(core)
    }

    fn add_switches(&mut self, topology: &Topology, options: &Options) -> Result<(), NetworkError> {
        for node in topology.with_role(Role::Switch) {
            let config = options.switch_config(node);
            let ports = &self.ports[self.nodes[node.index()].ports()];
            let headroom = |port: &Port| {
                let cable = topology.cables()[port.cable.index()].seen_from(node);
                let pfc = config.pfc.as_ref();
                pfc.map_or(0, |pfc| {
                    let given = pfc.headroom_bytes;
                    given.unwrap_or_else(|| pfc.headroom_of(&cable, config.latency))
                })
            };
            let headroom: Vec<_> = ports.iter().map(headroom).collect();
            check_headroom(config, &headroom)?;
            let switch = Switch::new(config.clone(), headroom, &mut self.rng);
            self.switches.push(switch);
        }
        Ok(())
    }

    /// Recomputes the routing tables of all switches: shortest paths over the cables that are up.
    pub(crate) fn reroute(&mut self) {
        self.set_tables(routes::tables(&self.nodes, &self.ports));
    }

    fn set_tables(&mut self, tables: routes::Tables) {
        for (switch, groups) in self.switches.iter_mut().zip(tables) {
            switch.router.set_groups(groups);
        }
    }

    /// Puts a frame of a device into the egress queue of one of the device's ports.
    ///
    /// # Panics
    /// If the device has no such port.
    pub(crate) fn send(&mut self, node: NodeId, number: usize, frame: Frame) {
        let port = self.port_of(node, number);
        let serial = self.sent;
        self.sent += 1;
        self.has_telemetry |= frame.telemetry.is_some();
        let id = self.arena.insert(frame, serial, self.framing_bytes);
        self.enqueue(port, id, port);
    }

    /// Makes a device send a PFC request to stop or resume a priority.
    ///
    /// # Panics
    /// If the device has no such port.
    pub(crate) fn request_pause(&mut self, node: NodeId, number: usize, priority: u8, stop: bool) {
        let port = self.port_of(node, number);
        self.request_stop(port, priority.min(7), stop);
    }

    /// # Panics
    /// If the node has no such port.
    pub(crate) fn port_of(&self, node: NodeId, number: usize) -> PortId {
        let ports = self.nodes[node.index()].ports();
        let port = ports.clone().nth(number);
        let port = port
            .unwrap_or_else(|| panic!("{node} has {} ports, and no port {number}", ports.len()));
        PortId(next_id(port))
    }

    /// Whether a port belongs to a switch, and not to a device.
    pub(crate) fn is_at_switch(&self, port: PortId) -> bool {
        self.at_switch[port.index()]
    }

    /// Both ends of a cable.
    ///
    /// # Panics
    /// If there is no such cable.
    pub(crate) fn ends(&self, cable: CableId) -> [PortId; 2] {
        self.cables[cable.index()]
    }

    /// Removes the next event, unless it is after `until_ns`, and moves the clock to it.
    pub(crate) fn next_event(&mut self, until_ns: u64) -> Option<Event> {
        let (arena, at_switch) = (&self.arena, &self.at_switch);
        // By the time a frame arrives, events of other frames have evicted it from the caches.
        let fetch = |event: &Event| {
            if let Event::Arrive { port, frame, .. } = *event {
                arena.prefetch(frame, !at_switch[port.index()]);
            }
        };
        let (at_ns, event) = self.events.pop_until(until_ns, fetch)?;
        self.now_ns = at_ns;
        Some(event)
    }

    /// Takes an arriving frame off its cable. Returns `false` if the cable went down after the
    /// frame was sent: the frame is lost.
    pub(crate) fn arrive(&mut self, at: PortId, id: FrameId, epoch: u32) -> bool {
        let port = &mut self.ports[at.index()];
        if epoch != port.epoch {
            let sender = port.peer;
            self.drop_frame(sender, id, FrameDrop::CableDown);
            return false;
        }
        port.counters.received += 1;
        let serial = self.arena[id].serial;
        self.trace.note(self.now_ns, EventKind::Arrived, at, serial);
        true
    }

    fn drop_frame(&mut self, at: PortId, id: FrameId, reason: FrameDrop) {
        let serial = self.arena[id].serial;
        self.arena.remove(id);
        self.ports[at.index()].counters.dropped[reason as usize] += 1;
        self.trace.note(self.now_ns, EventKind::Dropped, at, serial);
    }

    fn add_event(&mut self, after_ns: u64, event: Event) {
        self.events.add(self.now_ns.saturating_add(after_ns), event);
    }

    /// Bytes of a switch's shared buffer, without headroom; 0 for devices.
    pub(crate) fn shared_buffer_bytes(&self, node: NodeId) -> u64 {
        let node = &self.nodes[node.index()];
        match node.role {
            Role::Switch => self.switches[node.number].buffer.pool_bytes(),
            Role::Host | Role::Box => 0,
        }
    }

    /// Bytes of the shared buffer that a switch uses, without headroom; 0 for devices.
    pub(crate) fn buffer_bytes(&self, node: NodeId) -> u64 {
        let node = &self.nodes[node.index()];
        match node.role {
            Role::Switch => self.switches[node.number].buffer.used_bytes(),
            Role::Host | Role::Box => 0,
        }
    }
}

fn check_headroom(config: &crate::SwitchConfig, headroom: &[u64]) -> Result<(), SwitchError> {
    let lossless = config.pfc.as_ref().map_or(0, |pfc| pfc.mask().count_ones());
    let of_ports = headroom
        .iter()
        .fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let headroom_bytes = of_ports.saturating_mul(u64::from(lossless));
    if headroom_bytes < config.buffer_bytes {
        return Ok(());
    }
    Err(SwitchError::Headroom {
        headroom_bytes,
        buffer_bytes: config.buffer_bytes,
    })
}

/// All nodes, with the indices of their ports.
fn lay_out(topology: &Topology, options: &Options) -> Vec<NodeState> {
    let mut counts = vec![0; topology.nodes().len()];
    for end in topology.cables().iter().flat_map(|cable| cable.ends) {
        counts[end.index()] += 1;
    }
    let mut numbers = [0; 3];
    let mut first = 0;
    let mut nodes = Vec::with_capacity(counts.len());
    for ((node, count), id) in topology.nodes().iter().zip(counts).zip(0..) {
        let number = &mut numbers[node.role as usize];
        let latency = options.switch_config(NodeId(id)).latency.as_nanos();
        nodes.push(NodeState {
            role: node.role,
            number: *number,
            latency_ns: match node.role {
                Role::Switch => u64::try_from(latency).unwrap_or(u64::MAX),
                Role::Host | Role::Box => 0,
            },
            ports: first..first + count,
        });
        *number += 1;
        first += count;
    }
    nodes
}

/// All ports in the order of their indices, and the two ends of each cable.
fn plug_in(
    topology: &Topology,
    options: &Options,
    nodes: &[NodeState],
    rng: &mut Rng,
) -> Result<(Vec<Port>, Vec<[PortId; 2]>), NetworkError> {
    let mut taken = vec![0; nodes.len()];
    let mut ports = Vec::with_capacity(2 * topology.cables().len());
    let mut cables = Vec::with_capacity(topology.cables().len());
    for (cable, id) in topology.cables().iter().zip(0..) {
        let ends = cable.ends.map(|end| {
            let number = taken[end.index()];
            taken[end.index()] += 1;
            (
                PortId(next_id(nodes[end.index()].ports.start + number)),
                number,
            )
        });
        cables.push(ends.map(|(port, _)| port));
        for (at, other) in [(0, 1), (1, 0)] {
            let node = cable.ends[at];
            let is_switch = nodes[node.index()].role == Role::Switch;
            let identity = PortIdentity {
                node,
                switch: is_switch.then(|| next_id(nodes[node.index()].number)),
                // The topology was validated: MAX_PORTS is 2^15.
                number: u16::try_from(ends[at].1).unwrap_or(u16::MAX),
                peer: ends[other].0,
                peer_latency_ns: nodes[cable.ends[other].index()].latency_ns,
                cable: CableId(id),
            };
            let weights = match nodes[node.index()].role {
                Role::Switch => options.switch_config(node).weights,
                Role::Host | Role::Box => [0; PRIORITIES],
            };
            let config = cable.seen_from(node);
            let wire = config.wire(rng.bits()).map_err(NetworkError::Cable)?;
            ports.push((ends[at].0, Port::new(identity, &config, wire, weights)));
        }
    }
    ports.sort_by_key(|(identity, _)| *identity);
    Ok((ports.into_iter().map(|(_, port)| port).collect(), cables))
}
