//! Topologies and workloads of a plan, before a seed is known.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use farwrite_net::{CableConfig, Loss, NodeId, Options, Role, Shape, SwitchConfig, Topology};

use super::own_switches::OwnSwitch;
use super::read::ReadFile;
use crate::boxes::{BoxKind, BoxPosition, PlacedBox};
use crate::changes::PlannedChange;
use crate::other_simulators::{
    self, CableFailure, ConnectionMatrix, FileKind, HtsimTopology, ImportedTopology,
};
use crate::{Extensions, Pattern, PatternError, PatternNetwork, Sizes, Transport, Workload};

/// A topology of a plan, its boxes, the changes of its cables, and settings of single switches.
#[derive(Debug)]
pub(super) struct PlannedTopology {
    pub(super) layout: TopologySource,
    /// The topology without failures. All runs share its routing tables.
    pub(super) whole: OnceLock<BuiltTopology>,
    pub(super) boxes: Vec<(BoxPosition, BoxKind)>,
    pub(super) changes: Vec<PlannedChange>,
    pub(super) switches: Vec<OwnSwitch>,
}

impl PlannedTopology {
    /// Builds the topology with the failures of a connection matrix and the name of its file.
    pub(super) fn build(
        &self,
        failures: Option<(&[CableFailure], &str)>,
    ) -> Result<BuiltTopology, String> {
        if failures.is_some_and(|(failures, _)| !failures.is_empty()) {
            return self.layout.build(failures);
        }
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let built = self.layout.build(failures)?;
        Ok(self.whole.get_or_init(|| built).clone())
    }

    /// Inserts the boxes into the topology. Call this after all other changes to the cables.
    pub(super) fn place_boxes(&self, topology: &mut Topology) -> Result<Vec<PlacedBox>, String> {
        let mut placed = Vec::new();
        for (number, (position, kind)) in self.boxes.iter().enumerate() {
            let boxes = position.place(*kind, topology);
            placed.extend(boxes.map_err(|why| format!("boxes[{number}]: {why}"))?);
        }
        Ok(placed)
    }
}

/// The source of a topology's nodes and cables.
#[derive(Debug)]
pub(super) enum TopologySource {
    Shape(Box<Shape>),
    /// A file of `farwrite-net`, with its switches.
    Net(Topology, Box<Options>),
    Htsim(HtsimTopology),
    Ns3(ImportedTopology),
}

/// A topology that has been built.
#[derive(Clone, Debug)]
pub(super) struct BuiltTopology {
    pub(super) topology: Topology,
    /// Options, if the file has them.
    pub(super) options: Option<Options>,
    /// Same as [`ImportedTopology::switches`].
    pub(super) switches: Vec<(NodeId, u64, Option<u64>)>,
    pub(super) host_of: Vec<Option<usize>>,
}

/// The source of a workload.
#[derive(Debug)]
pub(super) enum WorkloadSource {
    /// A pattern, with the size distributions that it names.
    Pattern(Pattern, BTreeMap<String, Sizes>),
    /// A connection matrix of htsim, and the name of its file.
    Matrix(ConnectionMatrix, String),
    /// Flows of ns-3: the name of the file, and its text.
    Ns3(String, String),
}

impl TopologySource {
    /// Reads a topology file. Adds notes about the parts that it ignores.
    pub(super) fn read(file: &str, text: &str, notes: &mut Vec<String>) -> Result<Self, String> {
        let layout = match other_simulators::kind_of(text) {
            FileKind::Htsim => HtsimTopology::read(file, text).map(Self::Htsim),
            FileKind::Ns3 => other_simulators::ns3::topology(file, text).map(Self::Ns3),
            FileKind::Toml => {
                let read = farwrite_net::read_toml(text);
                let (topology, options) = read.map_err(|why| {
                    format!(
                        "{file}: {why}; a topology of htsim begins with Nodes, one of ns-3 with its \
                         number of nodes, and one in TOML has a table [topology]"
                    )
                })?;
                return Ok(Self::Net(topology, Box::new(options)));
            }
        };
        let layout = layout.map_err(|why| why.to_string())?;
        let of_file = match &layout {
            Self::Htsim(topology) => topology.notes(),
            Self::Ns3(topology) => topology.notes.clone(),
            Self::Shape(_) | Self::Net(..) => Vec::new(),
        };
        notes.extend(of_file.into_iter().map(|note| format!("{file}: {note}")));
        Ok(layout)
    }

    /// Finds the load balancers that the switches of a file name.
    pub(super) fn resolved(mut self, extensions: &Extensions) -> Result<Self, String> {
        if let Self::Net(_, options) = &mut self {
            let switches = options.exceptions.values_mut();
            for switch in switches.chain([&mut options.switch]) {
                let found = switch.resolve(extensions.balancers());
                found.map_err(|why| why.to_string())?;
            }
        }
        Ok(self)
    }

    fn build(&self, failures: Option<(&[CableFailure], &str)>) -> Result<BuiltTopology, String> {
        if let (Some((failures @ [_, ..], file)), false) =
            (failures, matches!(self, Self::Htsim(_)))
        {
            let line = failures[0].line;
            return Err(format!(
                "{file}:{line}: failures need a topology of htsim's"
            ));
        }
        let (topology, options) = match self {
            Self::Shape(shape) => (shape.build().map_err(|why| why.to_string())?, None),
            Self::Net(topology, options) => (topology.clone(), Some((**options).clone())),
            Self::Htsim(topology) => {
                let (failures, file) = failures.unwrap_or((&[], ""));
                let built = topology.build(failures, file);
                return Ok(BuiltTopology::of(built.map_err(|why| why.to_string())?));
            }
            Self::Ns3(topology) => return Ok(BuiltTopology::of(topology.clone())),
        };
        Ok(BuiltTopology {
            host_of: (0..topology.hosts().count()).map(Some).collect(),
            topology,
            options,
            switches: Vec::new(),
        })
    }
}

impl BuiltTopology {
    fn of(peer: ImportedTopology) -> Self {
        Self {
            topology: peer.topology,
            options: None,
            switches: peer.switches,
            host_of: peer.host_of,
        }
    }
}

impl WorkloadSource {
    /// Reads a workload file. Adds notes about the parts that it ignores.
    pub(super) fn read(file: &str, text: &str, notes: &mut Vec<String>) -> Result<Self, String> {
        match other_simulators::kind_of(text) {
            FileKind::Htsim => {
                let matrix =
                    other_simulators::connections(file, text).map_err(|why| why.to_string())?;
                notes.extend(matrix.notes.iter().map(|note| format!("{file}: {note}")));
                Ok(Self::Matrix(matrix, file.to_owned()))
            }
            FileKind::Ns3 => {
                let ignored = other_simulators::ns3::notes_of_flows(file, text);
                notes.extend(ignored.iter().map(|note| format!("{file}: {note}")));
                Ok(Self::Ns3(file.to_owned(), text.to_owned()))
            }
            FileKind::Toml => Err(format!(
                "{file}:1: neither a connection matrix of htsim, which begins with Nodes, nor flows \
                 of ns-3, which begin with their number"
            )),
        }
    }

    /// A pattern, with the files that it names.
    pub(super) fn of_pattern(pattern: Pattern, read_file: ReadFile<'_>) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for name in pattern.size_files() {
            let text = read_file(&name)
                .map_err(|why| format!("{} ({why})", PatternError::Sizes(name.clone())))?;
            let sizes = other_simulators::ns3::sizes(&name, &text);
            files.insert(name, sizes.map_err(|why| why.to_string())?);
        }
        Ok(Self::Pattern(pattern, files))
    }

    pub(super) fn failures(&self) -> Option<(&[CableFailure], &str)> {
        match self {
            Self::Matrix(matrix, file) => Some((&matrix.failures, file)),
            Self::Pattern(..) | Self::Ns3(..) => None,
        }
    }

    /// The `id` of each flow in a connection matrix; empty for other sources.
    pub(super) fn flow_ids(&self) -> &[Option<u64>] {
        match self {
            Self::Matrix(matrix, _) => &matrix.ids,
            Self::Pattern(..) | Self::Ns3(..) => &[],
        }
    }

    pub(super) fn build(
        &self,
        network: &PatternNetwork,
        seed: u64,
        host_of: &[Option<usize>],
    ) -> Result<Workload, String> {
        match self {
            Self::Pattern(pattern, files) => {
                let workload = pattern.build(network, seed, files);
                workload.map_err(|why| why.to_string())
            }
            Self::Matrix(matrix, file) if matrix.nodes > network.hosts() => Err(format!(
                "{file} is for {} hosts, and the topology has {}: choose a larger topology",
                matrix.nodes,
                network.hosts()
            )),
            Self::Matrix(matrix, _) => Ok(matrix.workload.clone()),
            Self::Ns3(file, text) => {
                other_simulators::ns3::flows(file, text, host_of).map_err(|why| why.to_string())
            }
        }
    }
}

/// The switches that a transport needs for the flows of a workload.
pub(super) fn switch_for(
    transport: &Transport,
    workload: &Workload,
    framing_bytes: u32,
) -> SwitchConfig {
    let mut priorities: Vec<_> = workload
        .flows
        .iter()
        .filter_map(|flow| flow.priority)
        .collect();
    priorities.push(transport.priority());
    priorities.sort_unstable();
    priorities.dedup();
    transport.switch(&priorities, framing_bytes)
}

/// Applies the switch latencies of another simulator's file, and without PFC also the buffers.
pub(super) fn adopt(options: &mut Options, switches: &[(NodeId, u64, Option<u64>)]) {
    for &(node, latency_ns, buffer) in switches {
        let buffer = buffer.filter(|_| options.switch.pfc.is_none());
        if latency_ns == 0 && buffer.is_none() {
            continue;
        }
        let mut own = options.switch.clone();
        if latency_ns > 0 {
            own.latency = Duration::from_nanos(latency_ns);
        }
        own.buffer_bytes = buffer.unwrap_or(own.buffer_bytes);
        options.exceptions.insert(node, own);
    }
}

/// Enlarges the default buffers of switches whose headroom leaves nothing of them, as with many
/// ports of 400 Gbit/s. Such a switch then shares the default size beyond its headroom.
pub(super) fn enlarge_buffers(options: &mut Options, topology: &Topology) {
    let Some(pfc) = options.switch.pfc.clone() else {
        return;
    };
    let mut headroom = vec![0u64; topology.nodes().len()];
    for cable in topology.cables() {
        for end in cable.ends {
            let latency = options.switch_config(end).latency;
            let bytes = pfc.headroom_of(&cable.seen_from(end), latency);
            let of_node = &mut headroom[end.0 as usize];
            *of_node = of_node.saturating_add(bytes);
        }
    }
    for node in topology.with_role(Role::Switch) {
        let of_ports = headroom[node.0 as usize].saturating_mul(pfc.priorities.len() as u64);
        let switch = options.switch_config(node);
        if of_ports >= switch.buffer_bytes {
            let buffer_bytes = switch.buffer_bytes.saturating_add(of_ports);
            let larger = SwitchConfig {
                buffer_bytes,
                ..switch.clone()
            };
            options.exceptions.insert(node, larger);
        }
    }
}

/// Replaces the loss of all cables.
pub(super) fn set_loss(topology: &mut Topology, loss: f64) {
    let loss = match loss > 0.0 {
        true => Loss::Iid { loss_packet: loss },
        false => Loss::None,
    };
    topology.configure(|cable| CableConfig { loss, ..cable });
}
