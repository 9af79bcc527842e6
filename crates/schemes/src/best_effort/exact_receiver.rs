//! The receiving half of best effort with exact ranges (P5.9.8).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use farwrite_wire::control::{Ack, Outcome};

use super::critical::CriticalOrder;
use super::open_messages::OpenMessages;
use crate::ack_clock::AckClock;
use crate::scheme::{Arrivals, Message, MessageId, PeerView, Receiver, Report};
use crate::selective_repeat::SelectiveReceiver;

/// Reports on the critical chunks. A message ends in time, but not before these have arrived.
pub(super) struct ExactReceiver {
    /// Reports on the critical chunks. It knows each by its position.
    repairs: SelectiveReceiver,
    messages: BTreeMap<u64, ExactRecv>,
    endings: OpenMessages,
    /// Repeats the last ACK of messages whose critical chunks have arrived, while packets of them
    /// arrive: the sender may have missed it.
    acks: AckClock,
    outcomes: VecDeque<(u64, Outcome)>,
}

struct ExactRecv {
    order: CriticalOrder,
    /// Whether the last ACK about the critical chunks was handed out, or there are none.
    critical_arrived: bool,
    /// Nothing more is expected of the chunks that are not critical.
    is_over: bool,
    is_sender_done: bool,
}

/// The arrivals of critical chunks, by position.
struct Positions<'a> {
    arrivals: &'a dyn Arrivals,
    messages: &'a BTreeMap<u64, ExactRecv>,
}

impl Positions<'_> {
    fn order(&self, message: MessageId) -> Option<CriticalOrder> {
        let recv = self.messages.get(&message.data());
        recv.filter(|_| !message.is_parity()).map(|recv| recv.order)
    }
}

impl Arrivals for Positions<'_> {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        let order = self.order(message);
        order.map_or(0, |o| o.critical_word(self.arrivals, message, word))
    }

    fn count(&self, message: MessageId) -> u32 {
        let critical = self.order(message).map_or(0, |o| o.critical_count());
        let words = 0..critical.div_ceil(64);
        words
            .map(|word| self.word(message, word).count_ones())
            .sum()
    }

    fn seen(&self, message: MessageId) -> u32 {
        let Some(order) = self.order(message) else {
            return 0;
        };
        let critical = order.critical_count();
        match self.arrivals.seen(message).checked_sub(1) {
            None => 0,
            Some(_) if self.arrivals.count(message) > self.count(message) => critical,
            // Of the critical chunks, the highest one has the last position. If another chunk has
            // arrived, all critical ones have left.
            Some(highest) => order
                .position(highest)
                .map_or(critical, |position| critical.min(position + 1)),
        }
    }
}

impl ExactReceiver {
    pub(super) fn new(repairs: SelectiveReceiver) -> Self {
        Self {
            repairs,
            messages: BTreeMap::new(),
            endings: OpenMessages::default(),
            acks: AckClock::default(),
            outcomes: VecDeque::new(),
        }
    }

    /// Ends a message from which all has arrived, or whose time is over and whose critical chunks
    /// have arrived.
    fn settle(&mut self, number: u64, arrivals: &dyn Arrivals) {
        let Some(recv) = self.messages.get(&number) else {
            return;
        };
        let message = number.into();
        let chunks = recv.order.chunks();
        let outcome = if arrivals.count(message) >= chunks && arrivals.immediate_is_whole(message) {
            Outcome::Whole
        } else if !recv.is_over {
            return;
        } else if recv.order.critical_arrived(arrivals, message) {
            Outcome::Partial
        } else if recv.is_sender_done {
            // Only a peer that violates the protocol is done before these chunks have arrived.
            Outcome::Failed
        } else {
            return;
        };
        self.abandon(number);
        self.outcomes.push_back((number, outcome));
    }

    /// Handles the messages about which `repairs` has handed out its last ACK.
    fn note_arrived(&mut self, arrivals: &dyn Arrivals) {
        while let Some((number, _)) = self.repairs.poll_outcome() {
            if let Some(recv) = self.messages.get_mut(&number) {
                recv.critical_arrived = true;
            }
            self.settle(number, arrivals);
        }
    }

    fn poll_repeated_ack(&mut self) -> Option<Report> {
        while let Some(message) = self.acks.due() {
            self.acks.done(message);
            if let Some(recv) = self.messages.get(&message) {
                let critical = recv.order.critical_count();
                return Some(Report::Ack(Ack {
                    message,
                    cumulative: critical,
                    seen: critical,
                    window_start: 0,
                    bits: Vec::new(),
                }));
            }
        }
        None
    }
}

impl Receiver for ExactReceiver {
    fn start(&mut self, view: &PeerView, message: &Message, is_cleared: bool) {
        let number = message.number;
        if self.messages.contains_key(&number) {
            return;
        }
        let order = CriticalOrder::of(message);
        let chunks = order.critical_count();
        self.messages.insert(
            number,
            ExactRecv {
                order,
                critical_arrived: chunks == 0,
                is_over: false,
                is_sender_done: false,
            },
        );
        self.endings.start(view, number);
        if chunks > 0 {
            let critical = Message { chunks, ..*message };
            self.repairs.start(view, &critical, is_cleared);
        }
    }

    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        // The scheme has no parity. Only a peer that violates the protocol sends some.
        if message.is_parity() || arrivals.seen(message) == 0 {
            return;
        }
        let number = message.data();
        let Some(recv) = self.messages.get(&number) else {
            return;
        };
        let (order, critical_arrived) = (recv.order, recv.critical_arrived);
        let messages = &self.messages;
        let positions = Positions { arrivals, messages };
        if critical_arrived && order.critical_count() > 0 {
            self.acks.touch(view, number);
        } else if !critical_arrived {
            self.repairs.handle_arrivals(view, message, &positions);
            if arrivals.count(message) > positions.count(message) {
                self.repairs.pass(view, number);
            }
        }
        self.endings.pass(view, number);
        let last = order.last();
        if arrivals.word(message, last / 64) >> (last % 64) & 1 == 1 {
            self.endings.expect_no_more(view, number);
        }
        self.settle(number, arrivals);
    }

    fn handle_sender_done(&mut self, view: &PeerView, message: u64) {
        let Some(recv) = self.messages.get_mut(&message) else {
            return;
        };
        recv.is_sender_done = true;
        if recv.is_over {
            self.endings.start(view, message);
        }
        self.endings.expect_no_more(view, message);
    }

    fn may_end_partial(&self, message: u64, arrivals: &dyn Arrivals) -> bool {
        let recv = self.messages.get(&message);
        recv.is_some_and(|recv| recv.order.critical_arrived(arrivals, message.into()))
    }

    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
        self.endings.forget(message);
        self.acks.forget(message);
        self.repairs.abandon(message);
    }

    fn handle_timeout(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        while let Some(number) = self.endings.take_due(view.now_ns) {
            if let Some(recv) = self.messages.get_mut(&number) {
                recv.is_over = true;
                self.repairs.pass(view, number);
            }
            self.settle(number, arrivals);
        }
        self.acks.handle_timeout(view.now_ns);
        let messages = &self.messages;
        let positions = Positions { arrivals, messages };
        self.repairs.handle_timeout(view, &positions);
    }

    fn poll_report(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report> {
        let messages = &self.messages;
        let positions = Positions { arrivals, messages };
        let report = self.repairs.poll_report(view, &positions, max_bytes);
        self.note_arrived(arrivals);
        report.or_else(|| self.poll_repeated_ack())
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        let repairs = self.repairs.next_timeout();
        let all = [
            repairs,
            self.endings.next_timeout(),
            self.acks.next_timeout(),
        ];
        all.into_iter().flatten().min()
    }
}
