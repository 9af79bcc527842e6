//! One packet beyond a full window after a silence, like the tail loss probe of RFC 8985.
//!
//! If the last packets that a window allows are lost, no report comes of them, and nothing would leave until the
//! timeout. The report of one more packet says what was lost.

/// The packet beyond a full window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum TailProbe {
    /// Nothing is in flight that a report is expected of.
    #[default]
    Idle,
    /// Unless a report comes, a packet may leave at this time.
    DueAt(u64),
    /// A packet may leave now.
    Due,
    /// It has left, and this number of bytes was in flight then. No other one leaves before a report comes.
    Sent(u64),
}

impl TailProbe {
    /// Packets have left, and `in_flight_bytes` are unreported. A report is expected until `due_ns`.
    pub(super) fn note_sent(&mut self, due_ns: Option<u64>, in_flight_bytes: u64) {
        *self = match self {
            Self::Due => Self::Sent(in_flight_bytes),
            Self::Sent(bytes) => Self::Sent(in_flight_bytes.min(*bytes)),
            Self::Idle | Self::DueAt(_) => due_ns.map_or(Self::Idle, Self::DueAt),
        };
    }

    /// A report has come. The next one is expected until `due_ns`.
    pub(super) fn note_report(&mut self, due_ns: Option<u64>) {
        *self = due_ns.map_or(Self::Idle, Self::DueAt);
    }

    /// Records the time `now_ns`.
    pub(super) fn look(&mut self, now_ns: u64) {
        if self.due_ns().is_some_and(|due_ns| now_ns >= due_ns) {
            *self = Self::Due;
        }
    }

    /// When to call [`TailProbe::look`].
    pub(super) fn due_ns(&self) -> Option<u64> {
        match self {
            Self::DueAt(due_ns) => Some(*due_ns),
            _ => None,
        }
    }

    /// The least window, with `in_flight_bytes` unreported.
    pub(super) fn least_window_bytes(&self, in_flight_bytes: u64, packet_bytes: u64) -> u64 {
        match self {
            Self::Due => in_flight_bytes.saturating_add(packet_bytes),
            Self::Sent(bytes) => *bytes,
            Self::Idle | Self::DueAt(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1_500;

    #[test]
    fn one_packet_leaves_beyond_a_window_whose_tail_is_lost() {
        let mut probe = TailProbe::default();
        let least = |probe: &TailProbe, in_flight| probe.least_window_bytes(in_flight, PACKET);
        probe.note_sent(Some(5), 4_500);
        assert_eq!((probe.due_ns(), least(&probe, 4_500)), (Some(5), 0));
        probe.look(4);
        assert_eq!(least(&probe, 4_500), 0);
        probe.look(5);
        assert_eq!((probe.due_ns(), least(&probe, 4_500)), (None, 6_000));
        // It has left. Until a report comes, no other one may leave.
        probe.note_sent(Some(10), 6_000);
        probe.look(10);
        assert_eq!((probe.due_ns(), least(&probe, 6_000)), (None, 6_000));
        probe.note_report(Some(15));
        assert_eq!((probe.due_ns(), least(&probe, 3_000)), (Some(15), 0));
        probe.note_report(None);
        probe.look(20);
        assert_eq!(least(&probe, 0), 0);
    }
}
