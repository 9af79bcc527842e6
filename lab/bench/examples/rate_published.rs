//! Compares the adaptive controller with two published ones, BBR version 3 and Copa, and with the
//! model of BBR version 1, on 60 paths: 22 of the grid, and 38 whose delay varies, that reorder
//! packets, or that drop them above a rate.
//!
//! `cargo run --release -p farwrite-bench --example rate_published [CONTROLLER...]`: takes about 80 s
//! of one core for `adaptive`, `bbr3`, `copa` and `bbr`.

#[path = "../../../crates/rate/tests/common/mod.rs"]
mod common;
#[path = "../controllers/mod.rs"]
mod controllers;

use std::time::Duration;

use clap::Parser;
use common::case::{Case, FlowKind, Messages, PathStep, uniform};
use common::measure::CaseResult;
use common::network::run;
use farwrite_link::{Policer, Reorder, Spread, Variation};
use farwrite_units::stats;

const CONTROLLERS: [(&str, FlowKind); 4] = [
    ("adaptive", FlowKind::Adaptive),
    ("bbr3", controllers::BBR3),
    ("copa", controllers::COPA),
    ("bbr", FlowKind::Bbr),
];

/// Each row is the median of this number of runs. In each, seeds differ and the first flow starts
/// another part of a round trip later.
const RUNS: u64 = 3;

const MBIT: u64 = 1_000_000;
const MS: u64 = 1_000_000;

/// What a row measures of the first flow.
#[derive(Clone, Copy, PartialEq)]
enum Measured {
    /// Part of the path that is used.
    Used,
    /// Part of the bytes of all flows.
    Share,
    /// Seconds for a number of bytes.
    Seconds,
}

struct Row {
    name: String,
    case: Case,
    measured: Measured,
}

#[derive(Parser)]
struct Args {
    /// Rate controllers; without any, all
    #[arg(value_parser = CONTROLLERS.map(|(name, _)| name))]
    controllers: Vec<String>,
}

fn main() {
    let Args { controllers } = Args::parse();
    let is_wanted =
        |name: &str| controllers.is_empty() || controllers.iter().any(|wanted| wanted == name);
    let kinds = CONTROLLERS.map(|(name, kind)| (name, is_wanted(name).then_some(kind)));
    let names = kinds.iter().filter(|(_, kind)| kind.is_some());
    let names: Vec<&str> = names.map(|(name, _)| *name).collect();
    println!("| path | measured | {} |", names.join(" | "));
    println!("|---|---|{}", "---:|".repeat(names.len()));
    for row in old().into_iter().chain(new()) {
        let cells = kinds.iter().filter_map(|(_, kind)| *kind);
        let cells: Vec<String> = cells.map(|kind| cell(&row, kind)).collect();
        let measured = match row.measured {
            Measured::Used => "used",
            Measured::Share => "share",
            Measured::Seconds => "s",
        };
        println!("| {} | {measured} | {} |", row.name, cells.join(" | "));
    }
}

/// The value of a row, the mean queue in round trips, the dropped packets in percent, and Jain's
/// index if there are several flows.
fn cell(row: &Row, kind: FlowKind) -> String {
    let results: Vec<CaseResult> = (0..RUNS)
        .map(|part| {
            let mut case = row.case.clone();
            case.seed = part + 1;
            for flow in &mut case.flows {
                if flow.kind == FlowKind::Adaptive {
                    flow.kind = kind;
                }
            }
            case.flows[0].start_rounds += part as f64 / RUNS as f64;
            run(&case)
        })
        .collect();
    let median = |of: &dyn Fn(&CaseResult) -> f64| stats::median(results.iter().map(of));
    let seconds = |out: &CaseResult| {
        let times_ns = out.message_times_ns.first();
        times_ns.map_or(f64::INFINITY, |&ns| ns as f64 / 1e9)
    };
    let value = match row.measured {
        Measured::Used => format!("{:.2}", median(&|out| out.utilisation)),
        Measured::Share => format!("{:.2}", median(&|out| out.first_share)),
        Measured::Seconds if median(&seconds).is_finite() => format!("{:.1}", median(&seconds)),
        Measured::Seconds => "> 100".into(),
    };
    let queue = median(&|out| out.queue_mean);
    let dropped = median(&|out| out.dropped) * 100.0;
    let mut cell = format!("{value}, {queue:.2}, {dropped:.1} %");
    if row.case.flows.len() > 1 && row.measured == Measured::Used {
        cell += &format!(", {:.2}", median(&|out| out.jain));
    }
    cell
}

fn row(name: &str, measured: Measured, case: Case) -> Row {
    let rate = if case.rate_bps < MBIT {
        format!("{} kbit/s", case.rate_bps / 1_000)
    } else {
        format!("{} Mbit/s", case.rate_bps / MBIT)
    };
    Row {
        name: format!("{name}: {rate}, {} ms", case.rtt_ns / MS),
        case,
        measured,
    }
}

fn loss_name(loss: f64) -> String {
    match loss {
        0.0 => String::new(),
        _ => format!(", loss {} %", loss * 100.0),
    }
}

/// Paths of the parts `alone`, `start`, `bursts`, `steps` and `equals` of the grid, and beside one flow
/// of CUBIC or BBR version 1.
fn old() -> Vec<Row> {
    let mut rows = Vec::new();
    for (rate_bps, rtt_ns, buffer, loss) in [
        (100 * MBIT, MS, 1.0, 0.0),
        (100 * MBIT, 300 * MS, 1.0, 0.01),
        (1_000 * MBIT, 25 * MS, 0.2, 0.0),
        (1_000 * MBIT, 25 * MS, 1.0, 0.0),
        (1_000 * MBIT, 25 * MS, 1.0, 0.001),
        (1_000 * MBIT, 25 * MS, 1.0, 0.01),
        (10_000 * MBIT, 25 * MS, 1.0, 0.01),
    ] {
        let case = Case {
            buffer,
            loss,
            ..Case::new(rate_bps, rtt_ns)
        };
        let name = format!("alone, queue {buffer}{}", loss_name(loss));
        rows.push(row(&name, Measured::Used, case));
    }
    for rate_bps in [1_000 * MBIT, 10_000 * MBIT] {
        let case = Case::new(rate_bps, 25 * MS).lasting(20.0, 0.0);
        rows.push(row("start, 20 round trips", Measured::Used, case));
    }
    let case = Case {
        packet_bytes: Some(9_000),
        jitter_ns: MS,
        burst_ns: MS,
        ..Case::new(10_000 * MBIT, 25 * MS)
    };
    let name = "start, bursts of 1 ms, 20 round trips";
    rows.push(row(name, Measured::Used, case.lasting(20.0, 0.0)));
    for (rate_factor, rtt_factor) in [(0.5, 1.0), (2.0, 1.0), (1.0, 2.0)] {
        let step = PathStep {
            at_rounds: 60.0,
            rate_factor,
            rtt_factor,
        };
        let case = Case {
            step: Some(step),
            ..Case::new(1_000 * MBIT, 25 * MS)
        };
        let name = format!("rate x {rate_factor}, round trip x {rtt_factor}, 60 to 120");
        rows.push(row(&name, Measured::Used, case.lasting(120.0, 60.0)));
    }
    for (flows, loss) in [(2, 0.0), (4, 0.0), (16, 0.0), (4, 0.01)] {
        let case = Case {
            loss,
            ..Case::new(1_000 * MBIT, 25 * MS)
        };
        let case = case.with_flows(flows, 3.0).lasting(160.0, 100.0);
        let name = format!("{flows} flows{}", loss_name(loss));
        rows.push(row(&name, Measured::Used, case));
    }
    for (kind, name, loss) in [
        (FlowKind::Cubic, "CUBIC", 0.0),
        (FlowKind::Cubic, "CUBIC", 0.001),
        (FlowKind::Bbr, "BBR", 0.0),
        (FlowKind::Bbr, "BBR", 0.001),
        (FlowKind::Bbr, "BBR", 0.01),
    ] {
        rows.push(beside(kind, name, loss, Variation::default()));
    }
    rows
}

fn beside(kind: FlowKind, name: &str, loss: f64, variation: Variation) -> Row {
    let case = Case {
        loss,
        variation,
        back_variation: variation,
        packet_bytes: Some(1_500),
        jitter_ns: MS,
        ..Case::new(200 * MBIT, 40 * MS)
    };
    let case = case.beside(kind, 0.0).lasting(2_000.0, 500.0);
    let varies = if variation == Variation::default() {
        ""
    } else {
        ", variation 3 ms"
    };
    let name = format!("beside {name}{}{varies}", loss_name(loss));
    row(&name, Measured::Share, case)
}

/// One transfer of `bytes`, with at most 100 seconds.
fn transfer(name: &str, mut case: Case, bytes: u64) -> Row {
    case.flows[0].messages = Some(Messages {
        bytes,
        pause_ns: 1_000_000 * MS,
    });
    let rounds = 100_000.0 * MS as f64 / case.rtt_ns as f64;
    row(name, Measured::Seconds, case.lasting(rounds, 0.0))
}

/// Paths whose delay varies, that reorder packets, or that drop packets above a rate.
fn new() -> Vec<Row> {
    let mut rows = transfers();
    for (every_ms, most_ms, loss) in [
        (30, 1, 0.0),
        (30, 3, 0.0),
        (30, 10, 0.0),
        (30, 3, 0.01),
        (30, 10, 0.01),
        (0, 1, 0.0),
        (0, 3, 0.001),
        (0, 10, 0.0),
    ] {
        for (rate_bps, rtt_ns) in [
            (50 * MBIT, 30 * MS),
            (200 * MBIT, 50 * MS),
            (1_000 * MBIT, 50 * MS),
        ] {
            // Packets overtake one another where each has a delay of its own.
            let variation = Variation {
                overtakes: every_ms == 0,
                ..uniform(most_ms, every_ms)
            };
            let case = Case {
                loss,
                variation,
                back_variation: variation,
                ..Case::between_hosts(rate_bps, rtt_ns)
            };
            let each = match every_ms {
                0 => "per packet".into(),
                _ => format!("each {every_ms} ms"),
            };
            let name = format!("variation {most_ms} ms {each}{}", loss_name(loss));
            let rounds = 20_000.0 * MS as f64 / rtt_ns as f64;
            let case = case.lasting(rounds, rounds / 5.0);
            rows.push(row(&name, Measured::Used, case));
        }
    }
    rows.push(beside(FlowKind::Cubic, "CUBIC", 0.0, uniform(3, 30)));
    rows.push(beside(FlowKind::Bbr, "BBR", 0.0, uniform(3, 30)));
    rows
}

fn transfers() -> Vec<Row> {
    let mut rows = Vec::new();
    let base = || Case::between_hosts(50 * MBIT, 30 * MS);
    let mut add = |name: &str, case, mb: u64| rows.push(transfer(name, case, mb * 1_000_000));
    add("10 ms each 30 ms", base().varying(uniform(10, 30)), 20);
    let forward = Case {
        variation: uniform(10, 30),
        ..base()
    };
    add("10 ms each 30 ms, forward", forward, 20);
    let backward = Case {
        back_variation: uniform(10, 30),
        ..base()
    };
    add("10 ms each 30 ms, backward", backward, 20);
    add("3 ms each 30 ms", base().varying(uniform(3, 30)), 20);
    let spikes = Variation {
        spread: Spread::Spikes {
            share: 0.05,
            most: Duration::from_millis(20),
        },
        ..uniform(0, 10)
    };
    add("spikes of 20 ms", base().varying(spikes), 20);
    for most_ms in [5, 2, 1] {
        let case = Case::between_hosts(200 * MBIT, 50 * MS).varying(uniform(most_ms, 100));
        add(&format!("{most_ms} ms each 100 ms"), case, 100);
    }
    for (rtt_ns, probability, extra_ms) in [(20 * MS, 0.05, 8), (50 * MS, 0.02, 10)] {
        let case = Case {
            reorder: Reorder {
                probability,
                extra_delay: Duration::from_millis(extra_ms),
            },
            ..Case::between_hosts(50 * MBIT, rtt_ns)
        };
        let name = format!("{} % of packets {extra_ms} ms late", probability * 100.0);
        add(&name, case, 20);
    }
    let policed = Case {
        policer: Some(Policer {
            rate_bps: 10 * MBIT,
            burst_bytes: 24_000,
        }),
        ..Case::between_hosts(100 * MBIT, 30 * MS)
    };
    add("policer of 10 Mbit/s and 24 kB", policed, 20);
    let thin = Case::between_hosts(MBIT * 64 / 1_000, 100 * MS);
    rows.push(transfer("thin", thin, 150_000));
    rows
}
