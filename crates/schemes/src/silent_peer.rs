//! How a sender behaves when it hears nothing: it stops, and probes with growing pauses (P5.0.9).

use crate::scheme::PeerView;

/// Chunks sent at each probe. There are a few, so that one gets through on a path that works but
/// loses packets.
pub const PROBE_CHUNKS: u32 = 4;

/// Detects that the peer has fallen silent, and then limits what is sent.
///
/// If something is heard after a timeout, the timeout was an ordinary loss. If nothing is heard for
/// one more timeout, the path counts as dead: more packets would only fill it, and all of them
/// would have to be sent again.
#[derive(Debug, Default)]
pub struct SilentPeer {
    /// Time of the first timeout after which nothing has been heard.
    silent_since_ns: Option<u64>,
    probe: Option<Probe>,
}

#[derive(Debug)]
struct Probe {
    rto_ns: u64,
    next_ns: u64,
    chunks_left: u32,
}

impl SilentPeer {
    /// Handles any packet from the peer.
    pub fn heard(&mut self) {
        *self = Self::default();
    }

    /// A retransmission timer of `rto_ns` expired.
    pub fn expired(&mut self, view: &PeerView, rto_ns: u64) {
        let now_ns = view.now_ns;
        let since_ns = *self.silent_since_ns.get_or_insert(now_ns);
        if self.probe.is_none() && now_ns.saturating_sub(since_ns) >= rto_ns {
            self.probe = Some(Probe {
                rto_ns,
                next_ns: now_ns.saturating_add(interval_ns(view, rto_ns, now_ns - since_ns)),
                chunks_left: PROBE_CHUNKS,
            });
        }
    }

    /// Allows the next probe if it is due.
    pub fn handle_timeout(&mut self, view: &PeerView) {
        let now_ns = view.now_ns;
        if let (Some(probe), Some(since_ns)) = (&mut self.probe, self.silent_since_ns)
            && probe.next_ns <= now_ns
        {
            let silent_ns = now_ns.saturating_sub(since_ns);
            probe.next_ns = now_ns.saturating_add(interval_ns(view, probe.rto_ns, silent_ns));
            probe.chunks_left = PROBE_CHUNKS;
        }
    }

    /// Returns how many of `max_chunks` may be sent now.
    pub fn limit(&self, max_chunks: u32) -> u32 {
        match &self.probe {
            Some(probe) => max_chunks.min(probe.chunks_left),
            None => max_chunks,
        }
    }

    /// Records that chunks have been sent.
    pub fn sent(&mut self, chunks: u32) {
        if let Some(probe) = &mut self.probe {
            probe.chunks_left = probe.chunks_left.saturating_sub(chunks);
        }
    }

    /// When the next probe may be sent; `None` while the peer is not silent.
    pub fn next_timeout(&self) -> Option<u64> {
        self.probe.as_ref().map(|probe| probe.next_ns)
    }
}

/// Time to the next probe, as a fraction of the silence so far. So the end of an outage is noticed
/// soon compared with its length, and a path that loses in bursts is probed often enough.
fn interval_ns(view: &PeerView, rto_ns: u64, silent_ns: u64) -> u64 {
    let share_ns = silent_ns / 16;
    share_ns.min(view.timing.max_probe_ns).max(rto_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Timing;

    const MS: u64 = 1_000_000;

    fn at(now_ns: u64) -> PeerView {
        PeerView {
            now_ns,
            rtt_ns: 25 * MS,
            reordering_window_ns: MS,
            timing: Timing::wide_area(),
        }
    }

    #[test]
    fn two_timeouts_without_a_word_begin_probing() {
        let mut silence = SilentPeer::default();
        silence.expired(&at(100 * MS), 75 * MS);
        silence.expired(&at(174 * MS), 75 * MS);
        assert_eq!(silence.limit(100), 100);
        silence.expired(&at(175 * MS), 75 * MS);
        assert_eq!(silence.limit(100), PROBE_CHUNKS);
        silence.sent(PROBE_CHUNKS);
        assert_eq!(silence.limit(100), 0);
        assert_eq!(silence.next_timeout(), Some(250 * MS));
        silence.heard();
        assert_eq!((silence.limit(100), silence.next_timeout()), (100, None));
    }

    #[test]
    fn a_word_between_timeouts_keeps_the_pace() {
        let mut silence = SilentPeer::default();
        for i in 1..100 {
            silence.expired(&at(i * 75 * MS), 75 * MS);
            silence.heard();
        }
        assert_eq!(silence.limit(7), 7);
    }

    #[test]
    fn probes_grow_rare_up_to_one_a_second() {
        let mut silence = SilentPeer::default();
        silence.expired(&at(0), 75 * MS);
        silence.expired(&at(75 * MS), 75 * MS);
        let mut last = 75 * MS;
        while last < 60_000 * MS {
            let next = silence.next_timeout().unwrap();
            let share = (last / 16).clamp(75 * MS, 1_000 * MS);
            assert_eq!(next - last, share, "after {last}");
            silence.handle_timeout(&at(next));
            assert_eq!(silence.limit(100), PROBE_CHUNKS);
            last = next;
        }
    }

    #[test]
    fn a_timeout_of_more_than_the_longest_interval_is_kept() {
        let mut silence = SilentPeer::default();
        silence.expired(&at(0), 3_000 * MS);
        silence.expired(&at(3_000 * MS), 3_000 * MS);
        assert_eq!(silence.next_timeout(), Some(6_000 * MS));
    }
}
