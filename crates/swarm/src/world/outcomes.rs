//! Observes the outcomes of messages, and the return of their memory.

use farwrite::{MemoryRegion, Outcome, RecvHandle, SchemeTag, SendHandle};

use super::World;
use super::writes::Write;
use crate::violation::{Rule, Violation};

/// Probability that a user reads the bitmap of an open receive.
const GLANCE: f64 = 0.02;

/// A message at run time.
#[derive(Default)]
pub(crate) struct Message {
    pub(crate) content: Vec<u8>,
    pub(super) source: Option<MemoryRegion>,
    pub(crate) send: Option<SendHandle>,
    pub(crate) target: Option<MemoryRegion>,
    pub(crate) recv: Option<RecvHandle>,
    /// The scheme of its offer.
    pub(crate) scheme: SchemeTag,
    pub(crate) send_deadline_ns: Option<u64>,
    pub(crate) recv_deadline_ns: Option<u64>,
    pub(crate) sent: Option<Outcome>,
    pub(crate) sent_ns: u64,
    pub(crate) received: Option<Outcome>,
    pub(crate) received_ns: u64,
    /// Contents of the buffer with its guards, at the outcome of the receive.
    pub(crate) snapshot: Vec<u8>,
    pub(crate) cancelled: bool,
    pub(crate) completed: Option<Outcome>,
    pub(crate) writes: Vec<Write>,
}

impl Message {
    /// Whether every posted side has an outcome.
    pub(super) fn is_decided(&self) -> bool {
        (self.send.is_none() || self.sent.is_some())
            && (self.recv.is_none() || self.received.is_some())
    }
}

impl World<'_> {
    /// Reads the outcomes of all open messages, and sometimes a bitmap. Returns whether there were
    /// new outcomes.
    pub(super) fn observe(&mut self) -> Result<bool, Violation> {
        let news = |index: &usize| {
            let Message {
                send,
                recv,
                sent,
                received,
                ..
            } = &self.messages[*index];
            let sent_now = send.as_ref().is_some_and(|send| send.outcome() != *sent);
            sent_now
                || recv
                    .as_ref()
                    .is_some_and(|recv| recv.outcome() != *received)
        };
        let changed: Vec<usize> = self.open.iter().copied().filter(news).collect();
        let news = !changed.is_empty();
        for index in changed {
            self.observe_message(index)?;
        }
        if !self.open.is_empty() && self.rng.chance(GLANCE) {
            let nth = self.rng.index(self.open.len());
            let index = *self.open.iter().nth(nth).expect("below their number");
            self.glance(index)?;
        }
        Ok(news)
    }

    pub(super) fn observe_message(&mut self, index: usize) -> Result<(), Violation> {
        self.progress_ns = self.now_ns();
        let message = &self.messages[index];
        let received = message.recv.as_ref().and_then(|recv| recv.outcome());
        if let (Some(outcome), None) = (received, message.received) {
            self.say(|| format!("message {index}: received, {outcome:?}"));
            self.tap
                .borrow_mut()
                .note(index as u64 * 8 + outcome as u64);
            self.messages[index].received = Some(outcome);
            self.messages[index].received_ns = self.now_ns();
            self.take_snapshot(index)?;
        }
        let message = &self.messages[index];
        let sent = message.send.as_ref().and_then(|send| send.outcome());
        if let (Some(outcome), None) = (sent, message.sent) {
            self.say(|| format!("message {index}: sent, {outcome:?}"));
            self.tap
                .borrow_mut()
                .note(index as u64 * 8 + 4 + outcome as u64);
            self.messages[index].sent = Some(outcome);
            self.messages[index].sent_ns = self.now_ns();
            self.give_source_back(index)?;
        }
        if self.messages[index].is_decided() {
            self.open.remove(&index);
        }
        Ok(())
    }

    /// Deregisters the memory of a send. After its outcome, nothing reads this memory.
    fn give_source_back(&mut self, index: usize) -> Result<(), Violation> {
        let plan = &self.plan.messages[index];
        let host = self.plan.host(plan.pair, plan.from);
        let Some(region) = self.messages[index].source.take() else {
            return Ok(());
        };
        let back = self.hosts[host].endpoint().deregister(region);
        let why = |error| {
            let what = format!("the memory of send {index} does not come back: {error}");
            self.violation(Rule::Leak, what)
        };
        back.map_err(why)?;
        Ok(())
    }

    /// Destroys an end of a queue pair. Its messages must have ended, and its memory must be
    /// returned.
    pub(crate) fn destroy(&mut self, pair: usize, end: usize) -> Result<(), Violation> {
        let Some(qp) = self.pairs[pair].ends[end] else {
            return Ok(());
        };
        let host = self.plan.host(pair, end);
        let stats = self.hosts[host].endpoint().qp_stats(qp);
        self.pairs[pair].stats[end] = stats.map_err(|error| self.failed("qp_stats", error))?;
        let destroyed = self.hosts[host].endpoint().destroy_qp(qp);
        destroyed.map_err(|error| self.failed("destroy_qp", error))?;
        let sends: Vec<usize> = self.plan.course(pair, end).collect();
        let recvs: Vec<usize> = self.plan.course(pair, 1 - end).collect();
        for &index in &sends {
            self.observe_message(index)?;
            // A message that was never posted has memory too.
            self.give_source_back(index)?;
            self.expect_outcome(index, self.messages[index].send.is_some(), |m| m.sent)?;
            self.messages[index].send = None;
        }
        for &index in &recvs {
            self.observe_message(index)?;
            self.expect_outcome(index, self.messages[index].recv.is_some(), |m| m.received)?;
            self.give_target_back(index)?;
            self.messages[index].recv = None;
        }
        self.pairs[pair].ends[end] = None;
        let decided = |index: &usize| !self.messages[*index].is_decided();
        let open = self.open.iter().copied().filter(decided).collect();
        self.open = open;
        Ok(())
    }

    fn expect_outcome(
        &self,
        index: usize,
        is_posted: bool,
        outcome: impl Fn(&Message) -> Option<Outcome>,
    ) -> Result<(), Violation> {
        if is_posted && outcome(&self.messages[index]).is_none() {
            let what = format!("message {index} is open though its queue pair is gone");
            return Err(self.violation(Rule::Outcome, what));
        }
        Ok(())
    }
}
