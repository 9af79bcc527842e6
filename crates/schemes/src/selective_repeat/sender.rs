//! The sending half of selective repeat (P5.1, P5.2).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use farwrite_wire::control::{Ack, Nack, Outcome};

use super::selective_send::SelectiveSend;
use super::sent_chunks::{SentChunks, SentRun};
use crate::best_effort::RepairSender;
use crate::scheme::{Chunks, Message, PeerView, Report, Sender, SenderCounters};
use crate::silent_peer::SilentPeer;
use crate::timing::{Alpha, crossing_ns, rto_ns};

#[derive(Debug)]
pub(crate) struct SelectiveSender {
    alpha: Alpha,
    nack: bool,
    messages: BTreeMap<u64, SelectiveSend>,
    /// Messages with chunks queued to be sent again.
    repeating: BTreeSet<u64>,
    /// Messages with chunks that were never handed out.
    unsent: BTreeSet<u64>,
    sent_chunks: SentChunks,
    /// The timeout at the last call that had a [`PeerView`].
    rto_ns: u64,
    silent_peer: SilentPeer,
    outcomes: VecDeque<(u64, Outcome)>,
    counters: SenderCounters,
}

impl SelectiveSender {
    pub(crate) fn new(alpha: Alpha, nack: bool) -> Self {
        Self {
            alpha,
            nack,
            messages: BTreeMap::new(),
            repeating: BTreeSet::new(),
            unsent: BTreeSet::new(),
            sent_chunks: SentChunks::default(),
            rto_ns: 0,
            silent_peer: SilentPeer::default(),
            outcomes: VecDeque::new(),
            counters: SenderCounters::default(),
        }
    }

    /// Returns how many of `max_chunks` may be sent now (P5.0.9).
    pub(crate) fn allowed_chunks(&self, max_chunks: u32) -> u32 {
        self.silent_peer.limit(max_chunks)
    }

    /// Returns when the next probe of a silent peer may be sent.
    pub(crate) fn next_probe(&self) -> Option<u64> {
        self.silent_peer.next_timeout()
    }

    /// Records chunks that are sent and that this half does not repair.
    pub(crate) fn note_sent(&mut self, chunks: u32) {
        self.silent_peer.sent(chunks);
    }

    fn handle_ack(&mut self, ack: &Ack) {
        let Some(outgoing) = self.messages.get_mut(&ack.message) else {
            return;
        };
        outgoing.acknowledge(ack);
        if !outgoing.has_queued() {
            self.repeating.remove(&ack.message);
        }
        if outgoing.is_whole() {
            self.finish(ack.message, Outcome::Whole);
        }
    }

    fn handle_nack(&mut self, view: &PeerView, nack: &Nack) {
        let Some(outgoing) = self.messages.get_mut(&nack.message) else {
            return;
        };
        let crossing_ns = crossing_ns(view);
        let departures = &self.sent_chunks;
        // A NACK that crossed the repair says nothing about it. The same holds for a NACK about a
        // chunk that has not left yet.
        let lost = |stamp| {
            let at_ns = departures.at_ns(stamp);
            at_ns.is_some_and(|at_ns| view.now_ns.saturating_sub(at_ns) >= crossing_ns)
        };
        let mut examined = 0;
        for range in &nack.lost {
            // The ranges are not ascending or not disjoint, which P4.6 forbids. The work must stay
            // bounded.
            if range.start < examined || range.is_empty() {
                return;
            }
            examined = range.end;
            if outgoing.queue_if(range.clone(), lost) {
                self.repeating.insert(nack.message);
            }
        }
    }

    fn finish(&mut self, message: u64, outcome: Outcome) {
        if self.forget(message) {
            self.outcomes.push_back((message, outcome));
        }
    }

    fn forget(&mut self, message: u64) -> bool {
        self.repeating.remove(&message);
        self.unsent.remove(&message);
        let known = self.messages.remove(&message).is_some();
        self.drop_settled_departures();
        known
    }

    /// Removes settled departures from the front, so that the next timeout stays meaningful: the
    /// front departure has chunks without an ACK.
    fn drop_settled_departures(&mut self) {
        while let Some(front) = self.sent_chunks.front() {
            let outgoing = self.messages.get(&front.message);
            if outgoing.is_some_and(|outgoing| !outgoing.has_acked(front.range.clone())) {
                break;
            }
            self.sent_chunks.pop();
        }
    }
}

impl Sender for SelectiveSender {
    fn start(&mut self, view: &PeerView, message: &Message) {
        self.rto_ns = rto_ns(view, self.alpha);
        if let Entry::Vacant(entry) = self.messages.entry(message.number) {
            entry.insert(SelectiveSend::new(message.chunks.max(1)));
            self.unsent.insert(message.number);
        }
    }

    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        self.rto_ns = rto_ns(view, self.alpha);
        self.silent_peer.heard();
        match report {
            Report::Ack(ack) => self.handle_ack(ack),
            Report::Nack(nack) if self.nack => self.handle_nack(view, nack),
            Report::Nack(_) => {}
        }
        self.drop_settled_departures();
    }

    fn handle_contact(&mut self) {
        self.silent_peer.heard();
    }

    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        self.rto_ns = rto_ns(view, self.alpha);
        if let Some(outgoing) = self.messages.get_mut(&chunks.message.data()) {
            let stamp = self.sent_chunks.push(SentRun {
                at_ns: view.now_ns,
                message: chunks.message.data(),
                range: chunks.range.clone(),
            });
            outgoing.stamp(chunks.range.clone(), stamp);
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
        let mut expired = false;
        while let Some(front) = self.sent_chunks.front()
            && front.at_ns.saturating_add(self.rto_ns) <= view.now_ns
        {
            let Some((stamp, departure)) = self.sent_chunks.pop() else {
                break;
            };
            // A chunk that has left again has a later stamp, and waits for that departure.
            if let Some(outgoing) = self.messages.get_mut(&departure.message)
                && outgoing.queue_if(departure.range, |latest| latest == stamp)
            {
                self.repeating.insert(departure.message);
                expired = true;
            }
        }
        if expired {
            self.counters.timeouts += 1;
            self.silent_peer.expired(view, self.rto_ns);
        }
        self.silent_peer.handle_timeout(view);
        self.drop_settled_departures();
    }

    fn poll_transmit(&mut self, _view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        let max_chunks = self.silent_peer.limit(max_chunks);
        if max_chunks == 0 {
            return None;
        }
        let stamp = self.sent_chunks.not_departed();
        let (message, range) = if let Some(&message) = self.repeating.first() {
            let outgoing = self.messages.get_mut(&message)?;
            let range = outgoing.take_queued(max_chunks, stamp)?;
            if !outgoing.has_queued() {
                self.repeating.remove(&message);
            }
            self.counters.retransmitted_chunks += range.len() as u64;
            (message, range)
        } else {
            let &message = self.unsent.first()?;
            let outgoing = self.messages.get_mut(&message)?;
            let range = outgoing.take_new(max_chunks, stamp)?;
            if !outgoing.has_new() {
                self.unsent.remove(&message);
            }
            (message, range)
        };
        self.counters.sent_chunks += range.len() as u64;
        self.silent_peer.sent(range.end - range.start);
        let message = message.into();
        Some(Chunks { message, range })
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        let front = self.sent_chunks.front();
        let expiry = front.map(|front| front.at_ns.saturating_add(self.rto_ns));
        let can_send = !self.repeating.is_empty() || !self.unsent.is_empty();
        let probe = self.silent_peer.next_timeout().filter(|_| can_send);
        expiry.into_iter().chain(probe).min()
    }

    fn counters(&self) -> SenderCounters {
        self.counters
    }
}

impl RepairSender for SelectiveSender {
    fn drop_repeats(&mut self) {
        while let Some(message) = self.repeating.pop_first() {
            if let Some(outgoing) = self.messages.get_mut(&message) {
                outgoing.drop_queued();
            }
        }
    }
}
