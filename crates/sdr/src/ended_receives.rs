//! Receives that have ended, and when their ends are sent to the senders (P3.8).

use alloc::boxed::Box;

use farwrite_wire::control::{Clearance, Outcome};

use crate::clearances::RepeatWaits;
use crate::sparse::Sparse;

/// How often an end is repeated without a request. A sender that missed the end would otherwise
/// notice only at a timeout, and send the whole message again.
const ECHOES: u8 = 2;
/// The most repeats that ride in one packet before they are due.
const MOST_HASTENED: usize = 8;

/// The ends of 64 receives: each word has one bit for each receive.
#[derive(Clone, Copy, Default)]
struct Ended {
    whole: u64,
    partial: u64,
    failed: u64,
    /// Ends that were sent in the current time window.
    sent_now: u64,
    /// Ends that were sent in the previous time window.
    sent_before: u64,
}

pub(crate) struct EndedReceives {
    /// The ends, indexed by message number modulo `kept`, which is two entries per slot. The sender
    /// has finished with older messages.
    ended: Box<[Ended]>,
    /// Twice the slots: a power of two.
    kept: u64,
    /// Receives posted so far. `ended` covers the newest of them.
    posted: u64,
    /// Messages whose end must be sent, and how often it is repeated after that without a request.
    due: Sparse<u64, u8>,
    /// When to repeat which end without a request, and how often after that.
    echoes: Sparse<(u64, u64), u8>,
    /// Clearances of messages that did not fit, from which their senders learn why.
    misfits: Sparse<u64, Clearance>,
    /// The number of the current time window.
    window: u64,
}

impl EndedReceives {
    pub(crate) fn new(slots: u32) -> Self {
        let kept = 2 * slots;
        Self {
            ended: (0..kept.div_ceil(64)).map(|_| Ended::default()).collect(),
            kept: kept.into(),
            posted: 0,
            due: Sparse::new(),
            echoes: Sparse::new(),
            misfits: Sparse::new(),
            window: 0,
        }
    }

    /// Returns the word of a message, and its bit in that word.
    fn place(&mut self, message: u64) -> Option<(&mut Ended, u64)> {
        let is_kept = message < self.posted && self.posted - message <= self.kept;
        let at = message & (self.kept - 1);
        let word = usize::try_from(at / 64).ok().filter(|_| is_kept)?;
        Some((self.ended.get_mut(word)?, 1 << (at % 64)))
    }

    /// Handles the next posted receive, which reuses the entry of an older one.
    pub(crate) fn post(&mut self) {
        self.posted += 1;
        if let Some(forgotten) = self.posted.checked_sub(self.kept + 1) {
            self.misfits.remove(forgotten);
        }
        if let Some((ended, bit)) = self.place(self.posted - 1) {
            ended.whole &= !bit;
            ended.partial &= !bit;
            ended.failed &= !bit;
            ended.sent_now &= !bit;
            ended.sent_before &= !bit;
        }
    }

    /// Records that a message does not fit its receive, and that its sender may not know it.
    pub(crate) fn refuse(&mut self, message: u64, clearance: Clearance) {
        self.misfits.insert(message, clearance);
    }

    /// What to tell the sender before the end of a message.
    pub(crate) fn misfit(&self, message: u64) -> Option<Clearance> {
        self.misfits.get(message).copied()
    }

    /// Records that a receive has ended.
    pub(crate) fn add(&mut self, message: u64, outcome: Outcome) {
        if let Some((ended, bit)) = self.place(message) {
            let word = match outcome {
                Outcome::Whole => &mut ended.whole,
                Outcome::Partial => &mut ended.partial,
                Outcome::Failed => &mut ended.failed,
            };
            *word |= bit;
            let ends = [ended.whole, ended.partial, ended.failed];
            debug_assert_eq!(
                ends.map(|word| word & bit)
                    .iter()
                    .filter(|w| **w > 0)
                    .count(),
                1
            );
            self.due.insert(message, ECHOES);
        }
    }

    fn outcome(&mut self, message: u64) -> Option<Outcome> {
        let (ended, bit) = self.place(message)?;
        let outcomes = [
            (ended.whole, Outcome::Whole),
            (ended.partial, Outcome::Partial),
            (ended.failed, Outcome::Failed),
        ];
        let outcome = outcomes.into_iter().find(|(word, _)| word & bit != 0);
        outcome.map(|(_, outcome)| outcome)
    }

    /// Queues a message's end to be sent again, if the message has ended.
    pub(crate) fn ask(&mut self, message: u64) {
        if !self.due.contains(message) && self.outcome(message).is_some() {
            self.due.insert(message, 0);
        }
    }

    /// Returns the next end to send now.
    pub(crate) fn poll(&mut self, now_ns: u64, waits: &RepeatWaits) -> Option<(u64, Outcome)> {
        let interval_ns = waits.usual_ns;
        self.enter_window(now_ns / (interval_ns / 2).max(1));
        while self
            .echoes
            .first()
            .is_some_and(|(due_ns, _)| due_ns <= now_ns)
            && let Some(((_, message), echoes)) = self.echoes.pop_first()
        {
            self.repeat(message, echoes);
        }
        while let Some((message, echoes)) = self.due.pop_first() {
            let Some(outcome) = self.outcome(message) else {
                continue;
            };
            let Some((ended, bit)) = self.place(message) else {
                continue;
            };
            // Packets that were already in flight when the end was sent do not show whether it
            // arrived.
            if (ended.sent_now | ended.sent_before) & bit != 0 {
                continue;
            }
            ended.sent_now |= bit;
            if let Some(left) = echoes.checked_sub(1) {
                let at_ns = echo_ns(now_ns, waits, echoes == ECHOES);
                self.echoes.insert((at_ns, message), left);
            }
            return Some((message, outcome));
        }
        None
    }

    /// Repeats an end now, and `echoes` times after that.
    fn repeat(&mut self, message: u64, echoes: u8) {
        if let Some((ended, bit)) = self.place(message) {
            ended.sent_now &= !bit;
            ended.sent_before &= !bit;
            self.due.insert(message, echoes);
        }
    }

    /// Makes repeats due that would be due within a half of their wait, a few of them.
    pub(crate) fn hasten(&mut self, now_ns: u64, waits: &RepeatWaits) {
        for _ in 0..MOST_HASTENED {
            let Some(((due_ns, message), echoes)) = self.echoes.pop_first() else {
                return;
            };
            let wait_ns = echo_wait_ns(waits, echoes + 1 == ECHOES);
            if due_ns > now_ns.saturating_add(wait_ns / 2) {
                self.echoes.insert((due_ns, message), echoes);
                return;
            }
            self.repeat(message, echoes);
        }
    }

    /// Time is divided into windows of half an interval. An end sent in the current or the previous
    /// window was sent less than one interval ago. An end sent in neither window was sent more than
    /// half an interval ago.
    fn enter_window(&mut self, window: u64) {
        if window == self.window {
            return;
        }
        let is_next = window == self.window.wrapping_add(1);
        for ended in &mut self.ended {
            let sent_now = core::mem::take(&mut ended.sent_now);
            ended.sent_before = if is_next { sent_now } else { 0 };
        }
        self.window = window;
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        if self.due.is_empty() {
            self.echoes.first().map(|(due_ns, _)| due_ns)
        } else {
            Some(0)
        }
    }
}

/// When to send an end again: soon, because the sender waits for nothing else, and once more after
/// two intervals. Times are rounded to a multiple of half of the wait, so that many ends share a
/// packet.
fn echo_ns(now_ns: u64, waits: &RepeatWaits, is_first: bool) -> u64 {
    let wait_ns = echo_wait_ns(waits, is_first);
    let at_ns = now_ns.saturating_add(wait_ns);
    let grain_ns = (wait_ns / 2).max(1);
    at_ns.checked_next_multiple_of(grain_ns).unwrap_or(at_ns)
}

fn echo_wait_ns(waits: &RepeatWaits, is_first: bool) -> u64 {
    match is_first {
        true => waits.soon_ns(),
        false => waits.usual_ns.saturating_mul(2),
    }
}
