//! When to send clearances: which receives are posted (P3.8).

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::repeat::Waits;

/// Clearances that one message carries at most, so that others fit beside it.
const MAX_CLEARANCES: u64 = 16;

/// Which clearances the sender holds, which were sent, and which are due.
#[derive(Default)]
pub(crate) struct Clearing {
    /// The next clearance to send: all of `cursor..posted` are due now.
    cursor: u64,
    /// The sender is known to hold the clearances of messages `0..known`.
    known: u64,
    recent: Recent,
    /// The sender waits for clearances from this one on.
    pull: Option<u64>,
    /// When offers taken in are to be answered, if no other clear-to-send did it before.
    answer_ns: Option<u64>,
    /// When to send again what the sender is not known to hold, and after which wait.
    repeat: Option<(u64, u64)>,
    /// Whether a receive was posted since the repeats last started from a short wait.
    fresh: bool,
}

/// Which clearances were sent recently. They are sent from one message on, up to the newest, so the
/// lowest message says it all.
///
/// Only these count when a sender asks again. An answer without clearances, or clearances of newer
/// messages, are of no use to it: if they counted, it could be refused for ever.
#[derive(Default)]
struct Recent {
    /// When clearances were sent, and from which message on. Both rise.
    recent: VecDeque<(u64, u64)>,
}

impl Recent {
    /// Forgets what was sent `span_ns` ago or earlier, or only of messages before `oldest`. So there
    /// is at most one entry for each message with a clearance, and one more.
    fn forget(&mut self, now_ns: u64, span_ns: u64, oldest: u64) {
        let is_old = |&(sent_ns, _): &(u64, u64)| sent_ns.saturating_add(span_ns) <= now_ns;
        while self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        while self
            .recent
            .get(1)
            .is_some_and(|&(_, first)| first <= oldest)
        {
            self.recent.pop_front();
        }
    }

    /// Clearances are sent from message `first` on.
    fn add(&mut self, now_ns: u64, first: u64) {
        while self.recent.back().is_some_and(|&(_, from)| from >= first) {
            self.recent.pop_back();
        }
        self.recent.push_back((now_ns, first));
    }

    /// Whether the clearance of a message is among them.
    fn holds(&self, message: u64) -> bool {
        let lowest = self.recent.front();
        lowest.is_some_and(|&(_, first)| first <= message)
    }
}

impl Clearing {
    /// A receive was posted.
    pub(crate) fn posted(&mut self) {
        self.fresh = true;
    }

    /// The clearance of a message has changed: it is due again, as are those after it.
    pub(crate) fn send_from(&mut self, message: u64) {
        self.cursor = self.cursor.min(message);
    }

    /// The sender says that it holds the clearances of messages `0..cleared`.
    pub(crate) fn sender_holds(&mut self, cleared: u64) {
        self.known = self.known.max(cleared);
    }

    /// An offer wants an answer by `due_ns`; one answers several.
    pub(crate) fn answer(&mut self, due_ns: u64) {
        self.answer_ns.get_or_insert(due_ns);
    }

    /// The sender waits for clearances from message `first` on.
    pub(crate) fn pull(&mut self, first: u64) {
        self.pull = Some(self.pull.map_or(first, |pull| pull.min(first)));
    }

    /// The clearances to send now, an empty range if only the answer is due; `None` if nothing is
    /// to be sent. `posted` holds all open receives, `is_open` says which of it are open, `is_known`
    /// which of these the sender must hold already. A receive that is over needs none: its sender
    /// learns of its end.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        waits: &Waits,
        posted: Range<u64>,
        is_open: impl Fn(u64) -> bool,
        is_known: impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        if let Some(first) = self.pull.take() {
            self.recent.forget(now_ns, waits.first_ns, posted.start);
            if !self.recent.holds(first) {
                self.cursor = self.cursor.min(first);
            }
        }
        if self.cursor >= posted.end {
            self.poll_repeat(now_ns, waits, &posted, |m| !is_open(m) || is_known(m));
        }
        self.cursor = self.cursor.max(posted.start);
        while self.cursor < posted.end && !is_open(self.cursor) {
            self.cursor += 1;
        }
        let answer_due = self.answer_ns.is_some_and(|due_ns| now_ns >= due_ns);
        if self.cursor >= posted.end && !answer_due {
            return None;
        }
        let first = self.cursor;
        let most = posted.end.min(first + MAX_CLEARANCES);
        while self.cursor < most && is_open(self.cursor) {
            self.cursor += 1;
        }
        if first < self.cursor {
            self.recent.forget(now_ns, waits.first_ns, posted.start);
            self.recent.add(now_ns, first);
        }
        self.answer_ns = None;
        if self.fresh {
            self.fresh = false;
            let wait_ns = waits.first_ns;
            self.repeat = Some((now_ns.saturating_add(wait_ns), wait_ns));
        }
        Some(first..self.cursor)
    }

    /// Starts over from the first clearance that the sender may lack, if it is time. After some
    /// rounds it stops: a sender that wants one asks, by offering.
    fn poll_repeat(
        &mut self,
        now_ns: u64,
        waits: &Waits,
        posted: &Range<u64>,
        is_known: impl Fn(u64) -> bool,
    ) {
        let Some((_, wait_ns)) = self.repeat.filter(|&(due_ns, _)| now_ns >= due_ns) else {
            return;
        };
        self.known = self.known.max(posted.start);
        while self.known < posted.end && is_known(self.known) {
            self.known += 1;
        }
        self.repeat = None;
        if self.known < posted.end && wait_ns < waits.longest_ns {
            let wait_ns = waits.next_ns(wait_ns);
            self.repeat = Some((now_ns.saturating_add(wait_ns), wait_ns));
            self.cursor = self.known;
        }
    }

    pub(crate) fn next_timeout(&self, posted: u64) -> Option<u64> {
        if self.cursor < posted || self.pull.is_some() {
            return Some(0);
        }
        let repeat_ns = self.repeat.map(|(due_ns, _)| due_ns);
        match (self.answer_ns, repeat_ns) {
            (Some(answer), Some(repeat)) => Some(answer.min(repeat)),
            (answer, repeat) => answer.or(repeat),
        }
    }
}
