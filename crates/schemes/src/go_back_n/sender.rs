//! The sending half of go-back-N (P5.3).

use core::ops::Range;

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use farwrite_wire::control::{Ack, Nack, Outcome};

use crate::scheme::{Chunks, Message, PeerView, Report, Sender, SenderCounters};
use crate::silent_peer::SilentPeer;
use crate::timing::{Alpha, crossing_ns, rto_ns};

#[derive(Debug)]
pub(super) struct GoBackSender {
    alpha: Alpha,
    messages: BTreeMap<u64, GoBackSend>,
    /// Messages with chunks to hand out.
    unsent: BTreeSet<u64>,
    /// Departures since the sender last went back, in time order. This differs from sequence order
    /// if a newer message was cleared first. The front has chunks without an ACK.
    departures: VecDeque<Departure>,
    /// The timeout at the last call that had a [`PeerView`].
    rto_ns: u64,
    silent_peer: SilentPeer,
    outcomes: VecDeque<(u64, Outcome)>,
    counters: SenderCounters,
}

/// Chunks `0..acked` are at the receiver, and `acked..next` are in flight. The rest must be handed
/// out; those below `handed_out` were handed out before.
#[derive(Debug)]
struct GoBackSend {
    chunks: u32,
    acked: u32,
    next: u32,
    handed_out: u32,
}

impl GoBackSend {
    fn check(&self) {
        debug_assert!(
            self.acked <= self.next
                && self.next <= self.handed_out
                && self.handed_out <= self.chunks,
            "{self:?}"
        );
    }
}

#[derive(Debug)]
struct Departure {
    at_ns: u64,
    message: u64,
    range: Range<u32>,
}

impl GoBackSender {
    pub(super) fn new(alpha: Alpha) -> Self {
        Self {
            alpha,
            messages: BTreeMap::new(),
            unsent: BTreeSet::new(),
            departures: VecDeque::new(),
            rto_ns: 0,
            silent_peer: SilentPeer::default(),
            outcomes: VecDeque::new(),
            counters: SenderCounters::default(),
        }
    }

    fn handle_ack(&mut self, ack: &Ack) {
        let Some(outgoing) = self.messages.get_mut(&ack.message) else {
            return;
        };
        // Chunks that were never handed out cannot have arrived.
        let cumulative = ack.cumulative.min(outgoing.handed_out);
        outgoing.acked = outgoing.acked.max(cumulative);
        outgoing.next = outgoing.next.max(cumulative);
        outgoing.check();
        if outgoing.next == outgoing.chunks {
            self.unsent.remove(&ack.message);
        }
        if outgoing.acked == outgoing.chunks {
            self.finish(ack.message, Outcome::Whole);
        }
    }

    fn handle_nack(&mut self, view: &PeerView, nack: &Nack) {
        let Some(first) = nack.lost.first() else {
            return;
        };
        let Some(outgoing) = self.messages.get(&nack.message) else {
            return;
        };
        let lost = first.start;
        let Some(departed_ns) = self.departed_ns(nack.message, lost) else {
            return;
        };
        let crossed = view.now_ns.saturating_sub(departed_ns) < crossing_ns(view);
        if lost >= outgoing.acked && !crossed {
            self.go_back(nack.message, lost);
        }
    }

    /// When the chunk last left. `None` if it has not left since the sender went back.
    fn departed_ns(&self, message: u64, chunk: u32) -> Option<u64> {
        let of_it = |d: &&Departure| d.message == message && d.range.contains(&chunk);
        self.departures.iter().rev().find(of_it).map(|d| d.at_ns)
    }

    /// Goes back: everything from this chunk on is sent again, including all later messages.
    fn go_back(&mut self, message: u64, chunk: u32) {
        let mut from = chunk;
        for (number, outgoing) in self.messages.range_mut(message..) {
            outgoing.next = outgoing.next.min(from.max(outgoing.acked));
            outgoing.check();
            if outgoing.next < outgoing.chunks {
                self.unsent.insert(*number);
            }
            from = 0;
        }
        self.departures.retain_mut(|departure| {
            if departure.message == message {
                departure.range.end = departure.range.end.min(chunk);
            }
            departure.message <= message && !departure.range.is_empty()
        });
        self.drop_settled_departures();
    }

    fn finish(&mut self, message: u64, outcome: Outcome) {
        if self.forget(message) {
            self.outcomes.push_back((message, outcome));
        }
    }

    fn forget(&mut self, message: u64) -> bool {
        self.unsent.remove(&message);
        let known = self.messages.remove(&message).is_some();
        self.drop_settled_departures();
        known
    }

    fn drop_settled_departures(&mut self) {
        while let Some(front) = self.departures.front() {
            let outgoing = self.messages.get(&front.message);
            if outgoing.is_some_and(|outgoing| outgoing.acked < front.range.end) {
                break;
            }
            self.departures.pop_front();
        }
    }

    fn expiry_ns(&self) -> Option<u64> {
        let front = self.departures.front()?;
        Some(front.at_ns.saturating_add(self.rto_ns))
    }
}

impl Sender for GoBackSender {
    fn start(&mut self, view: &PeerView, message: &Message) {
        self.rto_ns = rto_ns(view, self.alpha);
        if let Entry::Vacant(entry) = self.messages.entry(message.number) {
            entry.insert(GoBackSend {
                chunks: message.chunks.max(1),
                acked: 0,
                next: 0,
                handed_out: 0,
            });
            self.unsent.insert(message.number);
        }
    }

    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        self.rto_ns = rto_ns(view, self.alpha);
        self.silent_peer.heard();
        match report {
            Report::Ack(ack) => self.handle_ack(ack),
            Report::Nack(nack) => self.handle_nack(view, nack),
        }
        self.drop_settled_departures();
    }

    fn handle_contact(&mut self) {
        self.silent_peer.heard();
    }

    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        self.rto_ns = rto_ns(view, self.alpha);
        let Some(outgoing) = self.messages.get(&chunks.message.data()) else {
            return;
        };
        // Chunks that were handed out before the sender went back and left after it will leave
        // again.
        let range = chunks.range.start..chunks.range.end.min(outgoing.next);
        if !range.is_empty() {
            self.departures.push_back(Departure {
                at_ns: view.now_ns,
                message: chunks.message.data(),
                range,
            });
        }
    }

    fn handle_closed(&mut self, _view: &PeerView, message: u64, outcome: Outcome) {
        self.silent_peer.heard();
        self.finish(message, outcome);
    }

    fn abandon(&mut self, message: u64) {
        self.forget(message);
    }

    fn handle_timeout(&mut self, view: &PeerView) {
        self.rto_ns = rto_ns(view, self.alpha);
        self.drop_settled_departures();
        let mut expired = false;
        while self.expiry_ns().is_some_and(|at_ns| at_ns <= view.now_ns)
            && let Some(front) = self.departures.front()
        {
            let message = front.message;
            let acked = self.messages.get(&message).map_or(0, |o| o.acked);
            let from = front.range.start.max(acked);
            self.go_back(message, from);
            expired = true;
        }
        if expired {
            self.counters.timeouts += 1;
            self.silent_peer.expired(view, self.rto_ns);
        }
        self.silent_peer.handle_timeout(view);
    }

    fn poll_transmit(&mut self, _view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        let max_chunks = self.silent_peer.limit(max_chunks);
        if max_chunks == 0 {
            return None;
        }
        let &message = self.unsent.first()?;
        let outgoing = self.messages.get_mut(&message)?;
        let end = outgoing
            .next
            .saturating_add(max_chunks)
            .min(outgoing.chunks);
        let range = outgoing.next..end;
        let again = outgoing.handed_out.min(end).saturating_sub(range.start);
        outgoing.next = end;
        outgoing.handed_out = outgoing.handed_out.max(end);
        if end == outgoing.chunks {
            self.unsent.remove(&message);
        }
        self.counters.sent_chunks += u64::from(end - range.start);
        self.counters.retransmitted_chunks += u64::from(again);
        self.silent_peer.sent(end - range.start);
        let message = message.into();
        Some(Chunks { message, range })
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        let probe = self.silent_peer.next_timeout();
        let probe = probe.filter(|_| !self.unsent.is_empty());
        self.expiry_ns().into_iter().chain(probe).min()
    }

    fn counters(&self) -> SenderCounters {
        self.counters
    }
}
