//! OptiNIC Fig. 5: times of collectives by the size of the tensor, among 8 hosts at 25 Gbit/s.
//!
//! Collectives, other traffic and warm-ups are those of `optinic`. With a short timeout, the paper
//! has 4 to 5% missing, and times up to 5 times lower than RoCE's.

use std::error::Error;

use crate::measure::{BOUNDED, Subject, Table};
use crate::optinic::{COLLECTIVES, Setting, Times, topology, warm_up};

/// Sizes of the tensor, in MB.
pub(crate) const SIZES_MB: [u64; 4] = [20, 40, 60, 80];

/// The series with a short timeout. The others of [`BOUNDED`] have none.
const SHORT: [(&str, &str); 3] = [
    ("best effort", "best effort, short timeout"),
    ("best effort, Swift", "best effort, Swift, short timeout"),
    ("best effort, EQDS", "best effort, EQDS, short timeout"),
];

/// The transports of one collective. The short timeout is `percent` of a warm-up.
fn subjects(setting: &Setting, steps: usize, percent: u64) -> Result<Vec<Subject>, Box<dyn Error>> {
    let [adaptive, fixed, _, swift, eqds] = BOUNDED;
    let rate_bps = setting.rate_bps();
    let mut subjects = vec![Subject::new("RoCE", "roce")];
    let members = [adaptive, fixed, swift, eqds];
    let warm = warm_up(setting, 0.0, &members, steps)?;
    for (member, warm) in members.into_iter().zip(warm) {
        subjects.push(Subject::bounded(member, warm.timeout_ns(steps), rate_bps));
        if let Some((_, name)) = SHORT.into_iter().find(|(of, _)| *of == member.0) {
            let short_ns = warm.step_ns(steps, percent as f64 / 100.0);
            subjects.push(Subject::bounded(
                (name, member.1, member.2),
                short_ns,
                rate_bps,
            ));
        }
    }
    Ok(subjects)
}

pub(crate) fn measure(mut setting: Setting, percent: u64) -> Result<Table, Box<dyn Error>> {
    let mut table = Table::new(
        format!(
            "{}; timeout of a step: 1.25 warm-ups and 50 us; short: {percent}% of a warm-up",
            setting.conditions("20 to 80 MB")
        ),
        "O5",
    );
    for (collective, steps) in COLLECTIVES {
        for tensor_mb in SIZES_MB {
            setting.tensor_mb = tensor_mb;
            let subjects = subjects(&setting, steps, percent)?;
            let runs = (steps, setting.runs);
            let times = Times::of(&setting, &topology(0.0)?, &subjects, runs)?;
            for (subject, times) in subjects.iter().zip(times) {
                times.write(&mut table, (collective, tensor_mb as f64), subject.name);
            }
        }
    }
    Ok(table)
}
