//! Shows results to people.

use std::path::Path;

use farwrite_experiment::other_simulators::{ComparedFlow, Found};
use farwrite_experiment::stats::Interval;
use farwrite_units::stats::mean;

use super::compare::{ComparedSetting, ComparedSize, Comparison, ratio};
use super::report::{Key, Report, Run, Setting};
use crate::table::{cell, decimals, lay_out};
use farwrite_units::show::{Bytes, Rate};

/// A table of all settings, and the location of the other results.
pub(super) fn text(report: &Report, out: &Path) -> String {
    let head = [
        "setting", "flows", "done", "mean us", "p99 us", "slowdown", "p99", "repeated", "dropped",
        "PFC",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(report.settings.iter().map(|setting| row(report, setting)));
    let out = out.display();
    let compared = report.comparison.as_ref().map(compared).unwrap_or_default();
    let over_seeds = match report.settings.iter().any(|setting| setting.seeds > 1) {
        true => "Over seeds: mean and 95% confidence interval. ",
        false => "",
    };
    format!(
        "{}{}{}{compared}{}\n\n{over_seeds}Flows, runs, sizes and pictures: {out}",
        lay_out(&rows, 1),
        missing(report),
        endless(report),
        start_costs(report)
    )
}

/// What endpoints do at the start of a flow that `farwrite plan` does not count; empty without such
/// endpoints. Transports with the same text share a line.
fn start_costs(report: &Report) -> String {
    let mut lines: Vec<(Vec<&str>, &str)> = Vec::new();
    for costs in &report.start_costs {
        match lines.iter_mut().find(|(_, text)| *text == costs.text) {
            Some((names, _)) => names.push(&costs.transport),
            None => lines.push((vec![&costs.transport], &costs.text)),
        }
    }
    let lines = lines.into_iter();
    let lines: Vec<_> = lines
        .map(|(names, text)| format!("\n  {}: {text}", names.join(", ")))
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!(
            "\n\nTimes of endpoints include what `farwrite plan` does not count:{}",
            lines.concat()
        ),
    }
}

/// The missing bytes of flows with a deadline, by setting; empty if nothing is missing.
fn missing(report: &Report) -> String {
    let of_setting = |setting: &Setting| {
        let runs = runs_of(report, setting);
        let bytes: u64 = runs.map(|run| run.missing_bytes).sum();
        (bytes > 0).then(|| {
            let name = name(&setting.key);
            let bytes = Bytes(bytes);
            format!("\n{name}: {bytes} had not arrived when flows ended")
        })
    };
    report.settings.iter().filter_map(of_setting).collect()
}

/// The goodput of flows without an end, by setting; empty if there are none.
fn endless(report: &Report) -> String {
    let of_setting = |setting: &Setting| {
        let runs = runs_of(report, setting);
        let goodputs: Vec<_> = runs.filter_map(|run| run.endless_bps).collect();
        let (name, goodput) = (name(&setting.key), Rate(mean(&goodputs)));
        (!goodputs.is_empty()).then(|| {
            format!("\n{name}: the flows without an end together have a goodput of {goodput}")
        })
    };
    report.settings.iter().filter_map(of_setting).collect()
}

fn runs_of<'a>(report: &'a Report, setting: &'a Setting) -> impl Iterator<Item = &'a Run> {
    let runs = report.runs.iter();
    runs.filter(|run| run.key == setting.key)
}

fn name(key: &Key) -> String {
    let loss = key.loss.map(|loss| format!(" loss {loss}"));
    key.names().join(" ") + &loss.unwrap_or_default()
}

fn row(report: &Report, setting: &Setting) -> [String; 10] {
    let runs = runs_of(report, setting);
    let mut counts = [0; 5];
    for run in runs {
        let dropped = run.dropped_buffer
            + run.dropped_headroom
            + run.dropped_cable
            + run.dropped_cable_down
            + run.dropped_no_route;
        let of_run = [
            run.flows as u64,
            run.done as u64,
            run.repeated,
            dropped,
            run.pfc_frames,
        ];
        for (sum, count) in counts.iter_mut().zip(of_run) {
            *sum += count;
        }
    }
    let [flows, done, repeated, dropped, pauses] = counts.map(|count| count.to_string());
    let all = setting.sizes.last();
    let shown = |value: Option<Interval>, digits: usize| match value {
        None => "-".to_owned(),
        Some(Interval { mean, half_width }) => {
            let half = half_width.map(|half| format!(" ±{half:.digits$}"));
            format!("{mean:.digits$}{}", half.unwrap_or_default())
        }
    };
    [
        name(&setting.key),
        flows,
        done,
        shown(all.map(|all| all.fct_mean_us), 1),
        shown(all.map(|all| all.fct_p99_us), 1),
        shown(all.map(|all| all.slowdown_mean), 2),
        shown(all.map(|all| all.slowdown_p99), 2),
        repeated,
        dropped,
        pauses,
    ]
}

/// Our completion times beside those of another simulator, by setting.
fn compared(comparison: &Comparison) -> String {
    let parts = comparison.settings.iter().map(|setting| {
        let name = name(&setting.key);
        let file = &comparison.file;
        format!(
            "\n\n{name} and {file}, times in us; ratio: ours to theirs\n{}{}{}",
            sizes(setting),
            apart(setting),
            alone(setting, file)
        )
    });
    parts.collect()
}

fn sizes(setting: &ComparedSetting) -> String {
    let head = [
        "bytes", "flows", "mean", "theirs", "ratio", "p50", "theirs", "ratio", "p99", "theirs",
        "ratio",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(setting.sizes.iter().map(size_row));
    lay_out(&rows, 1)
}

fn size_row(class: &ComparedSize) -> [String; 11] {
    let (ours, theirs) = (class.ours_us, class.theirs_us);
    let [mean, p50, p99] = [
        [ours.mean, theirs.mean],
        [ours.p50, theirs.p50],
        [ours.p99, theirs.p99],
    ]
    .map(|[ours, theirs]| {
        let ratio = format!("{:.3}", ours / theirs);
        [format!("{ours:.1}"), format!("{theirs:.1}"), ratio]
    });
    let up_to = class
        .up_to_bytes
        .map_or_else(|| "all".to_owned(), |bytes| format!("up to {bytes}"));
    let [a, b, c] = mean;
    let [d, e, f] = p50;
    let [g, h, i] = p99;
    [up_to, class.flows.to_string(), a, b, c, d, e, f, g, h, i]
}

fn apart(setting: &ComparedSetting) -> String {
    let head = [
        "furthest apart",
        "run",
        "flow",
        "bytes",
        "us",
        "theirs",
        "ratio",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(setting.most_apart.iter().map(|row| {
        [
            format!("host {} to host {}", row.src, row.dst),
            row.run.to_string(),
            cell(row.flow),
            cell(row.bytes),
            decimals(row.ours_us, 1),
            decimals(row.theirs_us, 1),
            decimals(ratio(row), 3),
        ]
    }));
    match rows.len() {
        1 => String::new(),
        _ => format!("\n{}", lay_out(&rows, 1)),
    }
}

/// The flows that have a time in one simulator only, or another start there, in one line for each
/// reason.
fn alone(setting: &ComparedSetting, file: &str) -> String {
    let reasons = [
        (Found::OnlyOurs, format!("Not in {file}")),
        (Found::OnlyTheirs, format!("Only in {file}")),
        (Found::NotDone, "Not done here".to_owned()),
        (Found::NoStart, format!("Without a start in {file}")),
    ];
    let lines = reasons.into_iter().map(|(found, why)| {
        let rows = setting.without_pair.iter();
        named(&why, rows.filter(|row| row.found == found).collect())
    });
    let why = format!("Started at another time in {file} than in its input");
    let other_start = named(&why, setting.other_start.iter().collect());
    lines.chain([other_start]).collect()
}

fn named(why: &str, rows: Vec<&ComparedFlow>) -> String {
    let shown = rows.iter().take(NAMED).map(|row| alone_name(row));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match rows.len() {
        0 => String::new(),
        count if count > NAMED => {
            let more = count - NAMED;
            format!("\n  {why}: {shown} and {more} more, in compare.csv")
        }
        _ => format!("\n  {why}: {shown}"),
    }
}

/// The number of flows that a line names.
const NAMED: usize = 5;

fn alone_name(row: &ComparedFlow) -> String {
    let hosts = format!("host {} to host {}", row.src, row.dst);
    match (row.flow, row.line) {
        (Some(flow), _) => format!("flow {flow} of run {} ({hosts})", row.run),
        (None, Some(line)) => format!("line {line} ({hosts})"),
        (None, None) => hosts,
    }
}
