//! The receiving half of best effort without repair (P5.9.2, P5.9.3, P5.9.6).

use alloc::collections::{BTreeMap, VecDeque};
use farwrite_wire::control::Outcome;

use super::critical::CriticalOrder;
use super::open_messages::OpenMessages;
use crate::scheme::{Arrivals, Message, MessageId, PeerView, Receiver, Report};

#[derive(Debug, Default)]
pub(super) struct BestEffortReceiver {
    /// The chunks of each open message.
    messages: BTreeMap<u64, CriticalOrder>,
    endings: OpenMessages,
    outcomes: VecDeque<(u64, Outcome)>,
}

impl BestEffortReceiver {
    fn finish(&mut self, message: u64, outcome: Outcome) {
        self.abandon(message);
        self.outcomes.push_back((message, outcome));
    }
}

fn is_whole(arrivals: &dyn Arrivals, message: u64, chunks: u32) -> bool {
    let message = message.into();
    arrivals.count(message) >= chunks && arrivals.immediate_is_whole(message)
}

impl Receiver for BestEffortReceiver {
    fn start(&mut self, view: &PeerView, message: &Message, _is_cleared: bool) {
        if self.endings.start(view, message.number) {
            self.messages
                .insert(message.number, CriticalOrder::of(message));
        }
    }

    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        // The scheme has no parity. Only a peer that violates the protocol sends some.
        if message.is_parity() {
            return;
        }
        let message = message.data();
        let Some(order) = self.messages.get(&message) else {
            return;
        };
        if arrivals.seen(message.into()) == 0 {
            return;
        }
        self.endings.pass(view, message);
        let (last, chunks) = (order.last(), order.chunks());
        if is_whole(arrivals, message, chunks) {
            self.finish(message, Outcome::Whole);
        } else if arrivals.word(message.into(), last / 64) >> (last % 64) & 1 == 1 {
            self.endings.expect_no_more(view, message);
        }
    }

    fn handle_sender_done(&mut self, view: &PeerView, message: u64) {
        self.endings.expect_no_more(view, message);
    }

    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
        self.endings.forget(message);
    }

    fn handle_timeout(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        while let Some(message) = self.endings.take_due(view.now_ns) {
            let order = self.messages.get(&message);
            let chunks = order.map_or(u32::MAX, CriticalOrder::chunks);
            let outcome = match is_whole(arrivals, message, chunks) {
                true => Outcome::Whole,
                false => Outcome::Partial,
            };
            self.finish(message, outcome);
        }
    }

    fn poll_report(
        &mut self,
        _view: &PeerView,
        _arrivals: &dyn Arrivals,
        _max_bytes: usize,
    ) -> Option<Report> {
        None
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        self.endings.next_timeout()
    }
}
