//! The durations that schemes derive from the path (P5.0).

use crate::scheme::PeerView;

/// The time that a timeout adds to the round trip, as a fraction of the round trip. It leaves room
/// for queues along the path (paper section 4.1.1). Fixed-point, in 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alpha(u16);

impl Alpha {
    /// 2, which gives a timeout of three round trips (paper section 5.2).
    pub const DEFAULT: Self = Self(512);

    /// Creates it from a number of 256ths.
    pub const fn from_256ths(value: u16) -> Self {
        Self(value)
    }

    /// Returns it as a number of 256ths.
    pub const fn as_256ths(self) -> u16 {
        self.0
    }

    /// Encodes it as the parameters of a scheme's tag (P5.0.10).
    pub(crate) const fn to_params(self) -> [u8; 6] {
        let [high, low] = self.0.to_be_bytes();
        [high, low, 0, 0, 0, 0]
    }

    /// Decodes it from the parameters of a scheme's tag. `None` if the parameters contain more than
    /// this version knows.
    pub(crate) const fn from_params(params: [u8; 6]) -> Option<Self> {
        match params {
            [high, low, 0, 0, 0, 0] => Some(Self(u16::from_be_bytes([high, low]))),
            _ => None,
        }
    }
}

impl Default for Alpha {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Time between two rounds of ACKs while packets arrive (P5.0.4).
pub fn ack_period_ns(view: &PeerView) -> u64 {
    (view.rtt_ns / 8).max(view.timing.min_repeat_ns)
}

/// Time after which a departed chunk without an ACK is sent again (P5.0.7). For any `alpha`, there
/// is time for one ACK to be lost and the next to arrive, and for an end to be delayed by its
/// operating system.
pub fn rto_ns(view: &PeerView, alpha: Alpha) -> u64 {
    let queues_ns = view.rtt_ns.saturating_mul(u64::from(alpha.0)) / 256;
    let acks_ns = ack_period_ns(view).saturating_mul(2);
    let acks_ns = acks_ns.max(view.timing.lateness_ns);
    view.rtt_ns.saturating_add(queues_ns.max(acks_ns))
}

/// How much later than its turn the last packet of a message may arrive before a receiver considers
/// it lost (P5.4.10). It is half of what a timeout adds to the round trip, because only half of the
/// round trip has queues (paper section 4.1.2). It is at least the time for which the operating
/// system may not run a process.
pub fn fallback_margin_ns(view: &PeerView, alpha: Alpha) -> u64 {
    let queues_ns = view.rtt_ns.saturating_mul(u64::from(alpha.0)) / 512;
    let margin_ns = queues_ns.max(view.timing.lateness_ns);
    margin_ns.saturating_add(view.reordering_window_ns)
}

/// A NACK that arrives sooner than this after a chunk's departure was sent before the chunk could
/// arrive (P5.0.8). A justified NACK arrives one round trip plus one reordering window after the
/// departure. An eighth of the round trip is subtracted, because its estimate may be slightly high.
pub fn crossing_ns(view: &PeerView) -> u64 {
    (view.rtt_ns - view.rtt_ns / 8).saturating_add(view.reordering_window_ns)
}

/// Time after a NACK by which its repair should have arrived (P5.2.3): a round trip, plus the
/// reordering window, plus one ACK period for the repair's turn at the sender.
pub fn repair_ns(view: &PeerView) -> u64 {
    view.rtt_ns
        .saturating_add(view.reordering_window_ns)
        .saturating_add(ack_period_ns(view))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Timing;

    fn view(rtt_ns: u64) -> PeerView {
        PeerView {
            now_ns: 0,
            rtt_ns,
            reordering_window_ns: 1_000,
            timing: Timing::wide_area(),
        }
    }

    #[test]
    fn a_timeout_is_one_plus_alpha_round_trips_and_leaves_room_for_acks_and_processes() {
        let ms = 1_000_000;
        let table = [
            (25 * ms, Alpha::DEFAULT, 75 * ms),
            (25 * ms, Alpha::from_256ths(128), 37_500_000),
            (80 * ms, Alpha::from_256ths(0), 100 * ms),
            (24 * ms, Alpha::from_256ths(0), 34 * ms),
            (100_000, Alpha::DEFAULT, 10_100_000),
            (0, Alpha::DEFAULT, 10 * ms),
            (u64::MAX, Alpha::DEFAULT, u64::MAX),
        ];
        for (rtt_ns, alpha, rto) in table {
            assert_eq!(rto_ns(&view(rtt_ns), alpha), rto, "{rtt_ns} {alpha:?}");
        }
    }

    #[test]
    fn the_floors_are_those_of_the_timing() {
        let of = |timing, rtt_ns| {
            let view = PeerView {
                timing,
                ..view(rtt_ns)
            };
            [
                ack_period_ns(&view),
                rto_ns(&view, Alpha::from_256ths(0)),
                fallback_margin_ns(&view, Alpha::from_256ths(0)),
                repair_ns(&view),
            ]
        };
        let (near_ns, far_ns) = (10_000, 80_000);
        let datacenter = Timing::datacenter();
        assert_eq!(of(datacenter, near_ns), [5_000, 20_000, 11_000, 16_000]);
        assert_eq!(of(datacenter, far_ns), [10_000, 100_000, 11_000, 91_000]);
        let wide_area = of(Timing::wide_area(), near_ns);
        assert_eq!(wide_area, [1_000_000, 10_010_000, 10_001_000, 1_011_000]);
        // Two ACK periods count here, because they are longer than the delay of the operating
        // system.
        let patient = Timing {
            min_repeat_ns: 40_000,
            ..datacenter
        };
        assert_eq!(of(patient, near_ns)[1], 90_000);
    }
}
