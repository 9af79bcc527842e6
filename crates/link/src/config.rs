//! The configuration of a link.

use core::time::Duration;

use crate::{Loss, Policer, Ramp, Variation};

/// Longest delay that a link may have: one day.
pub const MAX_DELAY: Duration = Duration::from_secs(86_400);
/// Highest rate of a link, in bits a second. A faster link must be unlimited.
pub const MAX_RATE_BPS: u64 = 1_000_000_000_000_000_000;

/// The configuration of one direction of a path. The default is a perfect link: no delay, no limit,
/// no fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Time from the last bit sent to the last bit received; at most [`MAX_DELAY`].
    pub delay: Duration,
    /// Bits of IP datagrams a second, 1 to [`MAX_RATE_BPS`]; `None`: unlimited.
    pub rate_bps: Option<u64>,
    /// Limit of the queue in bytes of IP datagrams, including the datagram that is being sent. A
    /// datagram that would exceed the limit is dropped, but an idle link accepts any datagram.
    /// `None`: unlimited. Without a rate, there is no queue.
    pub queue_bytes: Option<u64>,
    /// Limit of the queue in datagrams; otherwise like `queue_bytes`.
    pub queue_packets: Option<u64>,
    /// Limit of the time that a datagram waits before its first bit is sent; at most [`MAX_DELAY`].
    /// Otherwise like `queue_bytes`.
    pub queue_time: Option<Duration>,
    /// The probability of an ECN mark, by the length of the queue in bytes when a datagram arrives.
    /// Datagrams that are not ECN-capable pass unmarked. `None`: no marks.
    pub ecn: Option<Ramp>,
    /// A rate above which datagrams are dropped behind the queue: a dropped datagram has used its
    /// share of the rate. `None`: no policer.
    pub policer: Option<Policer>,
    /// Losses behind the queue and the policer: a lost datagram has used its share of the rate.
    pub loss: Loss,
    /// A delay that changes with time, in addition to `delay`.
    pub variation: Variation,
    /// Datagrams held back.
    pub reorder: Reorder,
    /// Probability that a datagram arrives twice. The copy is made behind the bottleneck and
    /// follows the original. Corruption and reordering are drawn for each of them.
    pub duplicate: f64,
    /// Probability that one bit of a datagram's UDP payload is flipped. All bits are equally
    /// likely.
    pub corrupt: f64,
}

/// Datagrams that are held back, so that later ones overtake them. All others stay in order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Probability that a datagram is held back.
    pub probability: f64,
    /// How long it is held back; at most [`MAX_DELAY`].
    pub extra_delay: Duration,
}

/// A direction of a path between end A and end B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkDirection {
    /// From end A to end B.
    #[error("forward")]
    Forward,
    /// From end B to end A.
    #[error("backward")]
    Backward,
}

/// Why a [`LinkConfig`] is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A probability outside 0 to 1, or not a number.
    #[error("link {field} = {value}: a probability lies in 0 to 1")]
    Probability {
        /// The name of the field.
        field: &'static str,
        /// The given value.
        value: f64,
    },
    /// A mean time in a state of the losses, or a deviation, of zero.
    #[error("link {field} = 0s: this time must be more than 0")]
    Mean {
        /// The name of the field.
        field: &'static str,
    },
    /// A rate of zero or beyond [`MAX_RATE_BPS`].
    #[error(
        "link rate_bps = {value}: a rate lies in 1 to {MAX_RATE_BPS} bit/s; leave it out for an unlimited link"
    )]
    Rate {
        /// The given value.
        value: u64,
    },
    /// A step of the rate on a link without a rate.
    #[error("link step.rate_bps = {value}: an unlimited link has no rate to change; give it one")]
    UnlimitedStep {
        /// The given value.
        value: u64,
    },
    /// A rate, or a step of the rate, of a link that follows a trace.
    #[error("link rate_bps = {value}: the trace is the rate of the link; leave the rate out")]
    TracedRate {
        /// The given value.
        value: u64,
    },
    /// A ramp of marks whose start is above its end.
    #[error("link ecn.low_bytes = {low} is above ecn.high_bytes = {high}")]
    Ramp {
        /// The given `low_bytes`.
        low: u64,
        /// The given `high_bytes`.
        high: u64,
    },
    /// A delay beyond [`MAX_DELAY`].
    #[error("link {field} = {value:?}: a delay is at most {MAX_DELAY:?}")]
    Delay {
        /// The name of the field.
        field: &'static str,
        /// The given value.
        value: Duration,
    },
}

impl LinkConfig {
    /// Checks all fields.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is out of its range, and its value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_delay("delay", self.delay)?;
        check_delay("reorder.extra_delay", self.reorder.extra_delay)?;
        if let Some(value) = self.rate_bps {
            check_rate(value)?;
        }
        if let Some(value) = self.queue_time {
            check_delay("queue_time", value)?;
        }
        if let Some(ecn) = self.ecn {
            let Ramp {
                low_bytes: low,
                high_bytes: high,
                most,
            } = ecn;
            if low > high {
                return Err(ConfigError::Ramp { low, high });
            }
            check_probability("ecn.most", most)?;
        }
        if let Some(policer) = self.policer {
            policer.validate()?;
        }
        check_loss(self.loss)?;
        self.variation.validate()?;
        check_probability("reorder.probability", self.reorder.probability)?;
        check_probability("duplicate", self.duplicate)?;
        check_probability("corrupt", self.corrupt)
    }
}

fn check_loss(loss: Loss) -> Result<(), ConfigError> {
    match loss {
        Loss::None => Ok(()),
        Loss::Iid { loss_packet } => check_probability("loss.loss_packet", loss_packet),
        Loss::BitErrors { bit_error_rate } => {
            check_probability("loss.bit_error_rate", bit_error_rate)
        }
        Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
        } => {
            check_probability("loss.p_good_to_bad", p_good_to_bad)?;
            check_probability("loss.p_bad_to_good", p_bad_to_good)?;
            check_probability("loss.loss_good", loss_good)?;
            check_probability("loss.loss_bad", loss_bad)
        }
        Loss::MarkovInTime {
            mean_good,
            mean_bad,
            loss_good,
            loss_bad,
        } => {
            for (field, value) in [("loss.mean_good", mean_good), ("loss.mean_bad", mean_bad)] {
                if value.is_zero() {
                    return Err(ConfigError::Mean { field });
                }
            }
            check_probability("loss.loss_good", loss_good)?;
            check_probability("loss.loss_bad", loss_bad)
        }
    }
}

pub(crate) fn check_probability(field: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Probability { field, value })
    }
}

pub(crate) fn check_rate(value: u64) -> Result<(), ConfigError> {
    if (1..=MAX_RATE_BPS).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Rate { value })
    }
}

/// A validated time in nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn check_delay(field: &'static str, value: Duration) -> Result<(), ConfigError> {
    if value <= MAX_DELAY {
        Ok(())
    } else {
        Err(ConfigError::Delay { field, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;
    use std::string::ToString;

    #[test]
    fn the_default_and_the_extremes_are_valid() {
        assert_eq!(LinkConfig::default().validate(), Ok(()));
        let extreme = LinkConfig {
            delay: MAX_DELAY,
            rate_bps: Some(MAX_RATE_BPS),
            queue_bytes: Some(0),
            queue_packets: Some(0),
            queue_time: Some(MAX_DELAY),
            ecn: Some(Ramp::step(u64::MAX)),
            policer: Some(Policer {
                rate_bps: MAX_RATE_BPS,
                burst_bytes: u64::MAX,
            }),
            loss: Loss::Iid { loss_packet: 1.0 },
            variation: Variation {
                spread: Spread::Normal {
                    deviation: MAX_DELAY,
                    most: MAX_DELAY,
                },
                every: MAX_DELAY,
                overtakes: true,
            },
            reorder: Reorder {
                probability: 1.0,
                extra_delay: MAX_DELAY,
            },
            duplicate: 1.0,
            corrupt: 1.0,
        };
        assert_eq!(extreme.validate(), Ok(()));
    }

    fn bit_errors(bit_error_rate: f64) -> Loss {
        Loss::BitErrors { bit_error_rate }
    }

    #[test]
    fn errors_name_the_field_and_the_value() {
        type Spoil = fn(&mut LinkConfig);
        fn markov(values: [f64; 4]) -> Loss {
            Loss::Markov {
                p_good_to_bad: values[0],
                p_bad_to_good: values[1],
                loss_good: values[2],
                loss_bad: values[3],
            }
        }
        fn ramp(low_bytes: u64, high_bytes: u64, most: f64) -> Ramp {
            Ramp {
                low_bytes,
                high_bytes,
                most,
            }
        }
        let cases: [(Spoil, &str); 16] = [
            (
                |c| c.queue_time = Some(MAX_DELAY * 2),
                "queue_time = 172800s",
            ),
            (
                |c| c.ecn = Some(ramp(2, 1, 0.5)),
                "ecn.low_bytes = 2 is above ecn.high_bytes = 1",
            ),
            (|c| c.ecn = Some(ramp(1, 2, 1.5)), "ecn.most = 1.5"),
            (|c| c.duplicate = -0.1, "duplicate = -0.1"),
            (|c| c.corrupt = f64::NAN, "corrupt = NaN"),
            (|c| c.loss = bit_errors(-0.1), "loss.bit_error_rate = -0.1"),
            (
                |c| c.loss = Loss::Iid { loss_packet: 1.5 },
                "loss.loss_packet = 1.5",
            ),
            (
                |c| c.loss = markov([2.0, 0.0, 0.0, 0.0]),
                "loss.p_good_to_bad = 2",
            ),
            (
                |c| c.loss = markov([0.0, 2.0, 0.0, 0.0]),
                "loss.p_bad_to_good = 2",
            ),
            (
                |c| c.loss = markov([0.0, 0.0, 2.0, 0.0]),
                "loss.loss_good = 2",
            ),
            (
                |c| c.loss = markov([0.0, 0.0, 0.0, 2.0]),
                "loss.loss_bad = 2",
            ),
            (|c| c.reorder.probability = 7.0, "reorder.probability = 7"),
            (
                |c| c.reorder.extra_delay = MAX_DELAY * 2,
                "reorder.extra_delay = 172800s",
            ),
            (|c| c.delay = MAX_DELAY * 2, "delay = 172800s"),
            (|c| c.rate_bps = Some(0), "rate_bps = 0"),
            (
                |c| c.rate_bps = Some(u64::MAX),
                "rate_bps = 18446744073709551615",
            ),
        ];
        for (spoil, want) in cases {
            let mut config = LinkConfig::default();
            spoil(&mut config);
            let text = config.validate().expect_err(want).to_string();
            assert!(text.contains(want), "{text:?} lacks {want:?}");
        }
    }
    #[test]
    fn errors_name_what_is_wrong_with_states_in_time() {
        const S: Duration = Duration::from_secs(1);
        for (mean_good, mean_bad, loss_good, loss_bad, want) in [
            (Duration::ZERO, S, 0.0, 1.0, "loss.mean_good = 0s"),
            (S, Duration::ZERO, 0.0, 1.0, "loss.mean_bad = 0s"),
            (S, S, -1.0, 1.0, "loss.loss_good = -1"),
            (S, S, 0.0, 2.0, "loss.loss_bad = 2"),
        ] {
            let loss = Loss::MarkovInTime {
                mean_good,
                mean_bad,
                loss_good,
                loss_bad,
            };
            let config = LinkConfig {
                loss,
                ..LinkConfig::default()
            };
            let text = config.validate().expect_err(want).to_string();
            assert!(text.contains(want), "{text:?} lacks {want:?}");
        }
    }
}
