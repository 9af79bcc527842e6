//! The receiving half of go-back-N (P5.3).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use farwrite_wire::control::{Ack, Nack, Outcome};

use crate::arrived::{Missing, cumulative};
use crate::scheme::{Arrivals, Message, MessageId, PeerView, Receiver, Report};
use crate::timing::ack_period_ns;

/// Reports only on the oldest unfinished message: messages are sent in sequence, so later ones have
/// not begun.
#[derive(Debug, Default)]
pub(super) struct GoBackReceiver {
    messages: BTreeMap<u64, GoBackRecv>,
    /// The sender has passed all messages before this one.
    newest: u64,
    /// When to acknowledge the oldest message.
    ack_at_ns: Option<u64>,
    ack_due: bool,
    hole: Option<Hole>,
    outcomes: VecDeque<(u64, Outcome)>,
}

#[derive(Debug)]
struct GoBackRecv {
    chunks: u32,
    cumulative: u32,
}

/// The first missing chunk of the sequence, if later chunks have arrived.
#[derive(Debug)]
struct Hole {
    message: u64,
    chunk: u32,
    age: Age,
}

#[derive(Debug)]
enum Age {
    /// The chunk may only be late. At `until_ns` the hole is a reordering window old.
    Young { until_ns: u64 },
    /// The hole must be reported.
    Old,
    /// The hole was reported once. The sender decides what to do.
    Reported,
}

impl GoBackReceiver {
    /// Updates the oldest message and its hole.
    fn look(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        let Some((&message, incoming)) = self.messages.iter_mut().next() else {
            self.hole = None;
            return;
        };
        let chunks = incoming.chunks;
        incoming.cumulative = cumulative(arrivals, message, incoming.cumulative, chunks);
        let chunk = incoming.cumulative;
        if chunk == chunks {
            self.ack_due = true;
        }
        let passed = passed(arrivals, message, chunks, self.newest);
        let same = |hole: &Hole| (hole.message, hole.chunk) == (message, chunk);
        if chunk >= passed {
            self.hole = None;
        } else if !self.hole.as_ref().is_some_and(same) {
            self.hole = Some(Hole {
                message,
                chunk,
                age: Age::Young {
                    until_ns: view.now_ns.saturating_add(view.reordering_window_ns),
                },
            });
        }
    }

    fn poll_ack(&mut self, view: &PeerView, arrivals: &dyn Arrivals) -> Option<Ack> {
        self.look(view, arrivals);
        if !core::mem::take(&mut self.ack_due) {
            return None;
        }
        let (&message, incoming) = self.messages.iter().next()?;
        let cumulative = incoming.cumulative;
        let seen = arrivals
            .seen(message.into())
            .clamp(cumulative, incoming.chunks);
        if cumulative == incoming.chunks {
            self.messages.remove(&message);
            self.outcomes.push_back((message, Outcome::Whole));
            // The next message is now the oldest. Nothing may have been reported about it yet.
            self.ack_due = true;
            if self.messages.is_empty() {
                self.ack_at_ns = None;
            }
        }
        (seen > 0).then(|| Ack {
            message,
            cumulative,
            seen,
            window_start: cumulative / 8 * 8,
            bits: Vec::new(),
        })
    }

    fn poll_nack(&mut self, arrivals: &dyn Arrivals) -> Option<Nack> {
        let hole = self.hole.as_mut()?;
        if !matches!(hole.age, Age::Old) {
            return None;
        }
        hole.age = Age::Reported;
        let message = hole.message;
        let incoming = self.messages.get(&message)?;
        let passed = passed(arrivals, message, incoming.chunks, self.newest);
        let lost = Missing::new(arrivals, message, hole.chunk..passed).next()?;
        Some(Nack {
            message,
            lost: vec![lost],
        })
    }
}

/// The sender has sent chunks `0..passed`. These are the chunks before the highest one of which a
/// packet has arrived, because that one may still have packets in flight. Once a newer message has
/// begun, these are all chunks.
fn passed(arrivals: &dyn Arrivals, message: u64, chunks: u32, newest: u64) -> u32 {
    if newest > message {
        chunks
    } else {
        arrivals.seen(message.into()).min(chunks).saturating_sub(1)
    }
}

impl Receiver for GoBackReceiver {
    fn start(&mut self, _view: &PeerView, message: &Message, _is_cleared: bool) {
        if let Entry::Vacant(entry) = self.messages.entry(message.number) {
            entry.insert(GoBackRecv {
                chunks: message.chunks.max(1),
                cumulative: 0,
            });
            // All chunks may have arrived already.
            self.ack_due = true;
        }
    }

    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        // The scheme has no parity. Only a peer that violates the protocol sends some.
        if message.is_parity() {
            return;
        }
        let message = message.data();
        if !self.messages.contains_key(&message) || arrivals.seen(message.into()) == 0 {
            return;
        }
        self.newest = self.newest.max(message);
        let period_ns = ack_period_ns(view);
        self.ack_at_ns
            .get_or_insert(view.now_ns.saturating_add(period_ns));
        self.look(view, arrivals);
    }

    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
        self.ack_due = true;
    }

    fn handle_timeout(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        if self.ack_at_ns.is_some_and(|at_ns| at_ns <= view.now_ns) {
            self.ack_at_ns = None;
            self.ack_due = true;
        }
        self.look(view, arrivals);
        if let Some(hole) = &mut self.hole
            && matches!(hole.age, Age::Young { until_ns } if until_ns <= view.now_ns)
        {
            hole.age = Age::Old;
        }
    }

    fn poll_report(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        _max_bytes: usize,
    ) -> Option<Report> {
        if let Some(ack) = self.poll_ack(view, arrivals) {
            return Some(Report::Ack(ack));
        }
        self.poll_nack(arrivals).map(Report::Nack)
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        let hole_ns = self.hole.as_ref().and_then(|hole| match hole.age {
            Age::Young { until_ns } => Some(until_ns),
            Age::Old | Age::Reported => None,
        });
        self.ack_at_ns.into_iter().chain(hole_ns).min()
    }
}
