//! The command-line syntax of what differs on the way back, and of what changes with time.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use farwrite_link::{Policer, Reorder, Step, Variation};
use farwrite_units::parse::{parse_duration, parse_loss, parse_rate, parse_rtt};

use super::quantities::{Queue, parse_policer, parse_reorder, parse_variation};

/// The reverse direction, where it differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Back {
    pub(super) rate: Option<u64>,
    pub(super) delay: Option<Duration>,
    pub(super) queue: Option<Queue>,
    pub(super) loss: Option<f64>,
    pub(super) reorder: Option<Reorder>,
    pub(super) variation: Option<Variation>,
    pub(super) policer: Option<Policer>,
    pub(super) trace: Option<PathBuf>,
}

pub(super) fn parse_back(text: &str) -> Result<Back, String> {
    let mut back = Back::default();
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("rate", value)) => back.rate = Some(parse_rate(value)?),
            Some(("delay", value)) => back.delay = Some(parse_rtt(value)?),
            Some(("queue", value)) => back.queue = Some(value.parse()?),
            Some(("loss", value)) => back.loss = Some(parse_loss(value)?),
            Some(("reorder", value)) => back.reorder = Some(parse_reorder(value)?),
            Some(("vary", value)) => back.variation = Some(parse_variation(value)?),
            Some(("police", value)) => back.policer = Some(parse_policer(value)?),
            Some(("trace", value)) => back.trace = Some(value.into()),
            _ => {
                return Err(format!(
                    "{part:?}: the way back has rate, delay, queue, loss, reorder, vary, police and \
                     trace; write it like loss=0,rate=100Mbit"
                ));
            }
        }
    }
    if back.rate.is_some() && back.trace.is_some() {
        return Err("the way back has a rate or a trace, not both".to_owned());
    }
    Ok(back)
}

/// A change of one direction, or of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepAt {
    pub(super) forward: Step,
    pub(super) back: Step,
}

impl FromStr for StepAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, changes) = text
            .split_once(':')
            .ok_or("not a step; write it like 10s:rate=250Mbit")?;
        let step = Step {
            at: parse_duration(at)?,
            ..Step::default()
        };
        let (mut forward, mut back) = (step, step);
        for change in changes.split(',') {
            if let Some(change) = change.strip_prefix("forward.") {
                set(&mut forward, change)?;
            } else if let Some(change) = change.strip_prefix("back.") {
                set(&mut back, change)?;
            } else {
                set(&mut forward, change)?;
                set(&mut back, change)?;
            }
        }
        Ok(Self { forward, back })
    }
}

/// Adds a change to a step of one direction.
fn set(step: &mut Step, change: &str) -> Result<(), String> {
    match change.split_once('=') {
        Some(("rate", value)) => step.rate_bps = Some(parse_rate(value)?),
        Some(("rtt", value)) => step.delay = Some(parse_rtt(value)? / 2),
        Some(("delay", value)) => step.delay = Some(parse_rtt(value)?),
        Some(("vary", value)) => step.variation = Some(parse_variation(value)?),
        Some(("police", value)) => step.policer = Some(parse_policer(value)?),
        _ => {
            return Err(format!(
                "{change:?}: a step changes rate, rtt, delay, vary and police, of one direction as in \
                 back.rate; write it like 10s:rate=250Mbit"
            ));
        }
    }
    Ok(())
}
