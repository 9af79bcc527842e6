//! Topologies and workloads of a plan, as they are before a seed is known.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_net::{CableConfig, Loss, NodeId, Options, Shape, SwitchConfig, Topology};

use super::read::ReadFile;
use crate::peers::{self, Connections, Failure, HtsimTopology, Kind, PeerTopology};
use crate::{Pattern, Place, Sizes, Transport, Workload};

/// A topology.
#[derive(Debug)]
pub(super) enum Layout {
    Shape(Shape),
    /// A file of `farwrite-net`, with its switches.
    Net(Topology, Options),
    Htsim(HtsimTopology),
    Ns3(PeerTopology),
}

/// A topology that is built.
pub(super) struct Laid {
    pub(super) topology: Topology,
    /// Of a file that has them.
    pub(super) options: Option<Options>,
    /// As [`PeerTopology::switches`].
    pub(super) switches: Vec<(NodeId, u64, Option<u64>)>,
    pub(super) host_of: Vec<Option<usize>>,
}

/// A workload.
#[derive(Debug)]
pub(super) enum Flows {
    /// With the size distributions that it names.
    Pattern(Pattern, BTreeMap<String, Sizes>),
    /// htsim's, and the name of its file.
    Matrix(Connections, String),
    /// Of ns-3: the name of the file, and its text.
    Ns3(String, String),
}

impl Layout {
    /// Reads the file of a topology, and notes what it leaves out.
    pub(super) fn read(file: &str, text: &str, notes: &mut Vec<String>) -> Result<Self, String> {
        let layout = match peers::kind_of(text) {
            Kind::Htsim => HtsimTopology::read(file, text).map(Self::Htsim),
            Kind::Ns3 => peers::ns3::topology(file, text).map(Self::Ns3),
            Kind::Toml => {
                let (topology, options) =
                    farwrite_net::read_toml(text).map_err(|why| format!("{file}: {why}"))?;
                return Ok(Self::Net(topology, options));
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

    pub(super) fn build(&self, failures: Option<(&[Failure], &str)>) -> Result<Laid, String> {
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
            Self::Net(topology, options) => (topology.clone(), Some(options.clone())),
            Self::Htsim(topology) => {
                let (failures, file) = failures.unwrap_or((&[], ""));
                let built = topology.build(failures, file);
                return Ok(Laid::of(built.map_err(|why| why.to_string())?));
            }
            Self::Ns3(topology) => return Ok(Laid::of(topology.clone())),
        };
        Ok(Laid {
            host_of: (0..topology.hosts().count()).map(Some).collect(),
            topology,
            options,
            switches: Vec::new(),
        })
    }
}

impl Laid {
    fn of(peer: PeerTopology) -> Self {
        Self {
            topology: peer.topology,
            options: None,
            switches: peer.switches,
            host_of: peer.host_of,
        }
    }
}

impl Flows {
    /// Reads the file of a workload, and notes what it leaves out.
    pub(super) fn read(file: &str, text: &str, notes: &mut Vec<String>) -> Result<Self, String> {
        match peers::kind_of(text) {
            Kind::Htsim => {
                let matrix = peers::connections(file, text).map_err(|why| why.to_string())?;
                notes.extend(matrix.notes.iter().map(|note| format!("{file}: {note}")));
                Ok(Self::Matrix(matrix, file.to_owned()))
            }
            Kind::Ns3 => Ok(Self::Ns3(file.to_owned(), text.to_owned())),
            Kind::Toml => Err(format!(
                "{file}:1: neither a connection matrix of htsim, which begins with Nodes, nor flows \
                 of ns-3, which begin with their number"
            )),
        }
    }

    /// A pattern, with the files that it names.
    pub(super) fn of_pattern(pattern: Pattern, read_file: ReadFile<'_>) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for name in pattern.size_files() {
            let sizes = peers::ns3::sizes(&name, &read_file(&name)?);
            files.insert(name, sizes.map_err(|why| why.to_string())?);
        }
        Ok(Self::Pattern(pattern, files))
    }

    pub(super) fn failures(&self) -> Option<(&[Failure], &str)> {
        match self {
            Self::Matrix(matrix, file) => Some((&matrix.failures, file)),
            Self::Pattern(..) | Self::Ns3(..) => None,
        }
    }

    pub(super) fn build(
        &self,
        place: Place,
        seed: u64,
        host_of: &[Option<usize>],
    ) -> Result<Workload, String> {
        match self {
            Self::Pattern(pattern, files) => {
                let workload = pattern.build(place, seed, files);
                workload.map_err(|why| why.to_string())
            }
            Self::Matrix(matrix, file) if matrix.nodes > place.hosts => Err(format!(
                "{file} is for {} hosts, and the topology has {}: choose a larger topology",
                matrix.nodes, place.hosts
            )),
            Self::Matrix(matrix, _) => Ok(matrix.workload.clone()),
            Self::Ns3(file, text) => {
                peers::ns3::flows(file, text, host_of).map_err(|why| why.to_string())
            }
        }
    }
}

/// The switches that a transport wants for the flows of a workload.
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
    priorities.push(transport.priority);
    priorities.sort_unstable();
    priorities.dedup();
    transport.switch(&priorities, framing_bytes)
}

/// Takes over the latencies, and without PFC the buffers, that a peer's file has for its switches.
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

/// The same topology with another loss in all cables.
pub(super) fn with_loss(topology: &Topology, loss: f64) -> Topology {
    let loss = match loss > 0.0 {
        true => Loss::Iid { loss_packet: loss },
        false => Loss::None,
    };
    let mut changed = Topology::new();
    for node in topology.nodes() {
        changed.add(node.role, node.name.clone());
    }
    for cable in topology.cables() {
        let [a, b] = cable.ends;
        let config = CableConfig {
            loss,
            ..cable.config
        };
        changed.connect(a, b, config);
    }
    changed
}
