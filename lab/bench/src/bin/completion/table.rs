//! Prints the results as lines.

use farwrite::SchemeName;
use farwrite_units::stats::{mean, median, percentile};

use crate::path::Path;

/// Messages of one size and scheme at one loss.
pub(crate) struct Row {
    scheme: SchemeName,
    bytes: u64,
    loss_packet: f64,
    burst: u32,
    /// Times in seconds, ascending.
    times_s: Vec<f64>,
    /// Ideal time, including the parity of the scheme.
    ideal_s: f64,
    /// Ideal time without parity.
    bare_s: f64,
}

impl Row {
    pub(crate) fn new(path: &Path, scheme: SchemeName, bytes: u64, mut times_s: Vec<f64>) -> Self {
        times_s.sort_by(f64::total_cmp);
        Self {
            scheme,
            bytes,
            loss_packet: path.loss_packet,
            burst: path.burst,
            ideal_s: path.ideal_s(bytes + path.parity_bytes(scheme, bytes)),
            bare_s: path.ideal_s(bytes),
            times_s,
        }
    }

    fn mean_s(&self) -> f64 {
        mean(&self.times_s)
    }

    /// The 99th percentile: the smallest time that 99 of 100 messages do not exceed.
    fn p99_s(&self) -> f64 {
        percentile(&self.times_s, 99).unwrap_or(f64::NAN)
    }

    pub(crate) fn print(&self) {
        println!(
            "{:>9} {:>7.0e} {:>5} {:<12} {:>9.2} {:>9.2} {:>9.2} {:>7.3} {:>7.3} {:>7.3} {:>7.3}",
            self.bytes >> 10,
            self.loss_packet,
            self.burst,
            self.scheme.to_string(),
            self.mean_s() * 1e3,
            median(&self.times_s) * 1e3,
            self.p99_s() * 1e3,
            self.mean_s() / self.ideal_s,
            self.p99_s() / self.ideal_s,
            self.mean_s() / self.bare_s,
            self.p99_s() / self.bare_s,
        );
    }
}

pub(crate) fn print_head() {
    println!(
        "{:>9} {:>7} {:>5} {:<12} {:>9} {:>9} {:>9} {:>15} {:>15}",
        "", "", "", "", "", "", "", "/ with parity", "/ size only"
    );
    println!(
        "{:>9} {:>7} {:>5} {:<12} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7}",
        "KiB", "loss", "burst", "scheme", "mean ms", "median", "p99", "mean", "p99", "mean", "p99"
    );
}

/// Prints the best scheme, and how much worse the others are.
pub(crate) fn print_best(rows: &[Row]) {
    let best = rows.iter().min_by(|a, b| a.mean_s().total_cmp(&b.mean_s()));
    let Some(best) = best else { return };
    let others = rows.iter().filter(|row| row.scheme != best.scheme);
    let others = others.map(|row| format!("{} {:.2}x", row.scheme, row.mean_s() / best.mean_s()));
    println!(
        "{:>23} best on the mean: {}; {}",
        "",
        best.scheme,
        others.collect::<Vec<_>>().join(", ")
    );
}
