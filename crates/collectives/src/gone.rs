//! Notices that the process of a rank has ended on a host that lives: ICMP says that nobody is at its port, and probes
//! get no answer.

/// How long a rank may take to answer from the first probe on, besides the round trips of the probes.
const PATIENCE_NS: u64 = 1_000_000_000;
/// The number of probes, a round trip apart, that a rank leaves unanswered.
const PROBES: u32 = 3;

/// What is known of one rank.
#[derive(Debug, Default)]
pub(crate) struct GoneWatch {
    probes: u32,
    /// When the first probe left.
    since_ns: u64,
    /// When the next probe leaves.
    next_ns: u64,
}

/// What a look at a rank finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing says that it is gone, or it may still answer.
    Nothing,
    /// It must be probed now.
    Probe,
    Gone,
}

impl GoneWatch {
    /// Looks at a rank. `is_refused`: whether ICMP has said that nobody is there, and nothing was heard of the rank since
    /// then.
    pub(crate) fn look(&mut self, now_ns: u64, is_refused: bool, rtt_ns: u64) -> Finding {
        if !is_refused {
            *self = Self::default();
            return Finding::Nothing;
        }
        if now_ns < self.next_ns {
            return Finding::Nothing;
        }
        if self.probes < PROBES {
            if self.probes == 0 {
                self.since_ns = now_ns;
            }
            self.probes += 1;
            self.next_ns = now_ns.saturating_add(rtt_ns);
            return Finding::Probe;
        }
        let patience_ns = PATIENCE_NS.saturating_add(rtt_ns.saturating_mul(PROBES.into()));
        match now_ns.saturating_sub(self.since_ns) >= patience_ns {
            true => Finding::Gone,
            false => Finding::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The times in milliseconds of probes, and when the rank is gone. Looks are 10 ms apart, and until `heard_ms`
    /// nothing is heard after a refusal at 0.
    fn watched(rtt_ms: u64, heard_ms: u64) -> (Vec<u64>, Option<u64>) {
        let mut watch = GoneWatch::default();
        let mut probes = Vec::new();
        for ms in (0..10_000).step_by(10) {
            match watch.look(ms * MS, ms < heard_ms, rtt_ms * MS) {
                Finding::Nothing => {}
                Finding::Probe => probes.push(ms),
                Finding::Gone => return (probes, Some(ms)),
            }
        }
        (probes, None)
    }

    #[test]
    fn a_rank_is_gone_after_three_probes_a_round_trip_apart_and_a_second() {
        assert_eq!(watched(0, u64::MAX), (vec![0, 10, 20], Some(1000)));
        assert_eq!(watched(100, u64::MAX), (vec![0, 100, 200], Some(1300)));
        assert_eq!(watched(1000, u64::MAX), (vec![0, 1000, 2000], Some(4000)));
    }

    #[test]
    fn a_rank_that_is_heard_is_not_gone_and_a_new_refusal_begins_again() {
        assert_eq!(watched(100, 1290), (vec![0, 100, 200], None));
        let mut watch = GoneWatch::default();
        for _ in 0..4 {
            assert_eq!(watch.look(5, true, 0), Finding::Probe);
            assert_eq!(watch.look(6, false, 0), Finding::Nothing);
        }
    }

    #[test]
    fn the_last_probe_has_a_round_trip_for_its_answer() {
        let mut watch = GoneWatch::default();
        assert_eq!(watch.look(0, true, 1), Finding::Probe);
        // This rank did not run for a while.
        for probe in 0..2 {
            assert_eq!(watch.look(5000 * MS + probe, true, 1), Finding::Probe);
        }
        assert_eq!(watch.look(5000 * MS + 1, true, 1), Finding::Nothing);
        assert_eq!(watch.look(5000 * MS + 2, true, 1), Finding::Gone);
    }
}
