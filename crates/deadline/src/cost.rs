//! Observations of operations, and the cost per byte that a member derives from them.

use crate::repair_choice::RepairChoice;

/// One part in a million.
pub(crate) const PPM: u64 = 1_000_000;

const MIB: u128 = 1 << 20;
/// Limit of the extrapolation: an operation that was cut counts as at most this many times as long.
const MOST_TIMES: u64 = 4;

/// Cost of an operation: its time per byte, in nanoseconds per MiB.
///
/// ```
/// use farwrite_deadline::Cost;
///
/// // 64 MiB took 32 ms: 128 MiB take twice as long.
/// let cost = Cost::of(32_000_000, 64 << 20);
/// assert_eq!(cost.time_ns(128 << 20), 64_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u64);

impl Cost {
    /// The cost if `bytes` bytes took `time_ns`. The maximum for 0 bytes.
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

    /// The denominator must not be 0.
    pub(crate) fn times(self, numerator: u64, denominator: u64) -> Self {
        let product = u128::from(self.0) * u128::from(numerator);
        Self(saturate(product / u128::from(denominator)))
    }
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// What a member observed of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Size of the operation in bytes: the same at all members.
    pub bytes: u64,
    /// Time from its start to its end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes that arrived at this member, including rebuilt bytes.
    pub received_bytes: u64,
    /// Bytes that should have arrived at this member.
    pub expected_bytes: u64,
    /// Whether it had a deadline: the warm-up has none, and neither have operations that began before the
    /// warm-up ended.
    pub had_deadline: bool,
    /// Whether its deadline ended it.
    pub timed_out: bool,
    /// Share of packets that the path dropped, in millionths, whether repaired or not; with a fixed scheme
    /// ([`Timeout::with_fixed_scheme`](crate::Timeout::with_fixed_scheme)), the share that its repair
    /// leaves. 0 if not measured.
    pub path_loss_ppm: u32,
    /// The repair that it ran with. The choice of repair can have changed since the operation began.
    pub repair_choice: RepairChoice,
    /// Round trip of the paths to this member, in nanoseconds; `None` if not measured.
    pub rtt_ns: Option<u64>,
}

impl Observation {
    /// An operation of which everything arrived.
    #[must_use]
    pub fn whole(elapsed_ns: u64, bytes: u64) -> Self {
        Self {
            bytes,
            elapsed_ns,
            received_bytes: bytes,
            expected_bytes: bytes,
            had_deadline: true,
            timed_out: false,
            path_loss_ppm: 0,
            repair_choice: RepairChoice::Wait,
            rtt_ns: None,
        }
    }

    /// The cost at the rate at which bytes arrived. If less than a quarter arrived, this predicts
    /// little about the rest, so the complete operation counts as four times as long.
    pub(crate) fn cost(&self) -> Cost {
        let least_bytes = self.expected_bytes.div_ceil(MOST_TIMES);
        let received_bytes = self.received_bytes.max(least_bytes).max(1);
        self.elapsed_cost()
            .times(self.expected_bytes, received_bytes)
    }

    fn elapsed_cost(&self) -> Cost {
        Cost::of(self.elapsed_ns, self.bytes)
    }

    /// The estimated cost if the operation had not been cut. Bytes that the path dropped for good
    /// do not count, because no waiting time brings them.
    pub(crate) fn cost_uncut(&self, lost_ppm: u64) -> Cost {
        let lost_ppm = lost_ppm.min(PPM);
        let arriving = u128::from(self.expected_bytes) * u128::from(PPM - lost_ppm);
        let arriving = saturate(arriving / u128::from(PPM));
        match self.timed_out && self.received_bytes < arriving {
            // Assume the same rate as before the cut.
            true => self.cost(),
            false => self.elapsed_cost(),
        }
    }
}

/// The message of a member to its group after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The member's estimate of the cost.
    pub cost: Cost,
    /// Share of packets that the path to the member dropped, in millionths. Values above 1000000
    /// count as 1000000.
    pub path_loss_ppm: u32,
    /// The repair that the operation ran with at the member.
    pub repair_choice: RepairChoice,
    /// Round trip of the paths to the member, in nanoseconds; `None` if not measured.
    pub rtt_ns: Option<u64>,
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
        // Half arrived in 1 us, so the whole takes 2 us.
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
