//! EQDS's sender (NSDI 2022).

mod paced;

use crate::{Feedback, Limits, Loss, RateControl, Sent};

pub use paced::PacedEqds;

/// Options of [`Eqds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqdsOptions {
    /// Bits a second of the port, on the wire (0 counts as 1). The sender paces at this rate, and a
    /// receiver grants credit for a little less than its own.
    pub line_rate_bps: u64,
    /// Bytes that a flow sends before the first sign of the receiver (0 counts as 1). In the paper,
    /// the bandwidth-delay product.
    pub first_window_bytes: u64,
}

/// Sends a first window without credit, and then only the bytes that the receiver grants. The
/// receiver's half is [`PullPacer`](crate::PullPacer).
///
/// The first window ends at the first sign of the receiver: a report, a grant, or news of a packet
/// that arrived without its payload. From then on the receiver knows the flow, and only its credit
/// counts. When the newest packet has arrived and the sender has no more data, the credit expires, and
/// the next packets are a first window again. On several paths, news of a trimmed packet may come
/// later than that. Then the credit is valid again: the receiver has granted it for this packet, and
/// grants no more.
#[derive(Clone, Debug)]
pub struct Eqds {
    line_rate_bps: u64,
    first_window_bytes: u64,
    /// Remaining bytes of the first window, before the first sign of the receiver.
    unasked_bytes: u64,
    waits_for_sign: bool,
    /// Credit from grants. The last packet may exceed it by less than one packet.
    credit_bytes: i128,
    /// Credit that has expired: the largest amount since the last loss.
    expired_bytes: i128,
    granted_bytes: u64,
    sent_bytes: u64,
    app_limited: bool,
}

impl Eqds {
    /// A flow that has sent nothing.
    #[must_use]
    pub fn new(options: EqdsOptions) -> Self {
        let first_window_bytes = options.first_window_bytes.max(1);
        Self {
            line_rate_bps: options.line_rate_bps.max(1),
            first_window_bytes,
            unasked_bytes: first_window_bytes,
            waits_for_sign: true,
            credit_bytes: 0,
            expired_bytes: 0,
            granted_bytes: 0,
            sent_bytes: 0,
            app_limited: false,
        }
    }

    /// Bytes of credit that were used, or have expired, since the path was opened.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let used = i128::from(self.granted_bytes).saturating_sub(self.credit_bytes);
        u64::try_from(used.max(0)).unwrap_or(u64::MAX)
    }

    /// Bytes that remain of the first window. They need no credit.
    #[must_use]
    pub fn unasked_bytes(&self) -> u64 {
        self.unasked_bytes
    }

    fn see_sign(&mut self) {
        self.waits_for_sign = false;
        self.unasked_bytes = 0;
    }
}

impl RateControl for Eqds {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent_bytes = self.sent_bytes.saturating_add(sent.bytes);
        self.app_limited = sent.app_limited;
        if self.unasked_bytes > 0 {
            self.unasked_bytes = self.unasked_bytes.saturating_sub(sent.bytes);
        } else {
            self.credit_bytes -= i128::from(sent.bytes);
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let Some(newest) = feedback.newest else {
            return;
        };
        if newest.sent_bytes >= self.sent_bytes && self.app_limited {
            self.waits_for_sign = true;
            self.unasked_bytes = self.first_window_bytes;
            self.expired_bytes = self.expired_bytes.max(self.credit_bytes);
            self.credit_bytes = 0;
        } else {
            self.see_sign();
        }
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.line_rate_bps,
            window_bytes: u64::MAX,
        }
    }

    fn on_grant(&mut self, _now_ns: u64, granted_bytes: u64) {
        let more = granted_bytes.saturating_sub(self.granted_bytes);
        self.granted_bytes = self.granted_bytes.max(granted_bytes);
        if more > 0 {
            self.see_sign();
            self.credit_bytes += i128::from(more);
        }
    }

    /// After a timeout, the sender sends a first window again: the packets in flight are lost, and
    /// the receiver may not know of the flow.
    fn on_loss(&mut self, _now_ns: u64, loss: Loss) {
        self.see_sign();
        self.credit_bytes += core::mem::take(&mut self.expired_bytes);
        if loss == Loss::TimedOut {
            self.credit_bytes = self.credit_bytes.max(i128::from(self.first_window_bytes));
        }
    }

    fn credit_bytes(&self) -> u64 {
        if self.waits_for_sign {
            self.unasked_bytes
        } else {
            u64::try_from(self.credit_bytes.max(0)).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Newest;
    use proptest::prelude::*;

    fn eqds() -> Eqds {
        Eqds::new(EqdsOptions {
            line_rate_bps: 50_000_000_000,
            first_window_bytes: 5_000,
        })
    }

    fn send(eqds: &mut Eqds, app_limited: bool) {
        eqds.on_sent(&Sent {
            bytes: 1_000,
            app_limited,
            ..Sent::default()
        });
    }

    fn report(sent_bytes: u64) -> Feedback {
        Feedback {
            newest: Some(Newest {
                sent_bytes,
                ..Newest::default()
            }),
            ..Feedback::default()
        }
    }

    #[test]
    fn the_first_window_needs_no_credit_and_no_more_follows() {
        let mut eqds = eqds();
        for _ in 0..5 {
            assert!(eqds.credit_bytes() > 0);
            send(&mut eqds, false);
        }
        assert_eq!(eqds.credit_bytes(), 0);
    }

    #[test]
    fn the_first_sign_ends_the_first_window() {
        for sign in 0..3 {
            let mut eqds = eqds();
            send(&mut eqds, false);
            send(&mut eqds, false);
            match sign {
                0 => eqds.on_feedback(&report(1_000)),
                1 => eqds.on_loss(0, Loss::Reported),
                _ => eqds.on_grant(0, 2_000),
            }
            let want = if sign == 2 { 2_000 } else { 0 };
            assert_eq!(eqds.credit_bytes(), want);
        }
    }

    #[test]
    fn a_grant_is_a_sum_so_a_late_one_has_no_effect() {
        let mut eqds = eqds();
        send(&mut eqds, false);
        eqds.on_grant(0, 3_000);
        eqds.on_grant(1, 2_000);
        eqds.on_grant(2, 3_000);
        assert_eq!(eqds.credit_bytes(), 3_000);
        assert_eq!(eqds.used_bytes(), 0);
        send(&mut eqds, false);
        assert_eq!((eqds.credit_bytes(), eqds.used_bytes()), (2_000, 1_000));
    }

    #[test]
    fn an_idle_flow_begins_again() {
        let mut eqds = eqds();
        send(&mut eqds, false);
        eqds.on_grant(0, 3_000);
        send(&mut eqds, true);
        eqds.on_feedback(&report(1_000));
        assert_eq!(eqds.credit_bytes(), 2_000);
        eqds.on_feedback(&report(2_000));
        assert_eq!((eqds.credit_bytes(), eqds.used_bytes()), (5_000, 3_000));
    }

    /// The last packet arrives, and news of two trimmed packets before it comes later, over another
    /// path. The receiver has granted credit for both.
    #[test]
    fn late_news_of_trimmed_packets_finds_the_credit_that_was_granted_for_them() {
        let mut eqds = eqds();
        send(&mut eqds, false);
        send(&mut eqds, false);
        send(&mut eqds, true);
        eqds.on_grant(0, 2_000);
        eqds.on_feedback(&report(3_000));
        eqds.on_loss(0, Loss::Reported);
        assert_eq!(eqds.credit_bytes(), 2_000);
        // The credit returns once.
        send(&mut eqds, false);
        eqds.on_loss(0, Loss::Reported);
        assert_eq!(eqds.credit_bytes(), 1_000);
        send(&mut eqds, true);
        eqds.on_loss(0, Loss::Reported);
        assert_eq!(eqds.credit_bytes(), 0);
    }

    #[test]
    fn a_timeout_lets_a_first_window_out() {
        let mut eqds = eqds();
        for _ in 0..5 {
            send(&mut eqds, false);
        }
        eqds.on_loss(0, Loss::TimedOut);
        assert_eq!(eqds.credit_bytes(), 5_000);
    }

    proptest! {
        #[test]
        fn no_more_is_sent_than_the_first_window_and_the_grants(
            calls in prop::collection::vec((0u8..3, 0u64..100_000), 1..100),
        ) {
            let mut eqds = eqds();
            let (mut sent, mut granted) = (0, 0);
            for (call, value) in calls {
                match call {
                    0 if eqds.credit_bytes() > 0 => {
                        send(&mut eqds, false);
                        sent += 1_000;
                    }
                    1 => {
                        eqds.on_grant(0, value);
                        granted = value.max(granted);
                    }
                    _ => eqds.on_loss(0, Loss::Reported),
                }
                prop_assert!(sent < granted + 5_000 + 1_000);
            }
        }

        #[test]
        fn any_call_is_survived(
            calls in prop::collection::vec((0u8..4, any::<u64>(), any::<bool>()), 1..100),
        ) {
            let mut eqds = Eqds::new(EqdsOptions { line_rate_bps: 0, first_window_bytes: 0 });
            for (call, value, flag) in calls {
                match call {
                    0 => eqds.on_sent(&Sent { bytes: value, app_limited: flag, ..Sent::default() }),
                    1 => eqds.on_grant(0, value),
                    2 => eqds.on_feedback(&report(value)),
                    _ => eqds.on_loss(0, if flag { Loss::TimedOut } else { Loss::Reported }),
                }
                prop_assert!(eqds.limits().pace_bps >= 1);
                let _ = (eqds.credit_bytes(), eqds.used_bytes());
            }
        }
    }
}
