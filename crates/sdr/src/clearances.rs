//! Clearances: what a clear-to-send may contain, and when it is sent (P3.8).

use alloc::collections::VecDeque;
use core::ops::Range;

use farwrite_wire::control::{ClearToSend, Clearance};
use farwrite_wire::timing::Timing;

use crate::error::Violation;
use crate::geometry::Geometry;

/// How long to wait before the same information is sent again.
#[derive(Clone, Copy)]
pub(crate) struct RepeatWaits {
    /// The usual wait before a repeat (r of P3.8): a quarter of the round trip. Offers, reads, ends and the
    /// first clearances are first repeated after [`RepeatWaits::soon_ns`].
    pub(crate) usual_ns: u64,
    /// Longest wait, for information that needs an answer.
    pub(crate) longest_ns: u64,
    /// The time in which an answer comes, where it comes before the first repeat.
    answer_ns: u64,
}

impl RepeatWaits {
    pub(crate) fn new(timing: &Timing, rtt_ns: u64) -> Self {
        let usual_ns = (rtt_ns / 4).max(timing.min_repeat_ns);
        // An answer may wait for data (P5.0.5).
        let answer_ns = rtt_ns + timing.min_repeat_ns / 8;
        Self {
            usual_ns,
            longest_ns: timing.max_repeat_ns,
            answer_ns: if answer_ns <= usual_ns / 4 {
                answer_ns
            } else {
                0
            },
        }
    }

    /// Returns the next wait, after a wait of `last_ns`.
    pub(crate) fn next_ns(&self, last_ns: u64) -> u64 {
        last_ns.saturating_mul(2).min(self.longest_ns.max(last_ns))
    }

    /// The wait before the first repeat of a packet for which the other end waits: an eighth of
    /// the usual one. So the loss of this packet delays the message by a small part of a round
    /// trip. On a short path, an answer comes sooner than that: the repeat waits for it.
    pub(crate) fn soon_ns(&self) -> u64 {
        self.usual_ns / 8 + self.answer_ns
    }

    /// Returns the wait before the next repeat of an offer, a request or a clearance, after a wait of
    /// `last_ns`: first the early repeat, and then the usual waits.
    pub(crate) fn after_ns(&self, last_ns: Option<u64>) -> u64 {
        match last_ns {
            None => self.soon_ns(),
            Some(last_ns) if last_ns < self.usual_ns => self.usual_ns,
            Some(last_ns) => self.next_ns(last_ns),
        }
    }
}

/// The most receives that a peer can have posted when `started` sends are started: one more in
/// every slot whose last message was offered (P3.6).
pub(crate) fn most_posted(geometry: &Geometry, started: u64) -> u64 {
    started + u64::from(geometry.slots())
}

/// Checks that a correct receiver can send this to an end where `started` sends are started.
///
/// # Errors
/// The first value that a correct receiver does not send.
pub(crate) fn check_clearances(
    geometry: &Geometry,
    started: u64,
    cts: &ClearToSend,
) -> Result<(), Violation> {
    let within = |message: u64, limit: u64| {
        let fits = message <= limit;
        fits.then_some(())
            .ok_or(Violation::MessageOutOfRange { message, limit })
    };
    within(cts.posted, most_posted(geometry, started))?;
    // A receive may end before its message is started, and therefore before it is offered.
    within(cts.offers, started.max(cts.posted))?;
    let end = cts.first.saturating_add(cts.clearances.len() as u64);
    within(end, cts.posted)?;
    let max = geometry.config().max_message_bytes;
    for (message, clearance) in (cts.first..).zip(&cts.clearances) {
        let Clearance {
            generation,
            base,
            length,
            parity,
            ..
        } = *clearance;
        let lies_within = |base: u64, length| length <= max && base.checked_add(length).is_some();
        let parity_fits = parity.is_none_or(|place| lies_within(place.base, place.length));
        let fits = lies_within(base, length) && parity_fits;
        if !fits || generation != geometry.generation(message) {
            return Err(Violation::BadClearance {
                message,
                generation,
                base,
                length,
            });
        }
    }
    Ok(())
}

/// Most clearances in one control message, so that others fit beside it.
const MAX_CLEARANCES: u64 = 16;

/// Which clearances the sender holds, which were sent, and which must be sent now.
#[derive(Default)]
pub(crate) struct Clearances {
    /// The next clearance to send: all of `cursor..posted` are due now.
    cursor: u64,
    /// The sender is known to hold the clearances of messages `0..known`.
    known: u64,
    recent: Recent,
    /// The sender waits for clearances from this one on.
    pull: Option<u64>,
    /// When to answer the offers that were processed, unless an earlier clear-to-send answers them.
    answer_ns: Option<u64>,
    /// When to repeat the clearances that the sender may not hold, and the wait before that.
    repeat: Option<(u64, u64)>,
    /// Whether a receive was posted since the repeats last started with a short wait.
    fresh: bool,
}

/// Which clearances were sent recently. They are always sent from one message up to the newest, so
/// the lowest message describes the whole set.
///
/// Only these entries count when a sender asks again. An answer without clearances, or with
/// clearances of newer messages only, does not help that sender. If such an answer counted, the
/// request could be ignored forever.
#[derive(Default)]
struct Recent {
    /// Pairs of the time when clearances were sent and the first message of that set. Both values
    /// rise.
    recent: VecDeque<(u64, u64)>,
}

impl Recent {
    /// Removes entries that are `span_ns` old or older, and entries only about messages before
    /// `oldest`. So there is at most one entry for each message with a clearance, and one more.
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

    /// Records that clearances are sent from message `first` on.
    fn add(&mut self, now_ns: u64, first: u64) {
        while self.recent.back().is_some_and(|&(_, from)| from >= first) {
            self.recent.pop_back();
        }
        self.recent.push_back((now_ns, first));
    }

    /// Returns whether the clearance of a message is in the set.
    fn holds(&self, message: u64) -> bool {
        let lowest = self.recent.front();
        lowest.is_some_and(|&(_, first)| first <= message)
    }
}

impl Clearances {
    /// Handles a newly posted receive.
    pub(crate) fn posted(&mut self) {
        self.fresh = true;
    }

    /// The clearance of a message has changed, so it and those after it must be sent again.
    pub(crate) fn send_from(&mut self, message: u64) {
        self.cursor = self.cursor.min(message);
    }

    /// The sender reports that it holds the clearances of messages `0..cleared`.
    pub(crate) fn sender_holds(&mut self, cleared: u64) {
        self.known = self.known.max(cleared);
    }

    /// Whether the sender has reported that it holds the clearance of a message.
    pub(crate) fn is_held(&self, message: u64) -> bool {
        message < self.known
    }

    /// Requests an answer to an offer by `due_ns`. One clear-to-send answers several offers.
    pub(crate) fn answer(&mut self, due_ns: u64) {
        self.answer_ns.get_or_insert(due_ns);
    }

    /// The sender waits for clearances from message `first` on.
    pub(crate) fn pull(&mut self, first: u64) {
        self.pull = Some(self.pull.map_or(first, |pull| pull.min(first)));
    }

    /// Returns the clearances to send now. The range is empty if only the answer is due. Returns
    /// `None` if nothing must be sent. `posted` holds all open receives, and the sender is known to
    /// have offered messages `0..started`. `is_open` returns whether a receive is open, and
    /// `is_known` whether the sender must hold its clearance already. A receive that has ended needs
    /// no clearance: its sender gets the end instead.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        waits: &RepeatWaits,
        posted: Range<u64>,
        started: u64,
        is_open: impl Fn(u64) -> bool,
        is_known: impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        if let Some(first) = self.pull.take() {
            self.recent.forget(now_ns, waits.usual_ns, posted.start);
            if !self.recent.holds(first) {
                self.cursor = self.cursor.min(first);
            }
        }
        if self.cursor >= posted.end {
            let is_known = |m| !is_open(m) || is_known(m);
            self.poll_repeat(now_ns, waits, &posted, started, is_known);
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
            self.recent.forget(now_ns, waits.usual_ns, posted.start);
            self.recent.add(now_ns, first);
        }
        self.answer_ns = None;
        if self.fresh {
            self.fresh = false;
            // The first clearances are lost if they arrive before the sender has connected its queue pair.
            let is_heard = self.known.max(started) > 0;
            let wait_ns = if is_heard {
                waits.usual_ns
            } else {
                waits.soon_ns()
            };
            self.repeat = Some((now_ns.saturating_add(wait_ns), wait_ns));
        }
        Some(first..self.cursor)
    }

    /// Starts again at the first clearance that the sender may lack, if the wait has ended. Stops
    /// after some rounds, and after one if the sender holds an unused clearance: a sender that needs
    /// a clearance asks for it with an offer.
    fn poll_repeat(
        &mut self,
        now_ns: u64,
        waits: &RepeatWaits,
        posted: &Range<u64>,
        started: u64,
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
            self.cursor = self.known;
            let has_unused = self.known > started && !is_known(self.known - 1);
            let wait_ns = waits.after_ns(Some(wait_ns));
            self.repeat = (!has_unused).then(|| (now_ns.saturating_add(wait_ns), wait_ns));
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
