//! Draws one run over time as a picture (SVG): flows above, the deepest queues below.

use std::cmp::Reverse;
use std::time::Duration;

use farwrite_experiment::plan::{CaseOutcome, Plan};
use farwrite_experiment::{Depths, Flow, FlowEnd, FlowOutcome, Outcome};
use farwrite_units::show::{Bytes, Time, real};

use super::series::Links;
use crate::axis::{Axis, FOOTER, LEFT, PLOT_WIDTH, WIDTH};
use crate::svg::{GREY, Px, Svg, escaped};

/// The measures of the picture, in pixels.
const HEADER: u32 = 108;
const FLOWS_HEIGHT: u32 = 320;
const QUEUE_HEIGHT: u32 = 54;
const GAP: u32 = 30;
/// The maximum number of flows that are drawn one by one. For more flows, the picture shows how
/// many are in progress.
const MAX_BARS: usize = 160;
/// The least height of a row that has the names of its flow, so that names do not touch.
const LEAST_NAMED_ROW: f64 = 13.0;
/// The number of queues that are drawn.
const QUEUES: usize = 6;

/// The colours of flows, each for slowdowns up to a limit. The colours differ in lightness.
const LEVELS: [(f64, &str, &str); 4] = [
    (1.5, "#c6dbef", "up to 1.5"),
    (3.0, "#6baed6", "up to 3"),
    (10.0, "#2171b5", "up to 10"),
    (f64::INFINITY, "#08306b", "above 10"),
];
const TIME: &str = "time since the first flow started";
/// The colour of flows that did not end.
const UNDONE: &str = "#e69f00";
const EMPTY: &str = "#f6f8fa";

/// Draws the run of a case for which the port data was kept. `None` if it has failed.
pub(super) fn draw(plan: &Plan, case: &CaseOutcome) -> Option<String> {
    let outcome = case.outcome.as_ref().ok()?;
    let topology = &plan.parts(&case.case).ok()?.topology;
    let links = Links::of(topology);
    let queues = deepest(&outcome.depths);
    let panels = u32::try_from(queues.len()).unwrap_or(0);
    let height = HEADER + FLOWS_HEIGHT + panels * (QUEUE_HEIGHT + GAP) + FOOTER;
    let mut svg = Svg::begin((WIDTH, height), "Flows and queues over time");
    write_header(&mut svg, plan, case, outcome);
    let span_ns = outcome.end_ns.saturating_sub(outcome.depths.start_ns);
    let span_s = (real(span_ns) * 1e-9 * 1.02).max(1e-9);
    let axis = Axis { span_s };
    svg.group("flows", (LEFT, HEADER), |svg| {
        write_flows(svg, &case.flows, outcome, &axis);
        axis.write_ticks(svg, FLOWS_HEIGHT, panels.eq(&0).then_some(TIME));
    });
    let peak = queues.first().map_or(1, |(_, most)| *most);
    for (number, queue) in (0..).zip(&queues) {
        let top = HEADER + FLOWS_HEIGHT + GAP + number * (QUEUE_HEIGHT + GAP);
        svg.group("queue", (LEFT, top), |svg| {
            write_queue(svg, &outcome.depths, *queue, &links, (&axis, peak));
            let is_last = number + 1 == panels;
            axis.write_ticks(svg, QUEUE_HEIGHT, is_last.then_some(TIME));
        });
    }
    Some(svg.finish())
}

fn write_header(svg: &mut Svg, plan: &Plan, case: &CaseOutcome, outcome: &Outcome) {
    let names = plan.names(&case.case);
    let last = Time(Duration::from_nanos(outcome.last_done_ns().unwrap_or(0)));
    let loss = case.case.loss;
    let loss = loss.map_or_else(String::new, |loss| format!(", loss {loss}"));
    writeln!(
        svg,
        r##"<text x="{LEFT}" y="30" font-size="18" font-weight="600">{} on {}: {} of {} flows done, the last {last} after the first began</text>
<text x="{LEFT}" y="52" fill="{GREY}">run {}: transport {}, switches {}{loss}, seed {}; {} packets sent again, {} frames dropped, {} PFC frames</text>"##,
        escaped(names.workload),
        escaped(names.topology),
        outcome.done(),
        outcome.flows.len(),
        case.case.number,
        escaped(names.transport),
        escaped(names.switch),
        case.case.seed,
        outcome.repeated(),
        outcome.totals.all_dropped(),
        outcome.totals.pauses_sent,
    );
    svg.group("legend", (LEFT, 66), |svg| {
        if outcome.flows.len() > MAX_BARS {
            writeln!(svg, r#"<text y="12" fill="{GREY}">flows under way:</text>"#);
            return;
        }
        let what = "flows, by time over that on an empty network:";
        writeln!(svg, r#"<text y="12" fill="{GREY}">{what}</text>"#);
        let levels = LEVELS.map(|(_, colour, name)| (colour, name));
        let mut x = 310;
        for (colour, name) in levels.into_iter().chain([(UNDONE, "not done")]) {
            x = svg.legend_entry(x, colour, name);
        }
    });
}

fn write_flows(svg: &mut Svg, flows: &[Flow], outcome: &Outcome, axis: &Axis) {
    svg.background(PLOT_WIDTH, FLOWS_HEIGHT, EMPTY);
    let mut started: Vec<_> = flows.iter().zip(&outcome.flows).collect();
    started.retain(|(_, flow)| flow.start_ns.is_some());
    started.sort_by_key(|(_, flow)| flow.start_ns);
    if outcome.flows.len() > MAX_BARS {
        return write_under_way(svg, &started, outcome, axis);
    }
    let rows = u32::try_from(started.len().max(1)).unwrap_or(1);
    let row = f64::from(FLOWS_HEIGHT) / f64::from(rows);
    for (number, (flow, of_flow)) in (0_u32..).zip(started) {
        let (start_ns, end_ns) = times(of_flow, outcome);
        let [left, right] = [start_ns, end_ns].map(|ns| axis.x(Duration::from_nanos(ns)));
        let (top, width) = (f64::from(number) * row, (right - left).max(1.0));
        let colour = colour(of_flow);
        writeln!(
            svg,
            r#"<rect class="flow" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{:.1}" fill="{colour}"><title>host {} to host {}, {}</title></rect>"#,
            row * 0.85,
            flow.src,
            flow.dst,
            Bytes(flow.bytes),
        );
        if row >= LEAST_NAMED_ROW {
            let ends = format!("{} → {}", flow.src, flow.dst);
            svg.label("end", -6, Px(top + row * 0.425 + 4.0), ends);
        }
    }
}

/// Writes the number of flows in progress, as an area.
fn write_under_way(
    svg: &mut Svg,
    started: &[(&Flow, &FlowOutcome)],
    outcome: &Outcome,
    axis: &Axis,
) {
    let columns = u64::from(PLOT_WIDTH);
    let span_ns = (axis.span_s * 1e9).max(1.0);
    let mut changes = vec![0_i64; PLOT_WIDTH as usize + 2];
    for (_, flow) in started {
        let (start_ns, end_ns) = times(flow, outcome);
        let column = |ns: u64| {
            let share = real(ns) / span_ns;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let column = (share * real(columns)) as usize;
            column.min(PLOT_WIDTH as usize)
        };
        changes[column(start_ns)] += 1;
        changes[column(end_ns) + 1] -= 1;
    }
    let counts: Vec<_> = changes
        .iter()
        .scan(0_i64, |count, change| {
            *count += change;
            u64::try_from(*count).ok()
        })
        .take(PLOT_WIDTH as usize)
        .collect();
    let most = counts.iter().max().copied().unwrap_or(0).max(1);
    write_area(svg, &counts, most, FLOWS_HEIGHT, 1.0);
    svg.label("end", -6, 10, most);
}

fn write_queue(
    svg: &mut Svg,
    depths: &Depths,
    (at, most): (usize, u64),
    links: &Links<'_>,
    (axis, peak): (&Axis, u64),
) {
    let port = &depths.ports[at];
    let (most, link) = (Bytes(most), links.get(port.node, port.port));
    let [from, to] = link.map_or(["", ""], |link| link.names).map(escaped);
    writeln!(
        svg,
        r#"<text y="-5">queue of {from} to {to}: at most {most}</text>"#
    );
    svg.background(PLOT_WIDTH, QUEUE_HEIGHT, EMPTY);
    let step = axis.x(Duration::from_nanos(depths.interval_ns));
    write_area(svg, &port.bytes, peak, QUEUE_HEIGHT, step);
    svg.label("end", -6, 10, Bytes(peak));
}

/// Writes an area of equal steps from the left. The value `most` has the full height.
fn write_area(svg: &mut Svg, values: &[u64], most: u64, height: u32, step: f64) {
    let mut path = format!("M0 {height}");
    let mut x = 0.0;
    for &value in values {
        let y = f64::from(height) * (1.0 - real(value) / real(most));
        x += step;
        path += &format!("V{y:.1}H{x:.1}");
    }
    writeln!(svg, r##"<path fill="#6baed6" d="{path}V{height}z"/>"##);
}

/// The start and end of a flow, in nanoseconds since the start of the first flow.
fn times(flow: &FlowOutcome, outcome: &Outcome) -> (u64, u64) {
    let start_ns = flow.start_ns.unwrap_or(0);
    let end_ns = flow.time_ns().map_or(outcome.end_ns, |ns| start_ns + ns);
    let origin_ns = outcome.depths.start_ns;
    (
        start_ns.saturating_sub(origin_ns),
        end_ns.saturating_sub(origin_ns),
    )
}

fn colour(flow: &FlowOutcome) -> &'static str {
    if !matches!(flow.end, FlowEnd::Done { .. }) {
        return UNDONE;
    }
    let slowdown = flow.slowdown().unwrap_or(1.0);
    let level = LEVELS.iter().find(|(limit, ..)| slowdown <= *limit);
    level.map_or(UNDONE, |(_, colour, _)| colour)
}

/// The indices of the ports with the deepest queues, each with its depth, in descending order of depth.
fn deepest(depths: &Depths) -> Vec<(usize, u64)> {
    let depth = depths.ports.iter().map(|port| port.bytes.iter().max());
    let depth = depth.map(|most| most.copied().unwrap_or(0));
    let mut ports: Vec<_> = depth.enumerate().collect();
    ports.sort_by_key(|(_, most)| Reverse(*most));
    let peak = ports.first().map_or(0, |(_, most)| *most);
    // Less than a hundredth of the deepest queue would not be visible.
    ports.retain(|(_, most)| *most > peak / 100);
    ports.truncate(QUEUES);
    ports
}
