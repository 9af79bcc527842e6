//! Draws completion times and slowdowns as a picture (SVG), with one line for each setting.

use std::ops::Range;

use farwrite_experiment::plan::CaseOutcome;
use farwrite_experiment::stats::Interval;
use farwrite_experiment::{FlowEnd, FlowOutcome, Outcome};
use farwrite_units::show::real;

use super::report::{Key, Report, Setting, SizeClass};
use crate::chart::{Chart, Scale, WIDTH, height_with_legend, write_legend};
use crate::svg::Svg;

/// One for each colour.
const MAX_LINES: usize = COLOURS.len();
/// A line of the distribution has at most this number of steps.
const STEPS: usize = 400;
/// The colours of Okabe and Ito, which differ for colour-blind readers too.
pub(super) const COLOURS: [&str; 7] = [
    "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#57606a",
];
/// The line of another simulator.
const DASHED: &str = r##"stroke="#000000" stroke-dasharray="5 4""##;

/// The attributes of a line of a colour.
pub(super) fn style(colour: &str) -> String {
    format!(r#"stroke="{colour}" stroke-width="2""#)
}

/// One line of the distribution of completion times.
#[derive(Debug)]
struct Distribution {
    label: String,
    /// The times of completed flows in microseconds, ascending.
    times_us: Vec<f64>,
    /// All flows that statistics count, completed or not.
    flows: usize,
}

/// Draws the share of flows that are done within a time. If flows have different sizes, a second
/// panel has the slowdowns by size. Returns `None` if no flow is done.
pub(super) fn draw(report: &Report, outcomes: &[CaseOutcome]) -> Option<String> {
    let labels = labels(&report.settings);
    let of_settings = outcomes.chunk_by(|one, other| one.case.setting == other.case.setting);
    let ours = of_settings.zip(&labels).take(MAX_LINES);
    let ours: Vec<_> = ours
        .map(|(cases, label)| Distribution::of(label, cases))
        .collect();
    if ours.iter().all(|line| line.times_us.is_empty()) {
        return None;
    }
    let drawn = &report.settings[..ours.len()];
    let has_classes = drawn.iter().any(|at| of_one_size(at).len() > 1);
    let theirs = theirs(report);
    let others = report.settings.len() - ours.len();
    let lines = ours.len() + usize::from(theirs.is_some()) + usize::from(others > 0);
    let height = height_with_legend(lines);
    let charts = if has_classes { 2 } else { 1 };
    let mut svg = Svg::begin((WIDTH * charts, height), "Completion times");
    write_distributions(&mut svg, &ours, theirs.as_ref(), others);
    if has_classes {
        write_slowdowns(&mut svg, drawn);
    }
    Some(svg.finish())
}

impl Distribution {
    fn of(label: &str, cases: &[CaseOutcome]) -> Self {
        let outcomes = cases.iter().filter_map(|case| case.outcome.as_ref().ok());
        let flows: Vec<_> = outcomes.flat_map(Outcome::measured).collect();
        let is_done = |flow: &&&FlowOutcome| matches!(flow.end, FlowEnd::Done { .. });
        let done = flows.iter().filter(is_done);
        let times = done.filter_map(|flow| flow.time_ns().map(|ns| real(ns) / 1e3));
        Self {
            label: label.to_owned(),
            times_us: ascending(times.collect()),
            flows: flows.len(),
        }
    }

    /// The corners of the steps.
    fn points(&self) -> Vec<(f64, f64)> {
        let every = self.times_us.len().div_ceil(STEPS).max(1);
        let last = self.times_us.len().saturating_sub(1);
        let times = self.times_us.iter().enumerate();
        let chosen = times.filter(move |(at, _)| at % every == 0 || *at == last);
        let mut share = 0.0;
        let steps = chosen.flat_map(|(at, time)| {
            let before = share;
            share = (at + 1) as f64 / self.flows as f64;
            [(*time, before), (*time, share)]
        });
        steps.collect()
    }
}

/// The times of the other simulator. Each run of ours is compared with all of them.
fn theirs(report: &Report) -> Option<Distribution> {
    let comparison = report.comparison.as_ref()?;
    let run = comparison.rows.first()?.run;
    let rows = comparison.rows.iter().filter(|row| row.run == run);
    let times_us = ascending(
        rows.filter_map(|row| row.theirs_us)
            .filter(|us| *us > 0.0)
            .collect(),
    );
    let name = std::path::Path::new(&comparison.file).file_name();
    let label = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let flows = times_us.len();
    (flows > 0).then_some(Distribution {
        label,
        times_us,
        flows,
    })
}

fn write_distributions(
    svg: &mut Svg,
    ours: &[Distribution],
    theirs: Option<&Distribution>,
    others: usize,
) {
    let times = ours.iter().chain(theirs).flat_map(|line| &line.times_us);
    let chart = Chart {
        caption: "Share of flows that are done within a time",
        x_label: "completion time, us (log scale)",
        y_label: "share of flows",
        x: Scale::Log(bounds(times.copied())),
        y: Scale::Linear(0.0..1.02),
    };
    chart.draw(svg, 0, |svg| {
        let mut legend = Vec::new();
        for (line, colour) in ours.iter().zip(COLOURS) {
            let style = style(colour);
            chart.line(svg, line.points(), &style);
            legend.push((line.label.clone(), style));
        }
        if let Some(theirs) = theirs {
            chart.line(svg, theirs.points(), DASHED);
            legend.push((theirs.label.clone(), DASHED.to_owned()));
        }
        if others > 0 {
            let text = format!("not drawn: {others} more settings, which the files have");
            legend.push((text, r#"stroke="none""#.to_owned()));
        }
        write_legend(svg, &legend);
    });
}

fn write_slowdowns(svg: &mut Svg, settings: &[Setting]) {
    let classes = || settings.iter().flat_map(of_one_size);
    let values = classes().flat_map(|class| {
        let [mean, p99] = [class.slowdown_mean, class.slowdown_p99].map(ends);
        [mean.start, mean.end, p99.start, p99.end]
    });
    let chart = Chart {
        caption: "Slowdown: mean, p99 (hollow), 95% intervals over seeds",
        x_label: "messages of up to this number of bytes (log scale)",
        y_label: "slowdown (log scale)",
        x: Scale::Log(bounds(classes().map(up_to))),
        y: Scale::Log(bounds(values)),
    };
    let means: fn(&SizeClass) -> Interval = |class| class.slowdown_mean;
    let p99s: fn(&SizeClass) -> Interval = |class| class.slowdown_p99;
    chart.draw(svg, WIDTH, |svg| {
        for (setting, colour) in settings.iter().zip(COLOURS) {
            let style = format!(r#"stroke="{colour}""#);
            for (value, fill) in [(means, colour), (p99s, "#ffffff")] {
                let points = of_one_size(setting).iter();
                let points: Vec<_> = points.map(|at| (up_to(at), value(at))).collect();
                let line = points.iter().map(|(bytes, at)| (*bytes, at.mean));
                chart.line(svg, line.clone(), &style);
                for (bytes, at) in &points {
                    let ends = ends(*at);
                    chart.line(svg, [(*bytes, ends.start), (*bytes, ends.end)], &style);
                }
                for point in line {
                    chart.circle(svg, point, fill, colour);
                }
            }
        }
    });
}

/// The size classes of a setting, without the last one, which has all sizes.
fn of_one_size(setting: &Setting) -> &[SizeClass] {
    setting.sizes.split_last().map_or(&[], |(_, rest)| rest)
}

/// The place of a class on the axis. The class without an upper bound follows that of 100 MB.
fn up_to(class: &SizeClass) -> f64 {
    class.up_to_bytes.map_or(1e9, real)
}

/// The ends of the confidence interval. No slowdown is below 1, except those of small inaccuracies.
fn ends(Interval { mean, half_width }: Interval) -> Range<f64> {
    let half = half_width.unwrap_or(0.0);
    (mean - half).max(mean.min(1.0))..mean + half
}

/// The names by which settings differ; if there is one setting, its transport.
fn labels(settings: &[Setting]) -> Vec<String> {
    let names = |key: &Key| {
        let loss = key.loss.map(|loss| format!("loss {loss}"));
        let names = key.names().map(str::to_owned).into_iter();
        names.chain([loss.unwrap_or_default()]).collect::<Vec<_>>()
    };
    let names: Vec<_> = settings.iter().map(|setting| names(&setting.key)).collect();
    let differs = |part: usize| names.iter().any(|at| at[part] != names[0][part]);
    let parts: Vec<_> = (0..5).filter(|part| differs(*part)).collect();
    let parts = if parts.is_empty() { vec![3] } else { parts };
    let label = |names: &Vec<String>| {
        let differing: Vec<_> = parts.iter().map(|part| names[*part].as_str()).collect();
        differing.join(" ").trim().to_owned()
    };
    names.iter().map(label).collect()
}

fn ascending(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The range of positive values, with a margin.
fn bounds(values: impl Iterator<Item = f64>) -> Range<f64> {
    let positive = values.filter(|value| *value > 0.0);
    let (low, high) = positive.fold((f64::INFINITY, f64::MIN_POSITIVE), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    low.min(high) / 1.25..high * 1.25
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_has_no_logarithm_is_not_on_the_axis() {
        assert_eq!(bounds([0.0, 8.0, -3.0].into_iter()), 6.4..10.0);
    }
}
