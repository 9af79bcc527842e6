//! Delay that varies.

use core::time::Duration;

use crate::config::{check_delay, check_probability, nanoseconds};
use crate::{ConfigError, Rng};

/// An odd number far from the increments of the generator that turns a seed into a state, so that
/// the streams of two slots have nothing in common.
const SLOT_STRIDE: u64 = 0xa24b_aed4_963e_e407;

/// A delay in addition to the constant delay of a link, which changes with time: as on Wi-Fi, in
/// mobile networks, and over satellites that move. The default adds nothing, and draws nothing.
///
/// The delay of a slot depends only on the seed and on the number of the slot, and not on what is
/// sent. So different senders meet the same delays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Variation {
    /// How the additional delay is distributed.
    pub spread: Spread,
    /// Length of a slot: all datagrams whose last bit is sent in the same slot get the same
    /// additional delay. Slots begin at time 0. At most [`MAX_DELAY`](crate::MAX_DELAY); 0: each
    /// datagram gets a delay of its own.
    pub every: Duration,
    /// Whether a datagram may overtake another one. If not, a datagram arrives no earlier than the
    /// one before it: after a slot with a long delay, many arrive at the same instant.
    pub overtakes: bool,
}

/// The distribution of an additional delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Spread {
    /// No additional delay.
    #[default]
    None,
    /// Uniform from 0 to `most`.
    Uniform {
        /// The longest additional delay.
        most: Duration,
    },
    /// A normal distribution with mean 0, truncated at 0 and at `most`. Most additional delays
    /// are below the deviation, and some are two or three times the deviation.
    Normal {
        /// The standard deviation before the truncation, more than 0.
        deviation: Duration,
        /// The longest additional delay.
        most: Duration,
    },
    /// No additional delay in most slots, and one that is uniform from 0 to `most` in the others.
    Spikes {
        /// Probability that a slot has an additional delay.
        share: f64,
        /// The longest additional delay.
        most: Duration,
    },
}

impl Variation {
    /// No variation: the default.
    pub const NONE: Self = Self {
        spread: Spread::None,
        every: Duration::ZERO,
        overtakes: false,
    };

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check_delay("variation.every", self.every)?;
        match self.spread {
            Spread::None => Ok(()),
            Spread::Uniform { most } => check_delay("variation.most", most),
            Spread::Normal { deviation, most } => {
                if deviation.is_zero() {
                    return Err(ConfigError::Mean {
                        field: "variation.deviation",
                    });
                }
                check_delay("variation.deviation", deviation)?;
                check_delay("variation.most", most)
            }
            Spread::Spikes { share, most } => {
                check_probability("variation.share", share)?;
                check_delay("variation.most", most)
            }
        }
    }
}

impl Spread {
    fn draw_ns(self, rng: &mut Rng) -> u64 {
        match self {
            Self::None => 0,
            Self::Uniform { most } => rng.up_to(nanoseconds(most)),
            Self::Normal { deviation, most } => rng.half_normal_ns(deviation, most),
            Self::Spikes { share, most } => {
                if rng.chance(share) {
                    rng.up_to(nanoseconds(most))
                } else {
                    0
                }
            }
        }
    }
}

/// A running variation.
#[derive(Clone, Debug)]
pub(crate) struct Varying {
    variation: Variation,
    /// Draws for datagrams with a delay of their own.
    rng: Rng,
    /// The seed of the slots.
    slots: u64,
    /// The last slot that was drawn, and its additional delay.
    drawn: Option<(u64, u64)>,
    /// When the last datagram that stays in order arrives.
    last_ns: u64,
}

impl Varying {
    pub(crate) fn new(variation: Variation, mut rng: Rng) -> Self {
        let slots = rng.bits();
        Self {
            variation,
            rng,
            slots,
            drawn: None,
            last_ns: 0,
        }
    }

    /// Changes the variation of later datagrams.
    pub(crate) fn set(&mut self, variation: Variation) {
        if self.variation != variation {
            self.variation = variation;
            self.drawn = None;
        }
    }

    /// The whole delay of a datagram whose last bit is sent at `now_ns`, over a link with the
    /// constant delay `delay_ns`.
    pub(crate) fn delay_ns(&mut self, now_ns: u64, delay_ns: u64) -> u64 {
        if self.variation.spread == Spread::None {
            // The order also stays at the end of a variation.
            return delay_ns.max(self.last_ns.saturating_sub(now_ns));
        }
        let delay_ns = delay_ns.saturating_add(self.extra_ns(now_ns));
        if self.variation.overtakes {
            return delay_ns;
        }
        self.last_ns = self.last_ns.max(now_ns.saturating_add(delay_ns));
        self.last_ns - now_ns
    }

    fn extra_ns(&mut self, now_ns: u64) -> u64 {
        let Variation { spread, every, .. } = self.variation;
        if every.is_zero() {
            return spread.draw_ns(&mut self.rng);
        }
        let slot = now_ns / nanoseconds(every);
        match self.drawn {
            Some((drawn, extra_ns)) if drawn == slot => extra_ns,
            _ => {
                let mut rng = Rng::new(self.slots ^ slot.wrapping_mul(SLOT_STRIDE));
                let extra_ns = spread.draw_ns(&mut rng);
                self.drawn = Some((slot, extra_ns));
                extra_ns
            }
        }
    }
}
