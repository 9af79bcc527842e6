//! Configuration of a cable.

use std::time::Duration;

use farwrite_link::{ConfigError, LinkConfig, Loss, MAX_DELAY, Policer, Variation, Wire};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A cable, the same in both directions except for its rate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { rate = \"100Gbit\", delay = \"1us\" }"
)]
pub struct CableConfig {
    /// Bits a second from the first end to the second, and also back if `back_rate_bps` is `None`.
    #[serde(rename = "rate", deserialize_with = "rate")]
    pub rate_bps: u64,
    /// Bits a second from the second end to the first.
    #[serde(default, rename = "back_rate", deserialize_with = "back_rate")]
    pub back_rate_bps: Option<u64>,
    /// Time from the last bit sent to the last bit received.
    #[serde(deserialize_with = "delay")]
    pub delay: Duration,
    /// Probability model of frame loss. A lost frame still occupies the cable for its transmission
    /// time. Damaged frames count as lost, because the receiving port drops them by their Ethernet
    /// check sequence.
    #[serde(default, deserialize_with = "crate::units::loss")]
    pub loss: Loss,
    /// A delay that changes with time, in addition to `delay`. The two directions have different
    /// ones. PFC frames have only the constant delay.
    #[serde(default, deserialize_with = "crate::units::variation")]
    pub variation: Variation,
    /// A rate above which the cable drops frames, by their bytes with framing. Such frames count as
    /// lost by the cable.
    #[serde(default, deserialize_with = "crate::units::policer")]
    pub policer: Option<Policer>,
}

// The parser names the key of the cable, and not the key in it. So these errors name it.

pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let rate_bps = crate::units::rate(from);
    rate_bps.map_err(|why| D::Error::custom(format!("rate: {why}")))
}

pub(crate) fn back_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let rate_bps = crate::units::rate(from);
    let rate_bps = rate_bps.map_err(|why| D::Error::custom(format!("back_rate: {why}")));
    rate_bps.map(Some)
}

pub(crate) fn delay<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    match crate::units::time(from) {
        Ok(delay) if delay > MAX_DELAY => {
            let most = humantime::format_duration(MAX_DELAY);
            Err(D::Error::custom(format!(
                "delay: a delay is at most {most}"
            )))
        }
        Ok(delay) => Ok(delay),
        Err(why) => Err(D::Error::custom(format!("delay: {why}"))),
    }
}

impl CableConfig {
    /// A cable that loses nothing, and has a constant delay.
    #[must_use]
    pub const fn new(rate_bps: u64, delay: Duration) -> Self {
        Self {
            rate_bps,
            back_rate_bps: None,
            delay,
            loss: Loss::None,
            variation: Variation::NONE,
            policer: None,
        }
    }

    /// Bits a second from the second end to the first.
    #[must_use]
    pub fn back_bps(&self) -> u64 {
        self.back_rate_bps.unwrap_or(self.rate_bps)
    }

    /// The same cable with its ends exchanged.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            rate_bps: self.back_bps(),
            back_rate_bps: self.back_rate_bps.map(|_| self.rate_bps),
            ..*self
        }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`ConfigError`] from [`LinkConfig::validate`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.link().validate()?;
        self.reversed().link().validate()
    }

    /// The delay in nanoseconds. A validated delay is at most one day.
    pub(crate) fn delay_ns(&self) -> u64 {
        u64::try_from(self.delay.as_nanos()).unwrap_or(u64::MAX)
    }

    /// One direction, behind the port that sends into it; `None` if the cable loses nothing and has a
    /// constant delay.
    pub(crate) fn wire(&self, seed: u64) -> Result<Option<Box<Wire>>, ConfigError> {
        let wire = Wire::new(self.link(), seed)?;
        let is_plain =
            self.loss == Loss::None && self.variation == Variation::NONE && self.policer.is_none();
        Ok((!is_plain).then(|| Box::new(wire)))
    }

    fn link(&self) -> LinkConfig {
        LinkConfig {
            delay: self.delay,
            rate_bps: Some(self.rate_bps),
            loss: self.loss,
            variation: self.variation,
            policer: self.policer,
            ..LinkConfig::default()
        }
    }
}
