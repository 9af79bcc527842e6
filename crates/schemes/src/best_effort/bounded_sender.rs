//! The sending half of best effort with repair (P5.9.4).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use farwrite_wire::control::Outcome;

use super::RepairSender;
use crate::scheme::{Chunks, Job, Message, PeerView, Report, Sender, SenderCounters};

/// Passes one message at a time to the scheme that repairs it. So a packet of a newer message shows
/// that the older message has ended here.
pub(super) struct BoundedSender {
    repairs: Box<dyn RepairSender + Send>,
    active: Option<Active>,
    /// Messages that wait until the active one has ended.
    waiting: BTreeMap<u64, Message>,
    /// Waiting messages whose parity has room at the receiver.
    parity_clear: BTreeSet<u64>,
    deadlines: BTreeMap<u64, u64>,
    /// Outcomes of messages that ended before they became active.
    outcomes: VecDeque<(u64, Outcome)>,
}

struct Active {
    message: u64,
    deadline_ns: Option<u64>,
    /// The last time at which a repeat can leave and still arrive in time, by the newest path
    /// estimate.
    last_repeat_ns: Option<u64>,
    repeats_are_over: bool,
}

impl Active {
    /// Updates the estimate. Returns whether a chunk that leaves now can arrive by the deadline.
    /// The receiver is assumed to have the same deadline.
    fn note_view(&mut self, view: &PeerView) -> bool {
        let latest_ns = |deadline_ns: u64| deadline_ns.saturating_sub(view.rtt_ns / 2);
        self.last_repeat_ns = self.deadline_ns.map(latest_ns);
        self.last_repeat_ns
            .is_none_or(|latest_ns| view.now_ns <= latest_ns)
    }
}

impl BoundedSender {
    pub(super) fn new(repairs: Box<dyn RepairSender + Send>) -> Self {
        Self {
            repairs,
            active: None,
            waiting: BTreeMap::new(),
            parity_clear: BTreeSet::new(),
            deadlines: BTreeMap::new(),
            outcomes: VecDeque::new(),
        }
    }

    /// Returns whether repeats can arrive in time. Once they cannot, nothing of the message is sent
    /// again.
    fn may_repeat(&mut self, view: &PeerView) -> bool {
        let Some(active) = &mut self.active else {
            return true;
        };
        if !active.note_view(view) && !active.repeats_are_over {
            active.repeats_are_over = true;
            self.repairs.drop_repeats();
        }
        !active.repeats_are_over
    }

    /// Starts the oldest waiting message if none is active.
    fn begin_next(&mut self, view: &PeerView) {
        if self.active.is_some() {
            return;
        }
        let Some((number, message)) = self.waiting.pop_first() else {
            return;
        };
        let mut active = Active {
            message: number,
            deadline_ns: self.deadlines.get(&number).copied(),
            last_repeat_ns: None,
            repeats_are_over: false,
        };
        active.note_view(view);
        self.active = Some(active);
        self.repairs.start(view, &message);
        if self.parity_clear.remove(&number) {
            self.repairs.handle_parity_clear(view, number);
        }
    }

    /// Returns whether it was the active message, which the repairing half knows.
    fn forget(&mut self, message: u64) -> bool {
        self.deadlines.remove(&message);
        self.parity_clear.remove(&message);
        let active = self.active.take_if(|active| active.message == message);
        active.is_some()
    }
}

impl Sender for BoundedSender {
    fn handle_deadline(&mut self, message: u64, deadline_ns: u64) {
        self.deadlines.insert(message, deadline_ns);
    }

    fn start(&mut self, view: &PeerView, message: &Message) {
        let active = self.active.as_ref().map(|active| active.message);
        if active != Some(message.number) {
            self.waiting.entry(message.number).or_insert(*message);
            self.begin_next(view);
        }
    }

    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        if self.may_repeat(view) || matches!(report, Report::Ack(_)) {
            self.repairs.handle_report(view, report);
        }
    }

    fn handle_contact(&mut self) {
        self.repairs.handle_contact();
    }

    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        self.repairs.handle_departed(view, chunks);
    }

    fn handle_parity_clear(&mut self, view: &PeerView, message: u64) {
        match self.waiting.contains_key(&message) {
            true => _ = self.parity_clear.insert(message),
            false => self.repairs.handle_parity_clear(view, message),
        }
    }

    fn handle_job(&mut self, view: &PeerView, job: &Job) {
        self.repairs.handle_job(view, job);
    }

    fn poll_job(&mut self) -> Option<Job> {
        self.repairs.poll_job()
    }

    fn handle_closed(&mut self, view: &PeerView, message: u64, outcome: Outcome) {
        if self.waiting.remove(&message).is_some() {
            self.forget(message);
            self.outcomes.push_back((message, outcome));
        } else {
            self.repairs.handle_closed(view, message, outcome);
        }
    }

    fn abandon(&mut self, message: u64) {
        self.waiting.remove(&message);
        if self.forget(message) {
            self.repairs.abandon(message);
        }
    }

    fn handle_timeout(&mut self, view: &PeerView) {
        if self.may_repeat(view) {
            self.repairs.handle_timeout(view);
        }
    }

    fn poll_transmit(&mut self, view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        self.begin_next(view);
        self.may_repeat(view);
        self.repairs.poll_transmit(view, max_chunks)
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        let over = self.outcomes.pop_front();
        let over = over.or_else(|| self.repairs.poll_outcome())?;
        self.forget(over.0);
        Some(over)
    }

    fn next_timeout(&self) -> Option<u64> {
        let active = self.active.as_ref()?;
        if active.repeats_are_over {
            return None;
        }
        // One nanosecond after the last time at which a repeat is in time.
        let over_ns = active.last_repeat_ns.map(|at_ns| at_ns.saturating_add(1));
        self.repairs.next_timeout().into_iter().chain(over_ns).min()
    }

    fn counters(&self) -> SenderCounters {
        self.repairs.counters()
    }
}
