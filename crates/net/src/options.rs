//! Options of a network beyond its topology.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_link::ConfigError;

use crate::topology::{Role, Topology, TopologyError};
use crate::{NodeId, SwitchConfig, SwitchError};

/// Options of a network beyond its topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Configuration of all switches, except those in `exceptions`.
    pub switch: SwitchConfig,
    /// Switches with another configuration.
    pub exceptions: BTreeMap<NodeId, SwitchConfig>,
    /// Bytes of a frame on a cable and in a buffer beyond its IP datagram; at most 65,536. The
    /// default of 38 is that of Ethernet: 14 of header, 4 of check sequence, 8 of preamble and 12
    /// of interframe gap.
    pub framing_bytes: u32,
    /// Delay from a cable failure or repair until all switches have new routing tables. Until then,
    /// switches still send frames into a cable that is down. `None`: the tables never change.
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
#[non_exhaustive]
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
    /// `exceptions` names a node that is not a switch.
    #[error("exceptions has a switch configuration for {0}, which is not a switch")]
    NoSwitch(NodeId),
    /// `framing_bytes` is out of range.
    #[error("framing_bytes = {0}: at most 65536 bytes are possible")]
    Framing(u32),
}

impl Options {
    /// Options with the same configuration for all switches.
    #[must_use]
    pub fn with_switches(switch: SwitchConfig) -> Self {
        Self {
            switch,
            ..Self::default()
        }
    }

    /// The configuration of a switch.
    #[must_use]
    pub fn switch_config(&self, node: NodeId) -> &SwitchConfig {
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
