//! The command-line syntax of what differs on the way back, and of what changes with time.

use std::path::PathBuf;
use std::time::Duration;

use farwrite_link::{Policer, Reorder, Step, Variation};
use farwrite_units::parse::{parse_delay, parse_duration, parse_loss, parse_rate, parse_rtt};

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
            Some(("rate", value)) => once(&mut back.rate, parse_rate(value)?, part)?,
            Some(("delay", value)) => once(&mut back.delay, parse_delay(value)?, part)?,
            Some(("queue", value)) => once(&mut back.queue, value.parse()?, part)?,
            Some(("loss", value)) => once(&mut back.loss, parse_loss(value)?, part)?,
            Some(("reorder", value)) => once(&mut back.reorder, parse_reorder(value)?, part)?,
            Some(("vary", value)) => once(&mut back.variation, parse_variation(value)?, part)?,
            Some(("police", value)) => once(&mut back.policer, parse_policer(value)?, part)?,
            Some(("trace", value)) => once(&mut back.trace, value.into(), part)?,
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

/// Parses a change of one direction, or of both: the steps forward and back.
pub(super) fn parse_step(text: &str) -> Result<[Step; 2], String> {
    let (at, changes) = text
        .split_once(':')
        .ok_or("not a step; write it like 10s:rate=250Mbit")?;
    let step = Step {
        at: parse_duration(at)?,
        ..Step::default()
    };
    let [mut forward, mut back] = [step; 2];
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
    Ok([forward, back])
}

/// Adds a change to a step of one direction.
fn set(step: &mut Step, change: &str) -> Result<(), String> {
    match change.split_once('=') {
        Some(("rate", value)) => once(&mut step.rate_bps, parse_rate(value)?, change),
        Some(("rtt", value)) => once(&mut step.delay, parse_rtt(value)? / 2, change),
        Some(("delay", value)) => once(&mut step.delay, parse_delay(value)?, change),
        Some(("vary", value)) => once(&mut step.variation, parse_variation(value)?, change),
        Some(("police", value)) => once(&mut step.policer, parse_policer(value)?, change),
        _ => Err(format!(
            "{change:?}: a step changes rate, rtt, delay, vary and police, of one direction as in \
             back.rate; write it like 10s:rate=250Mbit"
        )),
    }
}

/// Sets a value that was not set before.
fn once<T>(place: &mut Option<T>, value: T, text: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{text:?}: this changes a value of one direction again; give it once (rtt and delay are one value, and \
             without back. or forward., a change is of both directions)"
        )),
    }
}
