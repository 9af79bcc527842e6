//! The wire behind the bottleneck: delay, loss and other faults.

use crate::config::nanoseconds;
use crate::loss::LossProcess;
use crate::{ConfigError, Dice, LinkConfig, Loss};

/// The wire behind the bottleneck. It only decides what happens to a datagram; the caller holds the
/// datagram until it arrives.
#[derive(Clone, Debug)]
pub struct Wire {
    config: LinkConfig,
    delay_ns: u64,
    extra_delay_ns: u64,
    /// Whether the wire only delays, without faults.
    only_delays: bool,
    /// Uses a stream of its own, so that a seed loses the same datagrams for any other faults.
    loss: LossProcess,
    dice: Dice,
}

/// What happens to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It is lost.
    Lost,
    /// It arrives.
    Once(Journey),
    /// It arrives, and a copy arrives after it.
    Twice(Journey, Journey),
}

/// How a datagram arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journey {
    /// Nanoseconds from the last bit sent to the last bit received.
    pub delay_ns: u64,
    /// Whether it is held back, so that later ones overtake it.
    pub held_back: bool,
    /// The bit of its UDP payload that is flipped: 8 times the index of the byte, plus the index of
    /// the bit in the byte.
    pub flipped_bit: Option<usize>,
}

impl Wire {
    /// A wire with the delay and the faults of `config`. The rate and the queue of `config` are
    /// ignored.
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
            only_delays: config.loss == Loss::None
                && [config.duplicate, config.corrupt, config.reorder.probability] == [0.0; 3],
            loss: LossProcess::new(config.loss, dice.split()),
            dice,
        })
    }

    /// Changes the delay of later datagrams.
    pub(crate) fn set_delay_ns(&mut self, delay_ns: u64) {
        self.delay_ns = delay_ns;
    }

    /// Decides what happens to the next datagram, which has `payload_bytes` of UDP payload. Its last
    /// bit is sent at `now_ns`, which must not run backward.
    pub fn carry(&mut self, now_ns: u64, payload_bytes: usize) -> Passage {
        if self.only_delays {
            return Passage::Once(Journey {
                delay_ns: self.delay_ns,
                held_back: false,
                flipped_bit: None,
            });
        }
        if self.loss.next_is_lost(now_ns) {
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
