//! Draws links and flows of one run over time as a picture (SVG).

use std::cmp::Reverse;

use farwrite_experiment::{Depths, FlowSample, LinkSample, Series};
use farwrite_net::Topology;
use farwrite_units::show::real;

use super::completion::{COLOURS, style};
use super::series::Links;
use crate::chart::{Chart, Scale, WIDTH, height_with_legend, write_legend};
use crate::svg::Svg;

/// The most points of a line. Steps of a few packets would show links that carry more than their rate.
const POINTS: usize = 60;

/// One line: its name, and a value for each step of time.
struct Line {
    name: String,
    values: Vec<f64>,
}

struct Panel {
    caption: &'static str,
    y_label: &'static str,
    lines: Vec<Line>,
    /// Links or flows that have values and no line.
    others: usize,
}

/// The steps of all lines, of several samples each.
struct Steps {
    samples: usize,
    each: usize,
    sample_s: f64,
}

/// Draws use and PFC stops of links, and rates and congestion notifications of flows, without charts that would be
/// empty. Packets of `mtu` bytes count as full. `None` if nothing happened.
pub(super) fn draw(
    depths: &Depths,
    series: &Series,
    topology: &Topology,
    mtu: u32,
) -> Option<String> {
    let samples = series.links.first().map_or(0, |link| link.samples.len());
    let steps = Steps {
        samples,
        each: samples.div_ceil(POINTS).max(1),
        sample_s: real(depths.interval_ns) * 1e-9,
    };
    let panels = steps.panels(series, topology, mtu).into_iter();
    let panels: Vec<_> = panels.filter(|panel| !panel.lines.is_empty()).collect();
    let lines = panels.iter().map(|panel| panel.legend().len()).max()?;
    let charts = u32::try_from(panels.len()).unwrap_or(1);
    let size = (WIDTH * charts, height_with_legend(lines));
    let mut svg = Svg::begin(size, "Links and flows over time");
    for (number, panel) in (0..).zip(&panels) {
        panel.write(&mut svg, &steps, number * WIDTH);
    }
    Some(svg.finish())
}

impl Steps {
    fn panels(&self, series: &Series, topology: &Topology, mtu: u32) -> [Panel; 4] {
        let per_rate = |rate_bps: u64| 8.0 / real(rate_bps);
        let gbit = f64::from(mtu) * 8e-9;
        [
            (
                "Use of the links that carry the most",
                "share of the rate",
                self.of_links(series, topology, per_rate, |link| link.sent_bytes),
            ),
            (
                "Links that PFC stops for longest",
                "share of the time",
                self.of_links(series, topology, |_| 1e-9, |link| link.stopped_ns),
            ),
            (
                "Rates of the flows that send the most",
                "payload sent, Gbit/s",
                self.of_flows(series, gbit, |flow| flow.packets),
            ),
            (
                "Flows with the most congestion notifications",
                "notifications a millisecond",
                self.of_flows(series, 1e-3, |flow| flow.notifications),
            ),
        ]
        .map(|(caption, y_label, (lines, others))| Panel {
            caption,
            y_label,
            lines,
            others,
        })
    }

    /// The links with the largest sums. `unit` has the factor of a link with a rate.
    fn of_links(
        &self,
        series: &Series,
        topology: &Topology,
        unit: impl Fn(u64) -> f64,
        sum: fn(&LinkSample) -> u64,
    ) -> (Vec<Line>, usize) {
        let links = Links::of(topology);
        let totals = series
            .links
            .iter()
            .map(|link| link.samples.last().map_or(0, sum));
        let (most, others) = most(totals);
        let lines = most.into_iter().filter_map(|at| {
            let link = &series.links[at];
            let named = links.get(link.node, link.port)?;
            let sums = link.samples.iter().map(sum).enumerate();
            Some(Line {
                name: named.names.join(" to "),
                values: self.growth(sums, unit(named.rate_bps)),
            })
        });
        (lines.collect(), others)
    }

    /// The flows with the largest sums.
    fn of_flows(
        &self,
        series: &Series,
        unit: f64,
        sum: fn(&FlowSample) -> u64,
    ) -> (Vec<Line>, usize) {
        let totals = series.flows.iter().map(|flow| flow.last().map_or(0, sum));
        let (most, others) = most(totals);
        let lines = most.into_iter().map(|flow| {
            let samples = series.flows[flow].iter();
            Line {
                name: format!("flow {flow}"),
                values: self.growth(samples.map(|sample| (sample.at, sum(sample))), unit),
            }
        });
        (lines.collect(), others)
    }

    /// What a sum grows by in a second, in each step. `sums` has samples, and the sum at each.
    fn growth(&self, sums: impl Iterator<Item = (usize, u64)>, unit: f64) -> Vec<f64> {
        let mut values = vec![0.0; self.samples.div_ceil(self.each)];
        let mut before = 0;
        for (at, sum) in sums {
            if let Some(value) = values.get_mut(at / self.each) {
                *value += real(sum - before) * unit;
            }
            before = sum;
        }
        for (step, value) in values.iter_mut().enumerate() {
            // The last step may have fewer samples.
            let samples = self.each.min(self.samples - step * self.each);
            *value /= samples as f64 * self.sample_s;
        }
        values
    }

    /// The middle of a step, in seconds.
    fn middle_s(&self, step: usize) -> f64 {
        (step as f64 + 0.5) * self.each as f64 * self.sample_s
    }

    fn span_s(&self) -> f64 {
        self.samples as f64 * self.sample_s
    }
}

/// The indices of the largest totals above 0, in descending order, and the number of others above 0.
fn most(totals: impl Iterator<Item = u64>) -> (Vec<usize>, usize) {
    let totals = totals.enumerate().filter(|(_, total)| *total > 0);
    let mut totals: Vec<_> = totals.collect();
    totals.sort_by_key(|(_, total)| Reverse(*total));
    let others = totals.len().saturating_sub(COLOURS.len());
    totals.truncate(COLOURS.len());
    (totals.into_iter().map(|(at, _)| at).collect(), others)
}

impl Panel {
    fn write(&self, svg: &mut Svg, steps: &Steps, from_left: u32) {
        let (unit_s, x_label) = match steps.span_s() {
            1.0.. => (1.0, "time since the first flow started, s"),
            1e-3.. => (1e-3, "time since the first flow started, ms"),
            _ => (1e-6, "time since the first flow started, us"),
        };
        let values = self.lines.iter().flat_map(|line| &line.values);
        let peak = values.fold(0.0, |peak: f64, value| peak.max(*value));
        let chart = Chart {
            caption: self.caption,
            x_label,
            y_label: self.y_label,
            x: Scale::Linear(0.0..1.02 * steps.span_s() / unit_s),
            y: Scale::Linear(0.0..1.05 * peak),
        };
        chart.draw(svg, from_left, |svg| {
            for (line, colour) in self.lines.iter().zip(COLOURS) {
                let values = line.values.iter().enumerate();
                let points = values.map(|(step, value)| (steps.middle_s(step) / unit_s, *value));
                chart.line(svg, points, &style(colour));
            }
            write_legend(svg, &self.legend());
        });
    }

    fn legend(&self) -> Vec<(String, String)> {
        let lines = self.lines.iter().zip(COLOURS);
        let mut legend: Vec<_> = lines
            .map(|(line, colour)| (line.name.clone(), style(colour)))
            .collect();
        if self.others > 0 {
            let text = format!("not drawn: {} more, which the files have", self.others);
            legend.push((text, r#"stroke="none""#.to_owned()));
        }
        legend
    }
}
