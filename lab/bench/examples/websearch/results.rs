//! What came of the flows.

use farwrite_units::stats;

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
    fn measures(&self) -> [(&'static str, f64); 12] {
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
    stats::mean(times)
}

fn p90(times: &[f64]) -> f64 {
    stats::percentile(times, 90).unwrap_or(f64::NAN)
}

/// The mean over all sets of flows.
fn over(sums: &[Sum], of: impl Fn(&Sum) -> f64) -> f64 {
    stats::mean(sums.iter().map(of))
}

/// The same, of each measure, and the standard errors of times if there are several sets.
pub(crate) fn measures(sums: &[Sum]) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    for (at, (name, _)) in sums[0].measures().into_iter().enumerate() {
        let values: Vec<_> = sums.iter().map(|sum| sum.measures()[at].1).collect();
        found.push((name.to_owned(), stats::mean(&values)));
        if let Some(time) = name.strip_suffix("_us").filter(|_| sums.len() > 1) {
            found.push((format!("{time}_error_us"), stats::standard_error(&values)));
        }
    }
    found
}

pub(crate) fn print_row(name: &str, sums: &[Sum], plain: &[Sum]) {
    let short = |of: fn(&[f64]) -> f64| over(sums, |sum| of(&sum.short));
    let long = |of: fn(&[f64]) -> f64| over(sums, |sum| of(&sum.long));
    let change =
        |of: fn(&[f64]) -> f64| (short(of) / over(plain, |sum| of(&sum.short)) - 1.0) * 100.0;
    let count = |of: fn(&Sum) -> f64| over(sums, of);
    println!(
        "{name:<22} {:>9.1} {:>8.1}% {:>9.1} {:>8.1}% {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
        short(mean),
        change(mean),
        short(p90),
        change(p90),
        long(mean),
        long(p90),
        count(|sum| sum.counts.repeated as f64),
        count(|sum| sum.counts.timeouts as f64),
        count(|sum| sum.counts.dropped as f64),
    );
    if sums.len() > 1 {
        let alone = |of: fn(&[f64]) -> f64| {
            let changes = sums.iter().zip(plain);
            let changes = changes.map(|(sum, plain)| of(&sum.short) / of(&plain.short) - 1.0);
            let changes: Vec<_> = changes.map(|change| change * 100.0).collect();
            let least = changes.iter().copied().fold(f64::INFINITY, f64::min);
            let most = changes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{least:.1}% to {most:.1}%")
        };
        println!("  by set: short {}, p90 {}", alone(mean), alone(p90));
    }
    if sums[0].counts.boxes.copied > 0 {
        let most_held = sums.iter().map(|sum| sum.counts.boxes.peak_held).max();
        println!(
            "  boxes: {} requests, {} of them without a copy, {} packets repeated, {} recovered; \
             given up {}, after notices {}, at the end of the hold time {}, without room {}; most \
             held {}",
            count(|sum| sum.counts.boxes.requests_sent as f64),
            count(|sum| sum.counts.boxes.notices_sent as f64),
            count(|sum| sum.counts.boxes.repeated as f64),
            count(|sum| sum.counts.boxes.recovered as f64),
            count(|sum| sum.counts.boxes.given_up as f64),
            count(|sum| sum.counts.boxes.notices_received as f64),
            count(|sum| sum.counts.boxes.hold_ended as f64),
            count(|sum| sum.counts.boxes.held_full as f64),
            most_held.unwrap_or(0),
        );
    }
}
