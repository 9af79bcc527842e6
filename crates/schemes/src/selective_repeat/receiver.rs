//! The receiving half of selective repeat (P5.1, P5.2).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use farwrite_wire::control::Outcome;

use super::ack_state::{AckState, NextAck};
use super::nacks::Nacks;
use crate::ack_clock::AckClock;
use crate::best_effort::RepairReceiver;
use crate::scheme::{Arrivals, Message, MessageId, PeerView, Receiver, Report};

#[derive(Debug)]
pub(crate) struct SelectiveReceiver {
    messages: BTreeMap<u64, AckState>,
    acks: AckClock,
    /// `None` if the sender relies on its timeouts.
    nacks: Option<Nacks>,
    outcomes: VecDeque<(u64, Outcome)>,
}

impl SelectiveReceiver {
    pub(crate) fn new(nack: bool) -> Self {
        Self {
            messages: BTreeMap::new(),
            acks: AckClock::default(),
            nacks: nack.then(Nacks::default),
            outcomes: VecDeque::new(),
        }
    }

    /// The sender has sent all chunks of a message, as something shows that this half does not see.
    pub(crate) fn pass(&mut self, view: &PeerView, message: u64) {
        if let Some(nacks) = &mut self.nacks {
            nacks.pass(view, message..message.saturating_add(1));
        }
    }

    fn forget(&mut self, message: u64) {
        self.messages.remove(&message);
        self.acks.forget(message);
        if let Some(nacks) = &mut self.nacks {
            nacks.forget(message);
        }
    }

    /// Ends a message that is whole.
    fn finish(&mut self, message: u64) {
        self.forget(message);
        self.outcomes.push_back((message, Outcome::Whole));
    }

    fn poll_ack(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report> {
        while let Some(number) = self.acks.due() {
            let Some(incoming) = self.messages.get_mut(&number) else {
                self.acks.done(number);
                continue;
            };
            let next = incoming.ack(arrivals, max_bytes);
            if incoming.is_whole() {
                self.finish(number);
            } else if !matches!(next, NextAck::More(_)) {
                self.acks.done(number);
            }
            match next {
                NextAck::None => {}
                NextAck::Unfinished(ack) => {
                    self.acks.touch(view, number);
                    return Some(Report::Ack(ack));
                }
                NextAck::More(ack) | NextAck::Last(ack) => return Some(Report::Ack(ack)),
            }
        }
        None
    }
}

impl Receiver for SelectiveReceiver {
    fn start(&mut self, view: &PeerView, message: &Message, is_cleared: bool) {
        if let Entry::Vacant(entry) = self.messages.entry(message.number) {
            entry.insert(AckState::new(message.number, message.chunks.max(1)));
            // All chunks may have arrived already.
            self.acks.touch_now(message.number);
            if let Some(nacks) = &mut self.nacks {
                nacks.start(view, message, is_cleared);
            }
        }
    }

    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        // The scheme has no parity. Only a peer that violates the protocol sends some.
        if message.is_parity() {
            return;
        }
        let message = message.data();
        let seen = arrivals.seen(message.into());
        let Some(incoming) = self.messages.get_mut(&message).filter(|_| seen > 0) else {
            return;
        };
        incoming.arrived(arrivals);
        if incoming.is_whole() {
            self.acks.touch_now(message);
        } else {
            self.acks.touch(view, message);
        }
        if let Some(nacks) = &mut self.nacks {
            nacks.arrived(view, message, incoming.cumulative, seen);
        }
    }

    fn abandon(&mut self, message: u64) {
        self.forget(message);
    }

    fn handle_timeout(&mut self, view: &PeerView, _arrivals: &dyn Arrivals) {
        self.acks.handle_timeout(view.now_ns);
        if let Some(nacks) = &mut self.nacks {
            nacks.handle_timeout(view);
        }
    }

    fn poll_report(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report> {
        if let Some(ack) = self.poll_ack(view, arrivals, max_bytes) {
            return Some(ack);
        }
        let nacks = self.nacks.as_mut()?;
        nacks.poll(view, arrivals, max_bytes).map(Report::Nack)
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        let nacks = self.nacks.as_ref().and_then(Nacks::next_timeout);
        self.acks.next_timeout().into_iter().chain(nacks).min()
    }
}

impl RepairReceiver for SelectiveReceiver {
    fn look(&mut self, _view: &PeerView, message: u64, arrivals: &dyn Arrivals) {
        // This call does not mean that something has arrived, so the timers of ACKs and NACKs do
        // not change.
        if let Some(incoming) = self.messages.get_mut(&message) {
            incoming.arrived(arrivals);
            if incoming.is_whole() {
                // The last ACK may wait until the control queue has room. It is not needed, because
                // the end of the message leaves too.
                self.finish(message);
            }
        }
    }
}
