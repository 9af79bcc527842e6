//! Draws completion times and slowdowns as a picture (SVG), with one line for each setting.

use std::ops::Range;

use farwrite_experiment::plan::CaseOutcome;
use farwrite_experiment::{FlowEnd, FlowOutcome};
use farwrite_units::show::real;
use plotters::chart::SeriesLabelPosition;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{Estimate, Key, Report, Setting, SizeClass};

const WIDTH: u32 = 620;
const HEIGHT: u32 = 400;
/// One for each colour.
const MAX_LINES: usize = COLOURS.len();
/// A line of the distribution has at most this number of steps.
const STEPS: usize = 400;
/// The colours of Okabe and Ito, which differ for colour-blind readers too.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x57, 0x60, 0x6a),
];

const FONT: (&str, u32) = ("sans-serif", 16);
const SMALL_FONT: (&str, u32) = ("sans-serif", 13);

/// Why a picture was not drawn.
type Why = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line of the distribution of completion times.
#[derive(Debug)]
struct Distribution {
    label: String,
    /// The times of completed flows in microseconds, ascending.
    times_us: Vec<f64>,
    /// All flows, completed or not.
    flows: usize,
}

/// Draws the share of flows that are done within a time. If flows have different sizes, a second
/// panel has the slowdowns by size. Returns `None` if no flow is done.
pub(super) fn draw(report: &Report, outcomes: &[CaseOutcome]) -> Result<Option<String>, Why> {
    let labels = labels(&report.settings);
    let of_settings = outcomes.chunk_by(|one, other| one.case.setting == other.case.setting);
    let ours = of_settings.zip(&labels).take(MAX_LINES);
    let ours: Vec<_> = ours
        .map(|(cases, label)| Distribution::of(label, cases))
        .collect();
    if ours.iter().all(|line| line.times_us.is_empty()) {
        return Ok(None);
    }
    let has_classes = report.settings.iter().any(|at| of_one_size(at).len() > 1);
    let panels = if has_classes { 2 } else { 1 };
    let mut svg = String::new();
    {
        let size = (WIDTH * panels, HEIGHT);
        let picture = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        picture.fill(&WHITE)?;
        let areas = picture.split_evenly((1, panels as usize));
        draw_distributions(&areas[0], &ours, theirs(report).as_ref())?;
        if let Some(area) = areas.get(1) {
            draw_slowdowns(area, &report.settings)?;
        }
        picture.present()?;
    }
    Ok(Some(svg))
}

impl Distribution {
    fn of(label: &str, cases: &[CaseOutcome]) -> Self {
        let outcomes = cases.iter().filter_map(|case| case.outcome.as_ref().ok());
        let flows: Vec<_> = outcomes.flat_map(|outcome| &outcome.flows).collect();
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
    let times_us = ascending(rows.filter_map(|row| row.theirs_us).collect());
    let name = std::path::Path::new(&comparison.file).file_name();
    let label = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let flows = times_us.len();
    (flows > 0).then_some(Distribution {
        label,
        times_us,
        flows,
    })
}

fn draw_distributions(
    area: &Area<'_>,
    ours: &[Distribution],
    theirs: Option<&Distribution>,
) -> Result<(), Why> {
    let times = ours.iter().chain(theirs).flat_map(|line| &line.times_us);
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .caption("Share of flows that are done within a time", FONT)
        .build_cartesian_2d(bounds(times.copied()).log_scale(), 0.0..1.02)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(SMALL_FONT)
        .x_desc("completion time, us (log scale)")
        .y_desc("share of flows")
        .x_label_formatter(&|value| number(*value))
        .draw()?;
    for (line, colour) in ours.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(line.points(), colour.stroke_width(2)))?
            .label(&line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    if let Some(theirs) = theirs {
        let points = theirs.points().into_iter();
        let series = DashedLineSeries::new(points, 5, 4, BLACK.into());
        chart
            .draw_series(series)?
            .label(format!("{} (dashed)", theirs.label))
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK));
    }
    chart
        .configure_series_labels()
        .label_font(SMALL_FONT)
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(0x8c, 0x95, 0x9f))
        .draw()?;
    Ok(())
}

fn draw_slowdowns(area: &Area<'_>, settings: &[Setting]) -> Result<(), Why> {
    let settings = &settings[..settings.len().min(MAX_LINES)];
    let classes = || settings.iter().flat_map(of_one_size);
    let values = classes().flat_map(|class| {
        let [mean, p99] = [class.slowdown_mean, class.slowdown_p99].map(ends);
        [mean.start, mean.end, p99.start, p99.end]
    });
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .caption(
            "Slowdown: mean, p99 (hollow), 95% intervals over seeds",
            FONT,
        )
        .build_cartesian_2d(
            bounds(classes().map(up_to)).log_scale(),
            bounds(values).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(SMALL_FONT)
        .x_desc("messages of up to this number of bytes (log scale)")
        .y_desc("slowdown (log scale)")
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (setting, colour) in settings.iter().zip(COLOURS) {
        for (value, fill) in [
            (mean as fn(&SizeClass) -> Estimate, colour),
            (p99 as fn(&SizeClass) -> Estimate, WHITE),
        ] {
            let points = of_one_size(setting).iter();
            let points: Vec<_> = points.map(|at| (up_to(at), value(at))).collect();
            let line = points.iter().map(|(bytes, at)| (*bytes, at.mean));
            chart.draw_series(LineSeries::new(line.clone(), colour))?;
            chart.draw_series(points.iter().map(|(bytes, at)| {
                let ends = ends(*at);
                PathElement::new([(*bytes, ends.start), (*bytes, ends.end)], colour)
            }))?;
            chart.draw_series(line.clone().map(|at| Circle::new(at, 4, fill.filled())))?;
            chart.draw_series(line.map(|at| Circle::new(at, 4, colour)))?;
        }
    }
    Ok(())
}

fn mean(class: &SizeClass) -> Estimate {
    class.slowdown_mean
}

fn p99(class: &SizeClass) -> Estimate {
    class.slowdown_p99
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
fn ends(estimate: Estimate) -> Range<f64> {
    let half = estimate.ci95.unwrap_or(0.0);
    (estimate.mean - half).max(estimate.mean.min(1.0))..estimate.mean + half
}

/// The names by which settings differ; if there is one setting, its transport.
fn labels(settings: &[Setting]) -> Vec<String> {
    let names = |key: &Key| {
        let loss = key
            .loss
            .map_or_else(String::new, |loss| format!("loss {loss}"));
        [
            &key.topology,
            &key.workload,
            &key.switch,
            &key.transport,
            &loss,
        ]
        .map(String::clone)
    };
    let names: Vec<_> = settings.iter().map(|setting| names(&setting.key)).collect();
    let differs = |part: usize| names.iter().any(|at| at[part] != names[0][part]);
    let parts: Vec<_> = (0..5).filter(|part| differs(*part)).collect();
    let parts = if parts.is_empty() { vec![3] } else { parts };
    names
        .iter()
        .map(|at| {
            parts
                .iter()
                .map(|part| at[*part].as_str())
                .collect::<Vec<_>>()
                .join(" ")
        })
        .map(|label| label.trim().to_owned())
        .collect()
}

fn ascending(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The range of positive values, with a margin.
fn bounds(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::MIN_POSITIVE), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    low.min(high) / 1.25..high * 1.25
}

/// A value on an axis, without zeros at its end.
fn number(value: f64) -> String {
    if (1e-3..1e5).contains(&value) {
        format!("{}", (value * 1e3).round() / 1e3)
    } else {
        format!("{value:e}")
    }
}
