//! The receiving half of erasure coding (P5.4.9 to 14).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use farwrite_wire::control::{Ack, Outcome};

use super::ErasureCoding;
use super::coded_recv::CodedRecv;
use super::shape::Shape;
use crate::ack_clock::AckClock;
use crate::best_effort::RepairReceiver;
use crate::scheme::{Arrivals, Job, Message, MessageId, PeerView, Receiver, Report, Work};
use crate::selective_repeat::ack_state::NextAck;

/// Bytes of one range in a NACK (P4.6).
const RANGE_BYTES: usize = 8;

#[derive(Debug)]
pub(super) struct ErasureReceiver {
    scheme: ErasureCoding,
    messages: BTreeMap<u64, TimedRecv>,
    acks: AckClock,
    /// When to look at each message. There is at most one entry per message, and none is too late.
    timers: BTreeSet<(u64, u64)>,
    /// Messages with chunks to request now.
    asking: BTreeSet<u64>,
    /// Messages with groups to rebuild.
    rebuilding: BTreeSet<u64>,
    /// Messages before these have been passed by data, and by parity, of newer messages.
    newest: u64,
    newest_with_parity: u64,
    /// When the last packet arrived.
    last_ns: u64,
    outcomes: VecDeque<(u64, Outcome)>,
}

#[derive(Debug)]
struct TimedRecv {
    incoming: CodedRecv,
    armed_ns: Option<u64>,
}

impl ErasureReceiver {
    pub(super) fn new(scheme: ErasureCoding) -> Self {
        Self {
            scheme,
            messages: BTreeMap::new(),
            acks: AckClock::default(),
            timers: BTreeSet::new(),
            asking: BTreeSet::new(),
            rebuilding: BTreeSet::new(),
            newest: 0,
            newest_with_parity: 0,
            last_ns: 0,
            outcomes: VecDeque::new(),
        }
    }

    fn forget(&mut self, message: u64) {
        self.acks.forget(message);
        self.asking.remove(&message);
        self.rebuilding.remove(&message);
        if let Some(watched) = self.messages.remove(&message)
            && let Some(armed_ns) = watched.armed_ns
        {
            self.timers.remove(&(armed_ns, message));
        }
    }

    /// Handles packets of a newer message. The sender began it after the data of older messages,
    /// and after their parity unless the parity was late.
    fn pass(&mut self, view: &PeerView, message: u64, with_parity: bool) {
        let newest = match with_parity {
            true => &mut self.newest_with_parity,
            false => &mut self.newest,
        };
        if message <= *newest {
            return;
        }
        let older = *newest..message;
        *newest = message;
        let mut passed = BTreeSet::new();
        for (number, watched) in self.messages.range_mut(older) {
            watched.incoming.pass(view, self.scheme.alpha, with_parity);
            passed.insert(*number);
        }
        for number in passed {
            self.arm(view, number);
        }
    }

    /// Handles a change of a message: it may be complete, have jobs, or need an earlier look.
    fn settle(&mut self, view: &PeerView, message: u64, arrivals: &dyn Arrivals) {
        let Some(watched) = self.messages.get(&message) else {
            return;
        };
        if watched.incoming.has_jobs() {
            self.rebuilding.insert(message);
        }
        if watched.incoming.is_complete(arrivals) {
            self.acks.touch_now(message);
        } else {
            self.arm(view, message);
        }
    }

    /// Moves the timer of a message forward if it is due sooner. A timer that fires too early does
    /// no harm.
    fn arm(&mut self, view: &PeerView, message: u64) {
        let Some(watched) = self.messages.get_mut(&message) else {
            return;
        };
        let Some(due_ns) = watched.incoming.next_timeout(view, self.last_ns) else {
            return;
        };
        if watched.armed_ns.is_some_and(|armed_ns| armed_ns <= due_ns) {
            return;
        }
        if let Some(armed_ns) = watched.armed_ns.replace(due_ns) {
            self.timers.remove(&(armed_ns, message));
        }
        self.timers.insert((due_ns, message));
    }

    /// Ends a message that is complete.
    fn finish(&mut self, message: u64) {
        self.forget(message);
        self.outcomes.push_back((message, Outcome::Whole));
    }

    fn poll_ack(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Ack> {
        while let Some(number) = self.acks.due() {
            let Some(watched) = self.messages.get_mut(&number) else {
                self.acks.done(number);
                continue;
            };
            let incoming = &mut watched.incoming;
            incoming.arrived(view, arrivals);
            if incoming.is_complete(arrivals) {
                let chunks = incoming.chunks();
                self.finish(number);
                return Some(last_ack(number, chunks));
            }
            let next = incoming.acks.ack(arrivals, max_bytes);
            // If every chunk is present, an ACK would be the last one. But the immediate is still
            // missing.
            let next = match incoming.acks.is_whole() {
                true => NextAck::None,
                false => next,
            };
            self.settle(view, number, arrivals);
            match next {
                NextAck::More(ack) => return Some(ack),
                NextAck::Unfinished(ack) => {
                    self.acks.done(number);
                    self.acks.touch(view, number);
                    return Some(ack);
                }
                NextAck::Last(ack) => {
                    self.acks.done(number);
                    return Some(ack);
                }
                NextAck::None => self.acks.done(number),
            }
        }
        None
    }
}

/// The last ACK of a message with this many chunks.
fn last_ack(message: u64, chunks: u32) -> Ack {
    Ack {
        message,
        cumulative: chunks,
        seen: chunks,
        window_start: 0,
        bits: alloc::vec::Vec::new(),
    }
}

impl Receiver for ErasureReceiver {
    fn start(&mut self, view: &PeerView, message: &Message, _is_cleared: bool) {
        let number = message.number;
        if let Entry::Vacant(entry) = self.messages.entry(number) {
            let alpha = self.scheme.alpha;
            let shape = Shape::new(&self.scheme, message);
            let mut incoming = CodedRecv::new(shape, view, alpha);
            if number < self.newest_with_parity {
                incoming.pass(view, alpha, true);
            } else if number < self.newest {
                incoming.pass(view, alpha, false);
            }
            let armed_ns = None;
            entry.insert(TimedRecv { incoming, armed_ns });
            // All chunks may have arrived already.
            self.acks.touch_now(number);
            self.arm(view, number);
        }
    }

    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        let (number, with_parity) = (message.data(), message.is_parity());
        let data = MessageId::new(number);
        if arrivals.seen(data) == 0 && arrivals.seen(data.parity()) == 0 {
            return;
        }
        if let Some(watched) = self.messages.get_mut(&number) {
            self.last_ns = view.now_ns;
            watched.incoming.arrived(view, arrivals);
            watched.incoming.acks.arrived(arrivals);
            self.acks.touch(view, number);
            self.settle(view, number, arrivals);
            self.pass(view, number, with_parity);
        }
    }

    fn handle_job(&mut self, view: &PeerView, job: &Job, arrivals: &dyn Arrivals) {
        if let Some(watched) = self.messages.get_mut(&job.message) {
            if watched.incoming.rebuilt(view, job.group, arrivals) {
                self.asking.insert(job.message);
            }
            self.settle(view, job.message, arrivals);
        }
    }

    fn poll_job(&mut self, arrivals: &dyn Arrivals) -> Option<Job> {
        while let Some(&message) = self.rebuilding.first() {
            let watched = self.messages.get_mut(&message);
            let group = watched.and_then(|watched| watched.incoming.next_job(arrivals));
            if let Some(group) = group {
                let work = Work::Rebuild;
                return Some(Job {
                    message,
                    group,
                    work,
                });
            }
            self.rebuilding.remove(&message);
            let watched = self.messages.get(&message);
            if watched.is_some_and(|watched| watched.incoming.is_complete(arrivals)) {
                self.acks.touch_now(message);
            }
        }
        None
    }

    fn abandon(&mut self, message: u64) {
        self.forget(message);
    }

    fn handle_timeout(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        self.acks.handle_timeout(view.now_ns);
        while let Some(&(due_ns, number)) = self.timers.first()
            && due_ns <= view.now_ns
        {
            self.timers.pop_first();
            let Some(watched) = self.messages.get_mut(&number) else {
                continue;
            };
            watched.armed_ns = None;
            if watched
                .incoming
                .handle_timeout(view, arrivals, self.last_ns)
            {
                self.asking.insert(number);
            }
            self.arm(view, number);
        }
    }

    fn poll_report(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report> {
        if let Some(ack) = self.poll_ack(view, arrivals, max_bytes) {
            return Some(Report::Ack(ack));
        }
        let max_ranges = (max_bytes / RANGE_BYTES).max(1);
        while let Some(&number) = self.asking.first() {
            let watched = self.messages.get_mut(&number);
            let nack = watched.and_then(|w| w.incoming.poll_nack(view, arrivals, max_ranges));
            if let Some(nack) = nack {
                self.arm(view, number);
                return Some(Report::Nack(nack));
            }
            self.asking.remove(&number);
        }
        None
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        let timers = self.timers.first().map(|(due_ns, _)| *due_ns);
        self.acks.next_timeout().into_iter().chain(timers).min()
    }
}

impl RepairReceiver for ErasureReceiver {
    fn look(&mut self, view: &PeerView, message: u64, arrivals: &dyn Arrivals) {
        if let Some(watched) = self.messages.get_mut(&message) {
            watched.incoming.look(view, arrivals);
            if watched.incoming.is_complete(arrivals) {
                // The last ACK may wait until the control queue has room. It is not needed, because
                // the end of the message leaves too.
                self.finish(message);
            } else {
                self.settle(view, message, arrivals);
            }
        }
    }
}
