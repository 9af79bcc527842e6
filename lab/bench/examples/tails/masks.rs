//! Which bytes the `AllReduce`s of `losses` lack at the compared loss, message by message: the losses of a training.
//!
//! A row is a message of a step. It has the number of the collective (its seed), the step, the host that receives the
//! message, the bytes of the message, and the ranges of them that had not arrived when the step ended.

use std::error::Error;
use std::fmt::Write as _;
use std::ops::Range;

use farwrite_experiment::{FlowOutcome, Outcome};

use crate::losses::{COMPARED, OF_HOSTS, panels};
use crate::measure::{BOUNDED, Subject};
use crate::optinic::{COLLECTIVES, HOSTS, Setting, Times, WARM_UP_NS, WARM_UPS, topology};
use crate::xp::timeout_ns as xp_timeout_ns;

pub(crate) fn rows(setting: Setting, small_kb: u64) -> Result<String, Box<dyn Error>> {
    let (_, steps) = COLLECTIVES[0];
    let topology = topology(COMPARED)?;
    let mut rows = "panel,series,run,step,host,bytes,missing\n".to_owned();
    let [alone, _, small] = panels(&setting, small_kb);
    for panel in [alone, small] {
        let own = panel.of(&setting);
        let subjects = subjects(&setting, &own, steps)?;
        let measured = |outcome: &Outcome| masks(outcome, steps);
        let runs = (steps, own.runs);
        let collectives = own.run_all(&topology, &subjects, runs, measured)?;
        for (subject, collectives) in subjects.iter().zip(collectives) {
            for (run, messages) in (1..).zip(collectives) {
                for (number, missing) in messages.iter().enumerate() {
                    let (step, host) = (number / HOSTS, (number % HOSTS + 1) % HOSTS);
                    let ranges = missing.iter().map(|of| format!("{}-{}", of.start, of.end));
                    let ranges = ranges.collect::<Vec<_>>().join(" ");
                    let (panel, series, bytes) = (panel.name, subject.name, own.part_bytes());
                    writeln!(
                        rows,
                        r#""{panel}","{series}",{run},{step},{host},{bytes},{ranges}"#
                    )?;
                }
            }
        }
    }
    Ok(rows)
}

/// The series of O3V, with their timeouts in `losses`. `own` is the setting of the panel.
fn subjects(
    setting: &Setting,
    own: &Setting,
    steps: usize,
) -> Result<[Subject; 2], Box<dyn Error>> {
    let [_, _, _, _, eqds] = BOUNDED;
    let warm_up = [Subject::bounded(eqds, WARM_UP_NS, 0)];
    let runs = (steps, own.runs.min(WARM_UPS));
    let warm = Times::of(own, &topology(COMPARED)?, &warm_up, runs)?;
    let (name, complete_by) = OF_HOSTS[0];
    // With the buffer that is not small.
    let buffer_kb = setting.buffer_kb;
    let timeout_ns = xp_timeout_ns(&Setting { buffer_kb, ..*own }, steps)?;
    Ok([
        Subject::bounded(eqds, warm[0].timeout_ns(steps), 0),
        Subject::xp_of_hosts(name, complete_by, timeout_ns),
    ])
}

/// What is missing of each message of a collective. `None` if a message has not ended.
fn masks(outcome: &Outcome, steps: usize) -> Option<Vec<Vec<Range<u64>>>> {
    let missing = |(number, flow): (usize, &FlowOutcome)| {
        flow.time_ns()?;
        Some(outcome.missing.get(&number).cloned().unwrap_or_default())
    };
    let flows = outcome.flows.get(..steps * HOSTS)?;
    flows.iter().enumerate().map(missing).collect()
}
