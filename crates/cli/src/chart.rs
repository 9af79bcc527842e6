//! Charts with two axes, as parts of pictures (SVG).

use std::fmt::{self, Write as _};
use std::ops::Range;

use crate::axis::round_step;
use crate::svg::{GREY, LINE, escaped};

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
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    range: Range<f64>,
    is_log: bool,
}

impl Scale {
    pub(crate) fn linear(range: Range<f64>) -> Self {
        Self {
            range,
            is_log: false,
        }
    }

    pub(crate) fn log(range: Range<f64>) -> Self {
        Self {
            range,
            is_log: true,
        }
    }

    /// The share of the axis before a value.
    fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.is_log { value.log10() } else { value };
        let [start, end] = [self.range.start, self.range.end].map(place);
        (place(value) - start) / (end - start)
    }

    /// Round values on the axis. A logarithmic axis of more than two powers of ten shows only these.
    fn ticks(&self) -> Vec<f64> {
        let Range { start, end } = self.range;
        let mut ticks = Vec::new();
        if self.is_log {
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
        ticks.retain(|tick| self.range.contains(tick));
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
    /// Begins the chart at this distance from the left of the picture; `</g>` ends it.
    pub(crate) fn begin(&self, svg: &mut String, from_left: u32) -> fmt::Result {
        let (left, middle) = (from_left + LEFT, PLOT_WIDTH / 2);
        let (below, half) = (PLOT_HEIGHT + 42, PLOT_HEIGHT / 2);
        writeln!(
            svg,
            r##"<g class="chart" transform="translate({left} {TOP})">
<text x="{middle}" y="-16" text-anchor="middle" font-size="15">{}</text>
<text x="{middle}" y="{below}" text-anchor="middle" fill="{GREY}">{}</text>
<text transform="translate(-52 {half}) rotate(-90)" text-anchor="middle" fill="{GREY}">{}</text>"##,
            self.caption, self.x_label, self.y_label
        )?;
        for tick in self.x.ticks() {
            let x = self.x.share(tick) * f64::from(PLOT_WIDTH);
            let y = PLOT_HEIGHT + 20;
            writeln!(
                svg,
                r##"<path d="M{x:.1} 0v{PLOT_HEIGHT}" stroke="#eaeef2"/>
<text x="{x:.1}" y="{y}" text-anchor="middle" font-size="12" fill="{GREY}">{}</text>"##,
                number(tick)
            )?;
        }
        for tick in self.y.ticks() {
            let y = (1.0 - self.y.share(tick)) * f64::from(PLOT_HEIGHT);
            writeln!(
                svg,
                r##"<path d="M0 {y:.1}h{PLOT_WIDTH}" stroke="#eaeef2"/>
<text x="-6" y="{:.1}" text-anchor="end" font-size="12" fill="{GREY}">{}</text>"##,
                y + 4.0,
                number(tick)
            )?;
        }
        writeln!(
            svg,
            r#"<path d="M0 0V{PLOT_HEIGHT}H{PLOT_WIDTH}" fill="none" stroke="{LINE}"/>"#
        )
    }

    /// Writes a line through points. `style` has the attributes of its stroke.
    pub(crate) fn line(
        &self,
        svg: &mut String,
        points: impl IntoIterator<Item = (f64, f64)>,
        style: &str,
    ) -> fmt::Result {
        let mut path = String::new();
        for point in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = self.place(point);
            write!(path, "{command}{x:.1} {y:.1}")?;
        }
        if path.is_empty() {
            return Ok(());
        }
        writeln!(svg, r#"<path d="{path}" fill="none" {style}/>"#)
    }

    /// Writes a circle around a point.
    pub(crate) fn circle(
        &self,
        svg: &mut String,
        point: (f64, f64),
        fill: &str,
        stroke: &str,
    ) -> fmt::Result {
        let (x, y) = self.place(point);
        writeln!(
            svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{fill}" stroke="{stroke}"/>"#
        )
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
pub(crate) fn write_legend(svg: &mut String, lines: &[(String, String)]) -> fmt::Result {
    for (number, (name, style)) in (0_u32..).zip(lines) {
        let y = PLOT_HEIGHT + 70 + LEGEND_LINE * number;
        writeln!(
            svg,
            r#"<path d="M0 {}h18" fill="none" {style}/><text x="24" y="{y}">{}</text>"#,
            y - 4,
            escaped(name)
        )?;
    }
    Ok(())
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
        assert_eq!(texts(Scale::log(1.5..30.0)), ["2", "5", "10", "20"]);
        assert_eq!(texts(Scale::log(9.0..2e9))[..2], ["10", "100"]);
        assert_eq!(texts(Scale::log(9.0..2e9)).last().unwrap(), "1e9");
        let shares = texts(Scale::linear(0.0..1.02));
        assert_eq!((shares.len(), &*shares[0], &*shares[5]), (6, "0", "1"));
    }
}
