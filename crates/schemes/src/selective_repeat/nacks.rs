//! The NACKs of a queue pair: which messages have holes, and when to report them (P5.2).

use core::ops::Range;

use alloc::collections::{BTreeMap, BTreeSet};
use farwrite_wire::control::Nack;

use super::holes::Holes;
use super::tail_request::TailRequest;
use crate::scheme::{Arrivals, Message, PeerView};

/// Bytes of one range in a NACK (P4.6).
const RANGE_BYTES: usize = 8;

/// Most messages whose tails are requested in one round.
const MAX_TAILS_A_ROUND: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Nacks {
    messages: BTreeMap<u64, NackedRecv>,
    /// When to look at each message. There is at most one entry per message.
    timers: BTreeSet<(u64, u64)>,
    /// Messages with chunks to request now.
    asking: BTreeSet<u64>,
    tail_request: TailRequest,
    /// The sender has passed all messages before this one.
    newest: u64,
}

#[derive(Debug)]
struct NackedRecv {
    message: Message,
    holes: Holes,
    started_ns: u64,
    /// Whether the sender is known to hold the clearance. Otherwise it may have sent nothing.
    is_cleared: bool,
    armed_ns: Option<u64>,
}

impl Nacks {
    pub(super) fn start(&mut self, view: &PeerView, message: &Message, is_cleared: bool) {
        let mut holes = Holes::default();
        if message.number < self.newest {
            holes.note(view, message.chunks);
        }
        let watched = NackedRecv {
            message: *message,
            holes,
            started_ns: view.now_ns,
            is_cleared,
            armed_ns: None,
        };
        self.messages.insert(message.number, watched);
        self.rearm(message.number);
        self.tail_request.started(view, is_cleared);
    }

    pub(super) fn forget(&mut self, message: u64) {
        self.asking.remove(&message);
        if let Some(watched) = self.messages.remove(&message)
            && let Some(armed_ns) = watched.armed_ns
        {
            self.timers.remove(&(armed_ns, message));
        }
        if self.messages.is_empty() {
            self.tail_request.idle();
        }
    }

    /// Packets of a message have arrived. Chunks `0..cumulative` are present. The highest chunk of
    /// which any packet has arrived is the one before `seen`.
    pub(super) fn arrived(&mut self, view: &PeerView, message: u64, cumulative: u32, seen: u32) {
        self.tail_request.arrived(view);
        let Some(watched) = self.messages.get_mut(&message) else {
            return;
        };
        watched.is_cleared = true;
        watched.holes.skip(cumulative);
        // The highest chunk may still have packets in flight.
        let highest = seen.min(watched.message.chunks).saturating_sub(1);
        watched.holes.note(view, highest);
        self.rearm(message);
        if message > self.newest {
            let older = self.newest..message;
            self.newest = message;
            self.pass(view, older);
        }
    }

    /// The sender has sent all chunks of these messages. A packet of a newer message shows that: the
    /// sender began it after them.
    pub(super) fn pass(&mut self, view: &PeerView, older: Range<u64>) {
        let mut passed = BTreeSet::new();
        for (number, watched) in self.messages.range_mut(older) {
            watched.holes.note(view, watched.message.chunks);
            passed.insert(*number);
        }
        for number in passed {
            self.rearm(number);
        }
    }

    pub(super) fn handle_timeout(&mut self, view: &PeerView) {
        while let Some(&(due_ns, number)) = self.timers.first()
            && due_ns <= view.now_ns
        {
            self.timers.pop_first();
            let Some(watched) = self.messages.get_mut(&number) else {
                continue;
            };
            watched.armed_ns = None;
            if watched.holes.handle_timeout(view.now_ns) {
                self.asking.insert(number);
            }
            self.rearm(number);
        }
        if self.tail_request.handle_timeout(view) {
            self.ask_tails(view);
        }
    }

    fn ask_tails(&mut self, view: &PeerView) {
        let tail_request = &self.tail_request;
        let expected = self.messages.iter_mut().filter(|(_, watched)| {
            watched.is_cleared || tail_request.overdue(view, watched.started_ns)
        });
        for (number, watched) in expected.take(MAX_TAILS_A_ROUND) {
            watched.holes.ask_tail();
            self.asking.insert(*number);
        }
    }

    pub(super) fn poll(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Nack> {
        let max_ranges = (max_bytes / RANGE_BYTES).max(1);
        while let Some(&number) = self.asking.first() {
            let lost = self.messages.get_mut(&number).and_then(|watched| {
                let NackedRecv { message, holes, .. } = watched;
                holes.poll(view, arrivals, message, max_ranges)
            });
            if let Some(lost) = lost {
                self.rearm(number);
                return Some(Nack {
                    message: number,
                    lost,
                });
            }
            self.asking.remove(&number);
        }
        None
    }

    pub(super) fn next_timeout(&self) -> Option<u64> {
        let holes = self.timers.first().map(|(due_ns, _)| *due_ns);
        holes
            .into_iter()
            .chain(self.tail_request.next_timeout())
            .min()
    }

    fn rearm(&mut self, number: u64) {
        let Some(watched) = self.messages.get_mut(&number) else {
            return;
        };
        let due_ns = watched.holes.next_timeout();
        if watched.armed_ns != due_ns {
            if let Some(armed_ns) = watched.armed_ns {
                self.timers.remove(&(armed_ns, number));
            }
            self.timers.extend(due_ns.map(|due_ns| (due_ns, number)));
            watched.armed_ns = due_ns;
        }
    }
}
