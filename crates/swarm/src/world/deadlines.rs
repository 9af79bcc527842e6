//! Checks deadlines: a side with a deadline has its outcome by then, for any losses.

use super::World;
use crate::violation::{Rule, Violation};

impl World<'_> {
    /// The deadline of a post made now with `limit_ns`.
    pub(super) fn deadline_ns(&self, limit_ns: Option<u64>) -> Option<u64> {
        Some(self.now_ns() + limit_ns?)
    }

    /// Records the deadline of an end that posted its side of a message.
    pub(super) fn watch_deadline(&mut self, index: usize, end: usize, deadline_ns: Option<u64>) {
        if let Some(deadline_ns) = deadline_ns {
            self.deadlines.insert((deadline_ns, index, end));
        }
    }

    /// Checks that no message is open after its deadline. A host that does not poll ends its
    /// messages when it polls again.
    pub(super) fn check_deadlines(&mut self) -> Result<(), Violation> {
        let now_ns = self.now_ns();
        while let Some(&(due_ns, index, end)) = self.deadlines.first()
            && due_ns < now_ns
        {
            self.deadlines.pop_first();
            if !self.is_side_open(index, end) {
                continue;
            }
            let host = &self.hosts[self.plan.host(self.plan.messages[index].pair, end)];
            if host.paused {
                let wakes_ns = self.instants.first().copied();
                let wakes_ns = wakes_ns.expect("a pause ends before links heal");
                self.deadlines.insert((wakes_ns, index, end));
                self.coverage.saw("deadline in a pause");
            } else if host.woke_ns > due_ns {
                self.deadlines.insert((host.woke_ns, index, end));
            } else {
                let late_ns = now_ns - due_ns;
                let plan = &self.plan.messages[index];
                let what = format!(
                    "message {index} is open at end {end}, {late_ns} ns after its deadline: {plan}"
                );
                return Err(self.violation(Rule::Deadline, what));
            }
        }
        Ok(())
    }

    /// Whether one side of a message is posted without an outcome.
    fn is_side_open(&self, index: usize, end: usize) -> bool {
        let message = &self.messages[index];
        match end == self.plan.messages[index].from {
            true => message.send.is_some() && message.sent.is_none(),
            false => message.recv.is_some() && message.received.is_none(),
        }
    }
}
