//! Results for people.

use std::path::Path;

use super::report::{Estimate, Report, Setting};
use crate::table::lay_out;

/// A table of all settings, and where the rest is.
pub(super) fn text(report: &Report, out: &Path) -> String {
    let head = [
        "setting", "flows", "done", "mean us", "p99 us", "slowdown", "p99", "repeated", "dropped",
        "PFC",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(report.settings.iter().map(|setting| row(report, setting)));
    let out = out.display();
    format!(
        "{}\n\nOver seeds: mean and 95% confidence interval. Flows, runs, sizes and a picture: {out}",
        lay_out(&rows, 1)
    )
}

fn row(report: &Report, setting: &Setting) -> [String; 10] {
    let runs = report.runs.iter().filter(|run| {
        let (one, other) = (&run.key, &setting.key);
        (&one.topology, &one.workload, &one.switch, &one.transport)
            == (
                &other.topology,
                &other.workload,
                &other.switch,
                &other.transport,
            )
            && one.loss == other.loss
    });
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
    let key = &setting.key;
    let loss = key
        .loss
        .map_or_else(String::new, |loss| format!(" loss {loss}"));
    let names = [&key.topology, &key.workload, &key.switch, &key.transport];
    let names = names.map(String::as_str).join(" ");
    [
        format!("{names}{loss}"),
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
