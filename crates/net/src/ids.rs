//! Identifiers of the parts of a network.

use std::fmt;

/// Traffic classes of a port, as in IEEE 802.1Q.
pub const PRIORITIES: usize = 8;

/// A host, a switch or a box: its index in the [`Topology`](crate::Topology).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A cable: its index in the [`Topology`](crate::Topology).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CableId(pub u32);

/// A port of any node: its index among all ports of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortId(pub(crate) u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl CableId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl PortId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for CableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cable {}", self.0)
    }
}

/// Converts a count of nodes, ports or frames to the 32-bit id of the next one.
///
/// # Panics
/// If the count is 2^32 or more. No machine has the memory for that.
pub(crate) fn next_id(count: usize) -> u32 {
    u32::try_from(count).expect("a network has fewer than 2^32 parts of a kind")
}
