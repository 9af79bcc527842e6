//! Shortest-path routing tables.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::Role;
use crate::core::NodeState;
use crate::port::Port;
use crate::switch::PortGroups;

/// The table of each switch.
pub(crate) type Tables = Vec<Arc<PortGroups>>;

/// The tables of a topology whose cables are all up, made when a network first needs them. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SharedTables(Arc<OnceLock<Tables>>);

impl SharedTables {
    /// The tables of the nodes and ports of the topology.
    pub(crate) fn get(&self, nodes: &[NodeState], ports: &[Port]) -> &Tables {
        self.0.get_or_init(|| tables(nodes, ports))
    }

    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The tables follow from the nodes and cables, which topologies compare.
impl PartialEq for SharedTables {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for SharedTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTables").finish_non_exhaustive()
    }
}

/// Computes the tables of all switches for the cables that are up. The length of a path is its
/// number of switches.
///
/// For each host, a breadth-first search from the host finds the distance of every node. The egress
/// ports of a switch toward the host are then those that lead one switch nearer. Hosts with the
/// same set of ports at a switch share a group. Hosts whose only cable leads to the same switch
/// share a search: their routes differ at this switch only.
pub(crate) fn tables(nodes: &[NodeState], ports: &[Port]) -> Tables {
    let switches = nodes.iter().enumerate();
    let mut switches: Vec<_> = switches
        .filter(|(_, node)| node.role == Role::Switch)
        .map(|(switch, _)| (switch, SwitchTable::default()))
        .collect();
    // The number of the host whose search each switch's hosts share.
    let mut searched = vec![None; nodes.len()];
    let hosts = nodes.iter().enumerate();
    for (host, node) in hosts.filter(|(_, node)| node.role == Role::Host) {
        let leaf = only_switch(node, nodes, ports);
        let like = leaf.and_then(|(leaf, port)| Some((leaf, port, searched[leaf]?)));
        if let Some((leaf, port, like)) = like {
            for (switch, table) in &mut switches {
                match *switch == leaf {
                    true => table.add(vec![port]),
                    false => table.groups.add_host(table.groups.group_of(like)),
                }
            }
            continue;
        }
        let lengths = lengths_to(host, nodes, ports);
        for (switch, table) in &mut switches {
            let nearer = |port: &&Port| leads_nearer(port, host, *switch, &lengths, nodes, ports);
            let group = ports[nodes[*switch].ports()].iter().filter(nearer);
            table.add(group.map(|port| port.number).collect());
        }
        if let Some((leaf, _)) = leaf {
            searched[leaf] = Some(node.number);
        }
    }
    let tables = switches.into_iter();
    tables.map(|(_, table)| Arc::new(table.groups)).collect()
}

/// A table to which hosts are added, and the number of each of its groups.
#[derive(Default)]
struct SwitchTable {
    groups: PortGroups,
    known: HashMap<Vec<u16>, u32>,
}

impl SwitchTable {
    /// Adds the next host, which is behind these ports.
    fn add(&mut self, ports: Vec<u16>) {
        let groups = &mut self.groups;
        let group = *self
            .known
            .entry(ports)
            .or_insert_with_key(|ports| groups.add_group(ports.clone()));
        groups.add_host(group);
    }
}

/// The switch to which the only cable of a host leads, and its port there; `None` if several cables are up, none
/// is, or it leads elsewhere.
fn only_switch(host: &NodeState, nodes: &[NodeState], ports: &[Port]) -> Option<(usize, u16)> {
    let mut up = ports[host.ports()].iter().filter(|port| !port.down);
    let (port, None) = (up.next()?, up.next()) else {
        return None;
    };
    let peer = &ports[port.peer.index()];
    let switch = peer.node.index();
    (nodes[switch].role == Role::Switch).then_some((switch, peer.number))
}

/// Whether a port of a switch leads to a node that is one switch nearer to the host.
fn leads_nearer(
    port: &Port,
    host: usize,
    switch: usize,
    lengths: &[u32],
    nodes: &[NodeState],
    ports: &[Port],
) -> bool {
    let next = ports[port.peer.index()].node.index();
    let passes = next == host || nodes[next].role != Role::Host;
    passes && !port.down && lengths[next].checked_add(1) == Some(lengths[switch])
}

/// The number of switches on the shortest path from each node to the host, the node itself
/// included; `u32::MAX` if there is no path. The search is breadth-first with two weights (0-1
/// BFS): boxes add nothing to the length, so they go to the front of the queue.
fn lengths_to(host: usize, nodes: &[NodeState], ports: &[Port]) -> Vec<u32> {
    let mut lengths = vec![u32::MAX; nodes.len()];
    lengths[host] = 0;
    let mut reached = VecDeque::from([host]);
    while let Some(at) = reached.pop_front() {
        if at != host && nodes[at].role == Role::Host {
            continue;
        }
        for port in ports[nodes[at].ports()].iter().filter(|port| !port.down) {
            let next = ports[port.peer.index()].node.index();
            let is_switch = nodes[next].role == Role::Switch;
            let length = lengths[at] + u32::from(is_switch);
            if length < lengths[next] {
                lengths[next] = length;
                if is_switch {
                    reached.push_back(next);
                } else {
                    reached.push_front(next);
                }
            }
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farwrite_link::Rng;

    use super::*;
    use crate::core::Core;
    use crate::{CableConfig, CableId, Options, Topology};

    /// Random nodes and cables: hosts without a cable, with one and with several, to switches, boxes and hosts.
    fn random(rng: &mut Rng) -> Topology {
        let mut topology = Topology::new();
        let roles = [Role::Host, Role::Host, Role::Switch, Role::Box];
        let mut nodes: Vec<_> = (0..16)
            .map(|_| topology.add(roles[rng.below(4)], "node"))
            .collect();
        let mut ends: Vec<_> = (0..16)
            .map(|_| [nodes[rng.below(16)], nodes[rng.below(16)]])
            .collect();
        for _ in 0..8 {
            nodes.push(topology.add(Role::Host, "host"));
            ends.push([nodes[nodes.len() - 1], nodes[rng.below(16)]]);
        }
        for [a, b] in ends.into_iter().filter(|[a, b]| a != b) {
            let cable = CableConfig::new(1_000_000, Duration::ZERO);
            topology.connect(a, b, cable);
        }
        topology
    }

    #[test]
    fn hosts_that_share_a_search_have_the_routes_of_their_own() {
        let mut rng = Rng::new(1);
        let mut shared = 0;
        for _ in 0..100 {
            let topology = random(&mut rng);
            let mut core = Core::new(&topology, &Options::default(), 1).unwrap();
            for _ in 0..rng.below(4) {
                let cable = crate::ids::next_id(rng.below(topology.cables().len()));
                for end in core.ends(CableId(cable)) {
                    core.ports[end.index()].down = true;
                }
            }
            let (nodes, ports) = (&core.nodes, &core.ports);
            let tables = tables(nodes, ports);
            for (host, node) in nodes.iter().enumerate() {
                if node.role != Role::Host {
                    continue;
                }
                shared += u32::from(only_switch(node, nodes, ports).is_some());
                let lengths = lengths_to(host, nodes, ports);
                for (switch, at) in nodes.iter().enumerate() {
                    if at.role != Role::Switch {
                        continue;
                    }
                    let nearer =
                        |port: &&Port| leads_nearer(port, host, switch, &lengths, nodes, ports);
                    let own = ports[at.ports()].iter().filter(nearer);
                    let own: Vec<_> = own.map(|port| port.number).collect();
                    assert_eq!(tables[at.number].ports_to(node.number), own);
                }
            }
        }
        assert!(shared > 200, "{shared} hosts with one cable to a switch");
    }

    #[test]
    fn a_topology_and_its_clones_share_tables_until_they_differ() {
        let mut topology = random(&mut Rng::new(1));
        let mut clone = topology.clone();
        clone.configure(|cable| CableConfig::new(2 * cable.rate_bps, cable.delay));
        assert!(clone.shares_routes(&topology));
        let [one, other] = [&topology, &clone].map(|topology| {
            let core = Core::new(topology, &Options::default(), 1).unwrap();
            topology.tables.get(&core.nodes, &core.ports).clone()
        });
        assert!(!one.is_empty());
        assert!(
            one.iter()
                .zip(&other)
                .all(|(one, other)| Arc::ptr_eq(one, other))
        );
        topology.add(Role::Host, "another");
        assert!(!clone.shares_routes(&topology));
    }
}
