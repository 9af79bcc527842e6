//! XP, the NIC model of `OptiNIC`'s transport with DCQCN, in the networks of `optinic` and `sizes`.

use std::error::Error;

use crate::measure::{LOSSES, Subject, Table};
use crate::optinic::{COLLECTIVES, Setting, Times, topology, warm_up};
use crate::sizes::SIZES_MB;

/// The name in the figures, the protocol, and whether it has a fixed rate.
pub(crate) const XP: (&str, &str, bool) = ("XP", "xp", false);
/// The same with a short timeout.
const SHORT: (&str, &str, bool) = ("XP, short timeout", "xp", false);

/// The timeout of a step of XP: from warm-ups on cables without losses. If the last packet of a message is lost, only
/// the timeout ends its step, so warm-ups with losses would measure their own timeout.
pub(crate) fn timeout_ns(setting: &Setting, steps: usize) -> Result<u64, Box<dyn Error>> {
    Ok(warm_up(setting, 0.0, &[XP], steps)?[0].timeout_ns(steps))
}

/// The rows of `optinic`, and those of `sizes` with another number of runs.
pub(crate) fn measure(setting: Setting, percent: u64, runs: u64) -> Result<Table, Box<dyn Error>> {
    let tensor = format!("{} MB", setting.tensor_mb);
    let mut table = Table::new(setting.conditions(&tensor), "O6");
    for (collective, steps) in COLLECTIVES {
        let timeout_ns = timeout_ns(&setting, steps)?;
        for (loss, loss_packet) in LOSSES {
            let panel = format!("{collective}, {loss}");
            let timeout_ms = timeout_ns as f64 / 1e6;
            table.add(&panel, XP.0, 0.0, "timeout_ms", timeout_ms);
            let subject = [Subject::bounded(XP, timeout_ns, 0)];
            let runs = (steps, setting.runs);
            let times = Times::of(&setting, &topology(loss_packet)?, &subject, runs)?;
            times[0].write(&mut table, (&panel, 0.0), XP.0);
        }
    }
    let setting = Setting { runs, ..setting };
    table.turn_to("O5", setting.conditions("20 to 80 MB"));
    for (collective, steps) in COLLECTIVES {
        for tensor_mb in SIZES_MB {
            let setting = Setting {
                tensor_mb,
                ..setting
            };
            let warm = warm_up(&setting, 0.0, &[XP], steps)?;
            let short_ns = warm[0].step_ns(steps, percent as f64 / 100.0);
            let subjects = [(XP, warm[0].timeout_ns(steps)), (SHORT, short_ns)];
            let subjects = subjects.map(|(of, timeout_ns)| Subject::bounded(of, timeout_ns, 0));
            let times = Times::of(&setting, &topology(0.0)?, &subjects, (steps, runs))?;
            for (subject, times) in subjects.iter().zip(times) {
                times.write(&mut table, (collective, tensor_mb as f64), subject.name);
            }
        }
    }
    Ok(table)
}
