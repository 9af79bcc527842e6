//! The sending half of best effort without repair (P5.9.1, P5.9.6).

use alloc::collections::{BTreeMap, VecDeque};
use farwrite_wire::control::Outcome;

use super::critical::CriticalOrder;
use crate::scheme::{Chunks, Message, PeerView, Report, Sender, SenderCounters};

#[derive(Debug, Default)]
pub(super) struct BestEffortSender {
    messages: BTreeMap<u64, UnrepairedSend>,
    outcomes: VecDeque<(u64, Outcome)>,
    counters: SenderCounters,
}

/// A message of which some chunks have not left yet.
#[derive(Debug)]
struct UnrepairedSend {
    order: CriticalOrder,
    /// The chunks at positions `0..handed_out` have been handed out, `0..departed` have left.
    handed_out: u32,
    departed: u32,
}

impl BestEffortSender {
    fn finish(&mut self, message: u64, outcome: Outcome) {
        if self.messages.remove(&message).is_some() {
            self.outcomes.push_back((message, outcome));
        }
    }
}

impl Sender for BestEffortSender {
    fn start(&mut self, _view: &PeerView, message: &Message) {
        self.messages
            .entry(message.number)
            .or_insert(UnrepairedSend {
                order: CriticalOrder::of(message),
                handed_out: 0,
                departed: 0,
            });
    }

    fn handle_report(&mut self, _view: &PeerView, _report: &Report) {}

    fn handle_departed(&mut self, _view: &PeerView, chunks: &Chunks) {
        let Some(outgoing) = self.messages.get_mut(&chunks.message.data()) else {
            return;
        };
        // Chunks leave in the order in which they were handed out.
        let last = chunks.range.end.saturating_sub(1);
        let position = outgoing.order.position(last);
        outgoing.departed = outgoing.departed.max(position.map_or(0, |p| p + 1));
        if outgoing.departed >= outgoing.order.chunks() {
            self.finish(chunks.message.data(), Outcome::Partial);
        }
    }

    fn handle_closed(&mut self, _view: &PeerView, message: u64, outcome: Outcome) {
        self.finish(message, outcome);
    }

    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
    }

    fn handle_timeout(&mut self, _view: &PeerView) {}

    fn poll_transmit(&mut self, _view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        let mut unsent = self.messages.iter_mut();
        let (&message, outgoing) = unsent.find(|(_, o)| o.handed_out < o.order.chunks())?;
        let start = outgoing.handed_out;
        let range = outgoing.order.run(start..start.saturating_add(max_chunks));
        let count = range.end - range.start;
        outgoing.handed_out += count;
        self.counters.sent_chunks += u64::from(count);
        let message = message.into();
        Some(Chunks { message, range })
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn counters(&self) -> SenderCounters {
        self.counters
    }
}
