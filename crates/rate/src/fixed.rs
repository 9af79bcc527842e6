//! A constant rate, set by the user.

use crate::receiver_limit::ReceiverLimit;
use crate::{Feedback, Limits, RateControl, Sent};

/// Sends at a constant rate, limited by the receiver's drain rate (P5.5), with no window and no
/// congestion control. Use it if the path, or a share of it, is reserved for the user.
///
/// When a report counts more dropped packets than the previous one, the pace becomes nine tenths of
/// the receiver's drain rate, but at least half of the previous pace and at least 1 Mbit/s. Reports
/// without drops let it grow back.
#[derive(Clone, Debug)]
pub struct Fixed {
    receiver: ReceiverLimit,
    received_packets: u64,
}

impl Fixed {
    /// Paces at `rate_bps` bits a second (0 counts as 1). After drops at the receiver, the pace
    /// would grow from 0 to the rate in `recovery_ns` nanoseconds (`pace_recovery` of P5.8).
    pub fn new(rate_bps: u64, recovery_ns: u64) -> Self {
        Self {
            receiver: ReceiverLimit::new(rate_bps, recovery_ns),
            received_packets: 0,
        }
    }
}

impl RateControl for Fixed {
    fn on_sent(&mut self, _sent: &Sent) {}

    fn on_feedback(&mut self, feedback: &Feedback) {
        if feedback.received_packets < self.received_packets {
            return;
        }
        self.received_packets = feedback.received_packets;
        let pace_bps = self.receiver.ceiling_bps();
        self.receiver.on_feedback(feedback, pace_bps);
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn set_max_rate(&mut self, max_rate_bps: u64) {
        self.receiver.set_max(max_rate_bps);
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.receiver.ceiling_bps(),
            window_bytes: u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const RECOVERY_NS: u64 = 10 * SECOND;

    fn report(now_ns: u64, received: u64, drain_bps: u64, dropped: u64) -> Feedback {
        Feedback {
            now_ns,
            received_packets: received,
            drain_bps,
            dropped_packets: dropped,
            ..Feedback::default()
        }
    }

    #[test]
    fn drops_bring_the_pace_below_the_drain_and_quiet_restores_it() {
        let mut fixed = Fixed::new(10 * SECOND, RECOVERY_NS);
        let pace = |fixed: &Fixed| fixed.limits().pace_bps;
        fixed.on_feedback(&report(0, 10, 8 * SECOND, 5));
        assert_eq!(pace(&fixed), 7_200_000_000);
        // A repeated report and an overtaken one do not lower the pace.
        fixed.on_feedback(&report(1, 10, 8 * SECOND, 5));
        fixed.on_feedback(&report(2, 9, 1_000, 6));
        assert_eq!(pace(&fixed), 7_200_000_001);
        fixed.on_feedback(&report(100_000_001, 11, 7 * SECOND, 5));
        assert_eq!(pace(&fixed), 7_300_000_001);
        for i in 0..100 {
            fixed.on_feedback(&report(SECOND * (i + 1), 12 + i, 0, 5));
        }
        assert_eq!(pace(&fixed), 10 * SECOND);
    }

    #[test]
    fn no_report_brings_the_pace_below_the_floor() {
        let mut fixed = Fixed::new(10 * SECOND, RECOVERY_NS);
        for dropped in 1..100 {
            let before = fixed.limits().pace_bps;
            fixed.on_feedback(&report(dropped, 0, 0, dropped));
            assert!(fixed.limits().pace_bps >= before / 2);
        }
        assert_eq!(fixed.limits().pace_bps, 1_000_000);
        let mut slow = Fixed::new(64_000, RECOVERY_NS);
        slow.on_feedback(&report(0, 0, 0, 1));
        assert_eq!(slow.limits().pace_bps, 64_000);
    }

    proptest! {
        #[test]
        fn any_report_is_survived(
            reports in prop::collection::vec(any::<(u64, u64, u64, u64)>(), 1..50),
            rate_bps in any::<u64>(),
        ) {
            let mut fixed = Fixed::new(rate_bps, RECOVERY_NS);
            for (now_ns, received, drain_bps, dropped) in reports {
                fixed.on_feedback(&report(now_ns, received, drain_bps, dropped));
                prop_assert!((1..=rate_bps.max(1)).contains(&fixed.limits().pace_bps));
            }
        }
    }

    #[test]
    fn another_maximum_is_the_rate_unless_drops_have_lowered_it() {
        let mut fixed = Fixed::new(1_000_000_000, RECOVERY_NS);
        fixed.set_max_rate(8_000);
        assert_eq!(fixed.limits().pace_bps, 8_000);
        fixed.set_max_rate(1_000_000_000);
        assert_eq!(fixed.limits().pace_bps, 1_000_000_000);
        fixed.on_feedback(&report(SECOND, 10, 100_000_000, 1));
        let lowered_bps = fixed.limits().pace_bps;
        assert!(lowered_bps < 1_000_000_000);
        fixed.set_max_rate(2_000_000_000);
        assert_eq!(fixed.limits().pace_bps, lowered_bps);
        fixed.set_max_rate(8_000);
        assert_eq!(fixed.limits().pace_bps, 8_000);
    }
}
