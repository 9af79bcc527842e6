//! The sending half of erasure coding (P5.4.4 to 8).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use farwrite_wire::control::{Ack, Nack, Outcome};

use super::ErasureCoding;
use super::coded_send::CodedSend;
use super::response_timer::ResponseTimer;
use super::shape::Shape;
use crate::best_effort::RepairSender;
use crate::scheme::{Chunks, Job, Message, PeerView, Report, Sender, SenderCounters, Work};
use crate::silent_peer::PROBE_CHUNKS;
use crate::timing::{crossing_ns, rto_ns};

#[derive(Debug)]
pub(super) struct ErasureSender {
    scheme: ErasureCoding,
    messages: BTreeMap<u64, CodedSend>,
    /// Messages with data chunks to send again.
    repairing: BTreeSet<u64>,
    /// Messages with parity chunks that can be sent.
    parity: BTreeSet<u64>,
    /// Messages with data chunks that were never handed out.
    unsent: BTreeSet<u64>,
    /// Messages with groups to encode.
    encoding: BTreeSet<u64>,
    /// The timeout at the last call that had a [`PeerView`].
    rto_ns: u64,
    response_timer: ResponseTimer,
    outcomes: VecDeque<(u64, Outcome)>,
    counters: SenderCounters,
}

impl ErasureSender {
    pub(super) fn new(scheme: ErasureCoding) -> Self {
        Self {
            scheme,
            messages: BTreeMap::new(),
            repairing: BTreeSet::new(),
            parity: BTreeSet::new(),
            unsent: BTreeSet::new(),
            encoding: BTreeSet::new(),
            rto_ns: 0,
            response_timer: ResponseTimer::default(),
            outcomes: VecDeque::new(),
            counters: SenderCounters::default(),
        }
    }

    /// Only the last ACK matters. NACKs are more precise than what other ACKs report.
    fn handle_ack(&mut self, ack: &Ack) {
        let outgoing = self.messages.get(&ack.message);
        if outgoing.is_some_and(|o| !o.has_data() && ack.cumulative >= o.shape.chunks) {
            self.finish(ack.message, Outcome::Whole);
        }
    }

    fn handle_nack(&mut self, view: &PeerView, nack: &Nack) {
        let Some(outgoing) = self.messages.get_mut(&nack.message) else {
            return;
        };
        let mut examined = 0;
        for range in &nack.lost {
            // The ranges are not ascending or not disjoint, which P4.6 forbids. The work must stay
            // bounded.
            if range.start < examined || range.is_empty() {
                break;
            }
            examined = range.end;
            outgoing.repair(view.now_ns, crossing_ns(view), range.clone());
        }
        self.sort(nack.message);
    }

    /// Adds a message to the sets that it now belongs to, and removes it from the others.
    fn sort(&mut self, message: u64) {
        let outgoing = self.messages.get(&message);
        for (set, belongs) in [
            (
                &mut self.repairing,
                outgoing.is_some_and(CodedSend::has_repairs),
            ),
            (
                &mut self.parity,
                outgoing.is_some_and(CodedSend::has_parity),
            ),
            (&mut self.unsent, outgoing.is_some_and(CodedSend::has_data)),
            (
                &mut self.encoding,
                outgoing.is_some_and(CodedSend::has_jobs),
            ),
        ] {
            match belongs {
                true => set.insert(message),
                false => set.remove(&message),
            };
        }
    }

    fn finish(&mut self, message: u64, outcome: Outcome) {
        if self.messages.remove(&message).is_some() {
            self.sort(message);
            self.outcomes.push_back((message, outcome));
        }
    }

    fn next_repairs(&mut self, message: u64, max_chunks: u32) -> Option<Chunks> {
        let outgoing = self.messages.get_mut(&message)?;
        let chunks = outgoing.take_repairs(max_chunks)?;
        if !outgoing.has_repairs() {
            self.repairing.remove(&message);
        }
        self.counters.retransmitted_chunks += chunks.range.len() as u64;
        Some(chunks)
    }

    fn next_parity(&mut self, message: u64, max_chunks: u32) -> Option<Chunks> {
        let outgoing = self.messages.get_mut(&message)?;
        let chunks = outgoing.take_parity(max_chunks)?;
        if !outgoing.has_parity() {
            self.parity.remove(&message);
        }
        Some(chunks)
    }

    fn next_data(&mut self, message: u64, max_chunks: u32) -> Option<Chunks> {
        let outgoing = self.messages.get_mut(&message)?;
        let chunks = outgoing.take_data(max_chunks)?;
        if outgoing.has_parity() {
            self.parity.insert(message);
        }
        if !outgoing.has_data() {
            self.unsent.remove(&message);
        }
        Some(chunks)
    }

    /// Returns whether there is nothing to send now although some messages have not ended.
    fn is_waiting(&self) -> bool {
        let idle = self.repairing.is_empty() && self.parity.is_empty() && self.unsent.is_empty();
        idle && !self.messages.is_empty()
    }
}

impl Sender for ErasureSender {
    fn start(&mut self, view: &PeerView, message: &Message) {
        self.rto_ns = rto_ns(view, self.scheme.alpha);
        if self.messages.is_empty() {
            self.response_timer.begin(view.now_ns);
        }
        if let Entry::Vacant(entry) = self.messages.entry(message.number) {
            entry.insert(CodedSend::new(Shape::new(&self.scheme, message)));
            self.sort(message.number);
        }
    }

    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        self.rto_ns = rto_ns(view, self.scheme.alpha);
        self.response_timer.heard(view.now_ns);
        match report {
            Report::Ack(ack) => self.handle_ack(ack),
            Report::Nack(nack) => self.handle_nack(view, nack),
        }
    }

    fn handle_contact(&mut self) {
        self.response_timer.silent_peer.heard();
    }

    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        self.rto_ns = rto_ns(view, self.scheme.alpha);
        if let Some(outgoing) = self.messages.get_mut(&chunks.message.data()) {
            self.response_timer.departed(view.now_ns);
            if !chunks.message.is_parity() {
                outgoing.departed(view.now_ns, crossing_ns(view), &chunks.range);
            }
        }
    }

    fn handle_parity_clear(&mut self, _view: &PeerView, message: u64) {
        if let Some(outgoing) = self.messages.get_mut(&message) {
            outgoing.clear_parity();
            self.sort(message);
        }
    }

    fn handle_job(&mut self, _view: &PeerView, job: &Job) {
        if let Some(outgoing) = self.messages.get_mut(&job.message) {
            outgoing.encoded(job.group);
            self.sort(job.message);
        }
    }

    fn poll_job(&mut self) -> Option<Job> {
        // Encode only for the message that is being sent and the one after it. Others can wait.
        let next = self.encoding.iter().take(2).find_map(|&message| {
            let group = self.messages.get_mut(&message)?.next_job()?;
            Some((message, group))
        });
        let (message, group) = next?;
        self.sort(message);
        Some(Job {
            message,
            group,
            work: Work::Encode,
        })
    }

    fn handle_closed(&mut self, view: &PeerView, message: u64, outcome: Outcome) {
        self.response_timer.heard(view.now_ns);
        self.finish(message, outcome);
    }

    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
        self.sort(message);
    }

    fn handle_timeout(&mut self, view: &PeerView) {
        self.rto_ns = rto_ns(view, self.scheme.alpha);
        if self.messages.is_empty() {
            return;
        }
        let waiting = self.is_waiting();
        let expired = self
            .response_timer
            .handle_timeout(view, self.rto_ns, waiting);
        self.counters.timeouts += u64::from(expired);
        if waiting && (expired || self.response_timer.silent_peer.next_timeout().is_some()) {
            let mut left = PROBE_CHUNKS;
            for (message, outgoing) in self.messages.iter_mut().take(PROBE_CHUNKS as usize) {
                left -= outgoing.probe(view.now_ns, left);
                if outgoing.has_repairs() {
                    self.repairing.insert(*message);
                }
            }
        }
    }

    fn poll_transmit(&mut self, _view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        let max_chunks = self.response_timer.silent_peer.limit(max_chunks);
        if max_chunks == 0 {
            return None;
        }
        let chunks = if let Some(&message) = self.repairing.first() {
            self.next_repairs(message, max_chunks)?
        } else {
            let parity = self.parity.first().copied().unwrap_or(u64::MAX);
            let unsent = self.unsent.first().copied().unwrap_or(u64::MAX);
            match parity <= unsent {
                true => self.next_parity(parity, max_chunks)?,
                false => self.next_data(unsent, max_chunks)?,
            }
        };
        let count = chunks.range.end - chunks.range.start;
        self.counters.sent_chunks += u64::from(count);
        self.response_timer.silent_peer.sent(count);
        Some(chunks)
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        if self.messages.is_empty() {
            return None;
        }
        self.response_timer
            .next_timeout(self.rto_ns, self.is_waiting())
    }

    fn counters(&self) -> SenderCounters {
        self.counters
    }
}

impl RepairSender for ErasureSender {
    fn drop_repeats(&mut self) {
        while let Some(message) = self.repairing.pop_first() {
            if let Some(outgoing) = self.messages.get_mut(&message) {
                outgoing.drop_repairs();
            }
        }
    }
}
