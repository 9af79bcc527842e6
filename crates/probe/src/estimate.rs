//! From counts to numbers.

use std::time::Duration;

use farwrite_units::show::real;

/// Round trips, of which some are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// In ascending order.
    sorted: Vec<Duration>,
}

impl RoundTrips {
    /// Of samples in any order.
    #[must_use]
    pub fn new(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        Self { sorted: samples }
    }

    /// How many there are.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.sorted.len()
    }

    /// The shortest that at least this many hundredths do not exceed (nearest rank): 0 is the
    /// shortest of all, 100 the longest. `None` without samples.
    #[must_use]
    pub fn percentile(&self, hundredths: usize) -> Option<Duration> {
        let rank = (self.sorted.len() * hundredths.min(100)).div_ceil(100);
        self.sorted.get(rank.saturating_sub(1)).copied()
    }
}

/// A share that was counted, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// What was counted over all.
    pub share: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
}

impl Share {
    /// `part` of `all` (Wilson's interval, 1927); `None` of nothing.
    #[must_use]
    pub fn of(part: u64, all: u64) -> Option<Self> {
        /// 95 % of a normal distribution lie within as many standard deviations.
        const Z: f64 = 1.96;
        if all == 0 {
            return None;
        }
        let (n, share) = (real(all), real(part.min(all)) / real(all));
        let weight = 1.0 + Z * Z / n;
        let centre = (share + Z * Z / (2.0 * n)) / weight;
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / weight;
        Some(Self {
            share,
            low: if part == 0 {
                0.0
            } else {
                (centre - half).max(0.0)
            },
            high: (centre + half).min(1.0),
        })
    }
}

/// Losses as runs, with the chain of two states (Gilbert) that has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Packets of a run, in the mean.
    pub mean_packets: f64,
    /// Packets of the longest run.
    pub longest_packets: u64,
    /// After a packet that arrived, the probability of a loss.
    pub p_good_to_bad: f64,
    /// After a loss, the probability of an arrival.
    pub p_bad_to_good: f64,
}

impl Bursts {
    /// Of `packets` packets, of which `lost` were lost in `bursts` runs; `None` without losses.
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

/// What a train of packets shows of the rate of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Rate at which the train left, in bits a second.
    pub offered_bps: f64,
    /// Rate at which it arrived, were no packet lost.
    pub arrived_bps: f64,
    /// Share of its packets that arrived.
    pub received: f64,
}

/// Fewer packets of a train than this share: its losses are those of a full queue, not of the path.
const FEW: f64 = 0.875;
/// A train that arrives at this share of its rate was carried; the rest is jitter.
const CARRIED: f64 = 0.9;

impl Spread {
    /// Whether the path carries the rate of the train.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.received >= FEW && self.arrived_bps >= CARRIED * self.offered_bps
    }

    /// The rate that the path carries, at most that of the train.
    #[must_use]
    pub fn carried_bps(&self) -> f64 {
        let arrived_bps = match self.received < FEW {
            true => self.arrived_bps * self.received,
            false => self.arrived_bps,
        };
        arrived_bps.min(self.offered_bps)
    }
}

/// Bits a second; 0 in no time.
#[must_use]
pub fn rate_bps(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    real(bytes) * 8.0 / time.as_secs_f64()
}
