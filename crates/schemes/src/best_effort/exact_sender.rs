//! The sending half of best effort with exact ranges (P5.9.7).

use alloc::collections::{BTreeMap, VecDeque};
use farwrite_wire::control::Outcome;

use super::critical::CriticalOrder;
use crate::scheme::{Chunks, Message, PeerView, Report, Sender, SenderCounters};
use crate::selective_repeat::SelectiveSender;

/// Repeats the critical chunks until they have arrived, and sends the others once.
pub(super) struct ExactSender {
    /// Repairs the critical chunks. It knows each by its position.
    repairs: SelectiveSender,
    messages: BTreeMap<u64, ExactSend>,
    /// Critical chunks that `repairs` has handed out and that are handed out next.
    pieces: VecDeque<Chunks>,
    outcomes: VecDeque<(u64, Outcome)>,
    /// Chunks handed out that are not critical.
    others_sent: u64,
}

struct ExactSend {
    message: Message,
    order: CriticalOrder,
    /// Whether `repairs` has the critical chunks, or there are none.
    is_begun: bool,
    /// The chunks at positions `0..handed_out` have been handed out.
    handed_out: u32,
    /// All chunks that are not critical have left up to this position.
    departed: u32,
    critical_arrived: bool,
}

impl ExactSend {
    fn has_new(&self) -> bool {
        self.handed_out < self.order.chunks()
    }
}

impl ExactSender {
    pub(super) fn new(repairs: SelectiveSender) -> Self {
        Self {
            repairs,
            messages: BTreeMap::new(),
            pieces: VecDeque::new(),
            outcomes: VecDeque::new(),
            others_sent: 0,
        }
    }

    /// Passes the critical chunks of the next message to `repairs`, once all chunks of the older
    /// messages have been handed out (P5.0.1).
    fn begin_next(&mut self, view: &PeerView) {
        let mut unsent = self.messages.values_mut();
        let Some(next) = unsent.find(|send| send.has_new()) else {
            return;
        };
        let chunks = next.order.critical_count();
        if !next.is_begun && chunks > 0 {
            self.repairs.start(
                view,
                &Message {
                    chunks,
                    ..next.message
                },
            );
        }
        next.is_begun = true;
    }

    /// Takes the next critical chunks, at most `max_chunks`.
    fn take_piece(&mut self, max_chunks: u32) -> Option<Chunks> {
        let piece = self.pieces.front_mut()?;
        let end = piece.range.end;
        let range = piece.range.start..end.min(piece.range.start.saturating_add(max_chunks));
        let message = piece.message;
        piece.range.start = range.end;
        if range.end == end {
            self.pieces.pop_front();
        }
        Some(Chunks { message, range })
    }

    /// Ends a message whose critical chunks have arrived and whose other chunks have left.
    fn settle(&mut self, number: u64) {
        let Some(send) = self.messages.get(&number) else {
            return;
        };
        if !send.critical_arrived || send.departed < send.order.chunks() {
            return;
        }
        let outcome = match send.order.critical_count() == send.order.chunks() {
            true => Outcome::Whole,
            false => Outcome::Partial,
        };
        self.forget(number);
        self.outcomes.push_back((number, outcome));
    }

    fn forget(&mut self, number: u64) {
        self.messages.remove(&number);
        self.pieces.retain(|piece| piece.message.data() != number);
    }

    /// Handles the messages of which `repairs` knows that all critical chunks have arrived.
    fn note_arrived(&mut self) {
        while let Some((number, _)) = self.repairs.poll_outcome() {
            self.pieces.retain(|piece| piece.message.data() != number);
            if let Some(send) = self.messages.get_mut(&number) {
                send.critical_arrived = true;
            }
            self.settle(number);
        }
    }
}

impl Sender for ExactSender {
    fn start(&mut self, _view: &PeerView, message: &Message) {
        let order = CriticalOrder::of(message);
        let critical = order.critical_count();
        self.messages.entry(message.number).or_insert(ExactSend {
            message: *message,
            order,
            is_begun: false,
            handed_out: 0,
            departed: critical,
            critical_arrived: critical == 0,
        });
    }

    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        self.repairs.handle_report(view, report);
        self.note_arrived();
    }

    fn handle_contact(&mut self) {
        self.repairs.handle_contact();
    }

    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        let number = chunks.message.data();
        let mut rest = chunks.range.clone();
        while let Some(send) = self.messages.get_mut(&number)
            && let Some(position) = send.order.position(rest.start)
            && !rest.is_empty()
        {
            let run = send.order.run(position..position + (rest.end - rest.start));
            let end = position + (run.end - run.start);
            if position < send.order.critical_count() {
                let message = chunks.message;
                let range = position..end;
                self.repairs
                    .handle_departed(view, &Chunks { message, range });
            } else {
                send.departed = send.departed.max(end);
            }
            rest.start = run.end;
        }
        self.settle(number);
    }

    fn may_end_partial(&self, message: u64) -> bool {
        let send = self.messages.get(&message);
        send.is_some_and(|send| send.critical_arrived)
    }

    fn handle_closed(&mut self, view: &PeerView, message: u64, outcome: Outcome) {
        self.repairs.handle_closed(view, message, outcome);
        if self.messages.contains_key(&message) {
            self.forget(message);
            self.outcomes.push_back((message, outcome));
        }
        self.note_arrived();
    }

    fn abandon(&mut self, message: u64) {
        self.forget(message);
        self.repairs.abandon(message);
    }

    fn handle_timeout(&mut self, view: &PeerView) {
        self.repairs.handle_timeout(view);
    }

    fn poll_transmit(&mut self, view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        if let Some(piece) = self.take_piece(max_chunks) {
            return Some(piece);
        }
        self.begin_next(view);
        if let Some(chunks) = self.repairs.poll_transmit(view, max_chunks) {
            let message = chunks.message;
            let send = self.messages.get_mut(&message.data())?;
            let mut positions = chunks.range;
            send.handed_out = send.handed_out.max(positions.end);
            while !positions.is_empty() {
                let range = send.order.run(positions.clone());
                positions.start += range.end - range.start;
                self.pieces.push_back(Chunks { message, range });
            }
            return self.take_piece(max_chunks);
        }
        let mut messages = self.messages.iter_mut();
        let (&number, send) = messages.find(|(_, send)| send.has_new())?;
        if send.handed_out < send.order.critical_count() {
            // The peer is out of reach (P5.0.9).
            return None;
        }
        // The limit for a silent peer applies to the other chunks too (P5.0.9).
        let max_chunks = self.repairs.allowed_chunks(max_chunks);
        if max_chunks == 0 {
            return None;
        }
        let start = send.handed_out;
        let range = send.order.run(start..start.saturating_add(max_chunks));
        let count = range.end - range.start;
        send.handed_out += count;
        self.repairs.note_sent(count);
        self.others_sent += u64::from(count);
        let message = number.into();
        Some(Chunks { message, range })
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        // A probe may consist of chunks that are not critical.
        let has_others = self.messages.values().any(ExactSend::has_new);
        let probe = self.repairs.next_probe().filter(|_| has_others);
        self.repairs.next_timeout().into_iter().chain(probe).min()
    }

    fn counters(&self) -> SenderCounters {
        let mut counters = self.repairs.counters();
        counters.sent_chunks += self.others_sent;
        counters
    }
}
