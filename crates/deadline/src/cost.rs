//! What an operation took, and what a member concludes from it.

/// One part in a million.
pub(crate) const PPM: u64 = 1_000_000;

const MIB: u128 = 1 << 20;

/// Time per byte, in nanoseconds per MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u64);

impl Cost {
    /// The cost of `bytes` bytes that took `time_ns`; the maximum for 0 bytes.
    #[must_use]
    pub fn of(time_ns: u64, bytes: u64) -> Self {
        match u128::from(bytes) {
            0 => Self(u64::MAX),
            bytes => Self(saturate(u128::from(time_ns) * MIB / bytes)),
        }
    }

    /// The time that `bytes` bytes take, in nanoseconds.
    #[must_use]
    pub fn time_ns(self, bytes: u64) -> u64 {
        saturate(u128::from(self.0) * u128::from(bytes) / MIB)
    }

    /// This cost times a ratio, whose denominator must not be 0.
    pub(crate) fn times(self, numerator: u64, denominator: u64) -> Self {
        let product = u128::from(self.0) * u128::from(numerator);
        Self(saturate(product / u128::from(denominator)))
    }
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// How one operation went at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// From its start to its end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes that arrived, rebuilt ones included.
    pub received_bytes: u64,
    /// Bytes that should have arrived.
    pub expected_bytes: u64,
    /// Whether its deadline ended it.
    pub timed_out: bool,
    /// What the path dropped of this operation, in millionths, whether or not it was repaired;
    /// 0 where nobody measures it.
    pub path_loss_ppm: u32,
}

impl Observation {
    /// An operation of which everything arrived.
    #[must_use]
    pub fn whole(elapsed_ns: u64, bytes: u64) -> Self {
        Self {
            elapsed_ns,
            received_bytes: bytes,
            expected_bytes: bytes,
            timed_out: false,
            path_loss_ppm: 0,
        }
    }

    /// Cost of a byte that arrived: of all bytes that arrived by the end.
    pub(crate) fn cost(&self) -> Cost {
        Cost::of(self.elapsed_ns, self.received_bytes)
    }

    /// Cost of a byte, had the operation not been cut. What the path dropped for good does not count:
    /// no time brings it.
    pub(crate) fn cost_uncut(&self, lost_ppm: u64) -> Cost {
        let lost_ppm = lost_ppm.min(PPM);
        let arriving = u128::from(self.expected_bytes) * u128::from(PPM - lost_ppm);
        let arriving = saturate(arriving / u128::from(PPM));
        let bytes = match self.timed_out && self.received_bytes < arriving {
            // As many bytes a second as before the cut.
            true => return Cost::of(self.elapsed_ns, self.received_bytes),
            false => self.expected_bytes,
        };
        Cost::of(self.elapsed_ns, bytes)
    }
}

/// What a member reports to its group after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What it thinks that a byte costs.
    pub cost: Cost,
    /// What the path to it dropped, in millionths; more than 1000000 counts as that.
    pub path_loss_ppm: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn costs_are_nanoseconds_per_mib() {
        assert_eq!(Cost::of(1_000, 1 << 20), Cost(1_000));
        assert_eq!(Cost(1_000).time_ns(3 << 20), 3_000);
        assert_eq!(Cost::of(1, 0), Cost(u64::MAX));
        assert_eq!(Cost(u64::MAX).time_ns(u64::MAX), u64::MAX);
        assert_eq!(Cost(7).times(3, 2), Cost(10));
    }

    #[test]
    fn what_the_path_drops_is_not_waited_for() {
        let observation = |received_bytes, timed_out| Observation {
            received_bytes,
            timed_out,
            ..Observation::whole(1_000, 1 << 20)
        };
        let cost = |observation: Observation| observation.cost_uncut(100_000);
        let nine_tenths = (1 << 20) * 9 / 10;
        assert_eq!(cost(observation(nine_tenths, false)), Cost(1_000));
        assert_eq!(cost(observation(nine_tenths, true)), Cost(1_000));
        // Half came in 1 us, so all takes 2.
        assert_eq!(cost(observation(1 << 19, true)), Cost(2_000));
        assert_eq!(observation(1 << 19, true).cost(), Cost(2_000));
    }

    proptest! {
        #[test]
        fn a_cost_gives_its_time_back(time_ns in 0u64..1 << 40, bytes in 1u64..1 << 40) {
            let again_ns = Cost::of(time_ns, bytes).time_ns(bytes);
            // Rounded down by less than one nanosecond per MiB.
            prop_assert!(again_ns <= time_ns && time_ns - again_ns <= bytes / (1 << 20) + 1);
        }
    }
}
