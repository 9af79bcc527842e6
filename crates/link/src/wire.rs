//! The wire behind the bottleneck: delay, loss and other faults.

use crate::config::nanoseconds;
use crate::loss::LossProcess;
use crate::{ConfigError, Dice, LinkConfig};

/// What the way behind the bottleneck does to datagrams. It decides and keeps nothing: who calls it
/// holds the datagrams until they arrive.
#[derive(Clone, Debug)]
pub struct Wire {
    config: LinkConfig,
    delay_ns: u64,
    extra_delay_ns: u64,
    /// Draws apart from the other faults: a seed loses the same datagrams whatever else happens to
    /// them.
    loss: LossProcess,
    dice: Dice,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It is lost.
    Lost,
    /// It arrives.
    Once(Journey),
    /// It arrives, and a copy of it arrives after it.
    Twice(Journey, Journey),
}

/// How a datagram arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journey {
    /// Nanoseconds from the last bit sent to the last bit received.
    pub delay_ns: u64,
    /// Whether it is held back, so that later ones overtake it.
    pub held_back: bool,
    /// The bit of its UDP payload that is flipped: 8 times the byte, plus the bit in the byte.
    pub flipped_bit: Option<usize>,
}

impl Wire {
    /// A wire with the delay and the faults of `config`; its rate and queue are not looked at.
    ///
    /// # Errors
    /// [`ConfigError`], as [`LinkConfig::validate`] gives it.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let dice = Dice::new(seed);
        Ok(Self {
            config,
            delay_ns: nanoseconds(config.delay),
            extra_delay_ns: nanoseconds(config.reorder.extra_delay),
            loss: LossProcess::new(config.loss, dice.split()),
            dice,
        })
    }

    /// Changes the delay of later datagrams.
    pub(crate) fn set_delay_ns(&mut self, delay_ns: u64) {
        self.delay_ns = delay_ns;
    }

    /// Decides on the next datagram, which has `payload_bytes` of UDP payload.
    pub fn carry(&mut self, payload_bytes: usize) -> Passage {
        if self.loss.next_is_lost() {
            return Passage::Lost;
        }
        let twice = self.dice.chance(self.config.duplicate);
        let first = self.journey(payload_bytes);
        if twice {
            Passage::Twice(first, self.journey(payload_bytes))
        } else {
            Passage::Once(first)
        }
    }

    fn journey(&mut self, payload_bytes: usize) -> Journey {
        let flip = payload_bytes > 0 && self.dice.chance(self.config.corrupt);
        let flipped_bit = flip.then(|| self.dice.below(payload_bytes.saturating_mul(8)));
        let held_back = self.dice.chance(self.config.reorder.probability);
        let extra_delay_ns = if held_back { self.extra_delay_ns } else { 0 };
        Journey {
            delay_ns: self.delay_ns.saturating_add(extra_delay_ns),
            held_back,
            flipped_bit,
        }
    }
}
