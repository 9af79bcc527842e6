//! OA: the timeouts of a group by policy, as its path becomes slower, and what they cut.

use farwrite_deadline::{Bounds, Observation, Policy, Proposal, Timeout};
use farwrite_rng::SplitMix;
use farwrite_units::stats;

use crate::rows::{Panel, Rows};

const MEMBERS: usize = 8;
/// Bytes that an operation brings to each member.
const BYTES: u64 = 16 << 20;
/// Operations of a group that have a deadline. One more is the warm-up.
const OPERATIONS: usize = 400;
/// The first operation on the slower path.
const CHANGE: usize = 201;
/// The shortest time of an operation, before the change and from it on.
const LEAST_NS: [f64; 2] = [1e6, 2e6];
/// Shape of the Pareto distribution of times: one of a thousand operations takes ten times as long
/// as the shortest.
const SHAPE: f64 = 3.0;
/// Operations that shares are about: before the change, right after it, and long after it.
const PHASES: [(usize, usize); 3] = [(101, 200), (201, 250), (301, 400)];

const BOUNDS: Bounds = Bounds {
    min_ns: 10_000,
    max_ns: 60_000_000_000,
};

/// Policies by name, and the end of members that wait for everything.
const POLICIES: [(&str, Option<Policy>); 5] = [
    ("no deadline", None),
    ("OptiNIC", Some(Policy::OptiNic)),
    ("Celeris", Some(Policy::Celeris)),
    ("loss target 1%", Some(target(10_000))),
    ("loss target 0.1%", Some(target(1_000))),
];

const fn target(target_ppm: u32) -> Policy {
    Policy::LossTarget {
        target_ppm,
        rtt_ns: 100_000,
    }
}

/// One operation of a group.
#[derive(Clone)]
struct Operation {
    timeout_ns: Option<u64>,
    /// The median of the proposals for the next one.
    proposal_ns: u64,
    /// How long members would have to wait for everything, in ascending order.
    needed_ns: Vec<u64>,
    observations: Vec<Observation>,
}

pub(crate) fn run(rows: &Rows, groups: u64) {
    let conditions = format!(
        "{MEMBERS} members, times of a Pareto distribution of shape {SHAPE} from {} ms on, from {} ms \
         after operation {}, {groups} groups, seeds 1 to {groups}",
        LEAST_NS[0] / 1e6,
        LEAST_NS[1] / 1e6,
        CHANGE - 1,
    );
    println!("{conditions}");
    println!(
        "{:<18} {:>5} {:>7} {:>8} {:>8} {:>8}",
        "policy", "from", "cut", "missing", "mean ms", "p99 ms"
    );
    let shares = rows.panel("OA", "shares", &conditions);
    let first = rows.panel("OA", "timeouts", "panel (a): the group of seed 1");
    for (name, policy) in POLICIES {
        let runs: Vec<_> = (1..=groups).map(|seed| group(policy, seed)).collect();
        over_time(&first, name, &runs[0]);
        for (from, to) in PHASES {
            let operations: Vec<&Operation> = runs.iter().flat_map(|run| &run[from..=to]).collect();
            phase(&shares, name, from, &operations);
        }
        if policy.is_some() {
            let taken = operations_to_follow(&runs);
            println!("{name:<18} follows the change in {taken} operations");
            shares.add(name, CHANGE as f64, "operations_to_follow", taken as f64);
        }
    }
}

/// The operations of a group, the warm-up first.
fn group(policy: Option<Policy>, seed: u64) -> Vec<Operation> {
    // All policies meet the same times.
    let mut rng = SplitMix::new(seed);
    let policy_or_any = policy.unwrap_or(Policy::OptiNic);
    let mut members = vec![Timeout::new(policy_or_any, BOUNDS); MEMBERS];
    let mut operations = Vec::new();
    for number in 0..=OPERATIONS {
        let agreed_ns = members[0].timeout_ns(BYTES);
        let timeout_ns = policy.and(agreed_ns);
        let mut needed_ns = needed(&mut rng, number);
        let observe = |&needed_ns: &u64| observation(needed_ns, timeout_ns);
        let observations: Vec<_> = needed_ns.iter().map(observe).collect();
        let each = members.iter_mut().zip(&observations);
        let proposals = each.filter_map(|(member, seen)| member.propose(seen));
        let proposals: Vec<_> = proposals.collect();
        for member in &mut members {
            member.agree(BYTES, &proposals);
        }
        needed_ns.sort_unstable();
        operations.push(Operation {
            timeout_ns,
            proposal_ns: median_ns(&proposals),
            needed_ns,
            observations,
        });
    }
    operations
}

/// How long each member would have to wait for everything.
#[expect(clippy::cast_possible_truncation, reason = "rounds to nanoseconds")]
fn needed(rng: &mut SplitMix, number: usize) -> Vec<u64> {
    let least_ns = LEAST_NS[usize::from(number >= CHANGE)];
    let times = (0..MEMBERS).map(|_| least_ns * (1.0 - rng.unit()).powf(-1.0 / SHAPE));
    times.map(|ns| ns as u64).collect()
}

/// What a member sees whose bytes arrive at a constant rate.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to bytes, at most all"
)]
fn observation(needed_ns: u64, timeout_ns: Option<u64>) -> Observation {
    let elapsed_ns = timeout_ns.map_or(needed_ns, |timeout_ns| timeout_ns.min(needed_ns));
    let arrived = elapsed_ns as f64 / needed_ns as f64;
    Observation {
        received_bytes: (BYTES as f64 * arrived) as u64,
        timed_out: elapsed_ns < needed_ns,
        ..Observation::whole(elapsed_ns, BYTES)
    }
}

fn median_ns(proposals: &[Proposal]) -> u64 {
    let mut costs: Vec<_> = proposals.iter().map(|proposal| proposal.cost).collect();
    costs.sort_unstable();
    costs[costs.len() / 2].time_ns(BYTES)
}

/// The rows of one group, operation by operation.
fn over_time(panel: &Panel<'_>, name: &str, operations: &[Operation]) {
    for (number, operation) in operations.iter().enumerate() {
        let add = |measure, ns| panel.add(name, number as f64, measure, ms(ns));
        if let Some(timeout_ns) = operation.timeout_ns {
            add("timeout_ms", timeout_ns);
        }
        match name {
            "no deadline" => {
                add("middle_ms", operation.needed_ns[MEMBERS / 2]);
                add("slowest_ms", operation.needed_ns[MEMBERS - 1]);
            }
            "OptiNIC" => add("proposal_ms", operation.proposal_ns),
            _ => {}
        }
    }
}

/// The rows of the operations of a phase. An operation takes as long as its slowest member.
fn phase(panel: &Panel<'_>, name: &str, from: usize, operations: &[&Operation]) {
    let observations = operations.iter().flat_map(|of| &of.observations);
    let count = (operations.len() * MEMBERS) as f64;
    let cut = observations.clone().filter(|seen| seen.timed_out).count() as f64 / count;
    let received: u64 = observations.map(|seen| seen.received_bytes).sum();
    let missing = 1.0 - received as f64 / (BYTES as f64 * count);
    let slowest = operations.iter().map(|operation| {
        let elapsed = operation.observations.iter().map(|seen| seen.elapsed_ns);
        ms(elapsed.max().unwrap_or(0))
    });
    let mut times: Vec<f64> = slowest.collect();
    times.sort_by(f64::total_cmp);
    let mean = stats::mean(&times);
    let p99 = times[times.len() * 99 / 100];
    println!("{name:<18} {from:>5} {cut:>7.4} {missing:>8.5} {mean:>8.3} {p99:>8.3}");
    for (measure, value) in [
        ("cut", cut),
        ("missing", missing),
        ("mean_ms", mean),
        ("p99_ms", p99),
    ] {
        panel.add(name, from as f64, measure, value);
    }
}

/// Operations on the slower path until the timeout, in the mean over groups, has done nine tenths of
/// the way from its old level to its new one.
fn operations_to_follow(runs: &[Vec<Operation>]) -> usize {
    let mean = |number: usize| {
        let timeouts = runs.iter().filter_map(|run| run[number].timeout_ns);
        timeouts.map(ms).sum::<f64>() / runs.len() as f64
    };
    let level =
        |(from, to): (usize, usize)| (from..=to).map(mean).sum::<f64>() / (to + 1 - from) as f64;
    let (before, settled) = (level(PHASES[0]), level(PHASES[2]));
    let enough = before + 0.9 * (settled - before);
    let there = (CHANGE..=OPERATIONS).find(|&number| mean(number) >= enough);
    // The timeout of the first operation follows from older ones.
    there.unwrap_or(OPERATIONS) - CHANGE
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_cuts_what_is_not_there_yet() {
        let cut = observation(4_000_000, Some(1_000_000));
        assert_eq!((cut.received_bytes, cut.timed_out), (BYTES / 4, true));
        let whole = observation(4_000_000, Some(4_000_000));
        assert_eq!((whole.received_bytes, whole.timed_out), (BYTES, false));
    }

    #[test]
    fn policies_meet_the_same_times() {
        let [none, other] = [None, Some(Policy::Celeris)].map(|policy| group(policy, 3));
        let same = none.iter().zip(&other);
        assert!(same.into_iter().all(|(a, b)| a.needed_ns == b.needed_ns));
        assert!(none.iter().all(|operation| operation.timeout_ns.is_none()));
        assert!(other[1..].iter().all(|of| of.timeout_ns.is_some()));
    }
}
