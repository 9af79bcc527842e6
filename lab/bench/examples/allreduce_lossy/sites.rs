//! All-reduces of ranks in two sites that one link joins.
//!
//! The last row is the composition that `farwrite.torch` has for sites: ranks reduce parts inside
//! their site, then each rank all-reduces its part with its counterpart in the other site, bounded,
//! then sites gather the parts.

use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite_collectives::{
    Algorithm, Buffers, Delivery, ElementType, GroupOptions, Operation, OperationOptions, Reduction,
};

use super::world::{SECOND, World, address};
use super::{ALL_REDUCE, Setting};

/// Prints all rows.
pub(super) fn measure(setting: &Setting, options: &GroupOptions) {
    setting.measure("exact", options, Delivery::Exact);
    let mut sites = options.clone();
    let site = |rank: usize| u32::from(rank * 2 >= setting.ranks);
    sites.sites = (0..setting.ranks).map(site).collect();
    setting.measure("exact, sites", &sites, Delivery::Exact);
    setting.measure("bounded", options, Delivery::Bounded);
    let mut ring = options.clone();
    ring.bounded.algorithm = Algorithm::Ring;
    setting.measure("bounded ring", &ring, Delivery::Bounded);
    ring.bounded.parts = Delivery::Bounded;
    setting.measure("bounded ring, bounded parts", &ring, Delivery::Bounded);
    measure_between(setting, options);
}

/// Gives the link to all pairs of hosts between the sites together, and a fast link to each pair
/// inside a site.
pub(super) fn join(world: &World, link: LinkConfig, site: impl Fn(usize) -> usize) {
    let inside = LinkConfig {
        delay: Duration::from_micros(30),
        rate_bps: Some(20_000_000_000),
        ..LinkConfig::default()
    };
    let mut shared = None;
    for a in 0..world.ranks() {
        for b in a + 1..world.ranks() {
            let (from, to) = (address(a).ip(), address(b).ip());
            if site(a) == site(b) {
                let connected = world.network.connect(from, to, inside, inside);
                connected.expect("a good link");
                continue;
            }
            // From the first site to the second one.
            let (from, to) = if site(a) < site(b) {
                (from, to)
            } else {
                (to, from)
            };
            let Some((first, second)) = shared else {
                let connected = world.network.connect(from, to, link, link);
                connected.expect("a good link");
                shared = Some((from, to));
                continue;
            };
            let forward = world.network.share_link(from, to, (first, second));
            forward.expect("a link");
            let backward = world.network.share_link(to, from, (second, first));
            backward.expect("a link");
        }
    }
}

/// Each rank is a member of two groups: that of its site, and that of its pair.
fn measure_between(setting: &Setting, options: &GroupOptions) {
    let half = setting.ranks / 2;
    let pairs = vec![2; half];
    let sizes = [&[half; 2][..], &pairs].concat();
    let mut world = World::of_groups(1, &sizes, setting.link, options);
    let of_pair = |rank: usize| setting.ranks + 2 * (rank % half) + rank / half;
    let site = |member: usize| match member < setting.ranks {
        true => member / half,
        false => member % 2,
    };
    join(&world, setting.link, site);
    let stages = stages(setting.bytes, half);
    setting.show("bounded between sites", &mut world, |world| {
        let member = |rank: usize, stage: usize| if stage == 1 { of_pair(rank) } else { rank };
        let mut at = vec![0; setting.ranks];
        let mut reports = Vec::new();
        for rank in 0..setting.ranks {
            start(world, rank, &stages[0]);
        }
        while at.iter().any(|&stage| stage < stages.len()) {
            let has_ended = |world: &World, rank: usize, stage: usize| {
                stage < stages.len() && world.finished(member(rank, stage)) > 0
            };
            world.run(100 * SECOND, |world| {
                (0..setting.ranks).any(|rank| has_ended(world, rank, at[rank]))
            });
            for (rank, stage) in at.iter_mut().enumerate() {
                if !has_ended(world, rank, *stage) {
                    continue;
                }
                let ended = world.take(member(rank, *stage)).remove(0);
                let (report, _) = ended.expect("it ends");
                reports.extend((*stage == 1).then_some(report));
                *stage += 1;
                if let Some(next) = stages.get(*stage) {
                    start(world, member(rank, *stage), next);
                }
            }
        }
        reports
    });
}

/// An operation, how it runs, and the bytes of its input and its output. In place if there is no
/// input.
type Stage = (Operation, Delivery, Option<usize>, usize);

fn stages(bytes: usize, half: usize) -> [Stage; 3] {
    let part = bytes / half;
    let reduce = Operation::ReduceScatter {
        element: ElementType::F32,
        reduction: Reduction::Sum,
    };
    [
        (reduce, Delivery::Exact, Some(bytes), part),
        (ALL_REDUCE, Delivery::Bounded, None, part),
        (Operation::AllGather, Delivery::Exact, Some(part), bytes),
    ]
}

fn start(world: &mut World, member: usize, (operation, delivery, input, output): &Stage) {
    let output = vec![0; *output];
    let buffers = match input {
        Some(input) => Buffers::new(vec![0; *input], output),
        None => Buffers::in_place(output),
    };
    let how = OperationOptions {
        delivery: *delivery,
        ..OperationOptions::default()
    };
    world.start(member, operation, how, buffers);
}
