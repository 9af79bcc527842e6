//! The time axis of pictures (SVG).

use std::time::Duration;

use crate::svg::{LINE, Px, Svg};

/// The measures of a picture with time axes, in pixels.
pub(crate) const WIDTH: u32 = 960;
pub(crate) const LEFT: u32 = 84;
pub(crate) const PLOT_WIDTH: u32 = 852;
/// The space for the labels of an axis.
pub(crate) const FOOTER: u32 = 56;

/// A time axis that begins with 0 at the left.
pub(crate) struct Axis {
    /// The time at its end, in seconds.
    pub(crate) span_s: f64,
}

impl Axis {
    pub(crate) fn x(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.span_s * f64::from(PLOT_WIDTH)
    }

    /// Writes ticks below a plot of this height. With a label of the axis, they have their times.
    pub(crate) fn write_ticks(&self, svg: &mut Svg, bottom: u32, label: Option<&str>) {
        // At most ten steps.
        let step_s = round_step(self.span_s / 10.0);
        let ticks = (0_u32..).map(|tick| f64::from(tick) * step_s);
        for tick_s in ticks.take_while(|tick_s| *tick_s <= self.span_s) {
            let time = Duration::from_secs_f64(tick_s);
            let x = Px(self.x(time));
            writeln!(svg, r#"<path d="M{x} {bottom}v5" stroke="{LINE}"/>"#);
            if label.is_some() {
                svg.label("middle", x, bottom + 20, self.tick(time));
            }
        }
        if let Some(label) = label {
            svg.axis_label(PLOT_WIDTH / 2, bottom + 42, label);
        }
    }

    /// The time of a tick. All ticks have the same unit.
    fn tick(&self, time: Duration) -> String {
        let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
        let fits = units.into_iter().find(|(unit, _)| self.span_s > 0.5 * unit);
        let (unit, name) = fits.unwrap_or((1e-9, "ns"));
        let value = (time.as_secs_f64() / unit * 1e3).round() / 1e3;
        format!("{value} {name}")
    }
}

/// The smallest step of at least this size that is 1, 2 or 5 times a power of ten.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}
