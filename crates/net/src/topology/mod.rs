//! Nodes and the cables between them.

mod file;
mod list;
mod shapes;

pub use file::{FileError, read_toml};
pub use list::{ListedCable, NodeList};
pub use shapes::{LeafSpine, MAX_CABLES, Shape};

use std::time::Duration;

use farwrite_link::ConfigError;

use crate::ids::next_id;
use crate::routes::SharedTables;
use crate::{CableConfig, CableId, NodeId};

/// Largest number of nodes of a network.
pub const MAX_NODES: usize = 1 << 16;
/// Largest number of ports of a node.
pub const MAX_PORTS: usize = 1 << 15;

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends and receives frames. Hosts are devices; paths begin and end at hosts.
    Host,
    /// Forwards frames.
    Switch,
    /// Processes frames inside a path and sends on those that it chooses. Boxes are devices; they
    /// do not count in the length of a path.
    Box,
}

/// A node of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name in files and error messages.
    pub name: String,
    /// The role of the node.
    pub role: Role,
}

/// A cable of a topology.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cable {
    /// The two nodes that the cable joins.
    pub ends: [NodeId; 2],
    /// Rate, delay and loss.
    pub config: CableConfig,
}

impl Cable {
    /// The configuration with this node at the first end.
    #[must_use]
    pub fn seen_from(&self, node: NodeId) -> CableConfig {
        match self.ends[0] == node {
            true => self.config,
            false => self.config.reversed(),
        }
    }
}

/// Nodes and the cables between them. The ports of a node are numbered from 0 in the order in which
/// [`connect`](Self::connect) made its cables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
    cables: Vec<Cable>,
    /// Number of nodes that are hosts.
    hosts: usize,
    /// Emptied by each change of nodes and ends of cables.
    pub(crate) tables: SharedTables,
}

/// Why a topology is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A number of nodes in a shape is 0 or above [`MAX_NODES`].
    #[error("{field} = {value}: 1 to {MAX_NODES}")]
    Size {
        /// The name of the parameter.
        field: &'static str,
        /// The value given.
        value: usize,
    },
    /// A shape has too many cables between leaves and spines.
    #[error("{field} = {cables}: at most 2^20")]
    Cables {
        /// The product of parameters.
        field: &'static str,
        /// The number of cables.
        cables: usize,
    },
    /// No fat tree has this `k`.
    #[error("k = {0}: an even number from 2 to 62")]
    FatTree(usize),
    /// The number of datacenters is out of range.
    #[error("sites = {0}: 1 to 1024")]
    Sites(usize),
    /// Two nodes of a list have the same name.
    #[error("the name {0:?} is in hosts and switches more than once; each node has its own name")]
    NameTwice(String),
    /// A cable of a list leads to a node that the list does not have.
    #[error("cables[{cable}]: ends: {name:?} is not in hosts or switches; add it there")]
    NoNode {
        /// Index of the cable.
        cable: usize,
        /// The name of the node.
        name: String,
    },
    /// A cable of a list has one node at both ends.
    #[error("cables[{cable}]: ends: {name:?} is at both ends; a cable joins two nodes")]
    OneEnd {
        /// Index of the cable.
        cable: usize,
        /// The name of the node.
        name: String,
    },
    /// A host of a list has no cable, or several.
    #[error(
        "host {host:?} has {cables} cables; a host has one cable, to a switch or to another host"
    )]
    HostCables {
        /// The name of the host.
        host: String,
        /// Number of its cables.
        cables: usize,
    },
    /// There are more nodes than [`MAX_NODES`].
    #[error("the topology has {nodes} nodes; a network has at most {MAX_NODES}")]
    Nodes {
        /// Number of nodes.
        nodes: usize,
    },
    /// A node has more ports than [`MAX_PORTS`].
    #[error("{name} has {ports} ports; a node has at most {MAX_PORTS}")]
    Ports {
        /// The name of the node.
        name: String,
        /// Number of its ports.
        ports: usize,
    },
    /// A cable joins a node to itself, or to a node that does not exist.
    #[error("cable {cable} joins node {} and node {}, which are not two of the {nodes} nodes", ends[0].0, ends[1].0)]
    Ends {
        /// Index of the cable.
        cable: usize,
        /// The nodes at its ends.
        ends: [NodeId; 2],
        /// Number of nodes.
        nodes: usize,
    },
    /// A cable configuration is invalid.
    #[error("the cable from {from} to {to}: {source}")]
    Cable {
        /// The name of one end.
        from: String,
        /// The name of the other.
        to: String,
        /// The reason.
        source: ConfigError,
    },
}

impl Topology {
    /// A topology without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node.
    pub fn add(&mut self, role: Role, name: impl Into<String>) -> NodeId {
        let id = NodeId(next_id(self.nodes.len()));
        let name = name.into();
        self.hosts += usize::from(role == Role::Host);
        self.tables = SharedTables::default();
        self.nodes.push(Node { name, role });
        id
    }

    /// Joins two nodes by a cable.
    pub fn connect(&mut self, a: NodeId, b: NodeId, config: CableConfig) -> CableId {
        let id = CableId(next_id(self.cables.len()));
        let ends = [a, b];
        self.cables.push(Cable { ends, config });
        self.tables = SharedTables::default();
        id
    }

    /// Changes the configuration of all cables.
    pub fn configure(&mut self, change: impl Fn(CableConfig) -> CableConfig) {
        for cable in &mut self.cables {
            cable.config = change(cable.config);
        }
    }

    /// Inserts a box into a cable, beside the node at one of its ends. Port 0 of the box becomes
    /// the new end of the cable. A new cable of the same rates without delay or loss joins port 1 to
    /// the node.
    ///
    /// # Panics
    /// If there is no such cable, or the node is not at one of its ends.
    pub fn insert_box(
        &mut self,
        cable: CableId,
        beside: NodeId,
        name: impl Into<String>,
    ) -> NodeId {
        let middle = self.add(Role::Box, name);
        let long = &mut self.cables[cable.index()];
        let end = long.ends.iter_mut().find(|end| **end == beside);
        *end.unwrap_or_else(|| panic!("{beside} is not at an end of cable {}", cable.0)) = middle;
        let long = long.seen_from(middle).reversed();
        let short = CableConfig {
            back_rate_bps: long.back_rate_bps,
            ..CableConfig::new(long.rate_bps, Duration::ZERO)
        };
        self.connect(middle, beside, short);
        middle
    }

    /// Whether networks of both topologies share their routing tables: one is a clone of the other, and neither has
    /// other nodes or cables since.
    #[must_use]
    pub fn shares_routes(&self, other: &Self) -> bool {
        self.tables.is_shared_with(&other.tables)
    }

    /// All nodes. A [`NodeId`] is an index into this slice.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All cables. A [`CableId`] is an index into this slice.
    #[must_use]
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// The nodes of one role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.nodes.iter().zip(0..);
        nodes
            .filter(move |(node, _)| node.role == role)
            .map(|(_, id)| NodeId(id))
    }

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.with_role(Role::Host)
    }

    /// The first node with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let at = self.nodes.iter().position(|node| node.name == name)?;
        Some(NodeId(next_id(at)))
    }

    /// The first cable between two nodes.
    #[must_use]
    pub fn cable_between(&self, a: NodeId, b: NodeId) -> Option<CableId> {
        let joins = |cable: &Cable| cable.ends == [a, b] || cable.ends == [b, a];
        Some(CableId(next_id(self.cables.iter().position(joins)?)))
    }

    /// Checks nodes, cables and sizes.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn validate(&self) -> Result<(), TopologyError> {
        let nodes = self.nodes.len();
        if nodes > MAX_NODES {
            return Err(TopologyError::Nodes { nodes });
        }
        let mut ports = vec![0; nodes];
        for (cable, Cable { ends, config }) in self.cables.iter().enumerate() {
            let ends = *ends;
            if ends[0] == ends[1] || ends.iter().any(|end| end.index() >= nodes) {
                return Err(TopologyError::Ends { cable, ends, nodes });
            }
            config.validate().map_err(|source| TopologyError::Cable {
                from: self.nodes[ends[0].index()].name.clone(),
                to: self.nodes[ends[1].index()].name.clone(),
                source,
            })?;
            for end in ends {
                ports[end.index()] += 1;
            }
        }
        let crowded = ports.iter().position(|ports| *ports > MAX_PORTS);
        crowded.map_or(Ok(()), |at| {
            Err(TopologyError::Ports {
                name: self.nodes[at].name.clone(),
                ports: ports[at],
            })
        })
    }
}
