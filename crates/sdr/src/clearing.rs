//! When to tell the sender which receives are posted (P3.8).

use core::ops::Range;

use crate::repeat::Waits;

/// Clearances that one message carries at most, so that others fit beside it.
const MAX_CLEARANCES: u64 = 16;

/// Which clearances the sender holds, was told of, or still has to be told.
#[derive(Default)]
pub(crate) struct Clearing {
    /// The next clearance to tell: all of `cursor..posted` are due now.
    cursor: u64,
    /// The sender is known to hold the clearances of messages `0..known`.
    known: u64,
    /// When a clear-to-send went out last.
    sent_ns: Option<u64>,
    /// The sender waits for clearances from this one on.
    pull: Option<u64>,
    /// When offers taken in are to be answered, if no other clear-to-send did it before.
    answer_ns: Option<u64>,
    /// When to tell again what the sender is not known to hold, and after which wait.
    repeat: Option<(u64, u64)>,
    /// Whether a receive was posted since the repeats last started from a short wait.
    fresh: bool,
}

impl Clearing {
    /// A receive was posted.
    pub(crate) fn posted(&mut self) {
        self.fresh = true;
    }

    /// The clearance of a message has changed: it is due again, as are those after it.
    pub(crate) fn tell(&mut self, message: u64) {
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

    /// The clearances to tell now, an empty range if only the answer is due; `None` if nothing is
    /// to be told. `posted` holds all open receives, `is_open` says which of it are open, `is_known`
    /// which of these the sender must hold already. A receive that is over is not told: its sender
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
            let again_ns = self.sent_ns.map(|sent| sent.saturating_add(waits.first_ns));
            if again_ns.is_none_or(|again| now_ns >= again) {
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
        self.sent_ns = Some(now_ns);
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
