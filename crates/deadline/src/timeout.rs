//! The timeout of operations that are alike.

use alloc::vec::Vec;

use crate::cost::{Cost, Observation, PPM, Proposal};
use crate::loss_target::LossTarget;
use crate::tally::Tally;
use crate::verdict::Verdict;

/// How the next timeout follows from what operations took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The median of the members' proposals, smoothed by the group (OptiNIC 3.1.2).
    OptiNic,
    /// The median of what each member has smoothed for itself (Celeris III.B).
    Celeris,
    /// The least time that keeps the share of missing bytes below a target.
    LossTarget {
        /// The target, in millionths: 1 to 999999. Values outside count as the nearest of these.
        target_ppm: u32,
        /// The round trip of the path, in nanoseconds: what a repeat takes.
        rtt_ns: u64,
    },
}

/// The least and the most that a timeout may be, in nanoseconds. With `min_ns` above `max_ns`,
/// `max_ns` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub min_ns: u64,
    /// The most.
    pub max_ns: u64,
}

impl Bounds {
    pub(crate) fn clamp(&self, time_ns: u64) -> u64 {
        time_ns.max(self.min_ns).min(self.max_ns)
    }
}

/// What of a new value goes into a smoothed one: alpha of 0.2.
const SMOOTHED_FIFTHS: u64 = 5;
/// The first timeout is 1 + gamma warm-ups, gamma of 0.25, plus delta.
const FIRST_QUARTERS: u64 = 5;
const FIRST_SLACK_NS: u64 = 50_000;

/// The timeout of operations that share a [`Key`](crate::Key).
#[derive(Clone, Debug)]
pub struct Timeout {
    policy: Policy,
    bounds: Bounds,
    /// What the group has agreed on.
    agreed: Option<Cost>,
    /// What this member has smoothed for itself.
    own: Option<Cost>,
    loss_target: LossTarget,
    tally: Tally,
}

impl Timeout {
    /// A timeout of which nothing is known.
    #[must_use]
    pub fn new(policy: Policy, bounds: Bounds) -> Self {
        Self {
            policy,
            bounds,
            agreed: None,
            own: None,
            loss_target: LossTarget::default(),
            tally: Tally::default(),
        }
    }

    /// How long the next operation of `bytes` bytes may take, in nanoseconds; `None` before the
    /// warm-up, which has no deadline.
    #[must_use]
    pub fn timeout_ns(&self, bytes: u64) -> Option<u64> {
        Some(self.bounds.clamp(self.agreed?.time_ns(bytes)))
    }

    /// An operation is over at this member; the warm-up counts as one. Returns what to send to the
    /// others.
    pub fn propose(&mut self, observation: &Observation) -> Proposal {
        if self.agreed.is_some() {
            self.tally.note(observation);
        }
        let cost = match self.policy {
            Policy::OptiNic => observation.cost(),
            Policy::Celeris => {
                let new = self.bounded(observation.cost(), observation.expected_bytes);
                let own = self.own.map_or(new, |own| smoothed(own, new));
                // The warm-up sets the first timeout, and is no part of the average.
                self.own = self.agreed.map(|_| own);
                own
            }
            Policy::LossTarget { .. } => {
                let lost_ppm = u64::from(observation.path_loss_ppm).min(PPM);
                observation.cost_uncut(self.verdict().left_ppm(lost_ppm))
            }
        };
        Proposal {
            cost,
            path_loss_ppm: observation.path_loss_ppm,
        }
    }

    /// Takes in what all members proposed after an operation of `bytes` bytes, in any order.
    /// Members that are missing are left out; without any proposal nothing changes.
    pub fn agree(&mut self, bytes: u64, proposals: &[Proposal]) {
        let costs = proposals.iter().map(|p| self.bounded(p.cost, bytes));
        let mut costs: Vec<Cost> = costs.collect();
        costs.sort_unstable();
        let Some(&median) = costs.get(costs.len() / 2) else {
            return;
        };
        let Some(agreed) = self.agreed else {
            let first_ns = u128::from(median.time_ns(bytes)) * u128::from(FIRST_QUARTERS) / 4;
            let first_ns = u64::try_from(first_ns).unwrap_or(u64::MAX);
            let first_ns = first_ns.saturating_add(FIRST_SLACK_NS);
            self.agreed = Some(self.bounded(Cost::of(first_ns, bytes), bytes));
            return;
        };
        self.agreed = Some(match self.policy {
            Policy::OptiNic => smoothed(agreed, median),
            Policy::Celeris => median,
            Policy::LossTarget { target_ppm, rtt_ns } => {
                let losses = proposals
                    .iter()
                    .map(|p| u64::from(p.path_loss_ppm).min(PPM));
                let loss_ppm = losses.sum::<u64>() / proposals.len() as u64;
                let target_ppm = u64::from(target_ppm).clamp(1, PPM - 1);
                let max_cost = Cost::of(self.bounds.max_ns, bytes);
                let rtt_cost = Cost::of(rtt_ns, bytes);
                self.loss_target
                    .take(&costs, loss_ppm, target_ppm, [rtt_cost, max_cost]);
                self.bounded(self.loss_target.cost().unwrap_or(agreed), bytes)
            }
        });
    }

    /// What has to be done beside waiting. Only [`Policy::LossTarget`] ever wants more.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.loss_target.verdict()
    }

    /// The operations so far that had a deadline.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The cost as the bounds allow it for an operation of `bytes` bytes.
    fn bounded(&self, cost: Cost, bytes: u64) -> Cost {
        let time_ns = cost.time_ns(bytes);
        match self.bounds.clamp(time_ns) {
            same_ns if same_ns == time_ns => cost,
            bound_ns => Cost::of(bound_ns, bytes),
        }
    }
}

/// The average so far, moved to the new value by alpha.
fn smoothed(average: Cost, new: Cost) -> Cost {
    let (old, new) = (u128::from(average.0), u128::from(new.0));
    let sum = old * u128::from(SMOOTHED_FIFTHS - 1) + new;
    let mean = sum / u128::from(SMOOTHED_FIFTHS);
    Cost(u64::try_from(mean).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    const MIB: u64 = 1 << 20;
    const WIDE: Bounds = Bounds {
        min_ns: 0,
        max_ns: u64::MAX,
    };

    /// A timeout of a group of one, after a warm-up.
    fn after_warm_up(policy: Policy, bounds: Bounds) -> Timeout {
        let mut timeout = Timeout::new(policy, bounds);
        let proposal = timeout.propose(&Observation::whole(1_000_000, MIB));
        timeout.agree(MIB, &[proposal]);
        timeout
    }

    fn proposals(times_ns: &[u64]) -> Vec<Proposal> {
        let proposal = |&time_ns: &u64| Proposal {
            cost: Cost::of(time_ns, MIB),
            path_loss_ppm: 0,
        };
        times_ns.iter().map(proposal).collect()
    }

    #[test]
    fn the_first_timeout_is_a_warm_up_and_a_quarter_and_fifty_microseconds() {
        let target = Policy::LossTarget {
            target_ppm: 1_000,
            rtt_ns: 0,
        };
        for policy in [Policy::OptiNic, Policy::Celeris, target] {
            let timeout = after_warm_up(policy, WIDE);
            assert_eq!(timeout.timeout_ns(MIB), Some(1_300_000), "{policy:?}");
            assert_eq!(timeout.timeout_ns(2 * MIB), Some(2_600_000));
            assert_eq!(timeout.tally(), Tally::default(), "a warm-up is not cut");
        }
    }

    #[test]
    fn optinic_moves_a_fifth_of_the_way_to_the_median() {
        let mut timeout = after_warm_up(Policy::OptiNic, WIDE);
        timeout.agree(MIB, &proposals(&[300_000, 800_000, 99_000_000]));
        assert_eq!(timeout.timeout_ns(MIB), Some(1_200_000));
        timeout.agree(MIB, &proposals(&[]));
        assert_eq!(timeout.timeout_ns(MIB), Some(1_200_000));
    }

    #[test]
    fn a_part_that_arrived_says_what_the_whole_costs() {
        let mut timeout = after_warm_up(Policy::OptiNic, WIDE);
        let cut = Observation {
            received_bytes: MIB / 2,
            timed_out: true,
            ..Observation::whole(1_300_000, MIB)
        };
        assert_eq!(timeout.propose(&cut).cost, Cost(2_600_000));
        let nothing = Observation {
            received_bytes: 0,
            ..cut
        };
        assert_eq!(timeout.propose(&nothing).cost, Cost(u64::MAX));
        assert_eq!((timeout.tally().operations, timeout.tally().cut), (2, 2));
        assert!((timeout.tally().share_missing() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn celeris_smooths_at_each_member_and_takes_the_median_as_it_is() {
        let mut timeout = after_warm_up(Policy::Celeris, WIDE);
        let own = |timeout: &mut Timeout, ns| timeout.propose(&Observation::whole(ns, MIB)).cost;
        assert_eq!(own(&mut timeout, 1_000_000), Cost(1_000_000));
        assert_eq!(own(&mut timeout, 2_000_000), Cost(1_200_000));
        timeout.agree(MIB, &proposals(&[5, 700_000, 9_000_000]));
        assert_eq!(timeout.timeout_ns(MIB), Some(700_000));
    }

    proptest! {
        #[test]
        fn timeouts_keep_their_bounds_and_do_not_depend_on_the_order(
            policy in prop::sample::select(vec![
                Policy::OptiNic,
                Policy::Celeris,
                Policy::LossTarget { target_ppm: 1_000, rtt_ns: 10_000_000 },
            ]),
            rounds in prop::collection::vec(
                prop::collection::vec((any::<u64>(), any::<u32>()), 0..9), 1..80),
            (min_ns, more_ns) in (0u64..1 << 40, 0u64..1 << 40),
            bytes in 0u64..1 << 40,
        ) {
            let bounds = Bounds { min_ns, max_ns: min_ns + more_ns };
            let mut timeouts = [(); 2].map(|()| Timeout::new(policy, bounds));
            for round in rounds {
                let proposal = |&(cost, path_loss_ppm): &(u64, u32)| Proposal {
                    cost: Cost(cost),
                    path_loss_ppm,
                };
                let mut proposals: Vec<Proposal> = round.iter().map(proposal).collect();
                timeouts[0].agree(bytes, &proposals);
                proposals.reverse();
                timeouts[1].agree(bytes, &proposals);
                let [first, second] = timeouts.each_ref().map(|t| t.timeout_ns(bytes));
                prop_assert_eq!(first, second);
                prop_assert!(first.is_none_or(|ns| (min_ns..=bounds.max_ns).contains(&ns)));
                prop_assert_eq!(timeouts[0].verdict(), timeouts[1].verdict());
            }
        }
    }
}
