//! The policy that waits only as long as a loss target needs: it chooses the lowest timeout that
//! keeps the share of missing bytes below the target.
//!
//! The policy keeps the uncut cost of each recent operation. It is measured, or extrapolated if the
//! deadline cut the operation. The model assumes that bytes arrive at a constant rate: an operation
//! with cost X misses 1 - T / X of its bytes at a timeout T < X. The extrapolation uses the same
//! model, so it reproduces the share that a cut operation really missed. Future operations differ
//! from past ones, so the timeout aims at four fifths of the target. If the slowest known operation is
//! at most a sixteenth slower than this timeout, the timeout becomes slightly longer than that
//! operation. So on a path without variation, no operation is cut.
//!
//! Until [`ROUNDS`] operations are known, the policy adds an assumed one that is slower than all of
//! them, at all members. After ten operations, the next one is the slowest so far in one of eleven
//! cases.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cost::Cost;
use crate::repair_choice::{Limits, RepairChoice};

/// Number of operations whose costs are kept.
const ROUNDS: usize = 64;
/// Number of costs kept per operation. In a larger group, this number of evenly spaced costs is
/// kept.
const COSTS_A_ROUND: usize = 16;
/// The assumed operation takes this many times as long as the slowest known one.
pub(crate) const UNSEEN_TIMES: u64 = 2;

/// The costs and losses of recent operations, and the current repair.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossTarget {
    rounds: VecDeque<Vec<Cost>>,
    /// Smoothed loss of the path, in millionths; `None` before the first operation.
    loss_ppm: Option<u64>,
    repair_choice: RepairChoice,
    /// Whether no operation has run with the current choice of repair yet.
    is_untried: bool,
    cost: Option<Cost>,
}

/// Factor for the timeout of the first operation with a new repair. The real cost of the repair is
/// unknown before this operation.
const UNTRIED_TIMES: u64 = 4;

impl LossTarget {
    pub(crate) fn repair_choice(&self) -> RepairChoice {
        self.repair_choice
    }

    /// The highest cost that an operation may have; `None` before the first operation.
    pub(crate) fn cost(&self) -> Option<Cost> {
        match self.is_untried {
            true => Some(self.cost?.times(UNTRIED_TIMES, 1)),
            false => self.cost,
        }
    }

    /// Adds an operation: its cost at each member with the repair that it ran with, and the loss of
    /// the path. The repair can differ from the current one: operations overlap.
    pub(crate) fn take(
        &mut self,
        operations: &[(Cost, RepairChoice)],
        loss_ppm: u64,
        target_ppm: u64,
        limits: Limits,
    ) {
        let now = self.repair_choice;
        let is_current = |&(_, ran): &(Cost, RepairChoice)| ran.is_same_repair(now);
        if operations.iter().all(is_current) {
            self.is_untried = false;
        }
        let costs = operations.iter();
        let costs = costs.map(|&(cost, ran)| cost.with_repair(ran, now, limits.rtt));
        let mut costs: Vec<Cost> = costs.collect();
        costs.sort_unstable();
        if self.rounds.len() == ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(chosen(&costs));
        let before = self.loss_ppm.unwrap_or(loss_ppm);
        let loss_ppm = (before * 4 + loss_ppm) / 5;
        self.loss_ppm = Some(loss_ppm);
        self.decide(loss_ppm, target_ppm, limits);
        let late_ppm = late_ppm(self.repair_choice, loss_ppm, target_ppm);
        self.cost = self.least(late_ppm.max(1)).map(|least| {
            let highest = self.rounds.iter().flatten().copied().max();
            highest
                .filter(|highest| *highest <= least.times(17, 16))
                .map(|highest| Cost(highest.0.saturating_add(limits.slack.0)))
                .map_or(least, |enough| enough.max(least))
        });
    }

    /// Starts, changes or stops repair.
    fn decide(&mut self, loss_ppm: u64, target_ppm: u64, limits: Limits) {
        let before = self.repair_choice;
        let is_waiting = before.is_same_repair(RepairChoice::Wait);
        // Hysteresis: repair continues until the loss of the path is far below the target.
        let enough_ppm = match is_waiting {
            true => target_ppm,
            false => target_ppm / 2,
        };
        let is_met = self.repair_choice.left_ppm(loss_ppm) <= target_ppm;
        let wanted = if loss_ppm <= enough_ppm {
            RepairChoice::Wait
        } else if !is_waiting && is_met {
            self.repair_choice
        } else {
            let typical = before.cost_without(self.typical(), limits.rtt);
            let choose = |wanted_ppm| RepairChoice::choose(loss_ppm, wanted_ppm, typical, limits);
            match choose(target_ppm / 2) {
                // Less room for late bytes is better than to miss the target.
                RepairChoice::CannotBeMet { .. } => choose(target_ppm),
                repair => repair,
            }
        };
        if !wanted.is_same_repair(before) {
            let costs = self.rounds.iter_mut().flatten();
            costs.for_each(|cost| *cost = cost.with_repair(before, wanted, limits.rtt));
            self.is_untried = true;
        }
        self.repair_choice = wanted;
    }

    fn typical(&self) -> Cost {
        let mut all: Vec<Cost> = self.rounds.iter().flatten().copied().collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(Cost(0))
    }

    /// The lowest timeout, as a cost, at which the known operations would miss at most `late_ppm` on
    /// average; while few are known, with an assumed one.
    fn least(&self, late_ppm: u64) -> Option<Cost> {
        let mut all: Vec<Cost> = self.rounds.iter().flatten().copied().collect();
        let slowest = *all.iter().max()?;
        if self.rounds.len() < ROUNDS {
            let members = self.rounds.back().map_or(1, Vec::len);
            let unseen = slowest.times(UNSEEN_TIMES, 1);
            all.extend(core::iter::repeat_n(unseen, members));
        }
        let mut high = slowest.times(UNSEEN_TIMES, 1).0;
        let mut low = 0;
        while low < high {
            let middle = low + (high - low) / 2;
            match missing_ppm(&all, middle) <= late_ppm {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Some(Cost(high))
    }
}

/// The share of bytes that may be late on a path that drops `loss_ppm`.
fn late_ppm(repair_choice: RepairChoice, loss_ppm: u64, target_ppm: u64) -> u64 {
    let left_ppm = repair_choice.left_ppm(loss_ppm);
    let aim_ppm = target_ppm - target_ppm / 5;
    let late_ppm = aim_ppm.saturating_sub(left_ppm).max(target_ppm / 8);
    match repair_choice {
        // Late bytes must not add much to what is missing anyway.
        RepairChoice::CannotBeMet { .. } => late_ppm,
        _ => late_ppm.min(target_ppm.saturating_sub(left_ppm)),
    }
}

/// The average share of bytes that operations with these costs miss at a timeout, in millionths.
fn missing_ppm(costs: &[Cost], timeout: u64) -> u64 {
    let missing = |cost: &Cost| {
        let late = u128::from(cost.0.saturating_sub(timeout));
        late * 1_000_000 / u128::from(cost.0.max(1))
    };
    let sum: u128 = costs.iter().map(missing).sum();
    u64::try_from(sum.div_ceil(costs.len().max(1) as u128)).unwrap_or(u64::MAX)
}

/// Selects at most [`COSTS_A_ROUND`] of these costs, always with the lowest and the highest.
fn chosen(costs: &[Cost]) -> Vec<Cost> {
    let last = costs.len().saturating_sub(1);
    if costs.len() <= COSTS_A_ROUND {
        return costs.to_vec();
    }
    let index = |nth: usize| nth * last / (COSTS_A_ROUND - 1);
    let indices = (0..COSTS_A_ROUND).map(index);
    indices.filter_map(|at| costs.get(at).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        rtt: Cost(100),
        max: Cost(u64::MAX),
        most_parity: 32,
        may_repair: true,
        slack: Cost(0),
    };

    #[test]
    fn of_many_members_some_are_kept_and_the_slowest_is_one() {
        let costs: Vec<Cost> = (0..1_000).map(Cost).collect();
        let kept = chosen(&costs);
        assert_eq!((kept.len(), kept[0], kept[15]), (16, Cost(0), Cost(999)));
        assert_eq!(chosen(&costs[..3]), costs[..3]);
        assert!(chosen(&[]).is_empty());
    }

    #[test]
    fn the_cost_of_repair_is_counted_once() {
        for repair_choice in [
            RepairChoice::Repeats { rounds: 1 },
            RepairChoice::Parity { k: 32, m: 4 },
        ] {
            let rtt = Cost(100);
            let with = repair_choice.cost(Cost(1_000), rtt);
            let without = repair_choice.cost_without(with, rtt);
            assert!(
                (999..=1_000).contains(&without.0),
                "{repair_choice:?}: {without:?}"
            );
        }
        let mut target = LossTarget::default();
        let mut cost_after = |loss_ppm, rounds| {
            for _ in 0..rounds {
                let cost = target.repair_choice().cost(Cost(1_000), LIMITS.rtt);
                let repair_choice = target.repair_choice();
                target.take(&[(cost, repair_choice)], loss_ppm, 1_000, LIMITS);
            }
            target.cost().unwrap().0
        };
        // Repair starts, changes and stops. Without it, all operations cost 1000.
        assert!(cost_after(0, ROUNDS) <= 1_000);
        let two_rounds = RepairChoice::Repeats { rounds: 2 }.cost(Cost(1_000), LIMITS.rtt);
        for loss_ppm in [5_000, 30_000, 5_000] {
            assert!(cost_after(loss_ppm, 20) <= two_rounds.0, "{loss_ppm} ppm");
        }
        assert!(
            cost_after(0, ROUNDS) <= 1_000,
            "the time of the repair stays"
        );
    }

    #[test]
    fn a_repair_is_chosen_by_the_cost_without_the_current_one() {
        let limits = Limits {
            rtt: Cost(10_000),
            // Enough for 24 chunks of parity for 32 of data, but not in addition to 16 others.
            max: Cost(1_800),
            ..LIMITS
        };
        let mut target = LossTarget::default();
        let mut take = |loss_ppm| {
            for _ in 0..2 * ROUNDS {
                let repair_choice = target.repair_choice();
                let cost = repair_choice.cost(Cost(1_000), limits.rtt);
                target.take(&[(cost, repair_choice)], loss_ppm, 10_000, limits);
                let is_repaired =
                    !matches!(target.repair_choice(), RepairChoice::CannotBeMet { .. });
                assert!(is_repaired, "{loss_ppm} after {repair_choice:?}");
            }
            target.repair_choice()
        };
        let mut last = 0;
        for loss_ppm in [100_000, 150_000, 200_000, 250_000] {
            let repair_choice = take(loss_ppm);
            let RepairChoice::Parity { m, .. } = repair_choice else {
                panic!("{loss_ppm}: {repair_choice:?}");
            };
            assert!(m >= last && m <= 24, "{loss_ppm}: {m} after {last}");
            last = m;
        }
    }

    #[test]
    fn a_target_that_can_be_met_again_is_no_longer_reported() {
        let tight = Limits {
            max: Cost(1_000),
            rtt: Cost(10_000),
            ..LIMITS
        };
        let mut target = LossTarget::default();
        let mut take = |loss_ppm| {
            for _ in 0..ROUNDS {
                let repair_choice = target.repair_choice();
                target.take(&[(Cost(1_000), repair_choice)], loss_ppm, 10_000, tight);
            }
            target.repair_choice()
        };
        assert!(matches!(take(50_000), RepairChoice::CannotBeMet { .. }));
        assert_eq!(take(8_000), RepairChoice::Wait);
    }

    #[test]
    fn late_bytes_and_lost_bytes_together_meet_the_target() {
        for loss_ppm in [0, 5_000, 8_000, 9_500, 10_000] {
            let mut target = LossTarget::default();
            // Operations that take 1000 to 1990.
            for round in 0..2 * ROUNDS as u64 {
                let cost = Cost(1_000 + round * 37 % 100 * 10);
                target.take(&[(cost, RepairChoice::Wait)], loss_ppm, 10_000, LIMITS);
            }
            assert_eq!(target.repair_choice(), RepairChoice::Wait);
            let costs: Vec<Cost> = target.rounds.iter().flatten().copied().collect();
            let late_ppm = missing_ppm(&costs, target.cost().unwrap().0);
            assert!(
                late_ppm + loss_ppm <= 10_001,
                "{late_ppm} late at {loss_ppm}"
            );
        }
    }

    #[test]
    fn a_repair_that_only_just_meets_the_target_is_used() {
        let limits = Limits {
            rtt: Cost(10_000),
            // Enough for one chunk of parity, but not for two or for a round of repeats.
            max: Cost(105_000),
            ..LIMITS
        };
        let mut target = LossTarget::default();
        for _ in 0..ROUNDS {
            let repair_choice = target.repair_choice();
            let cost = repair_choice.cost(Cost(100_000), limits.rtt);
            target.take(&[(cost, repair_choice)], 20_000, 10_000, limits);
        }
        let repair = RepairChoice::Parity { k: 32, m: 1 };
        assert_eq!(target.repair_choice(), repair);
        assert!((5_001..=10_000).contains(&repair.left_ppm(20_000)));
    }

    #[test]
    fn an_operation_with_the_repair_of_before_does_not_try_the_new_one() {
        let mut target = LossTarget::default();
        let mut take = |repair_choice: RepairChoice, loss_ppm| {
            let cost = repair_choice.cost(Cost(1_000), LIMITS.rtt);
            target.take(&[(cost, repair_choice); 2], loss_ppm, 1_000, LIMITS);
            (target.repair_choice(), target.cost().unwrap())
        };
        let (repair, untried) = take(RepairChoice::Wait, 5_000);
        assert!(untried >= repair.cost(Cost(1_000), LIMITS.rtt).times(4, 1));
        // This operation began before the choice of repair, so it gives no information about the repair.
        let (same, still) = take(RepairChoice::Wait, 5_000);
        let (again, tried) = take(repair, 5_000);
        assert_eq!((same, again), (repair, repair));
        assert!(still > untried.times(9, 10), "{still:?} {untried:?}");
        assert!(tried < untried.times(1, 2), "{tried:?} {untried:?}");
    }

    #[test]
    fn repair_goes_on_until_the_loss_is_far_below_the_target() {
        let mut target = LossTarget::default();
        let mut take = |loss_ppm| {
            for _ in 0..60 {
                let operation = (Cost(1_000), target.repair_choice());
                target.take(&[operation], loss_ppm, 1_000, LIMITS);
            }
            target.repair_choice()
        };
        assert_eq!(take(900), RepairChoice::Wait);
        let repair = take(5_000);
        assert!(!matches!(
            repair,
            RepairChoice::Wait | RepairChoice::CannotBeMet { .. }
        ));
        assert_eq!(take(900), repair);
        assert_eq!(take(400), RepairChoice::Wait);
    }

    proptest! {
        #[test]
        fn the_timeout_is_the_least_that_meets_the_target(
            costs in prop::collection::vec(1u64..1 << 40, 1..60),
            late_ppm in 1u64..500_000,
        ) {
            let mut all: Vec<Cost> = costs.into_iter().map(Cost).collect();
            let mut target = LossTarget::default();
            target.rounds.push_back(all.clone());
            let unseen = all.iter().max().unwrap().times(UNSEEN_TIMES, 1);
            all.extend(core::iter::repeat_n(unseen, all.len()));
            let least = target.least(late_ppm).unwrap().0;
            prop_assert!(missing_ppm(&all, least) <= late_ppm);
            prop_assert!(least == 0 || missing_ppm(&all, least - 1) > late_ppm);
        }
    }
}
