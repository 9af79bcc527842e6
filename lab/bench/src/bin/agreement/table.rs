//! Prints the comparison as lines.

use std::io::Write;
use std::time::Duration;

use crate::cell::Cell;
use crate::verdict::{ComparedValue, Comparison, Deviation};

pub(crate) fn print_head() {
    println!(
        "{:>47} | {:>42} | {:>48}",
        "", "mean, ms", "p99 or p99.9, ms"
    );
    println!(
        "{:>7} {:>5} {:>5} {:>6} {:>5} {:<11} {:>2} | {} | {:>5} {}",
        "KiB",
        "sites",
        "rtt",
        "loss",
        "burst",
        "scheme",
        "",
        numbers_head(),
        "",
        numbers_head(),
    );
}

fn numbers_head() -> String {
    format!(
        "{:>8} {:>8} {:>6} {:>6} {:>2} {:>7}",
        "sent", "model", "dev %", "chance", "", "paper %"
    )
}

pub(crate) fn print_row(cell: &Cell, comparison: &Comparison) {
    let tail = match &comparison.tail {
        Some((q, pair)) => format!("{:>5} {}", format!("p{}", q * 100.0), numbers(pair)),
        None => String::new(),
    };
    println!(
        "{:>7} {:>5} {:>5} {:>6.0e} {:>5} {:<14} | {} | {tail}",
        cell.bytes >> 10,
        cell.sites
            .map_or_else(String::new, |sites| sites.to_string()),
        cell.rtt_s * 1e3,
        cell.loss_packet,
        cell.burst_text(),
        cell.scheme.to_string(),
        numbers(&comparison.mean),
    );
    // Flush, so that rows of a long run appear at once.
    let _ = std::io::stdout().flush();
}

/// Prints a histogram of the times of messages or rings, in eighths of a round trip.
pub(crate) fn print_spectrum(cell: &Cell, comparison: &Comparison) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of round trips is positive and small"
    )]
    let eighths = |time_s: &f64| (time_s / cell.rtt_s * 8.0).round() as u32;
    let times_s = &comparison.times_s;
    for alike in times_s.chunk_by(|one, other| eighths(one) == eighths(other)) {
        let round_trips = f64::from(eighths(&alike[0])) / 8.0;
        println!("{round_trips:>12.3} round trips: {}", alike.len());
    }
}

fn numbers(pair: &ComparedValue) -> String {
    let mark = match pair.verdict {
        Deviation::Within => "",
        Deviation::Chance => "~",
        Deviation::Beyond => "!!",
    };
    format!(
        "{:>8.2} {:>8.2} {:>+6.1} {:>6.1} {mark:>2} {:>+7.1}",
        pair.measured_s * 1e3,
        pair.model_s * 1e3,
        pair.deviation() * 1e2,
        pair.chance * 1e2,
        pair.paper_deviation() * 1e2,
    )
}

pub(crate) fn print_end(comparisons: &[Comparison], took: Duration) {
    let count = |verdict| {
        let pairs = comparisons.iter().flat_map(Comparison::pairs);
        pairs.filter(|pair| pair.verdict == verdict).count()
    };
    println!(
        "{} within the goal, {} (~) beyond it by chance, {} (!!) beyond it; {:.0} s",
        count(Deviation::Within),
        count(Deviation::Chance),
        count(Deviation::Beyond),
        took.as_secs_f64()
    );
}
