//! Sites: groups of ranks that are near each other, with slow paths between the sites. Between two
//! sites, each byte is sent once in each direction, as if a site were one rank.

use std::ops::Range;

use super::{Action, Step, cut, ring_all_gather, ring_reduce_scatter, tree_broadcast, tree_reduce};

/// After this schedule, every rank has the reduction of the memory of all ranks: `count` elements
/// of `element_bytes` bytes. `sites` holds the site of each rank.
///
/// If all sites have the same number of ranks, the schedule has three stages. The ranks of a site
/// reduce parts of the memory along a ring ([`ring_reduce_scatter`]). The ranks that hold the same
/// part in each site reduce it along a ring between the sites. Each site then gathers the parts.
/// Otherwise, the ranks of a site reduce to their first rank along a tree ([`tree_reduce`]), these
/// first ranks reduce along a ring, and the result is broadcast along the tree. Sites are ordered
/// by their first ranks.
#[must_use]
pub fn site_all_reduce(rank: usize, sites: &[u32], count: u64, element_bytes: u64) -> Vec<Step> {
    let members = members(sites);
    let own = members
        .iter()
        .position(|site| site.contains(&rank))
        .unwrap_or(0);
    let place = members[own]
        .iter()
        .position(|&member| member == rank)
        .unwrap_or(0);
    let is_even = members.iter().all(|site| site.len() == members[own].len());
    if !is_even {
        return through_first(place, own, &members, count, element_bytes);
    }
    let site = &members[own];
    let parts = cut(count, element_bytes, site.len());
    let part = &parts[place];
    let across: Vec<usize> = members.iter().map(|site| site[place]).collect();
    let subparts = cut_range(part, element_bytes, across.len());
    let mut steps = among(site, ring_reduce_scatter(place, &parts), across.len() > 1);
    steps.extend(among(&across, ring_reduce_scatter(own, &subparts), false));
    steps.extend(among(&across, ring_all_gather(own, &subparts), false));
    steps.extend(among(site, ring_all_gather(place, &parts), false));
    steps
}

fn through_first(
    place: usize,
    own: usize,
    members: &[Vec<usize>],
    count: u64,
    element_bytes: u64,
) -> Vec<Step> {
    let site = &members[own];
    let whole = 0..count * element_bytes;
    let mut steps = among(
        site,
        tree_reduce(place, site.len(), 0, &whole),
        members.len() > 1,
    );
    if place == 0 {
        let firsts: Vec<usize> = members.iter().map(|site| site[0]).collect();
        let parts = cut(count, element_bytes, firsts.len());
        steps.extend(among(&firsts, ring_reduce_scatter(own, &parts), false));
        steps.extend(among(&firsts, ring_all_gather(own, &parts), false));
    }
    steps.extend(among(
        site,
        tree_broadcast(place, site.len(), 0, &whole),
        false,
    ));
    steps
}

/// The ranks of each site.
fn members(sites: &[u32]) -> Vec<Vec<usize>> {
    let mut members: Vec<(u32, Vec<usize>)> = Vec::new();
    for (rank, &site) in sites.iter().enumerate() {
        match members.iter_mut().find(|(known, _)| *known == site) {
            Some((_, ranks)) => ranks.push(rank),
            None => members.push((site, vec![rank])),
        }
    }
    members.into_iter().map(|(_, ranks)| ranks).collect()
}

/// The same steps among these ranks. With `more_follow`, no reduction is marked as the last one.
fn among(ranks: &[usize], mut steps: Vec<Step>, more_follow: bool) -> Vec<Step> {
    for step in &mut steps {
        step.peer = ranks[step.peer];
        if let Action::Reduce { last } = &mut step.action {
            *last &= !more_follow;
        }
    }
    steps
}

fn cut_range(range: &Range<u64>, element_bytes: u64, parts: usize) -> Vec<Range<u64>> {
    let count = (range.end - range.start) / element_bytes;
    let parts = cut(count, element_bytes, parts).into_iter();
    parts
        .map(|part| range.start + part.start..range.start + part.end)
        .collect()
}
