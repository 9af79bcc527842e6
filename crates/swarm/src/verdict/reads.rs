//! Checks that the outcome of a read follows from its plan, its deadline and the actions of its
//! user.

use farwrite::schemes::registry::from_tag;
use farwrite::{ExposedRegion, Outcome, ReadRefusal, ReadRefused, RecvHandle};

use crate::case::Coverage;
use crate::oracle::{GUARD, is_untouched};
use crate::plan::MessagePlan;
use crate::violation::{Rule, Violation};
use crate::world::{Message, World};

type Broken = (Rule, &'static str);

struct ReadEnd<'a> {
    plan: &'a MessagePlan,
    message: &'a Message,
    received: Outcome,
    /// The region that was read.
    region: u64,
}

fn demand(rule: Rule, is_so: bool, otherwise: &'static str) -> Result<(), Broken> {
    is_so.then_some(()).ok_or((rule, otherwise))
}

impl ReadEnd<'_> {
    fn recv(&self) -> Option<&RecvHandle> {
        self.message.recv.as_ref()
    }

    /// Whether it asks for more bytes than the region has.
    fn is_beyond(&self) -> bool {
        self.plan.capacity > self.plan.bytes
    }

    fn check(&self) -> Result<(), Broken> {
        self.check_refusal()?;
        let demand = |is_so, otherwise| demand(Rule::Outcome, is_so, otherwise);
        if let Some(outcome) = self.message.completed {
            return demand(
                self.received == outcome,
                "the outcome is not that of the user",
            );
        }
        let is_bounded = from_tag(self.message.scheme).is_some_and(|scheme| scheme.is_bounded());
        let has_deadline = self.message.recv_deadline_ns.is_some();
        match self.received {
            Outcome::Whole => demand(!self.is_beyond(), "bytes were read that are not exposed"),
            // The peer knows the deadline too. Its clock and its round trip may bring it forward.
            Outcome::Partial => demand(
                has_deadline || is_bounded && !self.is_beyond(),
                "it is partial, and nothing ends it early",
            ),
            Outcome::Failed => {
                let is_refused = self
                    .recv()
                    .is_some_and(|recv| recv.read_refusal().is_some());
                // A read of this scheme may lack exact ranges, as far as its reader knows.
                let is_exact = self.plan.is_exact() && has_deadline;
                demand(
                    is_refused || is_exact,
                    "it failed, and the peer has not refused it",
                )
            }
        }
    }

    /// Checks that a read is refused only for what it asks, and that nothing of it arrives then.
    fn check_refusal(&self) -> Result<(), Broken> {
        let demand = |is_so, otherwise| demand(Rule::Terms, is_so, otherwise);
        let recv = self.recv();
        demand(
            recv.is_none_or(|recv| recv.refusal().is_none()),
            "the answer does not meet the terms of its read",
        )?;
        let length = self.plan.capacity as u64;
        let expected = ReadRefused {
            region: ExposedRegion(self.region),
            offset: 0,
            length,
            reason: ReadRefusal::OutOfRange,
        };
        let refused = recv.and_then(RecvHandle::read_refusal);
        demand(
            refused.is_none_or(|refused| self.is_beyond() && refused == expected),
            "it was refused for a wrong reason",
        )?;
        let buffer = self.message.snapshot.get(GUARD..);
        demand(
            !self.is_beyond() || buffer.is_none_or(is_untouched),
            "it should be refused, and was written",
        )
    }

    fn cover(&self, coverage: &mut Coverage) {
        let refused = self.recv().and_then(RecvHandle::read_refusal);
        coverage.saw_if("read refused", refused.is_some());
        coverage.saw_if("read whole", self.received == Outcome::Whole);
        let partial = self.recv().and_then(|recv| recv.partial());
        let has_some = partial.is_some_and(|partial| partial.bytes() > 0);
        coverage.saw_if("read partial, some there", has_some);
    }
}

impl World<'_> {
    pub(crate) fn check_read(&mut self, index: usize) -> Result<(), Violation> {
        let plan = &self.plan.messages[index];
        let message = &self.messages[index];
        let received = message.received.ok_or_else(|| self.still_open(index))?;
        let mut course = self.plan.course(plan.pair, plan.from);
        let number = course.position(|other| other == index);
        let story = ReadEnd {
            plan,
            message,
            received,
            region: number.expect("it is on its course") as u64,
        };
        if let Err((rule, why)) = story.check() {
            let refused = message.recv.as_ref().and_then(RecvHandle::read_refusal);
            let completed = message.completed;
            let what = format!(
                "read {index}: {why}: {received:?}, refused {refused:?}, \
                 completed {completed:?}: {plan}"
            );
            return Err(self.violation(rule, what));
        }
        story.cover(&mut self.coverage);
        Ok(())
    }
}
