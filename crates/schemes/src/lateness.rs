//! How late packets come that others have overtaken, and the reordering window that follows from it
//! (P5.0.11).

/// Number of round trips for which a late packet counts at least. The longest is twice this.
/// Reordering comes from routes and devices, which change less often.
const ROUND_TRIPS: u64 = 128;

/// The window while no packet is late is one part in this number of the round trip.
const USUAL_PART: u64 = 8;

/// The window is longer than the longest lateness by one part in this number: the next packet may be
/// later than all before it.
const SPARE_PART: u64 = 4;

/// The longest recent lateness of a path.
///
/// ```
/// use farwrite_schemes::lateness::Lateness;
///
/// let mut lateness = Lateness::default();
/// assert_eq!(lateness.window_ns(0, 20_000), 2_500);
/// lateness.note(1_000, 8_000, 20_000);
/// assert_eq!(lateness.window_ns(1_000, 20_000), 10_000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// The longest lateness of the current and of the previous time span.
    longest_ns: [u64; 2],
    since_ns: u64,
}

impl Lateness {
    /// Records a packet that arrived `late_ns` after its turn. `rtt_ns` is the round trip.
    pub fn note(&mut self, now_ns: u64, late_ns: u64, rtt_ns: u64) {
        self.longest_ns = self.recent_ns(now_ns, rtt_ns);
        if self.spans(now_ns, rtt_ns) > 0 {
            self.since_ns = now_ns;
        }
        self.longest_ns[0] = self.longest_ns[0].max(late_ns);
    }

    /// Returns how long a chunk may be missing, while later ones arrive, before it counts as lost.
    pub fn window_ns(&self, now_ns: u64, rtt_ns: u64) -> u64 {
        let [now, before] = self.recent_ns(now_ns, rtt_ns);
        let longest_ns = now.max(before);
        let late_ns = longest_ns.saturating_add(longest_ns / SPARE_PART);
        late_ns.max(rtt_ns / USUAL_PART)
    }

    /// The two values as of now: time spans that have ended are forgotten.
    fn recent_ns(&self, now_ns: u64, rtt_ns: u64) -> [u64; 2] {
        match self.spans(now_ns, rtt_ns) {
            0 => self.longest_ns,
            1 => [0, self.longest_ns[0]],
            _ => [0, 0],
        }
    }

    /// Number of time spans that have ended since the current one began.
    fn spans(&self, now_ns: u64, rtt_ns: u64) -> u64 {
        let span_ns = rtt_ns.saturating_mul(ROUND_TRIPS).max(1);
        now_ns.saturating_sub(self.since_ns) / span_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT_NS: u64 = 20 * MS;
    const SPAN_NS: u64 = ROUND_TRIPS * RTT_NS;

    #[test]
    fn the_window_is_an_eighth_of_the_round_trip_until_a_packet_is_later() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.window_ns(0, RTT_NS), RTT_NS / 8);
        lateness.note(MS, 2 * MS, RTT_NS);
        assert_eq!(lateness.window_ns(MS, RTT_NS), RTT_NS / 8);
        lateness.note(2 * MS, 8 * MS, RTT_NS);
        lateness.note(3 * MS, 3 * MS, RTT_NS);
        assert_eq!(lateness.window_ns(3 * MS, RTT_NS), 10 * MS);
    }

    #[test]
    fn a_late_packet_counts_for_one_to_two_time_spans() {
        let mut lateness = Lateness::default();
        let start_ns = 7 * SPAN_NS;
        lateness.note(start_ns, 8 * MS, RTT_NS);
        for (after_ns, window_ns) in [
            (SPAN_NS, 10 * MS),
            (2 * SPAN_NS - 1, 10 * MS),
            (2 * SPAN_NS, RTT_NS / 8),
        ] {
            assert_eq!(lateness.window_ns(start_ns + after_ns, RTT_NS), window_ns);
        }
        // Packets that are less late do not keep it.
        for (after_ns, window_ns) in [
            (SPAN_NS - 1, 10 * MS),
            (SPAN_NS, 10 * MS),
            (2 * SPAN_NS, 5 * MS),
            (3 * SPAN_NS, 5 * MS),
        ] {
            lateness.note(start_ns + after_ns, 4 * MS, RTT_NS);
            assert_eq!(lateness.window_ns(start_ns + after_ns, RTT_NS), window_ns);
        }
    }

    #[test]
    fn nothing_overflows() {
        let mut lateness = Lateness::default();
        lateness.note(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(lateness.window_ns(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(lateness.window_ns(u64::MAX, 0), u64::MAX);
    }
}
