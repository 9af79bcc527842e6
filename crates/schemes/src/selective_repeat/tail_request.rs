//! When a receiver requests chunks that may never have been sent: the tail (P5.2.4).

use crate::scheme::PeerView;
use crate::timing::repair_ns;

/// Detects that packets have stopped arriving on a queue pair that expects some.
#[derive(Debug, Default)]
pub(super) struct TailRequest {
    last_arrival_ns: Option<u64>,
    /// Longest recent time between arrivals; `None` before the first.
    gap_ns: Option<u64>,
    /// Rounds since the last arrival.
    rounds: u32,
    at_ns: Option<u64>,
}

impl TailRequest {
    /// A message is expected. `is_cleared`: its packets follow its offer at once.
    pub(super) fn started(&mut self, view: &PeerView, is_cleared: bool) {
        if is_cleared {
            // Hosts may send the packets later than the offer.
            let wait_ns = self.quiet_ns(view).max(view.timing.min_repeat_ns);
            self.at_ns = Some(view.now_ns.saturating_add(wait_ns));
        } else {
            self.at_ns
                .get_or_insert(view.now_ns.saturating_add(repair_ns(view)));
        }
    }

    /// Nothing more is expected. The next arrival says nothing about the sender's pace, and the silence
    /// of an earlier message nothing about the next one.
    pub(super) fn idle(&mut self) {
        self.last_arrival_ns = None;
        self.rounds = 0;
        self.at_ns = None;
    }

    pub(super) fn arrived(&mut self, view: &PeerView) {
        if self.last_arrival_ns == Some(view.now_ns) {
            return;
        }
        let known_ns = self.known_gap_ns(view);
        let faded_ns = known_ns - known_ns / 8;
        let last_ns = self.last_arrival_ns.unwrap_or(view.now_ns);
        let gap_ns = view.now_ns.saturating_sub(last_ns);
        // The reply to a NACK does not measure the pace, because it takes a round trip. Where that is less than
        // `min_repeat`, a reply looks like the next batch of a paced sender, and counts.
        let counts = self.rounds == 0 || gap_ns < longest_gap_ns(view);
        self.gap_ns = Some(if counts {
            faded_ns.max(gap_ns)
        } else {
            faded_ns
        });
        self.last_arrival_ns = Some(view.now_ns);
        self.rounds = 0;
        self.at_ns = Some(view.now_ns.saturating_add(self.quiet_ns(view)));
    }

    /// Until arrivals show otherwise, assume that the sender is slow.
    fn known_gap_ns(&self, view: &PeerView) -> u64 {
        self.gap_ns.unwrap_or(view.rtt_ns / 2)
    }

    /// The silence after which the packets that are expected count as lost.
    fn quiet_ns(&self, view: &PeerView) -> u64 {
        // A slowly paced sender is not quiet, and neither is a path while its packets are late.
        let gap_ns = self.known_gap_ns(view).min(longest_gap_ns(view));
        gap_ns
            .saturating_mul(2)
            .max(view.rtt_ns / 4)
            .saturating_add(view.reordering_window_ns)
    }

    /// Returns whether packets of a message expected since `since_ns` should have arrived by now,
    /// although none has.
    pub(super) fn overdue(&self, view: &PeerView, since_ns: u64) -> bool {
        let since_ns = self.last_arrival_ns.map_or(since_ns, |ns| ns.max(since_ns));
        since_ns.saturating_add(repair_ns(view)) <= view.now_ns
    }

    /// Returns whether a round of requests begins.
    pub(super) fn handle_timeout(&mut self, view: &PeerView) -> bool {
        let begins = self.at_ns.is_some_and(|at_ns| at_ns <= view.now_ns);
        if begins {
            let repair_ns = repair_ns(view);
            let longest_ns = view.timing.max_probe_ns.max(repair_ns);
            let interval_ns = repair_ns.saturating_mul(1 << self.rounds.min(30));
            self.at_ns = Some(view.now_ns.saturating_add(interval_ns.min(longest_ns)));
            self.rounds = self.rounds.saturating_add(1);
        }
        begins
    }

    pub(super) fn next_timeout(&self) -> Option<u64> {
        self.at_ns
    }
}

/// The longest time between two batches of packets. On a path that is shorter than `min_repeat`, a paced sender sends
/// batches that are further apart than a round trip.
fn longest_gap_ns(view: &PeerView) -> u64 {
    view.rtt_ns.max(view.timing.min_repeat_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Timing;

    const MS: u64 = 1_000_000;

    fn at(now_ms: u64) -> PeerView {
        PeerView {
            now_ns: now_ms * MS,
            rtt_ns: 80 * MS,
            reordering_window_ns: 2 * MS,
            timing: Timing::wide_area(),
        }
    }

    #[test]
    fn waits_a_round_trip_at_first_and_a_quarter_of_it_in_a_stream() {
        let mut tail_request = TailRequest::default();
        tail_request.started(&at(0), false);
        assert_eq!(tail_request.next_timeout(), Some(92 * MS));
        tail_request.arrived(&at(50));
        assert_eq!(tail_request.next_timeout(), Some(122 * MS));
        for now_ms in 51..=100 {
            tail_request.arrived(&at(now_ms));
        }
        assert_eq!(tail_request.next_timeout(), Some(122 * MS));
    }

    #[test]
    fn waits_after_the_offer_of_a_cleared_message_as_after_a_packet() {
        let mut tail_request = TailRequest::default();
        tail_request.started(&at(0), true);
        assert_eq!(tail_request.next_timeout(), Some(82 * MS));
        for now_ms in 1..=50 {
            tail_request.arrived(&at(now_ms));
        }
        tail_request.started(&at(60), true);
        assert_eq!(tail_request.next_timeout(), Some(82 * MS));
        // A message without a clearance delays no request for the others.
        tail_request.started(&at(70), false);
        assert_eq!(tail_request.next_timeout(), Some(82 * MS));
    }

    #[test]
    fn waits_at_least_as_long_as_hosts_take_to_send_packets_after_the_offer() {
        let mut tail_request = TailRequest {
            gap_ns: Some(0),
            ..TailRequest::default()
        };
        let view = PeerView {
            rtt_ns: 100_000,
            reordering_window_ns: 12_500,
            ..at(5)
        };
        tail_request.started(&view, true);
        assert_eq!(tail_request.next_timeout(), Some(6 * MS));
    }

    #[test]
    fn the_silence_of_one_message_does_not_slow_requests_for_the_next() {
        // The time from the first request to the second one.
        let between_requests = |tail_request: &mut TailRequest, start_ms: u64| {
            tail_request.started(&at(start_ms), false);
            let first_ns = tail_request.next_timeout().expect("a message is expected");
            assert!(tail_request.handle_timeout(&at(first_ns / MS)));
            tail_request.next_timeout().expect("a message is expected") - first_ns
        };
        let mut tail_request = TailRequest::default();
        let expected_ns = between_requests(&mut tail_request, 0);
        for _ in 0..3 {
            let at_ns = tail_request.next_timeout().expect("a message is expected");
            assert!(tail_request.handle_timeout(&at(at_ns / MS)));
        }
        tail_request.idle();
        assert_eq!(between_requests(&mut tail_request, 60_000), expected_ns);
    }

    #[test]
    fn waits_longer_for_a_sender_paced_slowly() {
        let mut tail_request = TailRequest::default();
        tail_request.arrived(&at(0));
        tail_request.arrived(&at(50));
        assert_eq!(tail_request.next_timeout(), Some(152 * MS));
        // The reply to a NACK, one round trip later, does not count.
        assert!(tail_request.handle_timeout(&at(152)));
        tail_request.arrived(&at(260));
        assert_eq!(tail_request.gap_ns, Some(43_750_000));
    }

    /// Batches leave each half millisecond on a path of 20 us. One request in vain shows the pace.
    #[test]
    fn batches_of_a_paced_sender_on_a_short_path_are_no_silence() {
        let at = |now_us: u64| PeerView {
            now_ns: now_us * 1_000,
            rtt_ns: 20_000,
            reordering_window_ns: 2_500,
            ..at(0)
        };
        let mut tail_request = TailRequest::default();
        let mut requests = 0;
        for batch in 0..100 {
            tail_request.arrived(&at(500 * batch));
            requests += u32::from(tail_request.handle_timeout(&at(500 * batch + 499)));
        }
        assert_eq!(requests, 1);
    }

    #[test]
    fn asks_ever_more_rarely_until_something_comes() {
        let mut tail_request = TailRequest::default();
        tail_request.started(&at(0), false);
        let mut asked_ms = std::vec::Vec::new();
        for _ in 0..7 {
            let now_ms = tail_request.next_timeout().unwrap() / MS;
            assert!(!tail_request.handle_timeout(&at(now_ms - 1)));
            assert!(tail_request.handle_timeout(&at(now_ms)));
            asked_ms.push(now_ms);
        }
        assert_eq!(asked_ms, [92, 184, 368, 736, 1472, 2472, 3472]);
        tail_request.arrived(&at(4000));
        assert_eq!(tail_request.next_timeout(), Some(4072 * MS));
        tail_request.idle();
        assert_eq!(tail_request.next_timeout(), None);
    }

    #[test]
    fn a_message_that_has_not_begun_is_overdue_a_repair_after_all_that_came() {
        let mut tail_request = TailRequest::default();
        assert!(!tail_request.overdue(&at(91), 0));
        assert!(tail_request.overdue(&at(92), 0));
        tail_request.arrived(&at(50));
        assert!(!tail_request.overdue(&at(141), 0));
        assert!(tail_request.overdue(&at(142), 0));
        assert!(!tail_request.overdue(&at(142), 60 * MS));
    }
}
