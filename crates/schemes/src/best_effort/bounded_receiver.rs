//! The receiving half of best effort with repair (P5.9.5).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use farwrite_wire::control::Outcome;

use super::RepairReceiver;
use super::open_messages::OpenMessages;
use crate::scheme::{Arrivals, Job, Message, MessageId, PeerView, Receiver, Report};

/// Wraps a scheme that repairs losses, and ends its messages in time.
pub(super) struct BoundedReceiver {
    repairs: Box<dyn RepairReceiver + Send>,
    endings: OpenMessages,
    deadlines: BTreeMap<u64, u64>,
    /// Deadlines that have not been reached, the earliest first.
    looks: BTreeSet<(u64, u64)>,
    /// Messages whose time has ended. Each one ends when the repairing half has processed
    /// everything that arrived.
    ending: BTreeSet<u64>,
}

impl BoundedReceiver {
    pub(super) fn new(repairs: Box<dyn RepairReceiver + Send>) -> Self {
        Self {
            repairs,
            endings: OpenMessages::default(),
            deadlines: BTreeMap::new(),
            looks: BTreeSet::new(),
            ending: BTreeSet::new(),
        }
    }

    fn forget(&mut self, message: u64) {
        self.endings.forget(message);
        self.ending.remove(&message);
        if let Some(deadline_ns) = self.deadlines.remove(&message) {
            self.looks.remove(&(deadline_ns, message));
        }
    }

    /// Returns whether the time of a message has ended.
    fn is_over(&self, view: &PeerView, message: u64) -> bool {
        let deadline_ns = self.deadlines.get(&message);
        self.ending.contains(&message) || deadline_ns.is_some_and(|at_ns| *at_ns <= view.now_ns)
    }

    /// Returns whether chunks that are requested now can arrive in time.
    fn is_in_time(&self, view: &PeerView, message: u64) -> bool {
        let deadline_ns = self.deadlines.get(&message);
        deadline_ns.is_none_or(|at_ns| view.now_ns.saturating_add(view.rtt_ns) <= *at_ns)
    }
}

impl Receiver for BoundedReceiver {
    fn handle_deadline(&mut self, message: u64, deadline_ns: u64) {
        self.deadlines.insert(message, deadline_ns);
        self.looks.insert((deadline_ns, message));
    }

    fn start(&mut self, view: &PeerView, message: &Message, is_cleared: bool) {
        self.repairs.start(view, message, is_cleared);
        self.endings.start(view, message.number);
    }

    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        self.repairs.handle_arrivals(view, message, arrivals);
        let number = message.data();
        if self.endings.is_open(number) && arrivals.seen(message) > 0 {
            self.endings.pass(view, number);
        }
    }

    fn handle_job(&mut self, view: &PeerView, job: &Job, arrivals: &dyn Arrivals) {
        self.repairs.handle_job(view, job, arrivals);
        if self.is_over(view, job.message) {
            self.repairs.look(view, job.message, arrivals);
        }
    }

    fn poll_job(&mut self, arrivals: &dyn Arrivals) -> Option<Job> {
        self.repairs.poll_job(arrivals)
    }

    fn handle_sender_done(&mut self, view: &PeerView, message: u64) {
        self.endings.expect_no_more(view, message);
    }

    fn abandon(&mut self, message: u64) {
        self.repairs.abandon(message);
        self.forget(message);
    }

    fn handle_timeout(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        // At the deadline, the endpoint ends these messages with everything that can be rebuilt by
        // then.
        while let Some(&(at_ns, message)) = self.looks.first()
            && at_ns <= view.now_ns
        {
            self.looks.pop_first();
            self.repairs.look(view, message, arrivals);
        }
        while let Some(message) = self.endings.take_due(view.now_ns) {
            self.repairs.look(view, message, arrivals);
            self.ending.insert(message);
        }
        self.repairs.handle_timeout(view, arrivals);
    }

    fn poll_report(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report> {
        loop {
            match self.repairs.poll_report(view, arrivals, max_bytes)? {
                Report::Nack(nack) if !self.is_in_time(view, nack.message) => {}
                report => return Some(report),
            }
        }
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        if let Some((message, outcome)) = self.repairs.poll_outcome() {
            self.forget(message);
            return Some((message, outcome));
        }
        let message = self.ending.pop_first()?;
        self.abandon(message);
        Some((message, Outcome::Partial))
    }

    fn next_timeout(&self) -> Option<u64> {
        let look_ns = self.looks.first().map(|(at_ns, _)| *at_ns);
        let repairs = self.repairs.next_timeout();
        let all = [repairs, self.endings.next_timeout(), look_ns];
        all.into_iter().flatten().min()
    }
}
