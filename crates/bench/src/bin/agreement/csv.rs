//! The times of all cells as CSV, for figures.

use crate::cell::Cell;
use crate::verdict::Comparison;
use farwrite_units::stats;

const HEAD: &str =
    "scheme,bytes,sites,rate_bps,rtt_s,loss_packet,burst,mtu,samples,seed,mean_s,p99_s,p999_s";

/// One row per cell. `sites` is empty for single messages. A quantile needs ten samples above it;
/// otherwise it is empty.
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
    format!(
        "\"{}\",{},{},{},{},{},{},{},{},{},{:.9},{},{}",
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
        quantile(0.99, 1_000),
        quantile(0.999, 10_000),
    )
}
