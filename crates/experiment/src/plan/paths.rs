//! Checks that a path joins the two hosts of each flow.

use std::collections::BTreeSet;

use farwrite_net::{Cable, Role, Topology};

use crate::Flow;

/// Checks all flows of a workload.
///
/// # Errors
/// Names the first flow without a path.
pub(super) fn check(topology: &Topology, flows: &[Flow]) -> Result<(), String> {
    let parts = parts_of_hosts(topology);
    let is_cut_off = |flow: &Flow| parts[flow.src].is_disjoint(&parts[flow.dst]);
    let Some((number, flow)) = flows.iter().enumerate().find(|(_, flow)| is_cut_off(flow)) else {
        return Ok(());
    };
    let hosts: Vec<_> = topology.hosts().collect();
    let name = |host: usize| &topology.nodes()[hosts[host].0 as usize].name;
    Err(format!(
        "flow {number} leads from {} to {}, and no path joins them; add cables, or choose other hosts",
        name(flow.src),
        name(flow.dst)
    ))
}

/// The parts of the network at which each host has a cable. Two cables are in one part if a switch
/// or a box joins them. Hosts forward nothing.
fn parts_of_hosts(topology: &Topology) -> Vec<BTreeSet<usize>> {
    let nodes = topology.nodes();
    let ends = |cable: &Cable| cable.ends.map(|end| end.0 as usize);
    let mut part: Vec<usize> = (0..topology.cables().len()).collect();
    let mut first_cable = vec![None; nodes.len()];
    for (number, cable) in topology.cables().iter().enumerate() {
        for end in ends(cable)
            .into_iter()
            .filter(|end| nodes[*end].role != Role::Host)
        {
            let first = *first_cable[end].get_or_insert(number);
            let (one, other) = (root(&mut part, first), root(&mut part, number));
            part[one] = other;
        }
    }
    let mut parts = vec![BTreeSet::new(); nodes.len()];
    for (number, cable) in topology.cables().iter().enumerate() {
        for end in ends(cable) {
            parts[end].insert(root(&mut part, number));
        }
    }
    let host_parts = nodes
        .iter()
        .zip(parts)
        .filter(|(node, _)| node.role == Role::Host);
    host_parts.map(|(_, parts)| parts).collect()
}

/// The cable that stands for the part of a cable. Shortens the way to it (path halving).
fn root(part: &mut [usize], mut cable: usize) -> usize {
    while part[cable] != cable {
        part[cable] = part[part[cable]];
        cable = part[cable];
    }
    cable
}
