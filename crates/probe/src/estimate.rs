//! Statistics: from counts to numbers.

use std::time::Duration;

use farwrite_units::show::real;
use farwrite_units::stats::percentile;

/// Measured round trips.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// Sorted in ascending order.
    sorted: Vec<Duration>,
}

impl RoundTrips {
    /// From samples in any order.
    #[must_use]
    pub fn new(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        Self { sorted: samples }
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.sorted.len()
    }

    /// A percentile by the nearest rank: the smallest sample that at least this many hundredths of
    /// the samples do not exceed. 0 gives the smallest, 100 the largest. `None` without samples.
    #[must_use]
    pub fn percentile(&self, hundredths: usize) -> Option<Duration> {
        percentile(&self.sorted, hundredths)
    }

    /// The distribution of the times above the shortest one, which is the delay by queues and by the
    /// two machines. The first bin ends at 1 us, and each further bin ends at twice the time. The
    /// last bin has the longest time. Empty without samples.
    #[must_use]
    pub fn histogram(&self) -> Vec<Bin> {
        let Some(shortest) = self.sorted.first() else {
            return Vec::new();
        };
        let mut bins = Vec::new();
        let mut rest = self.sorted.as_slice();
        let (mut from, mut to) = (Duration::ZERO, FIRST_BIN);
        while !rest.is_empty() {
            let samples = rest.partition_point(|time| *time - *shortest < to);
            bins.push(Bin { from, to, samples });
            rest = &rest[samples..];
            (from, to) = (to, to * 2);
        }
        bins
    }
}

/// The width of the first bin of a histogram.
const FIRST_BIN: Duration = Duration::from_micros(1);

/// A bin of [`RoundTrips::histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Least time above the shortest one.
    pub from: Duration,
    /// End of the bin, which is not part of it.
    pub to: Duration,
    /// Number of samples in the bin.
    pub samples: usize,
}

/// A measured share with its confidence interval.
///
/// ```
/// use farwrite_probe::estimate::Share;
///
/// let loss = Share::of(5, 1_000).expect("packets were sent");
/// assert_eq!(loss.share, 0.005);
/// assert!(loss.low > 0.002 && loss.high < 0.012);
/// assert_eq!(Share::of(0, 0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The counted share.
    pub share: f64,
    /// Lower end of the 95% interval.
    pub low: f64,
    /// Upper end of the 95% interval.
    pub high: f64,
}

impl Share {
    /// The share `part / all`, with Wilson's interval (1927); `None` if `all` is 0.
    #[must_use]
    pub fn of(part: u64, all: u64) -> Option<Self> {
        if all == 0 {
            return None;
        }
        Some(Self::in_trials(real(all), real(part.min(all)) / real(all)))
    }

    /// The share `part / all` of losses that come in bursts of `mean_packets` on average: fewer
    /// independent trials, by the variance of a two-state chain (Gilbert).
    ///
    /// ```
    /// use farwrite_probe::estimate::Share;
    ///
    /// let [alone, in_bursts] = [1.0, 30.0].map(|mean| Share::in_bursts(100, 10_000, mean));
    /// let [alone, in_bursts] = [alone, in_bursts].map(|share| share.expect("packets were sent"));
    /// assert!(alone.low > 0.008 && alone.high < 0.013);
    /// assert!(in_bursts.low < 0.004 && in_bursts.high > 0.025);
    /// ```
    #[must_use]
    pub fn in_bursts(part: u64, all: u64, mean_packets: f64) -> Option<Self> {
        let independent = Self::of(part, all)?;
        let trials = (real(all) / (2.0 * mean_packets.max(1.0) - 1.0)).max(1.0);
        Some(Self::in_trials(trials, independent.share))
    }

    fn in_trials(n: f64, share: f64) -> Self {
        /// 95% of a normal distribution lie within this number of standard deviations.
        const Z: f64 = 1.96;
        let weight = 1.0 + Z * Z / n;
        let centre = (share + Z * Z / (2.0 * n)) / weight;
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / weight;
        Self {
            share,
            low: if share > 0.0 {
                (centre - half).max(0.0)
            } else {
                0.0
            },
            high: (centre + half).min(1.0),
        }
    }
}

/// Bursts of losses, and the two-state chain (Gilbert) that fits them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Mean length of a burst in packets.
    pub mean_packets: f64,
    /// Length of the longest burst in packets.
    pub longest_packets: u64,
    /// Probability of a loss after an arrival.
    pub p_good_to_bad: f64,
    /// Probability of an arrival after a loss.
    pub p_bad_to_good: f64,
}

impl Bursts {
    /// From `packets` packets, of which `lost` were lost in `bursts` bursts; `None` without losses.
    #[must_use]
    pub fn of(packets: u64, lost: u64, bursts: u64, longest_packets: u64) -> Option<Self> {
        if lost == 0 || bursts == 0 {
            return None;
        }
        let arrived = packets.saturating_sub(lost).max(1);
        Some(Self {
            mean_packets: real(lost) / real(bursts),
            longest_packets,
            p_good_to_bad: (real(bursts) / real(arrived)).min(1.0),
            p_bad_to_good: real(bursts) / real(lost),
        })
    }
}

/// Rates of a packet train at the sender and at the receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Rate at which the train was sent, in bits per second.
    pub offered_bps: f64,
    /// Rate at which the train arrived, in bits per second, corrected for lost packets.
    pub arrived_bps: f64,
    /// Share of the packets that arrived.
    pub received: f64,
}

/// If a smaller share of a train arrives, its losses come from a full queue, not from the path.
const FEW: f64 = 0.875;
/// If a train arrives at this share of its rate, the path carries the rate; the difference is
/// jitter.
const CARRIED: f64 = 0.9;

impl Spread {
    /// Whether the path carries the rate of the train.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.received >= FEW && self.arrived_bps >= CARRIED * self.offered_bps
    }

    /// The rate that the path carries, in bits per second; at most the rate of the train.
    #[must_use]
    pub fn carried_bps(&self) -> f64 {
        let arrived_bps = match self.received < FEW {
            true => self.arrived_bps * self.received,
            false => self.arrived_bps,
        };
        arrived_bps.min(self.offered_bps)
    }
}

/// Bits per second; 0 if the time is zero.
#[must_use]
pub fn rate_bps(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    real(bytes) * 8.0 / time.as_secs_f64()
}
