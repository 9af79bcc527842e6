//! The end of a session, by either end (P12.6).

use farwrite::QueuePair;
use farwrite::routes::Role;
use farwrite_keys::Text;

use super::{Phase, Session, Shared};
use crate::error::Ended;
use crate::message::{ByeCause, Message};

/// How long an end waits for the peer to get its last message.
pub(super) const LINGER_NS: u64 = 1_000_000_000;
/// The same after a failure: where packets are lost, one of them may leave in a second.
const FAILED_LINGER_NS: u64 = 3_000_000_000;

impl Session {
    /// Ends the session. A message informs the peer of the cause.
    pub(crate) fn close(&mut self, shared: &mut Shared<'_>, cause: ByeCause, why: Ended) {
        let reason = match cause {
            ByeCause::Closed => Text::default(),
            _ => Text::new(&why),
        };
        self.close_because(shared, (cause, reason), why);
    }

    /// As [`Session::close`], with a reason for the peer.
    pub(crate) fn close_because(
        &mut self,
        shared: &mut Shared<'_>,
        (cause, reason): (ByeCause, Text),
        why: Ended,
    ) {
        if self.ended().is_some() {
            return;
        }
        let is_greeting = matches!(self.phase, Phase::Greeting { .. });
        if is_greeting && self.role == Role::Initiator && !self.has_heard(shared) {
            // The peer may not know of the session.
            return self.end(shared, why);
        }
        if let Phase::Leaving { why, .. } = &self.phase {
            // The peer was first.
            let why = why.clone();
            return self.answer_bye(shared, why);
        }
        self.tell(&Message::Bye { cause, reason });
        if cause != ByeCause::Closed {
            self.destroy_pairs(shared);
        }
        // Otherwise the queue pairs stay until the peer answers: it may miss an acknowledgement.
        let linger_ns = match cause {
            ByeCause::Failed | ByeCause::Busy => FAILED_LINGER_NS,
            ByeCause::Closed | ByeCause::NoLongerKnown => LINGER_NS,
        };
        self.turn(Phase::Closing {
            until_ns: shared.now_ns + linger_ns,
            why,
            is_answer: false,
        });
        // Their users must learn that the connection ends, although the queue pairs stay.
        for qp in self.pairs.values() {
            shared.endpoint.waker_of(*qp).wake();
        }
    }

    /// Whether messages of this end have left that the peer has not acknowledged.
    pub(super) fn waits_for_acks(&self, shared: &Shared<'_>) -> bool {
        let waits = |qp: &QueuePair| shared.endpoint.unacknowledged_since(*qp);
        self.pairs
            .values()
            .any(|qp| matches!(waits(qp), Ok(Some(_))))
    }

    /// Ends the session after the peer, which waits for this answer.
    pub(super) fn answer_bye(&mut self, shared: &mut Shared<'_>, why: Ended) {
        self.destroy_pairs(shared);
        let (cause, reason) = (ByeCause::Closed, Text::default());
        self.tell(&Message::Bye { cause, reason });
        self.turn(Phase::Closing {
            until_ns: shared.now_ns + LINGER_NS,
            why,
            is_answer: true,
        });
    }

    pub(super) fn fail(&mut self, shared: &mut Shared<'_>, why: Ended) {
        match (&why, &self.phase) {
            (_, Phase::Closing { why: first, .. } | Phase::Leaving { why: first, .. }) => {
                let first = first.clone();
                self.end(shared, first);
            }
            (Ended::Malformed(_) | Ended::Stuck { .. }, _) => {
                self.close(shared, ByeCause::Failed, why);
            }
            _ => self.end(shared, why),
        }
    }

    fn destroy_pairs(&mut self, shared: &mut Shared<'_>) {
        let openings = std::mem::take(&mut self.openings).into_values();
        let pairs = std::mem::take(&mut self.pairs).into_values();
        for qp in openings.map(|opening| opening.qp).chain(pairs) {
            let _ = shared.endpoint.destroy_qp(qp);
        }
        self.retired.clear();
        self.requests.clear();
    }

    /// Returns everything to the endpoint.
    pub(crate) fn end(&mut self, shared: &mut Shared<'_>, why: Ended) {
        if self.is_over() {
            return;
        }
        self.destroy_pairs(shared);
        let _ = shared.endpoint.destroy_qp(self.qp);
        self.queue.end(shared.endpoint);
        let _ = shared.keeper.remove(self.route);
        self.turn(Phase::Over(why));
    }
}
