//! Topologies as lists of nodes and cables.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_link::{Loss, Policer, Variation};
use serde::Deserialize;

use super::{Role, Topology, TopologyError};
use crate::{CableConfig, NodeId, cable};

/// Nodes by name, and the cables between them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeList {
    /// Names of the hosts. Workloads number hosts in this order.
    pub hosts: Vec<String>,
    /// Names of the switches.
    #[serde(default)]
    pub switches: Vec<String>,
    /// The cables. The ports of a node are numbered in this order.
    pub cables: Vec<ListedCable>,
}

/// A cable between two nodes of a [`NodeList`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { ends = [\"host0\", \"switch0\"], rate = \"100Gbit\", delay = \"1us\" }"
)]
pub struct ListedCable {
    /// Names of the two nodes.
    pub ends: [String; 2],
    /// Bits a second from the first end to the second, and also back if `back_rate_bps` is `None`.
    #[serde(rename = "rate", deserialize_with = "cable::rate")]
    pub rate_bps: u64,
    /// As [`CableConfig::back_rate_bps`].
    #[serde(default, rename = "back_rate", deserialize_with = "cable::back_rate")]
    pub back_rate_bps: Option<u64>,
    /// Time from the last bit sent to the last bit received.
    #[serde(deserialize_with = "cable::delay")]
    pub delay: Duration,
    /// Probability model of frame loss.
    #[serde(default, deserialize_with = "crate::units::loss")]
    pub loss: Loss,
    /// As [`CableConfig::variation`].
    #[serde(default, deserialize_with = "crate::units::variation")]
    pub variation: Variation,
    /// As [`CableConfig::policer`].
    #[serde(default, deserialize_with = "crate::units::policer")]
    pub policer: Option<Policer>,
}

impl NodeList {
    /// Adds the nodes and cables to a topology.
    pub(super) fn build_into(&self, topology: &mut Topology) -> Result<(), TopologyError> {
        let mut nodes = BTreeMap::new();
        let hosts = self.hosts.iter().map(|name| (name, Role::Host));
        let switches = self.switches.iter().map(|name| (name, Role::Switch));
        for (name, role) in hosts.chain(switches) {
            if nodes.insert(name, topology.add(role, name)).is_some() {
                return Err(TopologyError::NameTwice(name.clone()));
            }
        }
        let mut cables_of = BTreeMap::new();
        for (number, cable) in self.cables.iter().enumerate() {
            let [a, b] = self.nodes_at(number, &nodes)?;
            let config = CableConfig {
                rate_bps: cable.rate_bps,
                back_rate_bps: cable.back_rate_bps,
                delay: cable.delay,
                loss: cable.loss,
                variation: cable.variation,
                policer: cable.policer,
            };
            topology.connect(a, b, config);
            for end in &cable.ends {
                *cables_of.entry(end).or_insert(0) += 1;
            }
        }
        let cables_of = |name| cables_of.get(name).copied().unwrap_or(0);
        let wrong = self.hosts.iter().find(|name| cables_of(*name) != 1);
        if let Some(name) = wrong {
            let (host, cables) = (name.clone(), cables_of(name));
            return Err(TopologyError::HostCables { host, cables });
        }
        Ok(())
    }

    /// The two nodes of a cable.
    fn nodes_at(
        &self,
        number: usize,
        nodes: &BTreeMap<&String, NodeId>,
    ) -> Result<[NodeId; 2], TopologyError> {
        let [a, b] = &self.cables[number].ends;
        let node = |name: &String| {
            let unknown = || TopologyError::NoNode {
                cable: number,
                name: name.clone(),
            };
            nodes.get(name).copied().ok_or_else(unknown)
        };
        if a == b {
            return Err(TopologyError::OneEnd {
                cable: number,
                name: a.clone(),
            });
        }
        Ok([node(a)?, node(b)?])
    }
}
