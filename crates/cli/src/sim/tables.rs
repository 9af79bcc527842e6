//! Results as CSV. Only names are text, and they are quoted.

use std::collections::BTreeMap;
use std::io::{self, Write};

use farwrite_experiment::other_simulators::ComparedFlow;
use farwrite_experiment::plan::CaseOutcome;
use farwrite_experiment::stats::{Interval, Summary};
use farwrite_experiment::{EndedBy, Flow, FlowOutcome};

use super::compare::{Comparison, ratio};
use super::report::{Key, Report, Run, Setting, SizeClass};
use crate::table::{cell, decimals, quoted};

const KEY: &str = "topology,workload,switch,transport,loss";

/// One row per run.
pub(super) fn runs(report: &Report) -> String {
    let mut text = format!(
        "run,{KEY},seed,flows,done,failed,fct_mean_us,fct_p50_us,fct_p99_us,fct_max_us,\
         slowdown_mean,slowdown_p50,slowdown_p99,slowdown_max,last_done_us,packets,repeated,timeouts,\
         missing_bytes,dropped_buffer,dropped_headroom,dropped_cable,dropped_cable_down,dropped_no_route,marked,\
         trimmed,pfc_frames,endless_bps,pfc_stopped_us,path_changes,box_repairs,box_recovered,box_given_up,\
         box_peak_held,queue_peak_bytes,queue_mean_bytes,packet_hops,events,trace\n"
    );
    for run in &report.runs {
        text += &row(run);
    }
    text
}

fn row(run: &Run) -> String {
    let head = [run.run.to_string(), key(&run.key), run.seed.to_string()];
    let flows = [run.flows, run.done, run.failed].map(|count| count.to_string());
    let times = [spread(run.fct_us), spread(run.slowdown)];
    let last = [decimals(run.last_done_us, 3)];
    let counts = [
        run.packets,
        run.repeated,
        run.timeouts,
        run.missing_bytes,
        run.dropped_buffer,
        run.dropped_headroom,
        run.dropped_cable,
        run.dropped_cable_down,
        run.dropped_no_route,
        run.marked,
        run.trimmed,
        run.pfc_frames,
    ];
    let counts = counts.map(|count| count.to_string());
    let tail = [
        decimals(run.endless_bps, 0),
        format!("{:.3}", run.pfc_stopped_us),
        run.path_changes.to_string(),
        run.box_repairs.to_string(),
        run.box_recovered.to_string(),
        run.box_given_up.to_string(),
        run.box_peak_held.to_string(),
        run.queue_peak_bytes.to_string(),
        format!("{:.0}", run.queue_mean_bytes),
        run.packet_hops.to_string(),
        run.events.to_string(),
        run.trace.clone(),
    ];
    let cells = [&head[..], &flows, &times, &last, &counts, &tail].concat();
    cells.join(",") + "\n"
}

/// One row per setting and size class.
pub(super) fn sizes(report: &Report) -> String {
    let mut text = format!(
        "{KEY},seeds,up_to_bytes,flows,fct_mean_us,fct_mean_us_ci95,fct_p99_us,fct_p99_us_ci95,\
         slowdown_mean,slowdown_mean_ci95,slowdown_p99,slowdown_p99_ci95\n"
    );
    for setting in &report.settings {
        for sized in &setting.sizes {
            text += &sized_row(setting, sized);
        }
    }
    text
}

fn sized_row(setting: &Setting, sized: &SizeClass) -> String {
    let up_to = sized.up_to_bytes.map(|bytes| bytes.to_string());
    let head = [
        key(&setting.key),
        setting.seeds.to_string(),
        up_to.unwrap_or_else(|| "all".to_owned()),
        sized.flows.to_string(),
    ];
    let estimates = [
        sized.fct_mean_us,
        sized.fct_p99_us,
        sized.slowdown_mean,
        sized.slowdown_p99,
    ];
    let cells = [&head[..], &estimates.map(estimate)].concat();
    cells.join(",") + "\n"
}

/// One row per flow, for all runs.
pub(super) fn write_flows(file: &mut impl Write, outcomes: &[CaseOutcome]) -> io::Result<()> {
    writeln!(
        file,
        "run,flow,src,dst,bytes,start_ns,fct_ns,ideal_ns,slowdown,packets,repeated,timeouts,missing_bytes,\
         endless_bps,measured,end,ended_by"
    )?;
    for case in outcomes {
        let Ok(outcome) = &case.outcome else {
            continue;
        };
        for (number, (flow, of_flow)) in case.flows.iter().zip(&outcome.flows).enumerate() {
            let run = case.case.number;
            let cells = flow_cells(flow, of_flow, outcome.end_ns);
            writeln!(file, "{run},{number},{cells}")?;
        }
    }
    Ok(())
}

/// The flows of a run in the form of `fct.txt` of the RDMA trees of ns-3: those that are done and that statistics
/// count, in the order of their ends. `host_of` is that of the case.
pub(super) fn write_fct(
    file: &mut impl Write,
    case: &CaseOutcome,
    host_of: &[Option<usize>],
) -> io::Result<()> {
    let Ok(outcome) = &case.outcome else {
        return Ok(());
    };
    let nodes: BTreeMap<_, _> = (0_u32..)
        .zip(host_of)
        .filter_map(|(node, host)| Some(((*host)?, node)))
        .collect();
    // 11.HIGH.LOW.1 for node HIGH * 256 + LOW.
    let address = |host| 0x0b00_0001 + nodes.get(&host).map_or(0, |node| node * 256);
    let mut ports = BTreeMap::new();
    let mut lines = Vec::new();
    for (flow, of_flow) in case.flows.iter().zip(&outcome.flows) {
        let port = ports.entry((flow.src, flow.dst)).or_insert(10_000_u32);
        let (src, dst, bytes, source_port) = (flow.src, flow.dst, flow.bytes, *port);
        *port += 1;
        let times = (of_flow.start_ns, of_flow.time_ns(), of_flow.ideal_ns);
        if let (true, (Some(start), Some(time), Some(ideal))) = (of_flow.is_measured, times) {
            let (src, dst) = (address(src), address(dst));
            let line =
                format!("{src:08x} {dst:08x} {source_port} 100 {bytes} {start} {time} {ideal:.0}");
            lines.push((start + time, line));
        }
    }
    lines.sort_by_key(|(end_ns, _)| *end_ns);
    lines
        .iter()
        .try_for_each(|(_, line)| writeln!(file, "{line}"))
}

/// The deepest queue and the bytes in all queues over time, for all runs.
pub(super) fn write_queues(file: &mut impl Write, outcomes: &[CaseOutcome]) -> io::Result<()> {
    writeln!(file, "run,time_ns,deepest_bytes,total_bytes")?;
    for case in outcomes {
        let Ok(outcome) = &case.outcome else {
            continue;
        };
        for (time_ns, depth) in outcome.depths.by_time() {
            let run = case.case.number;
            writeln!(file, "{run},{time_ns},{},{}", depth.deepest, depth.total)?;
        }
    }
    Ok(())
}

/// One row per flow that either simulator has, for all runs.
pub(super) fn write_compared<W: Write>(file: &mut W, comparison: &Comparison) -> io::Result<()> {
    writeln!(
        file,
        "run,flow,line,src,dst,bytes,planned_us,their_start_us,fct_us,their_fct_us,ratio,found"
    )?;
    for row in &comparison.rows {
        writeln!(file, "{}", compared_cells(row))?;
    }
    Ok(())
}

fn compared_cells(row: &ComparedFlow) -> String {
    [
        row.run.to_string(),
        cell(row.flow),
        cell(row.line),
        row.src.to_string(),
        row.dst.to_string(),
        cell(row.bytes),
        decimals(row.planned_us, 3),
        decimals(row.their_start_us, 3),
        decimals(row.ours_us, 3),
        decimals(row.theirs_us, 3),
        decimals(ratio(row), 4),
        row.found.name().to_owned(),
    ]
    .join(",")
}

fn flow_cells(flow: &Flow, outcome: &FlowOutcome, end_ns: u64) -> String {
    [
        flow.src.to_string(),
        flow.dst.to_string(),
        // As in the file of the flow: 0 for one without an end.
        if flow.is_endless() { 0 } else { flow.bytes }.to_string(),
        cell(outcome.start_ns),
        cell(outcome.time_ns()),
        decimals(outcome.ideal_ns, 1),
        decimals(outcome.slowdown(), 4),
        outcome.packets.to_string(),
        outcome.repeated.to_string(),
        outcome.timeouts.to_string(),
        outcome.missing_bytes.to_string(),
        decimals(outcome.endless_goodput_bps(end_ns), 0),
        u8::from(outcome.is_measured).to_string(),
        outcome.end.name().to_owned(),
        outcome.ended_by.map_or("", EndedBy::name).to_owned(),
    ]
    .join(",")
}

fn key(key: &Key) -> String {
    format!("{},{}", key.names().map(quoted).join(","), cell(key.loss))
}

fn spread(summary: Option<Summary>) -> String {
    summary.map_or_else(
        || ",,,".to_owned(),
        |of| format!("{:.4},{:.4},{:.4},{:.4}", of.mean, of.p50, of.p99, of.max),
    )
}

fn estimate(interval: Interval) -> String {
    let half_width = decimals(interval.half_width, 4);
    format!("{:.4},{half_width}", interval.mean)
}
