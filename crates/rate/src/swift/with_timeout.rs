//! Swift with a timeout, for senders that have none of their own.

use super::{Swift, SwiftOptions};
use crate::{Feedback, Limits, Loss, RateControl, Sent};

/// Round trips without a report after which the bytes in flight are given up.
const ROUND_TRIPS: u64 = 4;
/// The timeout doubles at most this number of times.
const MAX_DOUBLINGS: u32 = 6;
/// Until the round trip is measured, the timeout doubles up to this time instead, if it is longer:
/// the round trip may be far longer than the timing assumes.
const LONGEST_UNMEASURED_NS: u64 = 16_000_000_000;

/// The parts of the timeout that the round trip does not determine, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwiftTimeout {
    /// It is added to four round trips.
    pub least_ns: u64,
    /// The timeout before the first measurement.
    pub first_ns: u64,
}

/// Swift, and when the bytes in flight are given up. Without that, the window would stay full for
/// ever after a round trip in which all packets or all reports were lost.
#[derive(Clone, Debug)]
pub struct SwiftWithTimeout {
    swift: Swift,
    timeout: SwiftTimeout,
    /// Smoothed round trip of data packets, without the time that the receiver held the report.
    rtt_ns: Option<u64>,
    sent_bytes: u64,
    /// When the bytes in flight are given up; `None` while no bytes are in flight.
    deadline_ns: Option<u64>,
    /// Consecutive timeouts.
    timeouts: u32,
}

impl SwiftWithTimeout {
    /// A flow that has sent nothing.
    #[must_use]
    pub fn new(options: SwiftOptions, timeout: SwiftTimeout) -> Self {
        Self {
            swift: Swift::new(options),
            timeout,
            rtt_ns: None,
            sent_bytes: 0,
            deadline_ns: None,
            timeouts: 0,
        }
    }

    fn deadline_ns(&self, now_ns: u64) -> u64 {
        let wait_ns = self.rtt_ns.map_or(self.timeout.first_ns, |rtt_ns| {
            rtt_ns
                .saturating_mul(ROUND_TRIPS)
                .saturating_add(self.timeout.least_ns)
        });
        let most_ns = wait_ns.saturating_mul(1 << MAX_DOUBLINGS);
        let most_ns = match self.rtt_ns {
            Some(_) => most_ns,
            None => most_ns.max(LONGEST_UNMEASURED_NS),
        };
        let doubled_ns = wait_ns.saturating_mul(1 << self.timeouts.min(62));
        let doubled_ns = doubled_ns.min(most_ns);
        now_ns.saturating_add(doubled_ns)
    }
}

impl RateControl for SwiftWithTimeout {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent_bytes += sent.bytes;
        if self.deadline_ns.is_none() {
            self.deadline_ns = Some(self.deadline_ns(sent.now_ns));
        }
        self.swift.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let newest = feedback.newest.unwrap_or_default();
        if let Some(departed_ns) = newest.departed_ns {
            let sample_ns = feedback.now_ns.saturating_sub(departed_ns);
            let sample_ns = sample_ns.saturating_sub(newest.hold_ns);
            let smoothed_ns = |rtt_ns: u64| rtt_ns - rtt_ns / 8 + sample_ns / 8;
            self.rtt_ns = Some(self.rtt_ns.map_or(sample_ns, smoothed_ns));
        }
        // If the timeout is shorter than the round trip, all reports come too late to measure it. So
        // it doubles until the round trip is known.
        if self.rtt_ns.is_some() {
            self.timeouts = 0;
        }
        let is_in_flight = newest.sent_bytes < self.sent_bytes;
        self.deadline_ns = is_in_flight.then(|| self.deadline_ns(feedback.now_ns));
        self.swift.on_feedback(feedback);
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        let is_due = self.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if is_due {
            self.deadline_ns = None;
            self.timeouts = self.timeouts.saturating_add(1);
            self.swift.on_loss(now_ns, Loss::TimedOut);
        }
        is_due
    }

    fn next_timeout(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn limits(&self) -> Limits {
        self.swift.limits()
    }

    fn on_loss(&mut self, now_ns: u64, loss: Loss) {
        self.swift.on_loss(now_ns, loss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Newest;

    const US: u64 = 1_000;
    const TIMEOUT: SwiftTimeout = SwiftTimeout {
        least_ns: 25 * US,
        first_ns: 10_000 * US,
    };

    fn swift() -> SwiftWithTimeout {
        let options = SwiftOptions::new(10_000_000_000, 1_000, 2);
        SwiftWithTimeout::new(options, TIMEOUT)
    }

    fn send(swift: &mut SwiftWithTimeout, now_ns: u64) {
        swift.on_sent(&Sent {
            now_ns,
            bytes: 1_000,
            ..Sent::default()
        });
    }

    /// Reports the first `packets` packets. The last of them left 10 us ago.
    fn hear(swift: &mut SwiftWithTimeout, now_ns: u64, packets: u64) {
        swift.on_feedback(&Feedback {
            now_ns,
            newest: Some(Newest {
                sent_bytes: packets * 1_000,
                departed_ns: Some(now_ns - 10 * US),
                hold_ns: 0,
            }),
            received_bytes: packets * 1_000,
            received_packets: packets,
            ..Feedback::default()
        });
    }

    #[test]
    fn bytes_without_a_report_are_given_up_and_the_waits_double() {
        let mut swift = swift();
        assert_eq!(swift.next_timeout(), None);
        send(&mut swift, 0);
        let first_ns = TIMEOUT.first_ns;
        assert_eq!(swift.next_timeout(), Some(first_ns));
        let window_bytes = swift.limits().window_bytes;
        swift.on_timeout(first_ns);
        assert_eq!(swift.next_timeout(), None);
        assert!(swift.limits().window_bytes < window_bytes);
        send(&mut swift, first_ns);
        assert_eq!(swift.next_timeout(), Some(3 * first_ns));
    }

    #[test]
    fn before_the_round_trip_is_known_the_waits_double_beside_late_reports() {
        let mut swift = swift();
        let (mut now_ns, mut wait_ns) = (0, TIMEOUT.first_ns);
        for packets in 0..10 {
            send(&mut swift, now_ns);
            assert_eq!(swift.next_timeout(), Some(now_ns + wait_ns));
            now_ns += wait_ns;
            wait_ns *= 2;
            swift.on_timeout(now_ns);
            // The log of departures no longer has the packet, so the report gives no round trip.
            swift.on_feedback(&Feedback {
                now_ns,
                newest: Some(Newest {
                    sent_bytes: (packets + 1) * 1_000,
                    ..Newest::default()
                }),
                ..Feedback::default()
            });
        }
        send(&mut swift, now_ns);
        hear(&mut swift, now_ns + 10 * US, 11);
        send(&mut swift, now_ns + 10 * US);
        assert_eq!(swift.next_timeout(), Some(now_ns + 75 * US));
    }

    #[test]
    fn a_long_outage_at_the_start_does_not_make_the_wait_long() {
        let mut swift = swift();
        let mut now_ns = 0;
        for _ in 0..30 {
            send(&mut swift, now_ns);
            let at_ns = swift.next_timeout().expect("bytes are in flight");
            assert!(
                at_ns - now_ns <= 60_000_000_000,
                "{} s",
                (at_ns - now_ns) / 1_000_000_000
            );
            now_ns = at_ns;
            swift.on_timeout(now_ns);
        }
    }

    #[test]
    fn a_report_starts_the_wait_again_while_bytes_are_in_flight() {
        let mut swift = swift();
        send(&mut swift, 0);
        send(&mut swift, 5 * US);
        hear(&mut swift, 10 * US, 1);
        // Four round trips of 10 us, and 25 us.
        assert_eq!(swift.next_timeout(), Some(75 * US));
        hear(&mut swift, 15 * US, 2);
        assert_eq!(swift.next_timeout(), None);
    }
}
