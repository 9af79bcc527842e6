//! The effect of the policies on a group with variable operation times: the share of cut operations
//! and of missing bytes.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and shares of this model are small"
)]

use farwrite_deadline::{
    Bounds, Collective, CutCounts, Observation, Policy, Proposal, RepairChoice, TimeoutKey,
    Timeouts,
};
use farwrite_rng::SplitMix;

const BYTES: u64 = 1 << 20;
const MEMBERS: usize = 8;
const MS: f64 = 1e6;
const RTT_NS: u64 = 100_000;

/// Returns the time that a member needs for all bytes that arrive: 1 ms plus an exponentially
/// distributed time with mean 0.2 ms.
fn needed_ns(rng: &mut SplitMix) -> f64 {
    MS - 0.2 * MS * (1.0 - rng.unit()).ln()
}

/// Returns the share of data that stays missing with this repair.
fn residual(repair_choice: RepairChoice, loss: f64) -> f64 {
    match repair_choice {
        RepairChoice::Wait | RepairChoice::CannotBeMet { .. } => loss,
        RepairChoice::Repeats { rounds } => loss.powi(1 + i32::try_from(rounds).unwrap()),
        RepairChoice::Parity { k, m } => {
            let others = f64::from(k + m - 1);
            let mut exactly = (1.0 - loss).powf(others);
            let mut fewer = 0.0;
            for lost in 0..m {
                fewer += exactly;
                exactly *= (others - f64::from(lost)) / f64::from(lost + 1) * loss / (1.0 - loss);
            }
            loss * (1.0 - fewer)
        }
    }
}

/// One operation at one member.
fn operate(
    rng: &mut SplitMix,
    timeout_ns: Option<u64>,
    repair_choice: RepairChoice,
    loss: f64,
) -> Observation {
    let needed_ns = match repair_choice {
        RepairChoice::Parity { k, m } => needed_ns(rng) * f64::from(k + m) / f64::from(k),
        RepairChoice::Repeats { rounds } => needed_ns(rng) + f64::from(rounds) * RTT_NS as f64,
        RepairChoice::Wait | RepairChoice::CannotBeMet { .. } => needed_ns(rng),
    };
    let limit_ns = timeout_ns.map_or(f64::INFINITY, |ns| ns as f64);
    let elapsed_ns = needed_ns.min(limit_ns);
    let arrived = (1.0 - residual(repair_choice, loss)) * elapsed_ns / needed_ns;
    Observation {
        elapsed_ns: elapsed_ns as u64,
        received_bytes: (BYTES as f64 * arrived).round() as u64,
        timed_out: needed_ns > limit_ns,
        path_loss_ppm: (loss * 1e6) as u32,
        repair_choice,
        ..Observation::whole(0, BYTES)
    }
}

/// Runs operations of a group. Returns the counts without the first fifth of them.
fn run(policy: Policy, loss: f64, rounds: usize) -> (CutCounts, RepairChoice) {
    let bounds = Bounds {
        min_ns: 10_000,
        max_ns: 20_000_000,
    };
    let key = TimeoutKey::new(Collective::AllReduce, BYTES, 1);
    let mut members: Vec<Timeouts> = (0..MEMBERS)
        .map(|_| Timeouts::new(policy, bounds))
        .collect();
    let mut rng = SplitMix::new(7);
    let mut before = vec![CutCounts::default(); MEMBERS];
    for round in 0..=rounds {
        let mut proposals: Vec<Proposal> = Vec::new();
        for member in &mut members {
            let timeout = member.get_mut(key);
            let (timeout_ns, repair_choice) = (timeout.timeout_ns(BYTES), timeout.repair_choice());
            let observation = operate(&mut rng, timeout_ns, repair_choice, loss);
            proposals.extend(timeout.propose(&observation));
        }
        for member in &mut members {
            member.get_mut(key).agree(BYTES, &proposals);
        }
        let timeouts: Vec<_> = members
            .iter_mut()
            .map(|m| m.get_mut(key).timeout_ns(BYTES))
            .collect();
        assert!(
            timeouts.windows(2).all(|two| two[0] == two[1]),
            "members disagree"
        );
        if round == rounds / 5 {
            before = members.iter().map(Timeouts::cut_counts).collect();
        }
    }
    let mut sum = CutCounts::default();
    for (member, before) in members.iter().zip(before) {
        let all = member.cut_counts();
        sum = sum.and(CutCounts {
            operations: all.operations - before.operations,
            cut: all.cut - before.cut,
            expected_bytes: all.expected_bytes - before.expected_bytes,
            missing_bytes: all.missing_bytes - before.missing_bytes,
        });
    }
    (sum, members[0].get_mut(key).repair_choice())
}

fn target(target_ppm: u32) -> Policy {
    Policy::LossTarget {
        target_ppm,
        rtt_ns: RTT_NS,
    }
}

#[test]
fn typical_times_cut_many_and_a_target_is_met() {
    let shares = |policy| {
        let (cut_counts, repair_choice) = run(policy, 0.0, 2_500);
        let shares = (cut_counts.share_cut(), cut_counts.share_missing());
        println!("{policy:?}: cut {:.3}, missing {:.5}", shares.0, shares.1);
        assert_eq!(repair_choice, RepairChoice::Wait);
        shares
    };
    for policy in [Policy::OptiNic, Policy::Celeris] {
        let (cut, missing) = shares(policy);
        assert!((0.35..0.65).contains(&cut), "{policy:?}: {cut}");
        assert!(missing > 0.03, "{policy:?}: {missing}");
    }
    for target_ppm in [10_000, 1_000] {
        let (cut, missing) = shares(target(target_ppm));
        let wanted = f64::from(target_ppm) / 1e6;
        assert!(missing < wanted, "{target_ppm}: {missing}");
        assert!(missing > 0.5 * wanted, "{target_ppm}: it waits for nothing");
        assert!(cut < 0.15, "{target_ppm}: {cut}");
    }
}

#[test]
fn where_the_path_drops_more_than_the_target_it_is_repaired() {
    for loss in [0.002, 0.01, 0.05] {
        let (cut_counts, repair_choice) = run(target(1_000), loss, 2_000);
        println!(
            "{loss}: {repair_choice:?}, missing {:.5}",
            cut_counts.share_missing()
        );
        assert!(!matches!(
            repair_choice,
            RepairChoice::Wait | RepairChoice::CannotBeMet { .. }
        ));
        assert!(
            cut_counts.share_missing() < 0.001,
            "{loss}: {repair_choice:?}"
        );
        // The published policies only wait, and miss at least the loss of the path.
        let (cut_counts, repair_choice) = run(Policy::OptiNic, loss, 2_000);
        assert_eq!(repair_choice, RepairChoice::Wait);
        assert!(cut_counts.share_missing() > loss);
    }
}

#[test]
fn a_target_that_no_repair_reaches_is_said_to_be_out_of_reach() {
    let (_, repair_choice) = run(target(1), 0.9, 200);
    let RepairChoice::CannotBeMet { least_ppm } = repair_choice else {
        panic!("{repair_choice:?}");
    };
    assert!(least_ppm > 1, "{least_ppm}");
}
