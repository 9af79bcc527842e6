//! Control messages that wait for data of this end, to leave beside them (P5.0.5).

use farwrite_wire::control::Control;

/// Whether the control packet under construction waits.
///
/// It waits only while the program answers what arrives: in a flow of one direction, nothing waits.
#[derive(Debug, Default)]
pub(super) struct HeldControl {
    /// Whether a send began soon after the last packet that could have waited for it.
    pub(super) is_answered: bool,
    /// Whether the packet has a message that must not wait.
    is_urgent: bool,
    /// When the packet leaves, if no send begins before.
    pub(super) until_ns: Option<u64>,
    /// When the last packet left that could have waited for a send.
    left_ns: Option<u64>,
    /// Number of sends so far.
    sends: u64,
}

impl HeldControl {
    /// Adds a message to the packet.
    pub(super) fn note(&mut self, message: &Control) {
        let may_wait = match message {
            // There is no hole before the newest packet.
            Control::Ack(ack) => ack.cumulative == ack.seen,
            Control::ClearToSend(_) | Control::ReceiveComplete { .. } | Control::Loss(_) => true,
            _ => false,
        };
        self.is_urgent |= !may_wait;
    }

    /// Notes that `sends` sends have begun until now. `wait_ns` is the longest wait.
    pub(super) fn note_sends(&mut self, now_ns: u64, wait_ns: u64, sends: u64) {
        if std::mem::replace(&mut self.sends, sends) == sends {
            return;
        }
        // What waits leaves with the send.
        self.is_urgent = true;
        let left_ns = self.left_ns.map(|ns| ns.saturating_add(wait_ns));
        if let Some(until_ns) = self.until_ns.or(left_ns) {
            self.is_answered = now_ns <= until_ns;
        }
    }

    /// Returns until when the packet waits, at most for `wait_ns`.
    pub(super) fn wait(&mut self, now_ns: u64, wait_ns: u64) -> Option<u64> {
        if self.is_urgent || !self.is_answered {
            return None;
        }
        let until_ns = *self.until_ns.get_or_insert(now_ns.saturating_add(wait_ns));
        self.is_answered = now_ns < until_ns;
        self.is_answered.then_some(until_ns)
    }

    /// No packet is under construction: what was held has left with others, or nothing was.
    pub(super) fn clear(&mut self) {
        (self.is_urgent, self.until_ns) = (false, None);
    }

    pub(super) fn left(&mut self, now_ns: u64) {
        self.left_ns = (!self.is_urgent).then_some(now_ns);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use farwrite_wire::control::Outcome;

    use super::*;

    const WAIT: u64 = 100;

    fn end(message: u64) -> Control {
        let outcome = Outcome::Whole;
        Control::ReceiveComplete { message, outcome }
    }

    #[test]
    fn a_packet_waits_only_while_sends_follow() {
        let mut held = HeldControl::default();
        held.note(&end(0));
        assert_eq!(held.wait(1000, WAIT), None, "nothing is known");
        held.left(1000);
        // The program answers, and so it does next time.
        held.note_sends(1050, WAIT, 1);
        assert_eq!(held.wait(1050, WAIT), None);
        held.left(1050);
        held.note(&end(1));
        assert_eq!(held.wait(2000, WAIT), Some(2100));
        assert_eq!(held.until_ns, Some(2100));
        held.note_sends(2060, WAIT, 2);
        assert_eq!(held.wait(2060, WAIT), None, "it leaves with the send");
        held.left(2060);
        assert_eq!(held.until_ns, None);
        // It does not, so the next packet does not wait.
        held.note(&end(2));
        assert_eq!(held.wait(3000, WAIT), Some(3100));
        assert_eq!(held.wait(3100, WAIT), None);
        held.left(3100);
        held.note(&end(3));
        assert_eq!(held.wait(4000, WAIT), None);
    }
}
