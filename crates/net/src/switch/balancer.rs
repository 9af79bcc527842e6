//! Load balancers that other crates define.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// The choice of ports at one switch.
pub trait Balancer: Send {
    /// The index in [`PortChoice::ports`] of the port that a frame takes. An index beyond the last one counts
    /// modulo the number of ports.
    fn choose(&mut self, choice: &PortChoice<'_>) -> usize;
}

/// A frame for which a switch chooses a port.
pub struct PortChoice<'a> {
    /// When the switch chooses, in nanoseconds.
    pub now_ns: u64,
    /// The sender of the frame.
    pub src: NodeId,
    /// Its receiver.
    pub dst: NodeId,
    /// Its UDP source port, which differs from flow to flow.
    pub src_port: u16,
    /// The ports on shortest paths, at least two, in ascending order.
    pub ports: &'a [u16],
    /// Bytes in the queues of a port.
    pub queued_bytes: &'a dyn Fn(u16) -> u64,
}

impl fmt::Debug for PortChoice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortChoice")
            .field("src", &self.src)
            .field("dst", &self.dst)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

/// Makes the load balancer of a switch from a seed.
pub type MakeBalancer = Arc<dyn Fn(u64) -> Box<dyn Balancer> + Send + Sync>;

/// A load balancer by its name. [`SwitchConfig::resolve`](crate::SwitchConfig::resolve) finds it among those of a
/// program.
#[derive(Clone, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub struct NamedBalancer {
    /// The name.
    pub name: String,
    make: Option<MakeBalancer>,
}

impl NamedBalancer {
    /// Finds the load balancer. Returns whether there is one of this name.
    pub(super) fn resolve(&mut self, known: &BTreeMap<String, MakeBalancer>) -> bool {
        self.make = known.get(&self.name).cloned();
        self.make.is_some()
    }

    /// That of one switch; `None` if it was not found.
    pub(super) fn make(&self, seed: u64) -> Option<Box<dyn Balancer>> {
        self.make.as_ref().map(|make| make(seed))
    }
}

impl From<String> for NamedBalancer {
    fn from(name: String) -> Self {
        Self { name, make: None }
    }
}

impl From<NamedBalancer> for String {
    fn from(named: NamedBalancer) -> Self {
        named.name
    }
}

impl fmt::Debug for NamedBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedBalancer").field(&self.name).finish()
    }
}

/// Load balancers are equal if their names are.
impl PartialEq for NamedBalancer {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for NamedBalancer {}
