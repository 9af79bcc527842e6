//! The end of a session, by either end (P12.6).

use farwrite::routes::Role;
use farwrite_keys::Text;

use super::{LOOK_AGAIN_NS, OpenPair, Phase, Session, Shared, nanoseconds};
use crate::error::Ended;
use crate::message::{ByeCause, Message};

/// How long an end waits for the peer to get its last message.
pub(super) const LINGER_NS: u64 = 1_000_000_000;
/// The same after a failure: where packets are lost, one of them may leave in a second.
const FAILED_LINGER_NS: u64 = 3_000_000_000;
/// Bounds of the time for which an end stays that waits for nothing: a sixteenth of a round trip, in which its last
/// acknowledgements leave a second time (P3.8).
const STAY_NS: [u64; 2] = [1_000_000, 50_000_000];

/// What an end waits for that has said its last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// The peer's answer.
    Answer,
    /// That the peer has it, which needs no answer.
    Acknowledgement,
    /// That the last message has left this end.
    Departure,
    /// Nothing.
    Time,
}

impl Session {
    /// A message informs the peer of the cause.
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
        self.send_last_notice();
        self.tell(&Message::Bye { cause, reason });
        if cause != ByeCause::Closed {
            self.destroy_pairs(shared);
        }
        // Otherwise the queue pairs stay until the peer answers: it may miss an acknowledgement.
        let linger_ns = match cause {
            ByeCause::Failed | ByeCause::Busy => FAILED_LINGER_NS,
            ByeCause::Closed | ByeCause::NoLongerKnown => LINGER_NS,
        };
        self.begin_closing(shared, linger_ns, why, WaitsFor::Answer);
    }

    /// As [`Session::close`] for [`ByeCause::Closed`]. Neither end needs anything of the other any more. Waits only until
    /// the peer was told; if packets were lost before, until it knows.
    pub(crate) fn depart(&mut self, shared: &mut Shared<'_>) {
        if !matches!(self.phase, Phase::Open) {
            return self.close(shared, ByeCause::Closed, Ended::Closed);
        }
        self.send_last_notice();
        self.tell(&Message::Left);
        let waits_for = match self.has_repeated(shared) {
            true => WaitsFor::Acknowledgement,
            false => WaitsFor::Departure,
        };
        self.begin_closing(shared, LINGER_NS, Ended::Closed, waits_for);
    }

    /// Whether chunks of this end were sent again, so that the path loses packets.
    fn has_repeated(&self, shared: &Shared<'_>) -> bool {
        let pairs = self.pairs.values().map(|pair| pair.qp);
        let mut pairs = pairs.chain([self.qp]);
        pairs.any(|qp| match shared.endpoint.qp_stats(qp) {
            Ok(stats) => stats.sender.retransmitted_chunks > 0,
            Err(_) => true,
        })
    }

    /// The peer has left. This end stays for a moment, as the peer waits for an acknowledgement.
    pub(super) fn stay_behind(&mut self, shared: &mut Shared<'_>) {
        self.destroy_pairs(shared);
        let (cause, reason) = (ByeCause::Closed, Text::default());
        let why = Ended::ByPeer { cause, reason };
        self.begin_closing(shared, self.stay_ns(), why, WaitsFor::Time);
    }

    fn stay_ns(&self) -> u64 {
        let [least_ns, most_ns] = STAY_NS;
        (nanoseconds(self.rtt) / 16).clamp(least_ns, most_ns)
    }

    fn begin_closing(
        &mut self,
        shared: &Shared<'_>,
        linger_ns: u64,
        why: Ended,
        waits_for: WaitsFor,
    ) {
        self.turn(Phase::Closing {
            until_ns: shared.now_ns + linger_ns,
            why,
            waits_for,
        });
        // Their users must learn that the connection ends, if the queue pairs stay.
        for pair in self.pairs.values() {
            shared.endpoint.waker_of(pair.qp).wake();
        }
    }

    /// Goes on with closing. Returns when to look again; `None` when the session is over.
    pub(super) fn wait_to_close(&mut self, shared: &mut Shared<'_>) -> Option<u64> {
        let stay_ns = self.stay_ns();
        let Phase::Closing {
            until_ns,
            why,
            waits_for,
        } = &mut self.phase
        else {
            return Some(u64::MAX);
        };
        if *waits_for == WaitsFor::Departure && self.queue.has_left() {
            *until_ns = (*until_ns).min(shared.now_ns + stay_ns);
            *waits_for = WaitsFor::Time;
        }
        let is_known = *waits_for == WaitsFor::Acknowledgement && self.queue.unsent() == 0;
        if is_known || shared.now_ns >= *until_ns {
            let why = why.clone();
            self.end(shared, why);
            return None;
        }
        Some(match waits_for {
            // No event says it.
            WaitsFor::Departure => (*until_ns).min(shared.now_ns + LOOK_AGAIN_NS),
            _ => *until_ns,
        })
    }

    /// Whether messages of this end have left that the peer has not acknowledged.
    pub(super) fn waits_for_acks(&self, shared: &Shared<'_>) -> bool {
        let waits = |pair: &OpenPair| shared.endpoint.unacknowledged_since(pair.qp);
        self.pairs
            .values()
            .any(|pair| matches!(waits(pair), Ok(Some(_))))
    }

    /// Ends the session after the peer, which waits for this answer.
    pub(super) fn answer_bye(&mut self, shared: &mut Shared<'_>, why: Ended) {
        self.destroy_pairs(shared);
        let (cause, reason) = (ByeCause::Closed, Text::default());
        self.tell(&Message::Bye { cause, reason });
        self.begin_closing(shared, LINGER_NS, why, WaitsFor::Acknowledgement);
    }

    pub(super) fn fail(&mut self, shared: &mut Shared<'_>, why: Ended) {
        match (&why, &self.phase) {
            (_, Phase::Closing { why: first, .. } | Phase::Leaving { why: first, .. }) => {
                let first = first.clone();
                self.end(shared, first);
            }
            // What failed may be more than the route for data, so the peer may not learn it.
            (Ended::Malformed(_) | Ended::Stuck { .. } | Ended::Endpoint(_), _) => {
                self.close(shared, ByeCause::Failed, why);
            }
            _ => self.end(shared, why),
        }
    }

    fn destroy_pairs(&mut self, shared: &mut Shared<'_>) {
        let openings = std::mem::take(&mut self.openings).into_values();
        let pairs = std::mem::take(&mut self.pairs).into_values();
        let pairs = pairs.map(|pair| pair.qp);
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
