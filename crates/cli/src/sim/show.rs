//! Shows results to people.

use std::path::Path;

use super::report::{Estimate, Key, Report, Setting};
use crate::table::lay_out;
use farwrite_units::show::Bytes;

/// A table of all settings, and the location of the other results.
pub(super) fn text(report: &Report, out: &Path) -> String {
    let head = [
        "setting", "flows", "done", "mean us", "p99 us", "slowdown", "p99", "repeated", "dropped",
        "PFC",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(report.settings.iter().map(|setting| row(report, setting)));
    let out = out.display();
    format!(
        "{}{}\n\nOver seeds: mean and 95% confidence interval. Flows, runs, sizes and a picture: {out}",
        lay_out(&rows, 1),
        missing(report)
    )
}

/// The missing bytes of flows with a deadline, by setting; empty if nothing is missing.
fn missing(report: &Report) -> String {
    let of_setting = |setting: &Setting| {
        let runs = report
            .runs
            .iter()
            .filter(|run| is_of(&run.key, &setting.key));
        let bytes: u64 = runs.map(|run| run.missing_bytes).sum();
        (bytes > 0).then(|| {
            let name = name(&setting.key);
            format!(
                "\n{name}: {} had not arrived at the deadlines of flows",
                Bytes(bytes)
            )
        })
    };
    report.settings.iter().filter_map(of_setting).collect()
}

fn is_of(one: &Key, other: &Key) -> bool {
    (&one.topology, &one.workload, &one.switch, &one.transport)
        == (
            &other.topology,
            &other.workload,
            &other.switch,
            &other.transport,
        )
        && one.loss == other.loss
}

fn name(key: &Key) -> String {
    let loss = key
        .loss
        .map_or_else(String::new, |loss| format!(" loss {loss}"));
    let names = [&key.topology, &key.workload, &key.switch, &key.transport];
    let names = names.map(String::as_str).join(" ");
    format!("{names}{loss}")
}

fn row(report: &Report, setting: &Setting) -> [String; 10] {
    let runs = report
        .runs
        .iter()
        .filter(|run| is_of(&run.key, &setting.key));
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
    let shown = |value: Option<Estimate>, digits: usize| match value {
        None => "-".to_owned(),
        Some(Estimate { mean, ci95: None }) => format!("{mean:.digits$}"),
        Some(Estimate {
            mean,
            ci95: Some(half),
        }) => format!("{mean:.digits$} ±{half:.digits$}"),
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
