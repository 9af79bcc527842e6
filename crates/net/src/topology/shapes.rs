//! Topologies by name and parameters.

use serde::Deserialize;

use super::{MAX_NODES, NodeList, Role, Topology, TopologyError};
use crate::{CableConfig, NodeId};

/// Largest number of cables between two tiers of switches of a shape or of an imported tree.
pub const MAX_CABLES: usize = 1 << 20;

/// A topology by name and parameters, or as a list. Hosts are named `host0`, `host1` and so on, in the
/// order that each shape describes. The names of switches are given with each shape.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shape {
    /// Two hosts and a cable.
    PointToPoint {
        /// The cable.
        cable: CableConfig,
    },
    /// Two switches, `left` and `right`, with hosts at each and one cable between them.
    Dumbbell {
        /// Hosts at the left switch.
        left: usize,
        /// Hosts at the right switch. They come after the hosts of the left switch.
        right: usize,
        /// From each host to its switch.
        host_cable: CableConfig,
        /// Between the switches.
        middle_cable: CableConfig,
    },
    /// Switches in a row, `switch0` and so on, with hosts at each.
    Chain {
        /// Number of switches.
        switches: usize,
        /// Hosts at each switch, switch by switch.
        hosts_per_switch: usize,
        /// From each host to its switch.
        host_cable: CableConfig,
        /// From each switch to the next.
        switch_cable: CableConfig,
    },
    /// Hosts around one switch, `switch0`.
    Star {
        /// Number of hosts.
        hosts: usize,
        /// From each host to the switch.
        cable: CableConfig,
    },
    /// A two-level Clos network.
    LeafSpine(LeafSpine),
    /// A three-level fat tree of switches with `k` ports (Al-Fares, Loukissas and Vahdat, SIGCOMM
    /// 2008). It has `k` pods, each with `k / 2` switches `edge0`, `edge1`, ... and as many
    /// `aggregation0`, `aggregation1`, ...; `k^2 / 4` switches `core0`, `core1`, ...; and `k^3 / 4`
    /// hosts, pod by pod.
    FatTree {
        /// Ports of each switch; an even number.
        k: usize,
        /// From each host to its edge switch.
        host_cable: CableConfig,
        /// From each edge switch to each aggregation switch of its pod.
        pod_cable: CableConfig,
        /// From each aggregation switch to its core switches.
        core_cable: CableConfig,
    },
    /// Equal datacenters, each a two-level Clos network whose spines are joined to one border
    /// switch. Switches are named `site0-leaf0`, `site0-spine0`, `site0-border` and so on. A cable
    /// joins the border switches of each pair of sites.
    Datacenters {
        /// Number of datacenters.
        sites: usize,
        /// The network of each datacenter.
        site: LeafSpine,
        /// From each spine to the border switch of its site.
        border_cable: CableConfig,
        /// Between the border switches of each pair of sites.
        long_cable: CableConfig,
    },
    /// Any nodes and cables, with the names that the list gives.
    List(NodeList),
}

/// A two-level Clos network: hosts at leaves (`leaf0` and so on), and a cable from each leaf to
/// each spine (`spine0` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafSpine {
    /// Number of leaves.
    pub leaves: usize,
    /// Number of spines.
    pub spines: usize,
    /// Hosts at each leaf, leaf by leaf.
    pub hosts_per_leaf: usize,
    /// From each host to its leaf.
    pub host_cable: CableConfig,
    /// From each leaf to each spine.
    pub spine_cable: CableConfig,
}

impl Shape {
    /// Builds the nodes and cables.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let mut topology = Topology::new();
        match *self {
            Self::PointToPoint { cable } => {
                let a = host(&mut topology);
                let b = host(&mut topology);
                topology.connect(a, b, cable);
            }
            Self::Dumbbell {
                left,
                right,
                host_cable,
                middle_cable,
            } => {
                check("left", left)?;
                check("right", right)?;
                let switches = ["left", "right"].map(|name| topology.add(Role::Switch, name));
                for (switch, hosts) in switches.into_iter().zip([left, right]) {
                    hosts_at(&mut topology, switch, hosts, host_cable);
                }
                topology.connect(switches[0], switches[1], middle_cable);
            }
            Self::Chain {
                switches,
                hosts_per_switch,
                host_cable,
                switch_cable,
            } => {
                check("switches", switches)?;
                check("hosts_per_switch", hosts_per_switch)?;
                check("hosts", switches.saturating_mul(hosts_per_switch))?;
                let row = add_switches(&mut topology, "switch", switches);
                for &switch in &row {
                    hosts_at(&mut topology, switch, hosts_per_switch, host_cable);
                }
                for pair in row.windows(2) {
                    topology.connect(pair[0], pair[1], switch_cable);
                }
            }
            Self::Star { hosts, cable } => {
                check("hosts", hosts)?;
                let switch = topology.add(Role::Switch, "switch0");
                hosts_at(&mut topology, switch, hosts, cable);
            }
            Self::LeafSpine(clos) => {
                clos.build_into(&mut topology, "")?;
            }
            Self::FatTree {
                k,
                host_cable,
                pod_cable,
                core_cable,
            } => fat_tree(&mut topology, k, [host_cable, pod_cable, core_cable])?,
            Self::Datacenters {
                sites,
                site,
                border_cable,
                long_cable,
            } => datacenters(&mut topology, sites, &site, [border_cable, long_cable])?,
            Self::List(ref list) => list.build_into(&mut topology)?,
        }
        topology.validate()?;
        Ok(topology)
    }
}

impl LeafSpine {
    /// Adds this network to a topology, with a prefix to the names of its switches. Returns its
    /// spines.
    fn build_into(
        &self,
        topology: &mut Topology,
        prefix: &str,
    ) -> Result<Vec<NodeId>, TopologyError> {
        check("leaves", self.leaves)?;
        check("spines", self.spines)?;
        check("hosts_per_leaf", self.hosts_per_leaf)?;
        check("hosts", self.leaves.saturating_mul(self.hosts_per_leaf))?;
        let spine_cables = self.leaves.saturating_mul(self.spines);
        check_cables("leaves * spines", spine_cables)?;
        let leaves = add_switches(topology, &format!("{prefix}leaf"), self.leaves);
        let spines = add_switches(topology, &format!("{prefix}spine"), self.spines);
        for &leaf in &leaves {
            hosts_at(topology, leaf, self.hosts_per_leaf, self.host_cable);
        }
        for &leaf in &leaves {
            for &spine in &spines {
                topology.connect(leaf, spine, self.spine_cable);
            }
        }
        Ok(spines)
    }
}

/// Adds a fat tree. The three cables are those of hosts, pods and core.
fn fat_tree(
    topology: &mut Topology,
    k: usize,
    [host_cable, pod_cable, core_cable]: [CableConfig; 3],
) -> Result<(), TopologyError> {
    if !(2..=62).contains(&k) || !k.is_multiple_of(2) {
        return Err(TopologyError::FatTree(k));
    }
    let half = k / 2;
    let edges = add_switches(topology, "edge", k * half);
    let aggregations = add_switches(topology, "aggregation", k * half);
    let cores = add_switches(topology, "core", half * half);
    for &edge in &edges {
        hosts_at(topology, edge, half, host_cable);
    }
    for (pod_edges, pod_aggregations) in edges.chunks(half).zip(aggregations.chunks(half)) {
        for &edge in pod_edges {
            for &aggregation in pod_aggregations {
                topology.connect(edge, aggregation, pod_cable);
            }
        }
        // The i-th aggregation switch of every pod connects to the i-th group of k / 2 core
        // switches.
        for (&aggregation, its_cores) in pod_aggregations.iter().zip(cores.chunks(half)) {
            for &core in its_cores {
                topology.connect(aggregation, core, core_cable);
            }
        }
    }
    Ok(())
}

/// Adds datacenters. The two cables are spine to border and border to border.
fn datacenters(
    topology: &mut Topology,
    sites: usize,
    site: &LeafSpine,
    [border_cable, long_cable]: [CableConfig; 2],
) -> Result<(), TopologyError> {
    if !(1..=1024).contains(&sites) {
        return Err(TopologyError::Sites(sites));
    }
    let hosts = site.leaves.saturating_mul(site.hosts_per_leaf);
    check("hosts", sites.saturating_mul(hosts))?;
    // Checked for all sites together before the first is built.
    let switches = site.leaves.saturating_add(site.spines).saturating_add(1);
    let nodes = sites.saturating_mul(hosts.saturating_add(switches));
    if nodes > MAX_NODES {
        return Err(TopologyError::Nodes { nodes });
    }
    let cables = sites.saturating_mul(site.leaves.saturating_mul(site.spines));
    check_cables("sites * leaves * spines", cables)?;
    let mut borders: Vec<NodeId> = Vec::with_capacity(sites);
    for number in 0..sites {
        let spines = site.build_into(topology, &format!("site{number}-"))?;
        let border = topology.add(Role::Switch, format!("site{number}-border"));
        for spine in spines {
            topology.connect(spine, border, border_cable);
        }
        for &earlier in &borders {
            topology.connect(earlier, border, long_cable);
        }
        borders.push(border);
    }
    Ok(())
}

/// Adds a host, named by its index.
fn host(topology: &mut Topology) -> NodeId {
    let number = topology.hosts;
    topology.add(Role::Host, format!("host{number}"))
}

fn hosts_at(topology: &mut Topology, switch: NodeId, hosts: usize, cable: CableConfig) {
    for _ in 0..hosts {
        let host = host(topology);
        topology.connect(host, switch, cable);
    }
}

fn add_switches(topology: &mut Topology, name: &str, count: usize) -> Vec<NodeId> {
    let names = (0..count).map(|number| format!("{name}{number}"));
    names.map(|name| topology.add(Role::Switch, name)).collect()
}

fn check_cables(field: &'static str, cables: usize) -> Result<(), TopologyError> {
    match cables {
        0..=MAX_CABLES => Ok(()),
        _ => Err(TopologyError::Cables { field, cables }),
    }
}

fn check(field: &'static str, value: usize) -> Result<(), TopologyError> {
    if (1..=MAX_NODES).contains(&value) {
        return Ok(());
    }
    Err(TopologyError::Size { field, value })
}
