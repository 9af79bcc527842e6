//! What came of the flows.

use crate::racks::Outcome;

/// The results of a way.
#[derive(Clone, Default)]
pub(crate) struct Sum {
    /// Completion times in us, ascending.
    pub(crate) short: Vec<f64>,
    pub(crate) long: Vec<f64>,
    /// Counts of NICs, boxes and cables.
    pub(crate) counts: Outcome,
}

impl Sum {
    pub(crate) fn measures(&self) -> [(&'static str, f64); 12] {
        let (counts, boxes) = (&self.counts, &self.counts.boxes);
        [
            ("short_mean_us", mean(&self.short)),
            ("short_p90_us", p90(&self.short)),
            ("long_mean_us", mean(&self.long)),
            ("long_p90_us", p90(&self.long)),
            ("repeated", counts.repeated as f64),
            ("timeouts", counts.timeouts as f64),
            ("dropped", counts.dropped as f64),
            ("box_requests", boxes.requests_sent as f64),
            ("box_without_copy", boxes.notices_sent as f64),
            ("box_repeated", boxes.repeated as f64),
            ("box_recovered", boxes.recovered as f64),
            ("box_given_up", boxes.given_up as f64),
        ]
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn p90(times: &[f64]) -> f64 {
    times[(times.len() * 9).div_ceil(10) - 1]
}

pub(crate) fn print_row(name: &str, sum: &Sum, plain: &Sum) {
    let change = |of: fn(&[f64]) -> f64| (of(&sum.short) / of(&plain.short) - 1.0) * 100.0;
    let counts = &sum.counts;
    println!(
        "{name:<22} {:>9.1} {:>8.1}% {:>9.1} {:>8.1}% {:>9.0} {:>9.0} {:>9} {:>9} {:>9}",
        mean(&sum.short),
        change(mean),
        p90(&sum.short),
        change(p90),
        mean(&sum.long),
        p90(&sum.long),
        counts.repeated,
        counts.timeouts,
        counts.dropped,
    );
    let boxes = &counts.boxes;
    if boxes.copied > 0 {
        println!(
            "  boxes: {} requests, {} of them without a copy, {} packets repeated, {} recovered; \
             given up {}, after notices {}, at the end of the hold time {}, without room {}; most \
             held {}",
            boxes.requests_sent,
            boxes.notices_sent,
            boxes.repeated,
            boxes.recovered,
            boxes.given_up,
            boxes.notices_received,
            boxes.hold_ended,
            boxes.held_full,
            boxes.peak_held,
        );
    }
}
