//! When each message is acknowledged (P5.0.4).

use alloc::collections::BTreeSet;

use crate::scheme::PeerView;
use crate::timing::ack_period_ns;

/// Collects the messages that have news. They are acknowledged together once per period; an urgent
/// message is acknowledged at once.
#[derive(Debug, Default)]
pub struct AckClock {
    waiting: BTreeSet<u64>,
    due: BTreeSet<u64>,
    at_ns: Option<u64>,
}

impl AckClock {
    /// Marks a message whose news can wait for the end of the period. If no period is running, one
    /// begins now.
    pub fn touch(&mut self, view: &PeerView, message: u64) {
        self.waiting.insert(message);
        self.at_ns
            .get_or_insert(view.now_ns.saturating_add(ack_period_ns(view)));
    }

    /// Marks a message whose news cannot wait.
    pub fn touch_now(&mut self, message: u64) {
        self.due.insert(message);
    }

    /// The oldest message to acknowledge now. It stays until [`AckClock::done`].
    pub fn due(&self) -> Option<u64> {
        self.due.first().copied()
    }

    /// Removes a message that has been acknowledged.
    pub fn done(&mut self, message: u64) {
        self.due.remove(&message);
    }

    /// Removes a message that needs no more ACKs.
    pub fn forget(&mut self, message: u64) {
        self.due.remove(&message);
        self.waiting.remove(&message);
        if self.waiting.is_empty() {
            self.at_ns = None;
        }
    }

    /// Ends the period if `now_ns` has reached its end.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if self.at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.due.append(&mut self.waiting);
            self.at_ns = None;
        }
    }

    /// When the period ends; `None` if no message waits.
    pub fn next_timeout(&self) -> Option<u64> {
        self.at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Timing;

    #[test]
    fn a_period_gathers_messages_and_an_urgent_one_does_not_wait() {
        let mut clock = AckClock::default();
        let view = |now_ns| PeerView {
            now_ns,
            rtt_ns: 16_000_000,
            reordering_window_ns: 0,
            timing: Timing::wide_area(),
        };
        clock.touch(&view(100), 7);
        clock.touch(&view(900), 5);
        clock.touch_now(6);
        assert_eq!(clock.due(), Some(6));
        clock.done(6);
        assert_eq!(clock.next_timeout(), Some(2_000_100));
        clock.handle_timeout(2_000_099);
        assert_eq!(clock.due(), None);
        clock.handle_timeout(2_000_100);
        assert_eq!((clock.due(), clock.next_timeout()), (Some(5), None));
        clock.done(5);
        assert_eq!(clock.due(), Some(7));
        clock.forget(7);
        assert_eq!(clock.due(), None);
        clock.touch(&view(3_000_000), 8);
        clock.forget(8);
        assert_eq!(clock.next_timeout(), None);
    }
}
