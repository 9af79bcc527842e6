//! A picture (SVG) of how each message filled: time to the right, position in the message upward.

use std::time::Duration;

use farwrite::SchemeName;
use farwrite_codes::Kind;

use crate::axis::{Axis, FOOTER, LEFT, PLOT_WIDTH, WIDTH};

use super::fill::Fill;
use super::report::Row;
use super::scenario::Scenario;
use super::transfer::Run;
use crate::svg::{GREY, LINE, Svg};
use farwrite_units::show::{Bytes, Percent, Rate, Time, real};

/// The measures of the picture, in pixels.
const PLOT_HEIGHT: u32 = 132;
const HEADER: u32 = 126;
/// The distance from one panel to the next.
const GAP: u32 = 42;
/// The widest time step that is drawn.
const COLUMN: u32 = 2;

/// How full a row is at a moment, and its colour. The colours differ in lightness and in hue, so
/// that people with colour blindness can distinguish them (Okabe and Ito 2008 for the orange).
const LEVELS: [(&str, &str); 4] = [
    ("#c6dbef", "under half"),
    ("#6baed6", "half or more"),
    ("#e69f00", "nearly all, holes left"),
    ("#08519c", "all"),
];
const NOTHING: &str = "#eef0f2";

/// The index of the row's level in [`LEVELS`]; `None` while nothing has arrived.
fn level(arrived: u32, chunks: u32) -> Option<usize> {
    let (arrived, chunks) = (u64::from(arrived), u64::from(chunks));
    match arrived {
        0 => None,
        _ if arrived >= chunks => Some(3),
        _ if arrived * 10 >= chunks * 9 => Some(2),
        _ if arrived * 2 >= chunks => Some(1),
        _ => Some(0),
    }
}

pub(crate) fn draw(scenario: &Scenario, runs: &[Run]) -> String {
    let panels = u32::try_from(runs.len()).unwrap_or(0);
    let height = HEADER + panels * (PLOT_HEIGHT + GAP) - GAP + FOOTER;
    let mut svg = Svg::begin((WIDTH, height), "How a message fills with each scheme");
    write_header(&mut svg, scenario);
    let times = runs.iter().map(|run| run.times.completion);
    let longest = times.fold(scenario.ideal(), Duration::max);
    let axis = Axis {
        span_s: longest.as_secs_f64() * 1.04,
    };
    for (run, i) in runs.iter().zip(0..) {
        let top = HEADER + i * (PLOT_HEIGHT + GAP);
        svg.group("panel", (LEFT, top), |svg| {
            write_panel(svg, scenario, run, &axis);
            let is_last = i + 1 == panels;
            let label = is_last.then_some("time since the first chunk was sent");
            axis.write_ticks(svg, PLOT_HEIGHT, label);
        });
    }
    svg.finish()
}

fn write_header(svg: &mut Svg, scenario: &Scenario) {
    let burst = match scenario.link.burst {
        Some(burst) => format!(" in bursts of {burst}"),
        None => String::new(),
    };
    writeln!(
        svg,
        r##"<text x="{LEFT}" y="30" font-size="18" font-weight="600">{} across {} of round trip, {} packet loss{burst}</text>
    <text x="{LEFT}" y="52" fill="{GREY}">sender paced at {}, MTU {} bytes, a chunk is {}, seed {}</text>"##,
        Bytes(scenario.size_bytes),
        Time(scenario.link.rtt),
        Percent(scenario.link.loss_packet),
        Rate(real(scenario.link.rate_bps)),
        scenario.sdr.mtu,
        scenario.chunk_name(),
        scenario.seed
    );
    svg.group("legend", (LEFT, 66), |svg| {
        writeln!(svg, r#"<text y="12" fill="{GREY}">arrived:</text>"#);
        let mut x = 64;
        for (colour, name) in [(NOTHING, "nothing")].iter().chain(&LEVELS) {
            x = svg.legend_entry(x, colour, name);
        }
        let ideal = format!("ideal: {}", Time(scenario.ideal()));
        let dashes = r#" stroke-dasharray="5 4""#;
        for (dashes, name) in [(dashes, ideal.as_str()), ("", "final ACK")] {
            writeln!(
                svg,
                r##"<path d="M{} -2v19" stroke="#1f2328" stroke-width="1.5"{dashes}/><text x="{}" y="12">{name}</text>"##,
                x + 8,
                x + 16
            );
            x += 36 + 13 * u32::try_from(name.len()).unwrap_or(0) / 2;
        }
    });
}

/// Writes one scheme: its title, how its message filled, and the two important times.
fn write_panel(svg: &mut Svg, scenario: &Scenario, run: &Run, axis: &Axis) {
    let row = Row::new(scenario, run);
    let parity = match row.parity_overhead {
        0.0 => String::new(),
        share => format!(", {} parity", Percent(share)),
    };
    writeln!(
        svg,
        r#"<text y="-8"><tspan font-weight="600">{}</tspan> ({}): {}, {:.2} x ideal, {} retransmitted{parity}</text>"#,
        long_name(run.scheme),
        run.scheme,
        Time(run.times.completion),
        row.ratio,
        Percent(row.retransmitted_share)
    );
    svg.background(PLOT_WIDTH, PLOT_HEIGHT, NOTHING);
    write_fill(svg, &run.fill, run.times.completion, axis);
    for share in [0, 1, 2] {
        let y = PLOT_HEIGHT - PLOT_HEIGHT * share / 2;
        let bytes = Bytes(scenario.size_bytes * u64::from(share) / 2);
        writeln!(svg, r#"<path d="M-5 {y}h5" stroke="{LINE}"/>"#);
        svg.label("end", -9, y + 4, bytes);
    }
    let (ideal, done) = (axis.x(scenario.ideal()), axis.x(run.times.completion));
    let bottom = PLOT_HEIGHT;
    writeln!(
        svg,
        r##"<path d="M{done:.1} 0V{bottom}" stroke="#1f2328" stroke-width="1.5"/>
<path d="M{ideal:.1} 0V{bottom}" stroke="#ffffff" stroke-width="3.5"/>
<path d="M{ideal:.1} 0V{bottom}" stroke="#1f2328" stroke-width="1.5" stroke-dasharray="5 4"/>"##
    );
}

fn long_name(scheme: SchemeName) -> &'static str {
    match scheme {
        SchemeName::SrRto => "Selective repeat, timeouts",
        SchemeName::SrNack => "Selective repeat, NACKs",
        SchemeName::Gbn => "Go-back-N",
        SchemeName::Ec(code) => match code.kind() {
            Kind::Xor => "Erasure coding, XOR",
            Kind::Mds => "Erasure coding, Reed-Solomon",
        },
        // The demo refuses schemes that may leave out data.
        _ => "Best effort",
    }
}

/// Writes the cells. The cells of one level form one path, in which neighbours in time are one
/// rectangle.
fn write_fill(svg: &mut Svg, fill: &Fill, completion: Duration, axis: &Axis) {
    let mut paths = LEVELS.map(|_| String::new());
    let columns = columns(axis, fill, completion);
    let rows = u32::try_from(fill.rows.len()).unwrap_or(0);
    for (row, &chunks) in (0..).zip(&fill.rows) {
        let edge = |row: u32| PLOT_HEIGHT - PLOT_HEIGHT * row / rows;
        let (top, height) = (edge(row + 1), edge(row) - edge(row + 1));
        let mut at = 0;
        while at < columns.len() {
            let is_at = |column: &Column<'_>| level(column.arrived[row as usize], chunks);
            let now = is_at(&columns[at]);
            let run = columns[at..]
                .iter()
                .take_while(|column| is_at(column) == now)
                .count();
            let (left, right) = (columns[at].left, columns[at + run - 1].right);
            if let Some(level) = now {
                let width = right - left;
                paths[level] += &format!("M{left:.1} {top}h{width:.1}v{height}h-{width:.1}z");
            }
            at += run;
        }
    }
    for (path, (colour, _)) in paths.iter().zip(LEVELS) {
        if !path.is_empty() {
            writeln!(
                svg,
                r#"<path shape-rendering="crispEdges" fill="{colour}" d="{path}"/>"#
            );
        }
    }
}

/// A strip of a panel, and what had arrived at its time.
struct Column<'a> {
    left: f64,
    right: f64,
    arrived: &'a [u32],
}

/// The strips of a panel from the start to the completion. Each strip shows its last sample.
fn columns<'a>(axis: &Axis, fill: &'a Fill, completion: Duration) -> Vec<Column<'a>> {
    let end = axis.x(completion);
    let mut columns: Vec<Column<'a>> = Vec::new();
    for (at, arrived) in &fill.samples {
        let x = axis.x(*at).min(end);
        match columns.last_mut() {
            Some(last) if x - last.left < f64::from(COLUMN) => last.arrived = arrived,
            last => {
                if let Some(last) = last {
                    last.right = x;
                }
                columns.push(Column {
                    left: x,
                    right: end,
                    arrived,
                });
            }
        }
    }
    columns
}
