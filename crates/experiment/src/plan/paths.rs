//! Checks that a path joins the two hosts of each flow.

use std::collections::BTreeSet;

use farwrite_net::{Cable, Role, Topology};

use crate::Flow;

/// Checks all flows of a workload.
///
/// # Errors
/// Names the first flow without a path, in either direction: acknowledgements need one too.
pub(super) fn check(topology: &Topology, flows: &[Flow]) -> Result<(), String> {
    let hosts = parts_of_hosts(topology);
    let reaches = |from: usize, to: usize| {
        let first = hosts[from].first;
        first.is_some_and(|part| hosts[to].parts.contains(&part))
    };
    let is_cut_off = |src, dst| !reaches(src, dst) || !reaches(dst, src);
    let mut numbered = flows.iter().enumerate();
    let Some((number, flow)) = numbered.find(|(_, flow)| is_cut_off(flow.src, flow.dst)) else {
        return Ok(());
    };
    let nodes: Vec<_> = topology.hosts().collect();
    let name = |host: usize| &topology.nodes()[nodes[host].0 as usize].name;
    let (src, dst) = (flow.src, flow.dst);
    let why = match hosts[src].parts.is_disjoint(&hosts[dst].parts) {
        true => "no path joins them; add cables, or choose other hosts".to_owned(),
        false => {
            let (from, to) = if reaches(src, dst) {
                (dst, src)
            } else {
                (src, dst)
            };
            format!(
                "a host sends by its first cable only, and that of {} does not lead to {}; put the \
                 cable that does before its others, or choose other hosts",
                name(from),
                name(to)
            )
        }
    };
    let (src, dst) = (name(src), name(dst));
    Err(format!(
        "flow {number} leads from {src} to {dst}, and {why}"
    ))
}

/// Where a host has cables.
#[derive(Clone, Debug, Default)]
struct HostParts {
    /// The part of the first cable, by which the host sends.
    first: Option<usize>,
    /// The parts of all cables, by which the host receives.
    parts: BTreeSet<usize>,
}

/// The parts of the network at which each host has a cable. Two cables are in one part if a switch
/// or a box joins them. Hosts forward nothing.
fn parts_of_hosts(topology: &Topology) -> Vec<HostParts> {
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
    let mut parts = vec![HostParts::default(); nodes.len()];
    for (number, cable) in topology.cables().iter().enumerate() {
        for end in ends(cable) {
            let root = root(&mut part, number);
            parts[end].first.get_or_insert(root);
            parts[end].parts.insert(root);
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
