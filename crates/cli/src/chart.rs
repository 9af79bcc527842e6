//! Charts with two axes, as parts of pictures (SVG).

use std::ops::Range;

use crate::axis::round_step;
use crate::svg::{GREY, LINE, Px, Svg, escaped};

/// The size of a chart with its labels, in pixels.
pub(crate) const WIDTH: u32 = 620;
pub(crate) const HEIGHT: u32 = 400;
/// The place of the plot in the chart.
const LEFT: u32 = 72;
const TOP: u32 = 44;
const PLOT_WIDTH: u32 = 530;
const PLOT_HEIGHT: u32 = 298;
/// The height of a line of a legend.
const LEGEND_LINE: u32 = 20;

/// The scale of an axis, without a value at or below 0 if it is logarithmic.
pub(crate) enum Scale {
    Linear(Range<f64>),
    Log(Range<f64>),
}

impl Scale {
    /// The share of the axis before a value.
    fn share(&self, value: f64) -> f64 {
        let (range, place): (_, fn(f64) -> f64) = match self {
            Self::Linear(range) => (range, |value| value),
            Self::Log(range) => (range, f64::log10),
        };
        let [start, end, value] = [range.start, range.end, value].map(place);
        (value - start) / (end - start)
    }

    /// Round values on the axis. A logarithmic axis of more than two powers of ten shows only these.
    fn ticks(&self) -> Vec<f64> {
        let (Self::Linear(range) | Self::Log(range)) = self;
        let &Range { start, end } = range;
        let mut ticks = Vec::new();
        if let Self::Log(_) = self {
            let factors: &[f64] = match end / start > 100.0 {
                true => &[1.0],
                false => &[1.0, 2.0, 5.0],
            };
            let mut power = 10_f64.powf(start.log10().floor());
            while power <= end {
                ticks.extend(factors.iter().map(|factor| factor * power));
                power *= 10.0;
            }
        } else {
            let step = round_step((end - start) / 10.0);
            let mut count = (start / step).ceil();
            while count * step <= end {
                ticks.push(count * step);
                count += 1.0;
            }
        }
        ticks.retain(|tick| range.contains(tick));
        ticks
    }
}

/// One chart of a picture.
pub(crate) struct Chart {
    pub(crate) caption: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
}

impl Chart {
    /// Draws the chart at this distance from the left of the picture. `fill` draws what is in it.
    pub(crate) fn draw(&self, svg: &mut Svg, from_left: u32, fill: impl FnOnce(&mut Svg)) {
        svg.group("chart", (from_left + LEFT, TOP), |svg| {
            self.write_axes(svg);
            fill(svg);
        });
    }

    fn write_axes(&self, svg: &mut Svg) {
        let (middle, half) = (PLOT_WIDTH / 2, PLOT_HEIGHT / 2);
        let (caption, y_label) = (self.caption, self.y_label);
        writeln!(
            svg,
            r#"<text x="{middle}" y="-16" text-anchor="middle" font-size="15">{caption}</text>"#
        );
        svg.axis_label(middle, PLOT_HEIGHT + 42, self.x_label);
        writeln!(
            svg,
            r#"<text transform="translate(-52 {half}) rotate(-90)" text-anchor="middle" fill="{GREY}">{y_label}</text>"#
        );
        for tick in self.x.ticks() {
            let x = Px(self.x.share(tick) * f64::from(PLOT_WIDTH));
            writeln!(
                svg,
                r##"<path d="M{x} 0v{PLOT_HEIGHT}" stroke="#eaeef2"/>"##
            );
            svg.label("middle", x, PLOT_HEIGHT + 20, number(tick));
        }
        for tick in self.y.ticks() {
            let y = (1.0 - self.y.share(tick)) * f64::from(PLOT_HEIGHT);
            writeln!(
                svg,
                r##"<path d="M0 {y:.1}h{PLOT_WIDTH}" stroke="#eaeef2"/>"##
            );
            svg.label("end", -6, Px(y + 4.0), number(tick));
        }
        writeln!(
            svg,
            r#"<path d="M0 0V{PLOT_HEIGHT}H{PLOT_WIDTH}" fill="none" stroke="{LINE}"/>"#
        );
    }

    /// Writes a line through points. `style` has the attributes of its stroke.
    pub(crate) fn line(
        &self,
        svg: &mut Svg,
        points: impl IntoIterator<Item = (f64, f64)>,
        style: &str,
    ) {
        let points = points.into_iter().map(|point| self.place(point));
        let points: Vec<_> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if !points.is_empty() {
            let path = points.join("L");
            writeln!(svg, r#"<path d="M{path}" fill="none" {style}/>"#);
        }
    }

    /// Writes a circle around a point.
    pub(crate) fn circle(&self, svg: &mut Svg, point: (f64, f64), fill: &str, stroke: &str) {
        let (x, y) = self.place(point);
        writeln!(
            svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{fill}" stroke="{stroke}"/>"#
        );
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let y = (1.0 - self.y.share(y)) * f64::from(PLOT_HEIGHT);
        (self.x.share(x) * f64::from(PLOT_WIDTH), y)
    }
}

/// The height of a picture with a chart, and a legend of this number of lines below it.
pub(crate) fn height_with_legend(lines: usize) -> u32 {
    HEIGHT + LEGEND_LINE * u32::try_from(lines).unwrap_or(0)
}

/// Writes a legend below the chart: names of lines, and the attributes of their strokes.
pub(crate) fn write_legend(svg: &mut Svg, lines: &[(String, String)]) {
    for (number, (name, style)) in (0_u32..).zip(lines) {
        let (y, name) = (PLOT_HEIGHT + 70 + LEGEND_LINE * number, escaped(name));
        writeln!(
            svg,
            r#"<path d="M0 {}h18" fill="none" {style}/><text x="24" y="{y}">{name}</text>"#,
            y - 4
        );
    }
}

/// A value on an axis, without zeros at its end.
fn number(value: f64) -> String {
    if (1e-3..1e5).contains(&value) || value == 0.0 {
        format!("{}", (value * 1e3).round() / 1e3)
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_on_the_axis() {
        let texts =
            |scale: Scale| -> Vec<String> { scale.ticks().into_iter().map(number).collect() };
        assert_eq!(texts(Scale::Log(1.5..30.0)), ["2", "5", "10", "20"]);
        assert_eq!(texts(Scale::Log(9.0..2e9))[..2], ["10", "100"]);
        assert_eq!(texts(Scale::Log(9.0..2e9)).last().unwrap(), "1e9");
        let shares = texts(Scale::Linear(0.0..1.02));
        assert_eq!((shares.len(), &*shares[0], &*shares[5]), (6, "0", "1"));
    }
}
