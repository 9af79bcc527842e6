//! Statistics of lateness.

/// A histogram of the time by which packets left after they were due. A quantile is at most one
/// eighth too large, and never too small.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// Number of packets by lateness: eight buckets for each power of two of nanoseconds.
    counts: Box<[u64; Self::BUCKETS]>,
    max_ns: u64,
    late_packets: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: Box::new([0; Self::BUCKETS]),
            max_ns: 0,
            late_packets: 0,
        }
    }
}

impl Lateness {
    const BUCKETS: usize = 64 * 8;
    const LATE_NS: u64 = 1_000_000;

    pub(crate) fn record(&mut self, late_ns: u64, packets: u64) {
        if late_ns > Self::LATE_NS {
            self.late_packets += packets;
        }
        self.counts[bucket(late_ns)] += packets;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// A quantile of the lateness in nanoseconds: the value that this share of the packets did not
    /// exceed; 0 without packets.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of packets are far below 2^53"
    )]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let total: u64 = self.counts.iter().sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            passed += count;
            if passed >= wanted {
                return upper_ns(bucket).min(self.max_ns);
            }
        }
        0
    }

    /// Number of packets that left more than 1 ms after they were due.
    #[must_use]
    pub fn late_packets(&self) -> u64 {
        self.late_packets
    }

    /// The largest lateness in nanoseconds.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

/// The bucket of a lateness: the power of two, then the three bits after the leading one.
fn bucket(ns: u64) -> usize {
    if ns < 8 {
        return usize::try_from(ns).unwrap_or(0);
    }
    let power = ns.ilog2();
    let fraction = usize::try_from(ns >> (power - 3) & 7).unwrap_or(0);
    (power as usize - 2) * 8 + fraction
}

/// The largest lateness of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let fraction = bucket as u64 % 8;
    match bucket / 8 {
        0 => fraction,
        power => ((8 + fraction + 1) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lateness_lies_in_a_bucket_that_is_an_eighth_wide() {
        for shift in 0..60 {
            for ns in [
                (1u64 << shift) - 1,
                1 << shift,
                (1 << shift) + (1 << shift) / 3,
            ] {
                let upper = upper_ns(bucket(ns));
                assert!((ns..=ns + ns / 8).contains(&upper), "{ns}: {upper}");
            }
        }
        assert!(bucket(u64::MAX) < Lateness::BUCKETS);
    }

    #[test]
    fn a_packet_is_late_after_a_millisecond() {
        let mut lateness = Lateness::default();
        for late_ns in [0, 1_000_000, 1_000_001, 7_000_000, 2] {
            lateness.record(late_ns, 1);
        }
        assert_eq!((lateness.late_packets(), lateness.max_ns()), (2, 7_000_000));
    }

    #[test]
    fn quantiles_are_of_packets() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.quantile_ns(0.5), lateness.max_ns()), (0, 0));
        lateness.record(10, 98);
        lateness.record(1_000_000, 2);
        assert_eq!(lateness.quantile_ns(0.5), 10);
        assert_eq!(lateness.quantile_ns(0.98), 10);
        assert_eq!(lateness.quantile_ns(0.99), 1_000_000);
        assert_eq!(lateness.max_ns(), 1_000_000);
    }
}
