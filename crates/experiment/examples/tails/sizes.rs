//! OptiNIC Fig. 5: times of collectives by the size of the tensor, among 8 hosts at 25 Gbit/s.
//!
//! Collectives, other traffic and warm-ups are those of `optinic`. With a short timeout, the paper
//! has 4 to 5% missing, and times up to 5 times lower than RoCE's.

use std::error::Error;

use crate::Numbers;
use crate::measure::{BOUNDED, Subject, Table};
use crate::optinic::{COLLECTIVES, Setting, Times, WARM_UP_NS, WARM_UPS, topology};

/// Sizes of the tensor, in MB.
const SIZES_MB: [u64; 4] = [20, 40, 60, 80];

/// The transports of one collective. The short timeout is `percent` of a warm-up.
fn subjects(setting: &Setting, steps: usize, percent: u64) -> Result<Vec<Subject>, Box<dyn Error>> {
    let [adaptive, fixed, ..] = BOUNDED;
    let short = ("best effort, short timeout", adaptive.1, adaptive.2);
    let rate_bps = setting.rate_mbps * 1_000_000;
    let warm = |member| {
        let subject = Subject::bounded(member, WARM_UP_NS, rate_bps);
        let runs = setting.runs.min(WARM_UPS);
        Times::of(setting, &topology(0.0)?, &subject, (steps, runs))
    };
    let (warm_adaptive, warm_fixed) = (warm(adaptive)?, warm(fixed)?);
    let short_ns = warm_adaptive.step_ns(steps, percent as f64 / 100.0);
    Ok(vec![
        Subject::new("RoCE", "roce"),
        Subject::bounded(adaptive, warm_adaptive.timeout_ns(steps), rate_bps),
        Subject::bounded(short, short_ns, rate_bps),
        Subject::bounded(fixed, warm_fixed.timeout_ns(steps), rate_bps),
    ])
}

pub(crate) fn measure(mut numbers: Numbers) -> Result<Table, Box<dyn Error>> {
    let percent = numbers.take("short-percent", 95);
    let mut setting = Setting::parse(numbers)?;
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
            for subject in subjects(&setting, steps, percent)? {
                let times = Times::of(&setting, &topology(0.0)?, &subject, (steps, setting.runs))?;
                times.write(&mut table, (collective, tensor_mb as f64), subject.name);
            }
        }
    }
    Ok(table)
}
