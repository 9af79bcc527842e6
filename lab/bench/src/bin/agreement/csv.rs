//! The times of all cells as CSV, for figures.

use crate::cell::Cell;
use crate::verdict::Comparison;
use farwrite_units::stats;

const HEAD: &str = "scheme,bytes,sites,rate_bps,rtt_s,loss_packet,burst,mtu,samples,seed,mean_s,error_s,p99_s,p999_s,\
     p999_low_s,p999_high_s,model_s,model_p999_s";
/// A binomial number is within this number of standard deviations of its mean with a probability of
/// 95%.
const INTERVAL: f64 = 1.96;

/// One row per cell. `sites` is empty for single messages. `error_s` is the standard error of the
/// mean, and `model_s` the mean of the model with the waits of the protocol. A quantile needs ten
/// samples above it; otherwise it is empty, as is its interval of 95%.
pub(crate) fn text(cells: &[Cell], comparisons: &[Comparison]) -> String {
    let rows = cells.iter().zip(comparisons);
    let rows: String = rows.map(|(cell, of)| row(cell, of) + "\n").collect();
    format!("{HEAD}\n{rows}")
}

fn row(cell: &Cell, comparison: &Comparison) -> String {
    let times_s = &comparison.times_s;
    let quantile = |q: f64, least: usize| match times_s.len() {
        count if count >= least => {
            format!("{:.9}", stats::quantile(times_s, q).unwrap_or(f64::NAN))
        }
        _ => String::new(),
    };
    // The number of samples below the true quantile is binomial.
    #[expect(clippy::cast_precision_loss, reason = "few samples")]
    let width = INTERVAL * (0.999 * 0.001 / times_s.len() as f64).sqrt();
    format!(
        "\"{}\",{},{},{},{},{},{},{},{},{},{:.9},{:.9},{},{},{},{},{:.9},{}",
        cell.scheme,
        cell.bytes,
        cell.sites
            .map_or_else(String::new, |sites| sites.to_string()),
        cell.rate_bps,
        cell.rtt_s,
        cell.loss_packet,
        cell.burst_text(),
        cell.mtu,
        cell.samples,
        cell.seed,
        comparison.mean.measured_s,
        stats::standard_error(times_s),
        quantile(0.99, 1_000),
        quantile(0.999, 10_000),
        quantile(0.999 - width, 10_000),
        quantile(0.999 + width, 10_000),
        comparison.mean.model_s,
        match comparison.tail {
            Some((0.999, value)) => format!("{:.9}", value.model_s),
            _ => String::new(),
        },
    )
}
