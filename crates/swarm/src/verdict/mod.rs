//! Checks that the outcomes of a message follow from its plan, its deadlines and the actions of its
//! users.

mod coverage;
mod critical;
mod reads;
mod writes;

use farwrite::schemes::registry::from_tag;
use farwrite::{Outcome, RecvHandle, Refusal, SchemeName, SendHandle};

use crate::plan::{MessagePlan, Repair};
use crate::violation::{Rule, Violation};
use crate::world::{Message, World};

type Broken = (Rule, &'static str);

struct MessageEnd<'a> {
    plan: &'a MessagePlan,
    message: &'a Message,
    sent: Outcome,
    received: Outcome,
    /// The terms of its receive that the message does not meet.
    differences: Vec<Refusal>,
    /// When its last data packet was sent; `None` if none was.
    written_ns: Option<u64>,
    /// Whether other chunks were sent before all critical ones.
    is_overtaken: bool,
    chunk_bytes: u64,
}

/// All terms of its receive that a message does not meet (P3.12).
fn differences(plan: &MessagePlan, message: &Message) -> Vec<Refusal> {
    let mut differences = Vec::new();
    let (length, capacity) = (plan.bytes as u64, plan.capacity as u64);
    let (offered, has_immediate) = (message.scheme, plan.immediate.is_some());
    if let Some(expected) = plan.terms.scheme.filter(|expected| *expected != offered) {
        differences.push(Refusal::Scheme { offered, expected });
    }
    if plan.terms.exact_length && has_immediate != plan.terms.immediate {
        differences.push(Refusal::Immediate {
            offered: has_immediate,
        });
    }
    if plan.terms.exact_length && length != capacity {
        differences.push(Refusal::Length {
            offered: length,
            expected: capacity,
        });
    }
    if length > capacity {
        differences.push(Refusal::TooLong { length, capacity });
    }
    differences
}

fn demand(rule: Rule, is_so: bool, otherwise: &'static str) -> Result<(), Broken> {
    is_so.then_some(()).ok_or((rule, otherwise))
}

impl MessageEnd<'_> {
    fn check(&self) -> Result<(), Broken> {
        self.check_received()?;
        self.check_sent()?;
        self.check_refusals()?;
        self.check_critical()?;
        demand(
            Rule::Afterwards,
            self.written_ns <= Some(self.message.sent_ns),
            "it was written after its send was over",
        )
    }

    fn is_begun(&self) -> bool {
        self.written_ns.is_some()
    }

    /// The reasons with which the sender and the receiver refused it.
    fn refusals(&self) -> [Option<Refusal>; 2] {
        let Message { send, recv, .. } = self.message;
        [
            send.as_ref().and_then(SendHandle::refusal),
            recv.as_ref().and_then(RecvHandle::refusal),
        ]
    }

    fn send_expired(&self) -> bool {
        let Message {
            send_deadline_ns,
            sent_ns,
            ..
        } = self.message;
        send_deadline_ns.is_some_and(|deadline_ns| deadline_ns <= *sent_ns)
    }

    fn recv_expired(&self) -> bool {
        let Message {
            recv_deadline_ns,
            received_ns,
            ..
        } = self.message;
        recv_deadline_ns.is_some_and(|deadline_ns| deadline_ns <= *received_ns)
    }

    /// Whether its scheme allows a partial end, independent of the terms (P5.9).
    fn is_bounded(&self) -> bool {
        // The message uses another scheme if its parity would be too long.
        from_tag(self.message.scheme).is_some_and(|scheme| scheme.is_bounded())
    }

    /// Whether the receiver takes its scheme from the terms (P3.12) and that one is bounded. The
    /// sender may have cancelled another scheme before the receiver had an offer to refuse.
    fn is_bounded_by_terms(&self) -> bool {
        let scheme = self.plan.terms.scheme.and_then(from_tag);
        scheme.is_some_and(|scheme| scheme.is_bounded()) && !self.is_begun()
    }

    /// Whether the sender may end it as partial at its deadline.
    fn accepts_partial(&self) -> bool {
        self.plan.terms.accepts_partial || self.is_bounded()
    }

    /// Whether all of it was sent, and its sender waits for no report, or only for reports on exact
    /// ranges.
    fn is_sent_for_good(&self) -> bool {
        let is_sent_once = matches!(
            self.plan.scheme,
            Repair::Scheme(
                SchemeName::BestEffort | SchemeName::BestEffortFirst | SchemeName::BestEffortExact
            )
        );
        let send = self.message.send.as_ref();
        is_sent_once && self.is_begun() && send.is_some_and(SendHandle::is_injected)
    }

    /// Whether the receiver can know how the sender ended the message.
    fn receiver_heard(&self) -> bool {
        self.message.sent_ns < self.message.received_ns
    }

    /// Whether the sender can know how the receiver ended the message.
    fn sender_heard(&self) -> bool {
        self.message.received_ns < self.message.sent_ns && self.sent == self.received
    }

    /// Checks that the outcome of the receive has a reason (P3.9).
    fn check_received(&self) -> Result<(), Broken> {
        let demand = |is_so, otherwise| demand(Rule::Outcome, is_so, otherwise);
        if let Some(outcome) = self.message.completed {
            return demand(
                self.received == outcome,
                "the outcome is not that of the user",
            );
        }
        match self.received {
            Outcome::Whole => demand(self.differences.is_empty(), "it should be refused"),
            Outcome::Partial => {
                demand(!self.is_all_there(), "all has arrived, and it is partial")?;
                let accepted = self.accepts_partial() && self.sent == Outcome::Partial;
                let by_sender = accepted && self.send_expired() && self.receiver_heard();
                // The sender has sent a newer message, or has said that it is done. Only
                // `best-effort` continues when all packets have left, without waiting for an
                // outcome.
                let is_left_behind = self.is_bounded()
                    && (self.receiver_heard() || self.is_sent_for_good())
                    || self.is_bounded_by_terms();
                demand(
                    self.recv_expired() || by_sender || is_left_behind,
                    "it is partial before any deadline that makes it so",
                )
            }
            Outcome::Failed => {
                let is_withdrawn = self.sent == Outcome::Failed && self.receiver_heard();
                let is_refused = self.refusals()[1].is_some();
                demand(
                    is_withdrawn || is_refused || self.may_lack_exact_ranges(),
                    "the receive failed, although neither end gave it up",
                )
            }
        }
    }

    /// Whether a partial receive names the whole message.
    fn is_all_there(&self) -> bool {
        let recv = self.message.recv.as_ref();
        let Some((recv, partial)) = recv.and_then(|recv| Some((recv, recv.partial()?))) else {
            return false;
        };
        let is_labelled = recv.length() == Some(self.plan.bytes as u64)
            && recv.immediate() == self.plan.immediate;
        is_labelled && (0..partial.chunks()).all(|chunk| partial.has_chunk(chunk))
    }

    /// Checks that the outcome of the send has a reason (P3.9).
    fn check_sent(&self) -> Result<(), Broken> {
        let demand = |is_so, otherwise| demand(Rule::Outcome, is_so, otherwise);
        let cancelled = self.message.cancelled;
        let accepts_partial = self.accepts_partial();
        match self.sent {
            Outcome::Whole => demand(
                self.received == Outcome::Whole && !cancelled,
                "the sender sees it as whole",
            ),
            Outcome::Partial => {
                // A message without exact ranges ends as partial at a sender that does not know that
                // the receiver had no offer by its deadline.
                let stands = self.received != Outcome::Failed
                    || self.message.completed.is_some()
                    || self.may_lack_exact_ranges();
                let at_deadline = self.send_expired() && accepts_partial && stands;
                let is_over = at_deadline || self.is_sent_for_good();
                demand(
                    (self.sender_heard() || is_over) && !cancelled,
                    "the sender sees it as partial",
                )
            }
            Outcome::Failed => {
                let is_given_up = cancelled || self.refusals()[0].is_some();
                let may_be_partial = accepts_partial && self.is_begun() && !self.plan.is_exact();
                let at_deadline = self.send_expired() && !may_be_partial;
                // The receiver ended it as partial before it had the offer, and thus exact ranges.
                let is_unknown = self.plan.is_exact()
                    && !self.is_begun()
                    && self.received == Outcome::Partial
                    && self.message.received_ns < self.message.sent_ns;
                demand(
                    self.sender_heard() || is_given_up || at_deadline || is_unknown,
                    "the sender sees it as failed",
                )
            }
        }
    }

    /// Checks refusals: an end that refuses a message names a term that the message does not meet,
    /// the failed receive names it too unless its deadline came first, and no data of such a message
    /// is sent.
    fn check_refusals(&self) -> Result<(), Broken> {
        let demand = |is_so, otherwise| demand(Rule::Terms, is_so, otherwise);
        for refusal in self.refusals().into_iter().flatten() {
            demand(
                self.differences.contains(&refusal),
                "it was refused for a wrong reason",
            )?;
        }
        let differs = !self.differences.is_empty();
        let failed = self.received == Outcome::Failed && self.message.completed.is_none();
        demand(
            !(differs && failed) || self.refusals()[1].is_some() || self.may_lack_exact_ranges(),
            "the receive fails, and does not name the term that the message does not meet",
        )?;
        // A stream may get a clear-to-send, and write, before its length is known.
        let is_stream = self.plan.scheme == Repair::Stream;
        demand(
            !(differs && !is_stream && self.is_begun()),
            "it should be refused, and was written",
        )
    }
}

impl World<'_> {
    /// Checks the outcomes of every message at both ends.
    pub(crate) fn check_outcomes(&mut self) -> Result<(), Violation> {
        for (index, plan) in self.plan.messages.iter().enumerate() {
            if self.pairs[plan.pair].is_deserted() {
                continue;
            }
            self.check_writes(index)?;
            let message = &self.messages[index];
            if self.plan.is_read(index) {
                self.check_read(index)?;
                continue;
            }
            let (Some(sent), Some(received)) = (message.sent, message.received) else {
                return Err(self.still_open(index));
            };
            let number = message.send.as_ref().map(SendHandle::message);
            let tap = self.tap.borrow();
            let written_ns = number.and_then(|n| tap.written_ns(plan.pair, plan.from, n));
            let is_overtaken = number.is_some_and(|n| tap.is_overtaken(plan.pair, plan.from, n));
            drop(tap);
            let story = MessageEnd {
                plan,
                message,
                sent,
                received,
                differences: differences(plan, message),
                written_ns,
                is_overtaken,
                chunk_bytes: self.plan.pairs[plan.pair].chunk_bytes(),
            };
            if let Err((rule, why)) = story.check() {
                let Message {
                    cancelled,
                    completed,
                    ..
                } = message;
                let what = format!(
                    "message {index}: {why}: sent {sent:?}, received {received:?}, \
                     cancelled {cancelled}, completed {completed:?}: {plan}"
                );
                return Err(self.violation(rule, what));
            }
            story.cover(&mut self.coverage);
        }
        Ok(())
    }

    pub(crate) fn still_open(&self, index: usize) -> Violation {
        let what = format!("message {index} is open at the end");
        self.violation(Rule::Liveness, what)
    }
}
