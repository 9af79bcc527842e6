//! The wire behind the bottleneck: policer, delay, loss and other faults.

use crate::config::nanoseconds;
use crate::loss::LossProcess;
use crate::policer::Policing;
use crate::variation::Varying;
use crate::{ConfigError, LinkConfig, Loss, Policer, Rng, Variation};

/// The wire behind the bottleneck. It only decides what happens to a datagram; the caller holds the
/// datagram until it arrives.
#[derive(Clone, Debug)]
pub struct Wire {
    config: LinkConfig,
    delay_ns: u64,
    extra_delay_ns: u64,
    /// Whether the wire only delays, without faults.
    only_delays: bool,
    policing: Option<Policing>,
    varying: Varying,
    /// Uses a stream of its own, so that a seed loses the same datagrams for any other faults.
    loss: LossProcess,
    rng: Rng,
}

/// What happens to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The policer drops it.
    Policed,
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
        let rng = Rng::new(seed);
        Ok(Self {
            config,
            delay_ns: nanoseconds(config.delay),
            extra_delay_ns: nanoseconds(config.reorder.extra_delay),
            only_delays: config.loss == Loss::None
                && [config.duplicate, config.corrupt, config.reorder.probability] == [0.0; 3],
            policing: config.policer.map(Policing::new),
            // The link uses the third stream for marks.
            varying: Varying::new(config.variation, rng.split().split().split()),
            loss: LossProcess::new(config.loss, rng.split()),
            rng,
        })
    }

    /// Changes the delay of later datagrams.
    pub(crate) fn set_delay_ns(&mut self, delay_ns: u64) {
        self.delay_ns = delay_ns;
    }

    /// Changes the variation of later datagrams.
    pub(crate) fn set_variation(&mut self, variation: Variation) {
        self.varying.set(variation);
    }

    /// Changes the policer. The bucket of another policer starts full.
    pub(crate) fn set_policer(&mut self, policer: Option<Policer>) {
        if self.policing.as_ref().map(Policing::policer) != policer {
            self.policing = policer.map(Policing::new);
        }
    }

    /// Decides what happens to the next datagram, which has `ip_bytes` and within them
    /// `payload_bytes` of UDP payload. Its last bit is sent at `now_ns`, which must not run backward.
    pub fn carry(&mut self, now_ns: u64, ip_bytes: u64, payload_bytes: usize) -> Passage {
        if let Some(policing) = &mut self.policing
            && !policing.admits(now_ns, ip_bytes)
        {
            return Passage::Policed;
        }
        if self.only_delays {
            return Passage::Once(Journey {
                delay_ns: self.varying.delay_ns(now_ns, self.delay_ns),
                held_back: false,
                flipped_bit: None,
            });
        }
        if self.loss.next_is_lost(now_ns, ip_bytes) {
            return Passage::Lost;
        }
        let delay_ns = self.varying.delay_ns(now_ns, self.delay_ns);
        let twice = self.rng.chance(self.config.duplicate);
        let first = self.journey(delay_ns, payload_bytes);
        if twice {
            Passage::Twice(first, self.journey(delay_ns, payload_bytes))
        } else {
            Passage::Once(first)
        }
    }

    fn journey(&mut self, delay_ns: u64, payload_bytes: usize) -> Journey {
        let flip = payload_bytes > 0 && self.rng.chance(self.config.corrupt);
        let flipped_bit = flip.then(|| self.rng.below(payload_bytes.saturating_mul(8)));
        let held_back = self.rng.chance(self.config.reorder.probability);
        let extra_delay_ns = if held_back { self.extra_delay_ns } else { 0 };
        Journey {
            delay_ns: delay_ns.saturating_add(extra_delay_ns),
            held_back,
            flipped_bit,
        }
    }
}
