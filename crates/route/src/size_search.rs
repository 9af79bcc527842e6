//! The search for the largest packet that a path carries, similar to RFC 8899.
//!
//! The search probes all sizes of the first round at once, and repeats an unanswered size. A loss may
//! be random, so the search repeats the smallest size beside the others: the control. A size counts as
//! too large when the losses of the control do not explain its own. When the largest size of the round
//! fails, further rounds probe sizes between the largest that passed and the smallest that failed. A
//! transfer uses one further round, because it should start soon; a measurement continues until the
//! result is exact. The search ignores ICMP, because anyone can forge it.

use alloc::vec::Vec;

/// Numbers of probes of a size that are lost in a row. With fewer than the first number, the size never
/// counts as too large. With the second number, it always does, if a smaller size was answered.
const TRIES: core::ops::RangeInclusive<u8> = 5..=32;
/// A size counts as too large if random loss alone would lose all of its probes in less than one
/// search out of this number.
const ODDS: u64 = 10_000;
/// Number of sizes in each further round.
const REFINED: u32 = 8;

/// The search for one direction of a path. Sizes are bytes of a datagram (UDP payload).
///
/// ```
/// use farwrite_route::SizeSearch;
///
/// const TIMEOUT_NS: u64 = 1_000_000;
/// let mut search = SizeSearch::new([1_280, 1_500, 9_000]);
/// // Sizes up to 1500 are answered, and larger ones this machine refuses to send.
/// while search.outcome().is_none() {
///     match search.probe(0, TIMEOUT_NS).expect("a size is open") {
///         bytes @ ..=1_500 => search.pass(bytes),
///         bytes => search.too_large(bytes),
///     }
/// }
/// assert_eq!(search.outcome(), Some(1_500));
/// ```
#[derive(Clone, Debug)]
pub struct SizeSearch {
    /// Sizes that may still pass, ascending, all above `passed`.
    open: Vec<Size>,
    /// The largest size that was answered.
    passed: Option<u32>,
    /// The smallest size that failed.
    failed: Option<u32>,
    /// Whether that size failed on the path.
    is_narrow: bool,
    control: Control,
    aim: Aim,
}

/// Probes of a size that passes, if any does. They show the share of random losses.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// `None` until something passes, if only one size is tested.
    bytes: Option<u32>,
    tries: u8,
    answers: u8,
    /// When the last probe was sent.
    sent_ns: u64,
}

impl Control {
    /// Whether random loss does not explain that `tries` probes were lost.
    fn excludes(self, tries: u8) -> bool {
        // The control may have begun later.
        let tries = tries.min(self.tries);
        let lost = u64::from(self.tries - self.answers);
        // The expected share of losses after these (Laplace's rule of succession).
        let lose = |odds, _| odds * (lost + 1) / (u64::from(self.tries) + 2);
        // The probability, as a multiple of 1 / (ODDS << 32).
        (0..tries).fold(ODDS << 32, lose) < 1 << 32
    }

    fn sent(&mut self, now_ns: u64) {
        self.tries = self.tries.saturating_add(1);
        self.sent_ns = now_ns;
    }

    /// Other probes of this size count too. They make the random loss seem lower, never higher.
    fn answered(&mut self) {
        self.answers = self.tries.min(self.answers.saturating_add(1));
    }
}

/// What to do when the largest size of a round fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// End the search.
    Enough,
    /// Add one round, if the sizes that passed and failed are far apart.
    Near,
    /// Add rounds until the result is exact to the byte, or `most` passes.
    Exact { most: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u32,
    tries: u8,
    /// When the last probe was sent.
    sent_ns: u64,
}

impl Size {
    fn untried(bytes: u32) -> Self {
        Self {
            bytes,
            tries: 0,
            sent_ns: 0,
        }
    }
}

impl SizeSearch {
    /// A search that tests `candidates`, and then sizes between them.
    #[must_use]
    pub fn new(candidates: impl IntoIterator<Item = u32>) -> Self {
        let mut open: Vec<_> = candidates.into_iter().map(Size::untried).collect();
        open.sort_by_key(|size| size.bytes);
        open.dedup_by_key(|size| size.bytes);
        let control = Control {
            bytes: open
                .first()
                .filter(|_| open.len() > 1)
                .map(|size| size.bytes),
            ..Control::default()
        };
        Self {
            open,
            passed: None,
            failed: None,
            is_narrow: false,
            control,
            aim: Aim::Near,
        }
    }

    /// A search that tests whether a path carries `bytes`. If not, the outcome is lower.
    #[must_use]
    pub fn exactly(bytes: u32) -> Self {
        Self {
            aim: Aim::Enough,
            ..Self::new([bytes])
        }
    }

    /// A search for the largest size up to `most`, exact to the byte.
    #[must_use]
    pub fn up_to(most: u32) -> Self {
        Self {
            aim: Aim::Exact { most },
            ..Self::new([most])
        }
    }

    /// The result: the largest size that the path carries. `None` while the search is running.
    #[must_use]
    pub fn outcome(&self) -> Option<u32> {
        self.passed.filter(|_| self.open.is_empty())
    }

    /// The largest size that was answered so far.
    #[must_use]
    pub fn passed(&self) -> Option<u32> {
        self.passed
    }

    /// Whether the path lost the probes of the smallest size that failed, rather than that this machine refused to send
    /// them. It takes some round trips to find that out.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.is_narrow
    }

    /// Whether no candidate is left and none has passed, because this machine cannot send any of
    /// them.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.passed.is_none() && self.open.is_empty()
    }

    /// The next size to probe at `now_ns`. A probe without an answer counts as lost after
    /// `timeout_ns`.
    pub fn probe(&mut self, now_ns: u64, timeout_ns: u64) -> Option<u32> {
        let is_due = |size: &Size| size.tries == 0 || now_ns >= size.sent_ns + timeout_ns;
        if self.passed.is_some() {
            let mut control = self.control;
            if now_ns < control.sent_ns + timeout_ns {
                // The answer to the last control probe may still arrive.
                control.tries = control.answers.max(control.tries.saturating_sub(1));
            }
            let is_lost = |size: &&Size| match size.tries {
                tries if tries < *TRIES.start() => false,
                tries => tries >= *TRIES.end() || control.excludes(tries),
            };
            let lost = self.open.iter().filter(is_lost).find(|size| is_due(size));
            if let Some(bytes) = lost.map(|size| size.bytes) {
                self.fail(bytes, true);
            }
        }
        // Until the first answer, repeat only the smallest size, because the peer may not be
        // reachable.
        let is_known = self.passed.is_some();
        let mut places = self.open.iter_mut().enumerate();
        let size = places
            .find(|(place, size)| is_due(size) && (is_known || *place == 0 || size.tries == 0));
        let Some((_, size)) = size else {
            return self.probe_control(now_ns, timeout_ns);
        };
        size.tries = size.tries.saturating_add(1);
        size.sent_ns = now_ns;
        let bytes = size.bytes;
        if self.control.bytes == Some(bytes) {
            self.control.sent(now_ns);
        }
        Some(bytes)
    }

    /// Repeats the size that passed, as long as others are open.
    fn probe_control(&mut self, now_ns: u64, timeout_ns: u64) -> Option<u32> {
        let Control { tries, sent_ns, .. } = self.control;
        let is_due = tries == 0 || now_ns >= sent_ns + timeout_ns;
        let is_wanted = is_due && self.wants_control();
        let bytes = self.control.bytes.filter(|_| is_wanted)?;
        self.control.sent(now_ns);
        Some(bytes)
    }

    fn wants_control(&self) -> bool {
        self.passed.is_some() && !self.open.is_empty() && self.control.tries < u8::MAX
    }

    /// When [`SizeSearch::probe`] returns the next size.
    pub fn next_ns(&self, timeout_ns: u64) -> Option<u64> {
        let due_ns = |tries: u8, sent_ns: u64| match tries {
            0 => 0,
            _ => sent_ns + timeout_ns,
        };
        let is_known = self.passed.is_some();
        let places = self.open.iter().zip(0_usize..);
        let sizes = places.filter(|(size, place)| is_known || *place == 0 || size.tries == 0);
        let sizes = sizes.map(|(size, _)| due_ns(size.tries, size.sent_ns));
        let Control { tries, sent_ns, .. } = self.control;
        let control = self.wants_control().then(|| due_ns(tries, sent_ns));
        sizes.chain(control).min()
    }

    /// Records that a probe of `bytes` was answered.
    pub fn pass(&mut self, bytes: u32) {
        if *self.control.bytes.get_or_insert(bytes) == bytes {
            self.control.answered();
        }
        self.passed = self.passed.max(Some(bytes));
        self.open.retain(|size| Some(size.bytes) > self.passed);
        // A late answer corrects a size that had failed.
        self.failed = self.failed.filter(|failed| *failed > bytes);
        self.is_narrow &= self.failed.is_some();
        self.refine();
    }

    /// Records that this machine refuses to send `bytes`.
    pub fn too_large(&mut self, bytes: u32) {
        self.fail(bytes, false);
    }

    fn fail(&mut self, bytes: u32, is_narrow: bool) {
        if self.failed.is_none_or(|failed| bytes < failed) {
            (self.failed, self.is_narrow) = (Some(bytes), is_narrow);
        }
        self.open.retain(|size| size.bytes < bytes);
        self.refine();
    }

    /// Starts the next round after one has ended, if the gap between passed and failed sizes is
    /// large enough.
    fn refine(&mut self) {
        let Some(passed) = self.passed.filter(|_| self.open.is_empty()) else {
            return;
        };
        let Some(failed) = self.failed else {
            // A late answer has corrected the smallest failed size, so it is unknown again whether
            // larger sizes fail.
            if let Aim::Exact { most } = self.aim
                && passed < most
            {
                self.open.push(Size::untried(most));
            }
            return;
        };
        let gap = failed.saturating_sub(passed);
        // Payloads of data packets are multiples of 4 (P3.1), so new sizes keep the remainder
        // modulo 4.
        let (is_worth_it, unit) = match self.aim {
            Aim::Enough => (false, 1),
            Aim::Near => (gap > passed / 4, 4),
            Aim::Exact { .. } => (gap > 1, 1),
        };
        if !is_worth_it {
            return;
        }
        if self.aim == Aim::Near {
            self.aim = Aim::Enough;
        }
        let parts = (gap - 1).min(REFINED);
        let sizes = (1..=parts).map(|n| passed + gap * n / (parts + 1) / unit * unit);
        self.open = sizes.map(Size::untried).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: u64 = 40_000_000;
    const LADDER: [u32; 6] = [1216, 1372, 1472, 4132, 8972, 8000];

    /// Searches on a path that carries `carries` bytes and loses the probes for whose number
    /// `is_lost` returns `true`. Returns the outcome and the number of round trips.
    fn search(carries: u32, mut is_lost: impl FnMut(u32) -> bool) -> (u32, u64) {
        let mut search = SizeSearch::new(LADDER);
        let (mut now_ns, mut sent) = (0, 0);
        while search.outcome().is_none() {
            let mut answers = Vec::new();
            while let Some(bytes) = search.probe(now_ns, RTT_NS) {
                sent += 1;
                if bytes <= carries && !is_lost(sent) {
                    answers.push(bytes);
                }
            }
            now_ns += RTT_NS;
            answers.into_iter().for_each(|bytes| search.pass(bytes));
            assert!(now_ns < 100 * RTT_NS, "{search:?}");
        }
        (search.outcome().unwrap_or(0), now_ns / RTT_NS)
    }

    #[test]
    fn a_path_that_carries_the_largest_takes_one_round_trip() {
        assert_eq!(search(9000, |_| false), (8972, 1));
    }

    #[test]
    fn sizes_between_the_candidates_are_found() {
        let (found, trips) = search(3000, |_| false);
        assert!((2600..=3000).contains(&found), "{found}");
        assert!(trips <= 11, "{trips}");
        let (found, _) = search(1400, |_| false);
        assert_eq!(
            found, 1372,
            "the next candidate is too near to search further"
        );
    }

    #[test]
    fn the_largest_size_is_found_to_the_byte() {
        for carries in [100, 101, 1_279, 1_500, 8_999, 9_215, 9_216] {
            let mut search = SizeSearch::up_to(9_216);
            // A size that is known to pass.
            search.pass(100);
            let mut trips = 0;
            while search.outcome().is_none() {
                let sizes = core::iter::from_fn(|| search.probe(trips * RTT_NS, RTT_NS));
                let answered: Vec<_> = sizes.filter(|bytes| *bytes <= carries).collect();
                answered.into_iter().for_each(|bytes| search.pass(bytes));
                trips += 1;
            }
            assert_eq!(search.outcome(), Some(carries));
            // Five rounds, each of which ends with five losses.
            assert!(trips <= 36, "{trips} round trips for {carries}");
        }
    }

    #[test]
    fn a_late_answer_goes_on_to_the_largest_size() {
        let mut search = SizeSearch::up_to(9_216);
        search.pass(100);
        search.too_large(9_216);
        // All probes of this size are lost, or their answers are late, so the search gives up
        // larger sizes.
        let late = search.open[3].bytes;
        search.too_large(late);
        search.pass(late);
        let mut trips = 0;
        while search.outcome().is_none() {
            let sizes = core::iter::from_fn(|| search.probe(trips * RTT_NS, RTT_NS));
            let answered: Vec<_> = sizes.filter(|bytes| *bytes <= 9_000).collect();
            answered.into_iter().for_each(|bytes| search.pass(bytes));
            trips += 1;
            assert!(trips < 100, "{search:?}");
        }
        assert_eq!(search.outcome(), Some(9_000));
    }

    #[test]
    fn losses_do_not_fail_a_size() {
        // Four of five probes are lost.
        assert_eq!(search(9000, |sent| sent % 5 != 0).0, 8972);
    }

    /// 40 % in each direction, so 64 % of the probes have no answer.
    #[test]
    fn much_random_loss_is_not_taken_for_a_smaller_size() {
        let mut state = 1_u64;
        let mut is_lost = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 57 >= 46
        };
        const TRIALS: u32 = 2000;
        let mut wrong = 0;
        let mut most_trips = 0;
        for _ in 0..TRIALS {
            let (found, trips) = search(9000, &mut is_lost);
            wrong += u32::from(found != 8972);
            most_trips = trips.max(most_trips);
            // A path that does carry less is still found out.
            let (found, trips) = search(1400, &mut is_lost);
            wrong += u32::from(found != 1372);
            most_trips = trips.max(most_trips);
        }
        assert!(wrong <= TRIALS / 200, "{wrong} of {TRIALS} are wrong");
        assert!(most_trips <= 80, "{most_trips} round trips");
    }

    #[test]
    fn nothing_fails_before_something_passes() {
        let mut search = SizeSearch::new(LADDER);
        for trip in 0..100 {
            while search.probe(trip * RTT_NS, RTT_NS).is_some() {}
        }
        assert_eq!(search.outcome(), None);
        assert_eq!(search.open.len(), LADDER.len());
        assert!(search.open.iter().skip(1).all(|size| size.tries == 1));
    }

    #[test]
    fn only_a_path_that_carries_less_than_this_machine_sends_is_narrow() {
        for (sends, carries, is_narrow) in [
            (9_000, 9_000, false),
            (1_500, 9_000, false),
            (9_000, 1_500, true),
            (1_500, 1_400, true),
        ] {
            let mut search = SizeSearch::new(LADDER);
            for trip in 0..40 {
                let mut answers = Vec::new();
                while let Some(bytes) = search.probe(trip * RTT_NS, RTT_NS) {
                    match bytes {
                        bytes if bytes > sends => search.too_large(bytes),
                        bytes if bytes <= carries => answers.push(bytes),
                        _ => {}
                    }
                }
                answers.into_iter().for_each(|bytes| search.pass(bytes));
            }
            assert!(search.outcome().is_some(), "{search:?}");
            assert_eq!(search.is_narrow(), is_narrow, "{sends} {carries}");
        }
    }

    #[test]
    fn a_path_is_not_narrow_if_a_late_answer_or_this_machine_says_so() {
        let mut search = SizeSearch::new(LADDER);
        for trip in 0..20 {
            while search.probe(trip * RTT_NS, RTT_NS).is_some() {}
            search.pass(1216);
        }
        assert_eq!((search.outcome(), search.is_narrow()), (Some(1216), true));
        let mut of_machine = search.clone();
        of_machine.too_large(4132);
        assert!(of_machine.is_narrow(), "smaller ones were lost");
        of_machine.too_large(1300);
        assert!(!of_machine.is_narrow());
        search.pass(8972);
        assert_eq!((search.outcome(), search.is_narrow()), (Some(8972), false));
    }

    #[test]
    fn a_size_that_was_asked_for_passes_or_does_not() {
        for (carries, outcome) in [(4132, 4132), (1472, 256)] {
            let mut search = SizeSearch::exactly(4132);
            for trip in 0..10 {
                let probes = core::iter::from_fn(|| search.probe(trip * RTT_NS, RTT_NS));
                let answered: Vec<_> = probes.filter(|bytes| *bytes <= carries).collect();
                answered.into_iter().for_each(|bytes| search.pass(bytes));
                // Probes that do not test a size are answered too.
                search.pass(256);
            }
            assert_eq!(search.outcome(), Some(outcome));
        }
    }

    #[test]
    fn what_this_machine_refuses_is_not_tried_again() {
        let mut search = SizeSearch::new(LADDER);
        search.too_large(4132);
        search.pass(1472);
        let refined: Vec<_> = search.open.iter().map(|size| size.bytes).collect();
        assert!(refined.iter().all(|bytes| (1473..4132).contains(bytes)));
        assert!(refined.iter().all(|bytes| bytes % 4 == 0), "{refined:?}");
        search.too_large(refined[0]);
        assert_eq!(search.outcome(), Some(1472));
    }
}
