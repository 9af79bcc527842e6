//! The loss of each trial by payload size, as a picture (SVG) like Fig. 2 of the SDR-RDMA paper, and
//! below it the distribution of round trips.

use std::collections::BTreeSet;

use farwrite_probe::{Findings, TrialFindings};
use farwrite_units::show::{Bytes, Rate, real};

use super::trips_picture;
use crate::svg::{GREY, LINE, Px, Svg};

/// The measures of the picture, in pixels.
const WIDTH: u32 = 760;
const LEFT: u32 = 84;
const TOP: u32 = 96;
const PLOT_WIDTH: u32 = 640;
const PLOT_HEIGHT: u32 = 320;
const FOOTER: u32 = 64;
/// The space below the loss axis for trials without loss.
const ZERO_BAND: u32 = 34;
/// The colours of the rates. People with colour blindness can distinguish them (Okabe and Ito
/// 2008).
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];

/// The positions in the picture.
struct Axes {
    sizes: Vec<u32>,
    rates: Vec<u64>,
    /// The loss axis begins at ten to this power, and ends at 1.
    least_power: i32,
    rounds: u32,
}

impl Axes {
    fn new(trials: &[TrialFindings]) -> Self {
        let sizes: BTreeSet<_> = trials.iter().map(|trial| trial.payload_bytes).collect();
        let rates: BTreeSet<_> = trials.iter().map(|trial| trial.rate_bps).collect();
        let losses = trials.iter().map(share).filter(|share| *share > 0.0);
        let least = losses.fold(1e-3, f64::min);
        let powers = -12..=-1;
        let least_power = powers.rev().find(|power| 10_f64.powi(*power) <= least);
        Self {
            sizes: sizes.into_iter().collect(),
            rates: rates.into_iter().collect(),
            least_power: least_power.unwrap_or(-12),
            rounds: trials.iter().map(|trial| trial.round).max().unwrap_or(0) + 1,
        }
    }

    /// The middle of the column of a size.
    fn middle(&self, size: usize) -> f64 {
        let columns = real(self.sizes.len().max(1) as u64);
        (real(size as u64) + 0.5) / columns * f64::from(PLOT_WIDTH)
    }

    /// The position of a trial. Its rate and its round move it within the column.
    fn x(&self, trial: &TrialFindings) -> f64 {
        let size = self
            .sizes
            .iter()
            .position(|size| *size == trial.payload_bytes);
        let rates = real(self.rates.len().max(1) as u64);
        let lane = f64::from(PLOT_WIDTH) / real(self.sizes.len().max(1) as u64) * 0.8 / rates;
        let rate = real(self.rate(trial) as u64) - (rates - 1.0) / 2.0;
        let round = (f64::from(trial.round) + 0.5) / f64::from(self.rounds) - 0.5;
        self.middle(size.unwrap_or(0)) + lane * (rate + round * 0.8)
    }

    fn rate(&self, trial: &TrialFindings) -> usize {
        let place = self.rates.iter().position(|rate| *rate == trial.rate_bps);
        place.unwrap_or(0)
    }

    fn y(&self, share: f64) -> f64 {
        let height = f64::from(PLOT_HEIGHT - ZERO_BAND);
        match share {
            0.0 => f64::from(PLOT_HEIGHT) - f64::from(ZERO_BAND) / 2.0,
            share => height * share.log10() / f64::from(self.least_power),
        }
    }
}

/// The share of the packets of a trial that the path lost.
fn share(trial: &TrialFindings) -> f64 {
    real(trial.lost_on_path()) / f64::from(trial.packets.max(1))
}

/// Draws all trials.
pub(super) fn draw(findings: &Findings) -> String {
    let axes = Axes::new(&findings.trials);
    let height = TOP + PLOT_HEIGHT + FOOTER;
    let trip = findings.round_trip.as_ref();
    let trip_height = trip.map_or(0, |_| trips_picture::HEIGHT);
    let size = (WIDTH, height + trip_height);
    let mut svg = Svg::begin(size, "Packets lost on a path, by payload size");
    let peer = findings.peer.map(|peer| peer.ip().to_string());
    let flows = findings
        .trials
        .first()
        .map_or(0, |trial| trial.counts.flows.len());
    writeln!(
        svg,
        r##"<text x="{LEFT}" y="30" font-size="18" font-weight="600">Share of packets lost on the way to {}</text>
<text x="{LEFT}" y="52" fill="{GREY}">{} trials, {flows} UDP flows; a ring: a host dropped packets too, which are not counted</text>"##,
        peer.unwrap_or_default(),
        findings.trials.len()
    );
    write_rates(&mut svg, &axes);
    svg.group("losses", (LEFT, TOP), |svg| {
        write_axes(svg, &axes);
        for trial in &findings.trials {
            let colour = COLOURS[axes.rate(trial) % COLOURS.len()];
            let fill = if trial.is_of_hosts() { "none" } else { colour };
            writeln!(
                svg,
                r#"<circle class="trial" cx="{:.1}" cy="{:.1}" r="4" fill="{fill}" fill-opacity="0.6" stroke="{colour}"/>"#,
                axes.x(trial),
                axes.y(share(trial))
            );
        }
    });
    if let Some(trip) = trip {
        let place = (LEFT, height);
        svg.group("round-trips", place, |svg| {
            trips_picture::write(svg, trip, PLOT_WIDTH);
        });
    }
    svg.finish()
}

/// Writes the legend of colours and rates.
fn write_rates(svg: &mut Svg, axes: &Axes) {
    let mut x = LEFT + 6;
    for (rate, place) in axes.rates.iter().zip(0..) {
        let colour = COLOURS[place % COLOURS.len()];
        writeln!(
            svg,
            r#"<circle cx="{x}" cy="74" r="5" fill="{colour}"/><text x="{}" y="78">{}</text>"#,
            x + 11,
            Rate(real(*rate))
        );
        x += 110;
    }
}

fn write_axes(svg: &mut Svg, axes: &Axes) {
    for power in axes.least_power..=0 {
        let y = axes.y(10_f64.powi(power));
        let label = match power {
            0 => "1".to_owned(),
            power => format!("1e{power}"),
        };
        write_level(svg, y, &label);
    }
    write_level(svg, axes.y(0.0), "0");
    for (size, place) in axes.sizes.iter().zip(0..) {
        let (x, y, size) = (axes.middle(place), PLOT_HEIGHT + 20, Bytes((*size).into()));
        writeln!(
            svg,
            r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{size}</text>"#
        );
    }
    svg.axis_label(PLOT_WIDTH / 2, PLOT_HEIGHT + 44, "UDP payload");
    writeln!(
        svg,
        r#"<path d="M0 0V{PLOT_HEIGHT}H{PLOT_WIDTH}" fill="none" stroke="{LINE}"/>"#
    );
}

/// Writes a line across the picture, with its loss.
fn write_level(svg: &mut Svg, y: f64, label: &str) {
    writeln!(
        svg,
        r##"<path d="M0 {y:.1}H{PLOT_WIDTH}" stroke="#eaeef2"/>"##
    );
    svg.label("end", -9, Px(y + 4.0), label);
}
