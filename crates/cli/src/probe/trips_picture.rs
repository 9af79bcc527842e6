//! The distribution of round trips, as a part of the picture of a probe.

use farwrite_probe::RoundTrip;
use farwrite_units::show::{Percent, Time, real};

use crate::svg::{GREY, LINE, Px, Svg};

/// The measures of this part, in pixels.
pub(super) const HEIGHT: u32 = 288;
const TOP: u32 = 64;
const PLOT_HEIGHT: u32 = 160;
const COLOUR: &str = "#0072b2";

/// Writes bars for the times above the shortest one, on a logarithmic axis of this width.
pub(super) fn write(svg: &mut Svg, trip: &RoundTrip, width: u32) {
    let bins = trip.times.histogram();
    let shortest = trip.times.percentile(0).unwrap_or_default();
    let all = real(trip.times.samples().max(1) as u64);
    let most = bins.iter().map(|bin| bin.samples).max().unwrap_or(0);
    writeln!(
        svg,
        r##"<text y="20" font-size="18" font-weight="600">Round trips above the shortest of {}</text>
<text y="42" fill="{GREY}">{} answers to small questions on the idle path; the tallest bar has {}</text>"##,
        Time(shortest),
        trip.times.samples(),
        Percent(real(most as u64) / all)
    );
    let column = f64::from(width) / real(bins.len().max(1) as u64);
    svg.group("bars", (0, TOP), |svg| {
        for (bin, place) in bins.iter().zip(0_u32..) {
            let (x, answers) = (f64::from(place) * column, bin.samples);
            let height = f64::from(PLOT_HEIGHT) * real(answers as u64) / real(most.max(1) as u64);
            writeln!(
                svg,
                r#"<rect class="trips" x="{:.1}" y="{:.1}" width="{:.1}" height="{height:.1}" fill="{COLOUR}"><title>{answers} answers</title></rect>"#,
                x + column * 0.08,
                f64::from(PLOT_HEIGHT) - height,
                column * 0.84
            );
            // Every second label, so that they do not touch.
            if place % 2 == 0 {
                svg.label("middle", Px(x), PLOT_HEIGHT + 20, Time(bin.from));
            }
        }
        svg.axis_label(width / 2, PLOT_HEIGHT + 44, "time above the shortest round trip");
        writeln!(svg, r#"<path d="M0 {PLOT_HEIGHT}H{width}" stroke="{LINE}"/>"#);
    });
}
