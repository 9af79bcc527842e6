//! Shortest-path routing tables.

use std::collections::{HashMap, VecDeque};

use crate::Role;
use crate::core::NodeState;
use crate::port::Port;
use crate::switch::PortGroups;

/// Computes the tables of all switches for the cables that are up. The length of a path is its
/// number of switches.
///
/// For each host, a breadth-first search from the host finds the distance of every node. The egress
/// ports of a switch toward the host are then those that lead one switch nearer. Hosts with the
/// same set of ports at a switch share a group.
pub(crate) fn tables(nodes: &[NodeState], ports: &[Port]) -> Vec<PortGroups> {
    let switches = nodes.iter().enumerate();
    let switches: Vec<_> = switches
        .filter(|(_, node)| node.role == Role::Switch)
        .collect();
    let mut tables = vec![PortGroups::default(); switches.len()];
    let mut known = vec![HashMap::new(); switches.len()];
    for (host, node) in nodes.iter().enumerate() {
        if node.role != Role::Host {
            continue;
        }
        let lengths = lengths_to(host, nodes, ports);
        for (at, &(switch, node)) in switches.iter().enumerate() {
            let nearer = |port: &&Port| leads_nearer(port, host, switch, &lengths, nodes, ports);
            let group: Vec<u16> = ports[node.ports()]
                .iter()
                .filter(nearer)
                .map(|p| p.number)
                .collect();
            let table: &mut PortGroups = &mut tables[at];
            let number = *known[at].entry(group).or_insert_with_key(|group| {
                table.ports.push(group.clone());
                crate::ids::next_id(table.ports.len() - 1)
            });
            table.of_host.push(number);
        }
    }
    tables
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
