//! Distinguishes a pause of the receiver from a receiver that is too slow.

/// Shortest time over which a wait is observed: a program that shares a processor can pause for
/// this long.
const MIN_WINDOW_NS: u64 = 10_000_000;

/// How long packets wait at the receiver before it takes them.
///
/// A program that gets no processor for a time takes the packets of this time late. The path did
/// not delay them, so this wait must not look like a queue to the sender. If the receiver is slower
/// than the path, packets always wait, and the sender must slow down. The shortest wait of the last
/// round trips distinguishes the two: it is zero after a pause.
#[derive(Debug, Default)]
pub(super) struct HostWaits {
    /// Shortest waits of the current and the previous window.
    shortest_ns: [Option<u64>; 2],
    window_start_ns: u64,
    noted_ns: Option<u64>,
}

impl HostWaits {
    /// Records that the newest packet waited for `wait_ns` until now. Returns the part of the wait
    /// that is no pause. `rtt_ns` is the round trip.
    pub(super) fn note(&mut self, now_ns: u64, wait_ns: u64, rtt_ns: u64) -> u64 {
        let window_ns = rtt_ns.max(MIN_WINDOW_NS);
        if now_ns.saturating_sub(self.window_start_ns) >= window_ns {
            self.shortest_ns = [None, self.shortest_ns[0]];
            self.window_start_ns = now_ns;
        }
        // No packet waited at the beginning of a long gap.
        let before_ns = self.noted_ns.replace(now_ns);
        let is_gap = before_ns.is_none_or(|ns| now_ns.saturating_sub(ns) >= window_ns);
        let shortest_ns = if is_gap { 0 } else { wait_ns };
        let current = &mut self.shortest_ns[0];
        *current = Some(current.map_or(shortest_ns, |ns| ns.min(shortest_ns)));
        let lasting_ns = self.shortest_ns.into_iter().flatten().min();
        lasting_ns.unwrap_or(0).min(wait_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT: u64 = 25 * MS;

    #[test]
    fn a_pause_does_not_count() {
        let mut waits = HostWaits::default();
        for ms in 0..100 {
            // The receiver pauses from 50 to 65 ms, and catches up until 80 ms.
            let wait_ns = match ms {
                50..65 => continue,
                65..80 => (80 - ms) * MS,
                _ => 0,
            };
            assert_eq!(waits.note(ms * MS, wait_ns, RTT), 0, "{ms}");
        }
    }

    #[test]
    fn a_slow_receiver_counts_after_two_round_trips() {
        let mut waits = HostWaits::default();
        for ms in 0..200 {
            let wait_ns = (5 + ms / 50) * MS;
            let lasting_ns = waits.note(ms * MS, wait_ns, RTT);
            if ms < 25 {
                assert_eq!(lasting_ns, 0, "{ms}");
            }
            if ms > 2 * 25 {
                assert!(lasting_ns >= wait_ns - MS, "{ms} {lasting_ns}");
            }
        }
    }

    #[test]
    fn a_wait_after_a_gap_is_a_pause() {
        let mut waits = HostWaits::default();
        for ms in 0..100 {
            waits.note(ms * MS, 5 * MS, RTT);
        }
        assert_eq!(waits.note(100 * MS, 5 * MS, RTT), 5 * MS);
        assert_eq!(waits.note(140 * MS, 40 * MS, RTT), 0);
    }

    #[test]
    fn a_short_round_trip_does_not_shorten_pauses() {
        let mut waits = HostWaits::default();
        assert_eq!(waits.note(0, 0, 50_000), 0);
        assert_eq!(waits.note(9 * MS, 8 * MS, 50_000), 0);
    }
}
