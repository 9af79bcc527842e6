//! When the steps around a ring end at this rank, and the deadlines that follow.
//!
//! Steps take different times: some cross a long path, and some do not. So a deadline for each step
//! follows from the time at which it ended in earlier operations. All ranks compare these times with
//! the same number, the cost of the slowest rank. So of the deadlines of a packet on its way, each one is
//! later than the one before.

use farwrite_deadline::{Cost, Proposal};

/// The usual time of the steps after a late one, divided by the time that they need then: their data are ready.
/// With a deadline that leaves them all of their usual time, two to four times as much is missing among bursts of
/// other traffic (`tails -- shipped`).
const CATCH_UP: u64 = 2;

/// The times of the operations of one kind and size class, per byte of the operation.
#[derive(Debug, Default)]
pub(crate) struct StepTimes {
    /// By step: the [`Cost`] until its end.
    ends: Vec<u64>,
    /// That of the slowest rank until the end of the operation.
    slowest: u64,
}

impl StepTimes {
    /// Learns when the steps of an operation of `bytes` bytes ended, counted from its start.
    pub(crate) fn note_ends(&mut self, ends_ns: &[u64], bytes: u64) {
        self.ends.resize(ends_ns.len(), 0);
        for (known, &end_ns) in self.ends.iter_mut().zip(ends_ns) {
            *known = latest(*known, Cost::of(end_ns, bytes).0);
        }
    }

    /// Learns how long an operation took at all ranks.
    pub(crate) fn note_proposals(&mut self, proposals: &[Proposal]) {
        let costs = proposals.iter().map(|proposal| proposal.cost.0);
        if let Some(slowest) = costs.max() {
            self.slowest = latest(self.slowest, slowest);
        }
    }

    /// The deadlines of the steps of an operation of `bytes` bytes that may take `timeout_ns`, counted
    /// from its start.
    ///
    /// Usually, a step may be as late as the whole operation, and has at least its equal share of the time. The
    /// steps after a late one need less than that leaves to them ([`CATCH_UP`]), so its deadline is later.
    pub(crate) fn deadlines_ns(&self, timeout_ns: u64, bytes: u64, steps: usize) -> Vec<u64> {
        let share = |part: u64, whole: u64| {
            let ns = u128::from(timeout_ns) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        let slack_ns = timeout_ns.checked_sub(Cost(self.slowest).time_ns(bytes));
        let deadline = |step: usize| {
            let known = self.ends.get(step).copied().unwrap_or(0);
            let usual = match slack_ns {
                Some(slack_ns) => Cost(known).time_ns(bytes).saturating_add(slack_ns),
                None => share(known, self.slowest),
            };
            let equal = share(step as u64 + 1, steps as u64);
            let usual = equal.max(usual).min(timeout_ns);
            timeout_ns - (timeout_ns - usual) / CATCH_UP
        };
        (0..steps).map(deadline).collect()
    }
}

/// The higher one of a known and a new value. A known value becomes less over some operations.
fn latest(known: u64, new: u64) -> u64 {
    new.max(known - known / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_deadline::RepairChoice;

    const MIB: u64 = 1 << 20;

    fn proposal(time_ns: u64) -> Proposal {
        Proposal {
            cost: Cost::of(time_ns, MIB),
            path_loss_ppm: 0,
            repair_choice: RepairChoice::Wait,
            rtt_ns: None,
        }
    }

    #[test]
    fn a_step_may_be_as_late_as_the_operation() {
        let mut times = StepTimes::default();
        times.note_ends(&[], MIB);
        assert_eq!(times.deadlines_ns(900, MIB, 3), [900, 900, 900]);
        times.note_ends(&[800, 820, 850], MIB);
        times.note_proposals(&[proposal(850), proposal(1_000)]);
        // The first step usually leaves 200 to the others, which can be half of that.
        assert_eq!(times.deadlines_ns(1_100, MIB, 3), [1_000, 1_010, 1_100]);
        // Twice the size takes twice the time.
        assert_eq!(times.deadlines_ns(2_200, 2 * MIB, 3), [2_000, 2_020, 2_200]);
        // If there is less time than the slowest rank needs, each step has less.
        assert_eq!(times.deadlines_ns(500, MIB, 3), [450, 455, 500]);
    }

    #[test]
    fn a_slow_operation_is_forgotten_over_some_operations() {
        let mut times = StepTimes::default();
        for (end_ns, expected_ns) in [(800, 900), (100, 850), (100, 807), (650, 825)] {
            times.note_ends(&[end_ns, 1_000], MIB);
            times.slowest = Cost::of(1_000, MIB).0;
            assert_eq!(times.deadlines_ns(1_000, MIB, 2), [expected_ns, 1_000]);
        }
    }
}
