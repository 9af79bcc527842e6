//! The durations that do not depend on the round trip and that both ends must share (P5.8).

use core::fmt;
use core::ops::RangeInclusive;

/// The minimum and maximum waits of a queue pair, for any round trip.
///
/// Most waits are shares of the measured round trip. These durations are their minimum and maximum
/// values, and the allowance for operating systems. Both ends of a queue pair need the same values:
/// if a sender's timeout is shorter than the receiver's pause between two ACKs, the sender repeats
/// data that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long an operating system may delay an end. Every timeout leaves this much time beyond
    /// the round trip (P5.0.7, P5.4.10). A burst takes at most half of it.
    pub lateness_ns: u64,
    /// The minimum time between two rounds of ACKs (P5.0.4), between two transmissions of the same
    /// clearance, and between later repeats of an offer (P3.8), the minimum wait before the first repeat of peer
    /// feedback (P4.10), and the longest gap between packets on a short path (P5.2.4). An eighth of it is the minimum
    /// time between two messages of peer feedback (P4.10), and the minimum wait before the first repeat of an offer, of
    /// a read, of an end and of the first clearances.
    pub min_repeat_ns: u64,
    /// The maximum time between two transmissions of the same offer or clearance (P3.8), between
    /// two pings, and between two loss messages (P4.9).
    pub max_repeat_ns: u64,
    /// The minimum time between two pings, and between two loss messages (P4.9). A receiver
    /// measures its drain rate over this time.
    pub min_ping_ns: u64,
    /// The maximum time between two attempts to reach a silent peer: probes (P5.0.9), requests for
    /// repairs (P5.2.5, P5.4.12) and pings (P4.9).
    pub max_probe_ns: u64,
    /// The time in which a pace that was reduced by drops at the receiver grows from nothing to the
    /// configured rate (P5.5.3).
    pub pace_recovery_ns: u64,
    /// The time after which an end checks again whether its fabric has room, or has sent its
    /// packets.
    pub fabric_retry_ns: u64,
}

/// A [`Timing`] that no queue pair can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// A duration that is too short to wait for, or absurdly long.
    #[error(
        "timing.{field} = {ns}: must be from {} to {} ns",
        Timing::RANGE_NS.start(),
        Timing::RANGE_NS.end()
    )]
    Range {
        /// Field of [`Timing`].
        field: &'static str,
        /// Its value in nanoseconds.
        ns: u64,
    },
    /// A floor above its ceiling.
    #[error("timing.{field} = {ns}: must be at most timing.max_repeat_ns, {max_repeat_ns}")]
    Order {
        /// Field of [`Timing`] that is the floor.
        field: &'static str,
        /// Its value in nanoseconds.
        ns: u64,
        /// The ceiling.
        max_repeat_ns: u64,
    },
}

impl Timing {
    /// The allowed range of each duration: 1 us to 1 minute.
    pub const RANGE_NS: RangeInclusive<u64> = 1_000..=60_000_000_000;

    /// For round trips of milliseconds and more, and for ends that their operating systems may
    /// delay by 10 ms. The default.
    #[must_use]
    pub const fn wide_area() -> Self {
        Self {
            lateness_ns: 10_000_000,
            min_repeat_ns: 1_000_000,
            max_repeat_ns: 250_000_000,
            min_ping_ns: 5_000_000,
            max_probe_ns: 1_000_000_000,
            pace_recovery_ns: 10_000_000_000,
            fabric_retry_ns: 50_000,
        }
    }

    /// For round trips from 10 us to 20 ms, between ends that poll without sleeping. If an end is
    /// delayed by more than 10 us, it sends unnecessary repeats, but there is no other harm.
    ///
    /// On a longer path, messages also arrive, but both ends send more than necessary: pings and
    /// loss messages every 10 ms, and, if a quarter of the round trip exceeds 10 ms, an offer for
    /// each open message every quarter of the round trip. Bursts are shorter, so system calls take
    /// more of the processor. A pace that drops have reduced recovers within 100 ms, before a
    /// distant sender can see the effect. [`Timing::wide_area`] avoids this.
    #[must_use]
    pub const fn datacenter() -> Self {
        Self {
            lateness_ns: 10_000,
            min_repeat_ns: 5_000,
            max_repeat_ns: 10_000_000,
            min_ping_ns: 200_000,
            max_probe_ns: 100_000_000,
            pace_recovery_ns: 100_000_000,
            fabric_retry_ns: 2_000,
        }
    }

    /// The durations with their names, in the order of P5.8.
    #[must_use]
    pub const fn fields(&self) -> [(&'static str, u64); 7] {
        [
            ("lateness_ns", self.lateness_ns),
            ("min_repeat_ns", self.min_repeat_ns),
            ("max_repeat_ns", self.max_repeat_ns),
            ("min_ping_ns", self.min_ping_ns),
            ("max_probe_ns", self.max_probe_ns),
            ("pace_recovery_ns", self.pace_recovery_ns),
            ("fabric_retry_ns", self.fabric_retry_ns),
        ]
    }

    /// Makes a timing from durations in the order of P5.8. Any values are possible.
    #[must_use]
    pub const fn from_values(values: [u64; 7]) -> Self {
        let [
            lateness_ns,
            min_repeat_ns,
            max_repeat_ns,
            min_ping_ns,
            max_probe_ns,
            pace_recovery_ns,
            fabric_retry_ns,
        ] = values;
        Self {
            lateness_ns,
            min_repeat_ns,
            max_repeat_ns,
            min_ping_ns,
            max_probe_ns,
            pace_recovery_ns,
            fabric_retry_ns,
        }
    }

    /// Checks every duration.
    ///
    /// # Errors
    /// The first invalid duration, with its value and the allowed range.
    pub fn validate(&self) -> Result<(), TimingError> {
        let mut fields = self.fields().into_iter();
        if let Some((field, ns)) = fields.find(|(_, ns)| !Self::RANGE_NS.contains(ns)) {
            return Err(TimingError::Range { field, ns });
        }
        let max_repeat_ns = self.max_repeat_ns;
        let floors = [
            ("min_repeat_ns", self.min_repeat_ns),
            ("min_ping_ns", self.min_ping_ns),
        ];
        match floors.into_iter().find(|&(_, ns)| ns > max_repeat_ns) {
            Some((field, ns)) => Err(TimingError::Order {
                field,
                ns,
                max_repeat_ns,
            }),
            None => Ok(()),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::wide_area()
    }
}

/// The name of the profile; for any other timing, all its durations.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::wide_area() {
            return f.write_str("wide_area");
        }
        if *self == Self::datacenter() {
            return f.write_str("datacenter");
        }
        for (i, (field, ns)) in self.fields().into_iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{field} = {ns}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn both_profiles_are_valid_and_have_names() {
        for (timing, name) in [
            (Timing::wide_area(), "wide_area"),
            (Timing::datacenter(), "datacenter"),
        ] {
            assert_eq!(timing.validate(), Ok(()));
            assert_eq!(timing.to_string(), name);
            assert_eq!(
                Timing::from_values(timing.fields().map(|(_, ns)| ns)),
                timing
            );
        }
        let other = Timing {
            lateness_ns: 123_456,
            ..Timing::datacenter()
        };
        assert!(other.to_string().starts_with("lateness_ns = 123456, min"));
    }

    #[test]
    fn a_duration_out_of_range_is_named() {
        for (index, (name, _)) in Timing::default().fields().into_iter().enumerate() {
            for ns in [0, 999, 60_000_000_001, u64::MAX] {
                let mut values = Timing::default().fields().map(|(_, ns)| ns);
                values[index] = ns;
                let error = Timing::from_values(values).validate().unwrap_err();
                assert_eq!(error, TimingError::Range { field: name, ns });
                assert!(error.to_string().contains("1000 to 60000000000 ns"));
            }
        }
    }

    #[test]
    fn a_floor_above_its_ceiling_is_named() {
        let good = Timing::datacenter();
        let max_repeat_ns = good.max_repeat_ns;
        let ns = max_repeat_ns + 1;
        for (timing, field) in [
            (
                Timing {
                    min_repeat_ns: ns,
                    ..good
                },
                "min_repeat_ns",
            ),
            (
                Timing {
                    min_ping_ns: ns,
                    ..good
                },
                "min_ping_ns",
            ),
        ] {
            let error = TimingError::Order {
                field,
                ns,
                max_repeat_ns,
            };
            assert_eq!(timing.validate(), Err(error));
        }
    }
}
