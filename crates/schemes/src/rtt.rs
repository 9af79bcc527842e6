//! The round-trip time, from timestamps that control packets echo.

use core::time::Duration;

/// Longest round trip accepted, in nanoseconds. It limits the claims of a peer. No timer waits for
/// it.
const MAX_SAMPLE_NS: u64 = 10_000_000_000;

/// A sample that is this many times as long as the smoothed round trip must be confirmed by a later
/// one. It is more likely to come from a host that was stopped for a while.
const FAR: u64 = 4;

/// Least time for which a shortest round trip is remembered, in nanoseconds. The longest is twice
/// this. Queues empty within this time, and the length of a route changes less often.
const MIN_FILTER_NS: u64 = 10_000_000_000;

/// Smooths round-trip samples as RFC 6298 section 2 does (P5.6). It omits that section's variation,
/// because schemes use alpha instead.
///
/// The peer echoes the timestamp of a packet. A sample is the time since that packet left, minus
/// the time that the peer held it before answering. Every control packet has its own timestamp, so
/// it is always clear which copy was answered, and no sample is lost to retransmissions.
///
/// ```
/// use farwrite_schemes::rtt::{ImplausibleSample, RttEstimator};
/// use std::time::Duration;
///
/// let mut rtt = RttEstimator::new(Duration::from_millis(100));
/// // A timestamp of 1 ms came back at 27 ms. The peer had held it for 1 ms.
/// assert_eq!(rtt.handle_echo(27_000_000, 1_000_000, 1_000_000)?, 25_000_000);
/// assert_eq!(rtt.smoothed_ns(), 25_000_000);
/// // A peer that claims to have held it for longer than that is not believed.
/// assert!(rtt.handle_echo(27_000_000, 1_000_000, 90_000_000).is_err());
/// # Ok::<(), ImplausibleSample>(())
/// ```
#[derive(Clone, Debug)]
pub struct RttEstimator {
    smoothed_ns: u64,
    sampled: bool,
    /// Set after a sample that is far longer than earlier ones: the time from which another one
    /// confirms it.
    confirmed_ns: Option<u64>,
    shortest: [Option<u64>; 2],
    shortest_since_ns: u64,
}

/// A sample that no correct peer and path can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImplausibleSample {
    /// The packet would have been answered before it left.
    #[error("echo of {echo_ns} ns held for {hold_ns} ns would have come before now, {now_ns} ns")]
    Negative {
        /// When the echo arrived.
        now_ns: u64,
        /// The echoed timestamp.
        echo_ns: u64,
        /// How long the peer claims that it held the packet.
        hold_ns: u64,
    },
    /// Longer than any supported path.
    #[error("a round trip of {sample_ns} ns is longer than 10 s")]
    TooLong {
        /// The round trip.
        sample_ns: u64,
    },
}

impl RttEstimator {
    /// Creates an estimator that uses `initial` until the first sample.
    pub fn new(initial: Duration) -> Self {
        let initial_ns = u64::try_from(initial.as_nanos()).unwrap_or(u64::MAX);
        let smoothed_ns = initial_ns.min(MAX_SAMPLE_NS);
        Self {
            smoothed_ns,
            sampled: false,
            confirmed_ns: None,
            shortest: [None; 2],
            shortest_since_ns: 0,
        }
    }

    /// At `now_ns`, a packet echoed our timestamp `echo_ns`, which the peer had held for
    /// `hold_ns`. Returns the round trip in nanoseconds.
    ///
    /// # Errors
    /// If the round trip would be negative or longer than 10 s. The estimate then does not change.
    pub fn handle_echo(
        &mut self,
        now_ns: u64,
        echo_ns: u64,
        hold_ns: u64,
    ) -> Result<u64, ImplausibleSample> {
        let since_echo_ns = now_ns.checked_sub(echo_ns);
        let Some(sample_ns) = since_echo_ns.and_then(|ns| ns.checked_sub(hold_ns)) else {
            return Err(ImplausibleSample::Negative {
                now_ns,
                echo_ns,
                hold_ns,
            });
        };
        if sample_ns > MAX_SAMPLE_NS {
            return Err(ImplausibleSample::TooLong { sample_ns });
        }
        if self.is_unconfirmed(now_ns, sample_ns) {
            return Ok(sample_ns);
        }
        if self.sampled {
            self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
        } else {
            self.sampled = true;
            self.smoothed_ns = sample_ns;
        }
        self.note_shortest(now_ns, sample_ns);
        Ok(sample_ns)
    }

    /// Returns whether a sample is far longer than earlier ones, and no similar one came at least a
    /// round trip earlier. A host that was stopped answers all waiting packets when it continues.
    fn is_unconfirmed(&mut self, now_ns: u64, sample_ns: u64) -> bool {
        if !self.sampled || sample_ns / FAR <= self.smoothed_ns {
            self.confirmed_ns = None;
            return false;
        }
        let round_trip_later_ns = now_ns.saturating_add(self.smoothed_ns);
        now_ns < *self.confirmed_ns.get_or_insert(round_trip_later_ns)
    }

    /// Keeps two time spans, each with its shortest sample. When one span ends, the other is
    /// forgotten.
    fn note_shortest(&mut self, now_ns: u64, sample_ns: u64) {
        if now_ns.saturating_sub(self.shortest_since_ns) >= MIN_FILTER_NS {
            self.shortest = [None, self.shortest[0]];
            self.shortest_since_ns = now_ns;
        }
        let shortest_ns = self.shortest[0].map_or(sample_ns, |ns| ns.min(sample_ns));
        self.shortest[0] = Some(shortest_ns);
    }

    /// The smoothed round trip (SRTT of RFC 6298), in nanoseconds.
    pub fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The shortest round trip of the last 10 to 20 s, in nanoseconds: the path with its queues
    /// empty. `None` before the first sample.
    pub fn shortest_ns(&self) -> Option<u64> {
        self.shortest.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_first_sample_replaces_what_was_configured() {
        let mut rtt = RttEstimator::new(Duration::from_millis(100));
        assert_eq!((rtt.smoothed_ns(), rtt.shortest_ns()), (100 * MS, None));
        assert_eq!(rtt.handle_echo(40 * MS, 10 * MS, 5 * MS), Ok(25 * MS));
        assert_eq!(rtt.smoothed_ns(), 25 * MS);
        assert_eq!(rtt.shortest_ns(), Some(25 * MS));
    }

    #[test]
    fn a_host_that_stood_still_does_not_make_the_path_longer() {
        let mut rtt = RttEstimator::new(Duration::from_millis(100));
        assert_eq!(rtt.handle_echo(20 * MS, 0, 0), Ok(20 * MS));
        // Packets that had waited for 5 s are answered within a few milliseconds.
        for late in 0..5 {
            let now_ns = (5_020 + late) * MS;
            assert!(rtt.handle_echo(now_ns, 20 * MS, 0).is_ok());
        }
        assert_eq!(rtt.handle_echo(5_045 * MS, 5_025 * MS, 0), Ok(20 * MS));
        assert_eq!(rtt.smoothed_ns(), 20 * MS);
    }

    #[test]
    fn a_path_that_became_far_longer_is_followed_after_a_round_trip() {
        let mut rtt = RttEstimator::new(Duration::from_millis(100));
        assert_eq!(rtt.handle_echo(20 * MS, 0, 0), Ok(20 * MS));
        for (now_ms, smoothed_ms) in [(1_000, 20), (1_010, 20), (1_020, 80), (1_021, 132)] {
            let now_ns = now_ms * MS;
            assert!(rtt.handle_echo(now_ns, now_ns - 500 * MS, 0).is_ok());
            assert_eq!(rtt.smoothed_ns() / MS, smoothed_ms, "at {now_ms} ms");
        }
    }

    #[test]
    fn implausible_samples_change_nothing() {
        let mut rtt = RttEstimator::new(Duration::from_millis(30));
        let table = [(10, 11, 0), (10, 5, 6), (0, 0, 1), (u64::MAX, 0, 0)];
        for (now_ns, echo_ns, hold_ns) in table {
            assert!(rtt.handle_echo(now_ns, echo_ns, hold_ns).is_err());
        }
        assert_eq!(rtt.smoothed_ns(), 30 * MS);
        assert!(rtt.handle_echo(10_000_000_001, 0, 1).is_ok());
    }

    #[test]
    fn the_shortest_is_forgotten_when_the_path_has_become_longer() {
        let mut rtt = RttEstimator::new(Duration::ZERO);
        for second in 1..60 {
            let now_ns = second * 1_000 * MS;
            let path_ns = if second < 20 { 25 * MS } else { 60 * MS };
            rtt.handle_echo(now_ns, now_ns - path_ns, 0).unwrap();
            if second < 20 {
                assert_eq!(rtt.shortest_ns(), Some(25 * MS));
            }
        }
        assert_eq!(rtt.shortest_ns(), Some(60 * MS));
        assert!(rtt.smoothed_ns().abs_diff(60 * MS) < MS);
    }

    proptest! {
        #[test]
        fn the_estimate_stays_between_the_extremes(
            samples in prop::collection::vec(0..MAX_SAMPLE_NS, 1..100),
        ) {
            let mut rtt = RttEstimator::new(Duration::from_secs(1));
            let mut now_ns = 0;
            for &sample_ns in &samples {
                now_ns += sample_ns;
                rtt.handle_echo(now_ns, now_ns - sample_ns, 0).unwrap();
            }
            let shortest = *samples.iter().min().unwrap();
            let longest = *samples.iter().max().unwrap();
            prop_assert!((shortest.saturating_sub(8)..=longest).contains(&rtt.smoothed_ns()));
        }
    }
}
