//! The timeout of operations that share a key, and the policies that adapt it.

use alloc::vec::Vec;

use crate::cost::{Cost, Observation, PPM, Proposal};
use crate::cut_counts::CutCounts;
use crate::loss_target::{LossTarget, UNSEEN_TIMES};
use crate::repair_choice::{Limits, RepairChoice, most_parity};

/// How the next timeout follows from past operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The median of the members' proposals, smoothed by the group (OptiNIC 3.1.2).
    OptiNic,
    /// Each member smooths its own costs; the timeout is the median of these (Celeris III.B).
    Celeris,
    /// The lowest timeout that keeps the share of missing bytes below a target.
    LossTarget {
        /// The target, in millionths: 1 to 999999. Values outside this range count as the nearest
        /// end of the range.
        target_ppm: u32,
        /// The round trip of the path, in nanoseconds: the time of a repeat. It counts until a
        /// member has measured the round trip.
        rtt_ns: u64,
    },
}

/// The range of timeouts, in nanoseconds. If `min_ns` is above `max_ns`, every timeout is `max_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The shortest timeout.
    pub min_ns: u64,
    /// The longest timeout.
    pub max_ns: u64,
}

impl Bounds {
    pub(crate) fn clamp(&self, time_ns: u64) -> u64 {
        time_ns.max(self.min_ns).min(self.max_ns)
    }
}

/// Weight of a new value in a smoothed one: alpha = 1/5.
const SMOOTHED_FIFTHS: u64 = 5;
/// The first timeout is (1 + gamma) times the warm-up plus delta, with gamma = 1/4. With a loss target, it
/// is longer: the operation that this policy assumes until it knows more.
const FIRST_QUARTERS: u64 = 5;
const SLACK_NS: u64 = 50_000;

/// The timeout of operations that share a [`TimeoutKey`](crate::TimeoutKey).
#[derive(Clone, Debug)]
pub struct Timeout {
    policy: Policy,
    bounds: Bounds,
    /// The cost that the group agreed on.
    agreed: Option<Cost>,
    /// This member's own smoothed cost.
    own: Option<Cost>,
    loss_target: LossTarget,
    /// Chunks of the longest message, if there is a limit.
    message_chunks: Option<u32>,
    is_scheme_fixed: bool,
    cut_counts: CutCounts,
}

impl Timeout {
    /// A timeout without any observation.
    #[must_use]
    pub fn new(policy: Policy, bounds: Bounds) -> Self {
        Self {
            policy,
            bounds,
            agreed: None,
            own: None,
            loss_target: LossTarget::default(),
            message_chunks: None,
            is_scheme_fixed: false,
            cut_counts: CutCounts::default(),
        }
    }

    /// The same for messages with at most `chunks` chunks. The parity of a message then has at most
    /// as many chunks.
    #[must_use]
    pub fn with_message_chunks(self, chunks: u32) -> Self {
        Self {
            message_chunks: Some(chunks),
            ..self
        }
    }

    /// The same for operations whose scheme does not change. The choice is then
    /// [`RepairChoice::Wait`], or [`RepairChoice::CannotBeMet`] with what the scheme leaves: a repair
    /// that no operation uses must not change the timeout.
    #[must_use]
    pub fn with_fixed_scheme(self) -> Self {
        Self {
            is_scheme_fixed: true,
            ..self
        }
    }

    /// How long the next operation of `bytes` bytes may take, in nanoseconds; `None` before the
    /// warm-up, which has no deadline.
    #[must_use]
    pub fn timeout_ns(&self, bytes: u64) -> Option<u64> {
        Some(self.bounds.clamp(self.agreed?.time_ns(bytes)))
    }

    /// Adds an operation that has ended at this member; the warm-up is one too. Returns the
    /// proposal to send to the other members; `None` if this member expected no bytes, because it
    /// then has seen nothing of the path.
    pub fn propose(&mut self, observation: &Observation) -> Option<Proposal> {
        if observation.expected_bytes == 0 {
            return None;
        }
        let had_deadline = observation.had_deadline && self.agreed.is_some();
        if had_deadline {
            self.cut_counts.note(observation);
        }
        let cost = match self.policy {
            Policy::OptiNic => observation.cost(),
            Policy::Celeris => {
                let new = self.bounded(observation.cost(), observation.bytes);
                let own = self.own.map_or(new, |own| smoothed(own, new));
                // The warm-up sets the first timeout, but is not part of the average.
                if had_deadline {
                    self.own = Some(own);
                }
                own
            }
            Policy::LossTarget { .. } => {
                let lost_ppm = u64::from(observation.path_loss_ppm).min(PPM);
                observation.cost_uncut(observation.repair_choice.left_ppm(lost_ppm))
            }
        };
        Some(Proposal {
            cost,
            path_loss_ppm: observation.path_loss_ppm,
            repair_choice: observation.repair_choice,
            rtt_ns: observation.rtt_ns,
        })
    }

    /// Adds the proposals of all members after an operation of `bytes` bytes, in any order. Leave
    /// out members without a proposal. An empty list changes nothing.
    pub fn agree(&mut self, bytes: u64, proposals: &[Proposal]) {
        let costs = proposals.iter().map(|p| self.bounded(p.cost, bytes));
        let mut costs: Vec<Cost> = costs.collect();
        costs.sort_unstable();
        let (Some(&median), Some(&slowest)) = (costs.get(costs.len() / 2), costs.last()) else {
            return;
        };
        let Some(agreed) = self.agreed else {
            let (warm_up, quarters) = match self.policy {
                Policy::LossTarget { .. } => (slowest, 4 * UNSEEN_TIMES),
                Policy::OptiNic | Policy::Celeris => (median, FIRST_QUARTERS),
            };
            let first_ns = u128::from(warm_up.time_ns(bytes)) * u128::from(quarters) / 4;
            let first_ns = u64::try_from(first_ns).unwrap_or(u64::MAX);
            let first_ns = first_ns.saturating_add(SLACK_NS);
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
                let measured_ns = proposals.iter().filter_map(|p| p.rtt_ns).max();
                let limits = Limits {
                    rtt: Cost::of(measured_ns.unwrap_or(rtt_ns), bytes),
                    max: Cost::of(self.bounds.max_ns, bytes),
                    most_parity: most_parity(self.message_chunks),
                    may_repair: !self.is_scheme_fixed,
                    slack: Cost::of(SLACK_NS, bytes),
                };
                let operations = proposals.iter();
                let operations = operations.map(|p| (self.bounded(p.cost, bytes), p.repair_choice));
                let operations: Vec<_> = operations.collect();
                self.loss_target
                    .take(&operations, loss_ppm, target_ppm, limits);
                self.bounded(self.loss_target.cost().unwrap_or(agreed), bytes)
            }
        });
    }

    /// The repair to use. Only [`Policy::LossTarget`] requests one.
    #[must_use]
    pub fn repair_choice(&self) -> RepairChoice {
        self.loss_target.repair_choice()
    }

    /// The counts of operations so far that had a deadline.
    #[must_use]
    pub fn cut_counts(&self) -> CutCounts {
        self.cut_counts
    }

    /// Limits a cost to the bounds, for an operation of `bytes` bytes.
    fn bounded(&self, cost: Cost, bytes: u64) -> Cost {
        let time_ns = cost.time_ns(bytes);
        match self.bounds.clamp(time_ns) {
            same_ns if same_ns == time_ns => cost,
            bound_ns => Cost::of(bound_ns, bytes),
        }
    }
}

/// The moving average, updated with a new value.
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

    /// Returns the timeout of a group with one member, after a warm-up.
    fn after_warm_up(policy: Policy, bounds: Bounds) -> Timeout {
        let mut timeout = Timeout::new(policy, bounds);
        let proposal = timeout.propose(&Observation::whole(1_000_000, MIB));
        timeout.agree(MIB, proposal.as_slice());
        timeout
    }

    fn proposals(times_ns: &[u64]) -> Vec<Proposal> {
        let proposal = |&time_ns: &u64| Proposal {
            cost: Cost::of(time_ns, MIB),
            path_loss_ppm: 0,
            repair_choice: RepairChoice::Wait,
            rtt_ns: None,
        };
        times_ns.iter().map(proposal).collect()
    }

    #[test]
    fn the_first_timeout_is_a_warm_up_and_a_quarter_and_fifty_microseconds() {
        for policy in [Policy::OptiNic, Policy::Celeris] {
            let timeout = after_warm_up(policy, WIDE);
            assert_eq!(timeout.timeout_ns(MIB), Some(1_300_000), "{policy:?}");
            assert_eq!(timeout.timeout_ns(2 * MIB), Some(2_600_000));
            assert_eq!(
                timeout.cut_counts(),
                CutCounts::default(),
                "a warm-up is not cut"
            );
        }
    }

    #[test]
    fn an_operation_that_began_during_the_warm_up_is_not_counted() {
        for policy in [Policy::OptiNic, Policy::Celeris] {
            let mut timeout = after_warm_up(policy, WIDE);
            let beside = Observation {
                had_deadline: false,
                ..Observation::whole(9_000_000, MIB)
            };
            timeout.propose(&beside).unwrap();
            assert_eq!(timeout.cut_counts(), CutCounts::default(), "{policy:?}");
            // It is not part of Celeris' average either.
            let proposal = timeout.propose(&Observation::whole(1_000_000, MIB));
            assert_eq!(
                proposal.unwrap().cost,
                Cost::of(1_000_000, MIB),
                "{policy:?}"
            );
        }
    }

    #[test]
    fn the_first_timeout_of_a_loss_target_is_twice_the_slowest_warm_up() {
        let mut timeout = Timeout::new(
            Policy::LossTarget {
                target_ppm: 1_000,
                rtt_ns: 0,
            },
            WIDE,
        );
        timeout.agree(MIB, &proposals(&[800_000, 1_000_000, 500_000]));
        assert_eq!(timeout.timeout_ns(MIB), Some(2_050_000));
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
        assert_eq!(timeout.propose(&cut).unwrap().cost, Cost(2_600_000));
        let nothing = Observation {
            received_bytes: 0,
            ..cut
        };
        // No byte arrived, so the time of the whole operation is unknown.
        assert_eq!(timeout.propose(&nothing).unwrap().cost, Cost(5_200_000));
        assert_eq!(
            (timeout.cut_counts().operations, timeout.cut_counts().cut),
            (2, 2)
        );
        assert!((timeout.cut_counts().share_missing() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn an_operation_that_brought_nothing_does_not_make_the_next_ones_endless() {
        let target = Policy::LossTarget {
            target_ppm: 10_000,
            rtt_ns: 0,
        };
        let bounds = Bounds {
            min_ns: 0,
            max_ns: 60_000_000_000,
        };
        for policy in [Policy::OptiNic, Policy::Celeris, target] {
            let mut timeout = after_warm_up(policy, bounds);
            let mut run = |received_bytes, times| {
                for _ in 0..times {
                    let proposal = timeout.propose(&Observation {
                        received_bytes,
                        timed_out: received_bytes < MIB,
                        ..Observation::whole(1_000_000, MIB)
                    });
                    timeout.agree(MIB, &[proposal.unwrap(); 2]);
                }
                timeout.timeout_ns(MIB).unwrap()
            };
            run(MIB, 5);
            let after_ns = run(0, 1);
            // It counts as four times as long, and twice that while few operations are known.
            assert!(after_ns <= 8_000_000, "{policy:?}: {after_ns} ns");
        }
    }

    #[test]
    fn a_member_that_receives_another_share_proposes_the_same_cost() {
        // Both members have taken 1 ms for the operation of 1 MiB. One expects a quarter of it.
        for received in [4, 3] {
            let cost = |expected_bytes| {
                let mut timeout = after_warm_up(Policy::OptiNic, WIDE);
                let observation = Observation {
                    expected_bytes,
                    received_bytes: expected_bytes * received / 4,
                    ..Observation::whole(1_000_000, MIB)
                };
                timeout.propose(&observation).map(|proposal| proposal.cost)
            };
            assert_eq!(cost(MIB), cost(MIB / 4));
            assert_eq!(cost(0), None, "it has seen nothing of the path");
        }
    }

    #[test]
    fn celeris_smooths_at_each_member_and_takes_the_median_as_it_is() {
        let mut timeout = after_warm_up(Policy::Celeris, WIDE);
        let own = |timeout: &mut Timeout, ns| {
            let proposal = timeout.propose(&Observation::whole(ns, MIB));
            proposal.unwrap().cost
        };
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
                    repair_choice: RepairChoice::Wait,
                    rtt_ns: None,
                };
                let mut proposals: Vec<Proposal> = round.iter().map(proposal).collect();
                timeouts[0].agree(bytes, &proposals);
                proposals.reverse();
                timeouts[1].agree(bytes, &proposals);
                let [first, second] = timeouts.each_ref().map(|t| t.timeout_ns(bytes));
                prop_assert_eq!(first, second);
                prop_assert!(first.is_none_or(|ns| (min_ns..=bounds.max_ns).contains(&ns)));
                prop_assert_eq!(timeouts[0].repair_choice(), timeouts[1].repair_choice());
            }
        }
    }
}
