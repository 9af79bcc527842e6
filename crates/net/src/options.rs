//! What a network is like beside its topology.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_link::ConfigError;

use crate::topology::{Role, Topology, TopologyError};
use crate::{NodeId, SwitchConfig, SwitchError};

/// Settings of a network beside its topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// All switches.
    pub switch: SwitchConfig,
    /// Switches that are not like the others.
    pub exceptions: BTreeMap<NodeId, SwitchConfig>,
    /// Bytes that a frame takes on a cable and in a buffer beyond its IP datagram; at most 65,536.
    /// The default is that of Ethernet, 38: a header of 14, a check sequence of 4, a preamble of 8
    /// and a gap of 12.
    pub framing_bytes: u32,
    /// How long after a cable goes down or comes up all switches get new tables. Until then,
    /// switches send frames into a cable that is down. `None`: the tables never change.
    pub reroute: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            switch: SwitchConfig::default(),
            exceptions: BTreeMap::new(),
            framing_bytes: 38,
            reroute: None,
        }
    }
}

/// Why a network cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// The topology is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A switch configuration is invalid.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A cable configuration is invalid.
    #[error(transparent)]
    Cable(#[from] ConfigError),
    /// An exception for a node that is not a switch.
    #[error("exceptions has a switch configuration for {0}, which is not a switch")]
    NoSwitch(NodeId),
    /// `framing_bytes` is out of range.
    #[error("framing_bytes = {0}: at most 65536 bytes are possible")]
    Framing(u32),
}

impl Options {
    /// Options with switches that are all like this one.
    #[must_use]
    pub fn with_switches(switch: SwitchConfig) -> Self {
        Self {
            switch,
            ..Self::default()
        }
    }

    /// The configuration of one switch.
    pub(crate) fn switch_config(&self, node: NodeId) -> &SwitchConfig {
        self.exceptions.get(&node).unwrap_or(&self.switch)
    }

    pub(crate) fn reroute_ns(&self) -> Option<u64> {
        let reroute = self.reroute?;
        Some(u64::try_from(reroute.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn validate(&self, topology: &Topology) -> Result<(), NetworkError> {
        self.switch.validate()?;
        for (&node, config) in &self.exceptions {
            let known = topology.nodes().get(node.index());
            if known.is_none_or(|node| node.role != Role::Switch) {
                return Err(NetworkError::NoSwitch(node));
            }
            config.validate()?;
        }
        if self.framing_bytes > 1 << 16 {
            return Err(NetworkError::Framing(self.framing_bytes));
        }
        Ok(())
    }
}
