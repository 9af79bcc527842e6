//! What a message shows of the faults and outcomes that cases can meet.

use farwrite::{Outcome, Refusal};

use super::MessageEnd;
use crate::case::Coverage;
use crate::plan::Repair;
use crate::world::Message;

impl MessageEnd<'_> {
    pub(super) fn cover(&self, coverage: &mut Coverage) {
        let Message {
            cancelled,
            completed,
            ..
        } = self.message;
        let is_short = self.plan.capacity < self.plan.bytes;
        let ends = (self.sent, self.received);
        coverage.saw_if("cancelled", *cancelled);
        let has_scheme = matches!(self.plan.scheme, Repair::Scheme(_));
        coverage.saw_if("completed early", completed.is_some() && has_scheme);
        coverage.saw_if("buffer too short", is_short);
        coverage.saw_if(
            "both ends agree",
            ends == (Outcome::Whole, Outcome::Whole) && completed.is_none(),
        );
        coverage.saw_if("ends differ", self.sent != self.received);
        let is_exact = self.plan.is_exact() && !self.plan.critical.is_empty();
        let has_critical = is_exact && self.has_critical();
        coverage.saw_if(
            "partial with all exact ranges",
            has_critical && self.received == Outcome::Partial,
        );
        coverage.saw_if(
            "failed without all exact ranges",
            is_exact && !has_critical && self.recv_expired() && self.received == Outcome::Failed,
        );
        self.cover_deadlines(coverage);
        self.cover_terms(coverage);
    }

    fn cover_deadlines(&self, coverage: &mut Coverage) {
        let Message {
            send_deadline_ns,
            recv_deadline_ns,
            completed,
            recv,
            ..
        } = self.message;
        let length = recv.as_ref().and_then(|recv| recv.length());
        let deadlines = [send_deadline_ns, recv_deadline_ns];
        let is_whole = (self.sent, self.received) == (Outcome::Whole, Outcome::Whole);
        let any = deadlines.into_iter().any(Option::is_some);
        coverage.saw_if("deadline in time", any && is_whole);
        let by_user = completed.is_some();
        if self.recv_expired() && !by_user {
            match self.received {
                Outcome::Whole => coverage.saw("whole at the deadline of the receive"),
                Outcome::Partial if length.is_none() => {
                    coverage.saw("deadline of the receive before the offer");
                }
                Outcome::Partial => coverage.saw("deadline of the receive after the offer"),
                Outcome::Failed => {}
            }
        }
        if self.send_expired() && !self.sender_heard() {
            match self.sent {
                Outcome::Partial => coverage.saw("deadline of the send, partial"),
                Outcome::Failed if self.is_begun() => {
                    coverage.saw("deadline of the send, failed");
                }
                Outcome::Failed => coverage.saw("deadline of the send before any data"),
                Outcome::Whole => {}
            }
        }
        let by_sender = self.received == Outcome::Partial && !self.recv_expired() && !by_user;
        let in_time = by_sender && self.is_bounded() && !self.send_expired();
        coverage.saw_if("partial before any deadline", in_time);
        let by_sender = by_sender && !self.is_bounded();
        coverage.saw_if("receive ended by the deadline of the send", by_sender);
    }

    fn cover_terms(&self, coverage: &mut Coverage) {
        let terms = &self.plan.terms;
        for refusal in self.refusals().into_iter().flatten() {
            match refusal {
                Refusal::Scheme { .. } => coverage.saw("refused for its scheme"),
                Refusal::Length { .. } => coverage.saw("refused for its length"),
                Refusal::Immediate { .. } => coverage.saw("refused for its immediate"),
                _ => {}
            }
        }
        let is_foreseen = terms.exact_length && terms.scheme.is_some();
        let is_whole = self.received == Outcome::Whole;
        coverage.saw_if("whole as foreseen", is_foreseen && is_whole);
    }
}
