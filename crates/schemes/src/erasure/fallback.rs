//! When a receiver stops waiting for parity, and for how long it waits for repairs (P5.4.9 to 12).

use alloc::collections::{BTreeSet, VecDeque};

use crate::marks::Marks;
use crate::scheme::PeerView;
use crate::timing::{Alpha, fallback_margin_ns, repair_ns};

/// A gap is a pause if it exceeds this many times the gap that the pace predicts, plus a margin.
const PAUSE: u64 = 4;

/// What the receiver waits for, for one message.
#[derive(Debug)]
pub(super) struct Fallback {
    alpha: Alpha,
    started_ns: u64,
    /// When the latest chunk arrived that was further in wire order than all earlier ones, and how
    /// far that was. `None` before the first chunk.
    latest: Option<(u64, u32)>,
    /// Time between such chunks without the sender's pauses, and the chunks passed in that time.
    moving_ns: u64,
    moved_chunks: u32,
    /// The end of waiting that newer messages imply.
    limit_ns: u64,
    pub(super) expired: bool,
    /// Parity ranks that the sender has passed.
    pub(super) marks: Marks,
    /// Failed groups to request now.
    pub(super) to_ask: BTreeSet<u32>,
    /// Groups that were requested.
    asked: VecDeque<Asked>,
    /// When to request chunks that are in no group.
    pub(super) rest_due_ns: Option<u64>,
    /// Rounds of repeated requests since something new arrived.
    pub(super) rounds: u32,
    last_new_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    group: u32,
    /// When the sender began with repairs, and the number of chunks that it repairs from then up to
    /// the end of this group.
    since_ns: u64,
    chunks: u32,
}

impl Fallback {
    pub(super) fn new(view: &PeerView, alpha: Alpha) -> Self {
        Self {
            alpha,
            started_ns: view.now_ns,
            latest: None,
            moving_ns: 0,
            moved_chunks: 0,
            limit_ns: u64::MAX,
            expired: false,
            marks: Marks::default(),
            to_ask: BTreeSet::new(),
            asked: VecDeque::new(),
            rest_due_ns: None,
            rounds: 0,
            last_new_ns: view.now_ns,
        }
    }

    /// Handles the arrival of something new.
    pub(super) fn arrived(&mut self, view: &PeerView) {
        self.rounds = 0;
        self.last_new_ns = view.now_ns;
    }

    /// Chunks arrived from further on: the sender has passed `passed` chunks.
    pub(super) fn advance(&mut self, view: &PeerView, passed: u32) {
        let before = self.latest.map_or(0, |(_, chunks)| chunks);
        if passed <= before {
            return;
        }
        if let Some((latest_ns, _)) = self.latest.replace((view.now_ns, passed)) {
            self.measure(view, view.now_ns - latest_ns, passed - before);
        }
    }

    /// Counts the time between two chunks toward the pace. A gap far longer than the pace so far is
    /// a pause: the sender had nothing to send, or only probed (P5.4.7). A pause says nothing about
    /// the pace, and would be multiplied by all missing chunks.
    fn measure(&mut self, view: &PeerView, took_ns: u64, chunks: u32) {
        let expected_ns = self.on_wire_ns(chunks);
        let pause_ns = expected_ns
            .saturating_mul(PAUSE)
            .saturating_add(fallback_margin_ns(view, self.alpha));
        if self.moved_chunks == 0 || took_ns <= pause_ns {
            self.moving_ns = self.moving_ns.saturating_add(took_ns);
            self.moved_chunks = self.moved_chunks.saturating_add(chunks);
        }
    }

    /// A newer message has begun: nothing of this one arrives after this time.
    pub(super) fn limit(&mut self, at_ns: u64) {
        self.limit_ns = self.limit_ns.min(at_ns);
    }

    /// When to stop waiting (paper section 4.2.3): the missing chunks need their time on the wire,
    /// at the pace measured so far. If the message has not begun, the sender may have sent nothing
    /// of it while older messages arrived, until `others_ns`.
    pub(super) fn deadline_ns(&self, view: &PeerView, remaining: u32, others_ns: u64) -> u64 {
        let margin_ns = fallback_margin_ns(view, self.alpha);
        let Some((latest_ns, _)) = self.latest else {
            let since_ns = self.started_ns.max(others_ns);
            let first_ns = since_ns.saturating_add(view.rtt_ns);
            return first_ns.saturating_add(margin_ns).min(self.limit_ns);
        };
        let rest_ns = self.on_wire_ns(remaining);
        let waited_ns = latest_ns.saturating_add(rest_ns);
        waited_ns.saturating_add(margin_ns).min(self.limit_ns)
    }

    /// Time that chunks need on the wire, at the pace measured so far. 0 before any pace is known.
    fn on_wire_ns(&self, chunks: u32) -> u64 {
        let took_ns = u128::from(self.moving_ns) * u128::from(chunks);
        u64::try_from(took_ns / u128::from(self.moved_chunks.max(1))).unwrap_or(u64::MAX)
    }

    /// Records a request for `chunks` chunks of a group. Their repairs arrive after all earlier
    /// ones.
    pub(super) fn asked(&mut self, view: &PeerView, group: u32, chunks: u32) {
        let last = self.asked.back();
        let busy = last.filter(|last| self.left_ns(last) > view.now_ns);
        let (since_ns, before) = busy.map_or((view.now_ns, 0), |last| (last.since_ns, last.chunks));
        self.asked.push_back(Asked {
            group,
            since_ns,
            chunks: before.saturating_add(chunks),
        });
    }

    /// When the repairs of a group should have left. It uses the current pace: the pace at the time
    /// of the request may come from only two chunks with a pause between them.
    fn left_ns(&self, asked: &Asked) -> u64 {
        asked.since_ns.saturating_add(self.on_wire_ns(asked.chunks))
    }

    /// Returns whether there are requested groups that are not known to be whole.
    pub(super) fn awaits_repairs(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Requests groups again if their repairs should have arrived. Returns whether it is time to
    /// request chunks that are in no group.
    pub(super) fn ask_again(&mut self, view: &PeerView) -> bool {
        let interval_ns = self.interval_ns(view);
        let due_ns = view.now_ns.saturating_sub(interval_ns);
        let mut oldest_ns = None;
        while let Some(&asked) = self.asked.front()
            && self.left_ns(&asked) <= due_ns
            && view.now_ns >= interval_ns
        {
            self.asked.pop_front();
            self.to_ask.insert(asked.group);
            oldest_ns.get_or_insert(self.left_ns(&asked));
        }
        let rest = self.rest_due_ns.is_some_and(|at_ns| at_ns <= view.now_ns);
        if rest {
            oldest_ns.get_or_insert(view.now_ns.saturating_sub(interval_ns));
        }
        if oldest_ns.is_some_and(|oldest_ns| self.last_new_ns <= oldest_ns) {
            self.rounds = self.rounds.saturating_add(1);
        }
        if rest {
            self.rest_due_ns = Some(view.now_ns.saturating_add(self.interval_ns(view)));
        }
        rest
    }

    /// When [`Self::ask_again`] must be called, or marks are due.
    pub(super) fn next_timeout(&self, view: &PeerView) -> Option<u64> {
        let left_ns = self.asked.front().map(|asked| self.left_ns(asked));
        let again = left_ns.map(|left_ns| left_ns.saturating_add(self.interval_ns(view)));
        let times = [again, self.rest_due_ns, self.marks.next_timeout()];
        times.into_iter().flatten().min()
    }

    /// Time for a repair to arrive. It grows while nothing arrives.
    fn interval_ns(&self, view: &PeerView) -> u64 {
        let repair_ns = repair_ns(view);
        let longest_ns = view.timing.max_probe_ns.max(repair_ns);
        repair_ns
            .saturating_mul(1 << self.rounds.min(30))
            .min(longest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Timing;

    const MS: u64 = 1_000_000;

    fn view(now_ms: u64) -> PeerView {
        PeerView {
            now_ns: now_ms * MS,
            rtt_ns: 20 * MS,
            reordering_window_ns: 0,
            timing: Timing::wide_area(),
        }
    }

    fn fallback() -> Fallback {
        Fallback::new(&view(0), Alpha::default())
    }

    /// Returns when the receiver stops waiting for the remaining chunks, in milliseconds after
    /// `now_ms`.
    fn waits_ms(fallback: &Fallback, now_ms: u64, remaining: u32) -> u64 {
        let deadline_ns = fallback.deadline_ns(&view(now_ms), remaining, 0);
        deadline_ns / MS - now_ms
    }

    #[test]
    fn a_pause_of_the_sender_is_not_its_pace() {
        let mut fallback = fallback();
        for passed in 1..=10 {
            fallback.advance(&view(u64::from(passed)), passed);
        }
        let margin_ms = fallback_margin_ns(&view(0), Alpha::default()) / MS;
        assert_eq!(waits_ms(&fallback, 10, 100), 100 + margin_ms);
        // A probe, one second later.
        fallback.advance(&view(1010), 11);
        assert_eq!(waits_ms(&fallback, 1010, 100), 100 + margin_ms);
    }

    #[test]
    fn repairs_are_waited_for_at_the_pace_seen_since_they_were_asked_for() {
        let mut fallback = fallback();
        fallback.advance(&view(0), 1);
        fallback.advance(&view(500), 2);
        for group in 0..50 {
            fallback.asked(&view(600), group, 10);
        }
        let due_ns = |fallback: &Fallback| fallback.next_timeout(&view(600));
        let interval_ns = fallback.interval_ns(&view(600));
        let asked_ns = 600 * MS + interval_ns;
        assert_eq!(due_ns(&fallback), Some(asked_ns + 10 * 500 * MS));
        fallback.advance(&view(1_000), 502);
        assert_eq!(due_ns(&fallback), Some(asked_ns + 10 * 1_000 * MS / 501));
        fallback.ask_again(&view(600 + 1_000 + interval_ns / MS));
        assert_eq!(
            (fallback.to_ask.len(), fallback.awaits_repairs()),
            (50, false)
        );
    }

    #[test]
    fn slow_and_uneven_chunks_are_waited_for() {
        let mut fallback = fallback();
        for passed in 1..=10 {
            // Two chunks per second, and each third one is twice as late as the others.
            let late_ms = if passed % 3 == 0 { 500 } else { 0 };
            fallback.advance(&view(u64::from(passed) * 500 + late_ms), passed);
        }
        assert!(waits_ms(&fallback, 5000, 10) >= 4500);
        assert!(waits_ms(&fallback, 5000, 10) <= 7000);
    }
}
