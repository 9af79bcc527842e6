//! Links that change while they run.

use alloc::vec::Vec;
use core::time::Duration;

use crate::config::{check_delay, check_rate, nanoseconds};
use crate::schedule::Schedule;
use crate::{ConfigError, LinkConfig, Policer, Variation};

/// A change of a link at a known time.
///
/// A new rate applies at once to all queued bits. Everything else applies to datagrams that leave
/// the queue from then on. After a change to a shorter delay, later datagrams overtake earlier ones,
/// as after a change of the route, unless the link has a variation that keeps the order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Time of the change, in the caller's clock; at most [`MAX_DELAY`](crate::MAX_DELAY).
    pub at: Duration,
    /// The new rate, as [`LinkConfig::rate_bps`]; `None`: no change.
    pub rate_bps: Option<u64>,
    /// The new delay, as [`LinkConfig::delay`]; `None`: no change.
    pub delay: Option<Duration>,
    /// The new variation, as [`LinkConfig::variation`]; `None`: no change.
    pub variation: Option<Variation>,
    /// The new policer, as [`LinkConfig::policer`], with a full bucket; `None`: no change.
    /// [`Policer::UNLIMITED`] ends policing.
    pub policer: Option<Policer>,
}

/// What changes in a link over time.
#[derive(Clone, Debug)]
pub(crate) struct Schedules {
    /// `None`: unlimited.
    pub(crate) rate_bps: Option<Schedule<u64>>,
    pub(crate) wire: WireSchedules,
}

/// What changes behind the bottleneck.
#[derive(Clone, Debug)]
pub(crate) struct WireSchedules {
    pub(crate) delay_ns: Schedule<u64>,
    pub(crate) variation: Schedule<Variation>,
    pub(crate) policer: Schedule<Option<Policer>>,
}

impl Schedules {
    /// The schedules of a validated configuration and of steps in any order.
    pub(crate) fn new(config: &LinkConfig, steps: &[Step]) -> Result<Self, ConfigError> {
        let mut rate_bps = config.rate_bps.map(Schedule::constant);
        let mut wire = WireSchedules {
            delay_ns: Schedule::constant(nanoseconds(config.delay)),
            variation: Schedule::constant(config.variation),
            policer: Schedule::constant(config.policer),
        };
        let mut steps: Vec<_> = steps.iter().collect();
        steps.sort_by_key(|step| step.at);
        for step in steps {
            check_delay("step.at", step.at)?;
            let at_ns = nanoseconds(step.at);
            if let Some(delay) = step.delay {
                check_delay("step.delay", delay)?;
                wire.delay_ns.change(at_ns, nanoseconds(delay));
            }
            if let Some(variation) = step.variation {
                variation.validate()?;
                wire.variation.change(at_ns, variation);
            }
            if let Some(policer) = step.policer {
                policer.validate()?;
                wire.policer.change(at_ns, Some(policer));
            }
            if let Some(value) = step.rate_bps {
                check_rate(value)?;
                let Some(rate_bps) = &mut rate_bps else {
                    return Err(ConfigError::UnlimitedStep { value });
                };
                rate_bps.change(at_ns, value);
            }
        }
        Ok(Self { rate_bps, wire })
    }
}
