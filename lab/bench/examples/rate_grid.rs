//! Prints the results of the adaptive controller over the whole grid of paths.
//!
//! `cargo run --release -p farwrite-bench --example rate_grid [PART...]`: takes some minutes for all
//! parts.

#[path = "../../../crates/rate/tests/common/mod.rs"]
mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Parser;
use common::case::{Case, FlowKind, Messages, PathStep, Waits};
use common::grids;
use common::host::Host;
use common::measure::CaseResult;
use common::network::run;
use common::varied::{self, Row};
use farwrite_units::stats::mean;

const PARTS: [(&str, fn()); 14] = [
    ("hosts", hosts),
    ("alone", alone),
    ("equals", equals),
    ("many", many),
    ("thin", thin),
    ("two", two),
    ("beside", beside),
    ("noisy", noisy),
    ("messages", messages),
    ("lossy", lossy),
    ("start", start),
    ("bursts", bursts),
    ("steps", steps),
    ("vary", vary),
];

#[derive(Parser)]
struct Args {
    /// Parts of the grid; without any, all
    #[arg(value_parser = PARTS.map(|(name, _)| name))]
    parts: Vec<String>,
}

fn main() {
    let Args { parts } = Args::parse();
    for (name, part) in PARTS {
        if parts.is_empty() || parts.iter().any(|wanted| wanted == name) {
            println!("\n## {name}\n");
            part();
        }
    }
}

/// The columns: delays are shares of the round trip, `first` is the share of the first flow.
const COLUMNS: [&str; 15] = [
    "Mbit/s", "RTT ms", "buffer", "loss", "ECN", "flows", "case", "used", "mean", "p99", "most",
    "dropped", "Jain", "first", "to 90%",
];

fn print_row(cells: [String; 15]) {
    let cells = cells.map(|cell| format!("{cell:>7}"));
    println!("| {} |", cells.join(" | "));
}

fn head() {
    print_row(COLUMNS.map(String::from));
    print_row(COLUMNS.map(|_| "---:".into()));
}

/// Runs a case and prints its line.
fn row(case: &Case, note: &str) {
    let out = run(case);
    print_row([
        (case.rate_bps / 1_000_000).to_string(),
        (case.rtt_ns as f64 / 1e6).to_string(),
        case.buffer.to_string(),
        case.loss.to_string(),
        if case.ecn { "yes" } else { "no" }.into(),
        case.flows.len().to_string(),
        note.into(),
        format!("{:.3}", out.utilisation),
        format!("{:.3}", out.queue_mean),
        format!("{:.3}", out.queue_p99),
        format!("{:.3}", out.queue_most),
        format!("{:.4}", out.dropped),
        format!("{:.3}", out.jain),
        format!("{:.2}", out.first_share),
        out.rounds_to_90
            .map_or("-".into(), |rounds| rounds.to_string()),
    ]);
}

/// One flow between hosts as they are, on short paths of 1 Gbit/s, with and without a maximum rate. `used` is the part
/// of the path, or of the maximum. `again`: share of bytes that were sent again. Then the same with short queues and
/// policers.
fn hosts() {
    println!(
        "| host | RTT us | queue | maximum | policer | used | again | dropped | p99 queue us | pace Gbit/s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, host) in [("quiet", Host::quiet()), ("busy", Host::busy())] {
        for case in grids::hosts(host) {
            let out = run(&case);
            let most_bps = case.max_rate_bps.min(
                case.policer
                    .map_or(case.rate_bps, |policer| policer.rate_bps),
            );
            println!(
                "| {name} | {} | {} | {} | {} | {:.3} | {:.4} | {:.4} | {:.0} | {:.2} |",
                case.rtt_ns / 1_000,
                case.buffer,
                match case.max_rate_bps {
                    400_000_000_000 => "-".into(),
                    bps => (bps / 1_000_000).to_string(),
                },
                case.policer
                    .map_or("-".into(), |policer| (policer.rate_bps / 1_000_000)
                        .to_string()),
                out.utilisation * case.rate_bps as f64 / most_bps.min(case.rate_bps) as f64,
                out.repeated,
                out.dropped,
                out.queue_p99 * case.rtt_ns as f64 / 1e3,
                out.most_pace_bps as f64 / 1e9,
            );
        }
    }
}

fn alone() {
    head();
    grids::alone().for_each(|case| row(&case, ""));
}

fn equals() {
    head();
    grids::equals().for_each(|case| row(&case, ""));
}

/// Seconds 4 to 12 of many equal flows with few packets each, between hosts with and without noise.
fn many() {
    head();
    for (rate_bps, rtt_ns) in [
        (100_000_000, 10_000_000),
        (100_000_000, 25_000_000),
        (200_000_000, 40_000_000),
    ] {
        for jitter_ns in [0, 1_000_000] {
            for buffer in [0.25, 1.0, 4.0] {
                for flows in [4, 8, 16] {
                    let case = Case {
                        buffer,
                        packet_bytes: Some(1_500),
                        jitter_ns,
                        ..Case::new(rate_bps, rtt_ns)
                    };
                    let rounds = 12e9 / rtt_ns as f64;
                    let case = case.with_flows(flows, 3.0).lasting(rounds, rounds / 3.0);
                    row(&case, &format!("{} us", jitter_ns / 1_000));
                }
            }
        }
    }
}

/// Paths of which a round trip has few samples: equal flows, then messages of three seconds where the delay
/// varies, in multiples of the time of BBR, from a cold start and with the rate known. Means of six runs.
fn thin() {
    head();
    for (mbit, rtt_ms) in [(5, 40), (10, 30), (20, 60)] {
        for buffer in [1.0, 4.0] {
            for flows in [1, 2, 4, 8] {
                let case = Case {
                    buffer,
                    ..Case::between_hosts(mbit * 1_000_000, rtt_ms * 1_000_000)
                };
                let rounds = 60e3 / rtt_ms as f64;
                row(
                    &case.with_flows(flows, 3.0).lasting(rounds, rounds / 3.0),
                    "",
                );
            }
        }
    }
    println!("\n| path | slot, ms | cold | known |");
    println!("|---|---:|---:|---:|");
    for every_ms in [30, 100] {
        let known = varied::short_messages(every_ms, Some(1.0));
        for (cold, known) in varied::short_messages(every_ms, None).zip(known) {
            let seconds = |row: &Row, kind| mean((1..=6).map(|seed| message_ns(row, kind, seed)));
            let [ours, known, bbr] = [
                seconds(&cold, FlowKind::Adaptive),
                seconds(&known, FlowKind::Adaptive),
                seconds(&cold, FlowKind::Bbr),
            ];
            let (name, ours, known) = (&cold.name, ours / bbr, known / bbr);
            println!("| {name} | {every_ms} | {ours:.2} | {known:.2} |");
        }
    }
}

/// How long the first message takes, in nanoseconds, or the time after which the case ends.
fn message_ns(Row { case, .. }: &Row, kind: FlowKind, seed: u64) -> f64 {
    let mut case = case.clone();
    case.seed = seed;
    case.flows[0].kind = kind;
    let ended_ns = run(&case).message_times_ns.first().copied();
    ended_ns.map_or(case.rounds * case.rtt_ns as f64, |ns| ns as f64)
}

/// Two equal flows, of which the second starts 3 or 500 round trips later, between hosts that wait for a
/// processor at the start of each period: Jain's index over 500 round trips, from 500 after the second
/// start on. Median, least and most of five runs.
fn two() {
    println!("| later | wait ms | period ms | Jain | least | most |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for later in [3.0, 500.0] {
        for (most_ms, every_ms) in [(0, 7), (1, 7), (5, 50), (20, 50)] {
            let case = Case {
                packet_bytes: Some(1_500),
                jitter_ns: 1_000_000,
                waits: (most_ms > 0).then_some(Waits {
                    every_ns: every_ms * 1_000_000,
                    most_ns: most_ms * 1_000_000,
                }),
                ..Case::new(200_000_000, 40_000_000)
            };
            let case = case.with_flows(2, later);
            let case = case.lasting(later + 1_000.0, later + 500.0);
            let mut indices = (0..5).map(jain_of(&case)).collect::<Vec<_>>();
            indices.sort_by(f64::total_cmp);
            println!(
                "| {later} | {most_ms} | {every_ms} | {:.3} | {:.3} | {:.3} |",
                indices[2], indices[0], indices[4]
            );
        }
    }
}

/// Jain's index in a run, in which the second flow starts some fifths of a round trip later.
fn jain_of(case: &Case) -> impl Fn(u32) -> f64 {
    |fifths| {
        let mut case = case.clone();
        case.seed = u64::from(fifths) + 1;
        case.flows[1].start_rounds += f64::from(fifths) / 5.0;
        run(&case).jain
    }
}

fn beside() {
    head();
    for (rate_bps, rtt_ns, rounds) in [
        (100_000_000, 1_000_000, 20_000.0),
        (100_000_000, 25_000_000, 4_000.0),
        (1_000_000_000, 1_000_000, 20_000.0),
        (1_000_000_000, 25_000_000, 6_000.0),
        (10_000_000_000, 25_000_000, 6_000.0),
        (100_000_000, 300_000_000, 1_000.0),
    ] {
        for buffer in [0.2, 0.5, 1.0, 2.0, 4.0] {
            for (kind, name) in [(FlowKind::Cubic, "CUBIC"), (FlowKind::Reno, "Reno")] {
                let case = Case {
                    buffer,
                    ..Case::new(rate_bps, rtt_ns)
                };
                row(&case.beside(kind, 20.0).lasting(rounds, rounds / 4.0), name);
            }
        }
    }
}

/// Our share in seconds 20 to 80 beside one flow that starts at the same time or half a second
/// before, between hosts with 1 ms of noise: median, least and most of nine runs. `fair`
/// counts the runs with a share of a third to two thirds. In each run our flow starts another ninth
/// of a round trip later, because seeds have no influence without random loss.
fn noisy() {
    noisy_head();
    let queues = [0.25, 0.5, 1.0, 2.0, 4.0].map(|buffer| (buffer, 0.0));
    for (buffer, loss) in queues.into_iter().chain([(1.0, 1e-4), (1.0, 1e-3)]) {
        for (kind, name) in [(FlowKind::Cubic, "CUBIC"), (FlowKind::Bbr, "BBR")] {
            let case = Case {
                buffer,
                loss,
                packet_bytes: Some(1_500),
                jitter_ns: 1_000_000,
                ..Case::new(200_000_000, 40_000_000)
            };
            let case = case.beside(kind, 0.0).lasting(2_000.0, 500.0);
            noisy_row(&case, name);
            let mut late = case;
            late.flows[0].start_rounds = 12.0;
            noisy_row(&late, &format!("{name} first"));
        }
    }
}

fn noisy_head() {
    println!("| buffer | loss | beside | share | least | most | fair | dropped |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
}

fn noisy_row(case: &Case, name: &str) {
    let outcomes = (0..9).map(|ninth: u64| {
        let mut case = case.clone();
        case.seed = ninth + 1;
        case.flows[0].start_rounds += ninth as f64 / 9.0;
        run(&case)
    });
    let (mut shares, mut dropped): (Vec<f64>, Vec<f64>) =
        outcomes.map(|out| (out.first_share, out.dropped)).unzip();
    shares.sort_by(f64::total_cmp);
    dropped.sort_by(f64::total_cmp);
    let third = 1.0 / 3.0;
    let fair = shares
        .iter()
        .filter(|&&share| share >= third && share <= 2.0 * third);
    println!(
        "| {} | {} | {name} | {:.2} | {:.2} | {:.2} | {} of 9 | {:.3} |",
        case.buffer,
        case.loss,
        shares[4],
        shares[0],
        shares[8],
        fair.count(),
        dropped[4],
    );
}

/// Our share beside one BBR flow on a path with random loss, which keeps BBR's queue short. Our flow
/// starts 75 round trips later; shares of the round trips 250 to 1000; columns as in `noisy`. In
/// the rows with bursts, the path hands over its packets in bursts, and the hosts take none for up to
/// a millisecond. The rows `from 0.01` start at a hundredth of the rate of the path; shares of the round
/// trips 125 to 300.
fn lossy() {
    noisy_head();
    for rate_bps in [200_000_000, 1_000_000_000] {
        for loss in [0.001, 0.01] {
            for (burst_ns, stall_ns) in [(0, 0), (500_000, 1_000_000)] {
                let case = Case {
                    loss,
                    packet_bytes: Some(1_500),
                    jitter_ns: 1_000_000,
                    burst_ns,
                    stall_ns,
                    ..Case::new(rate_bps, 40_000_000)
                };
                let mut case = case.beside(FlowKind::Bbr, 0.0).lasting(1_000.0, 250.0);
                case.flows[0].start_rounds = 75.0;
                let bursts = if burst_ns > 0 { ", bursts" } else { "" };
                noisy_row(
                    &case,
                    &format!("BBR, {} Mbit/s{bursts}", rate_bps / 1_000_000),
                );
                case.flows[0].hint = Some(0.01);
                noisy_row(
                    &case.lasting(300.0, 125.0),
                    &format!("BBR, {} Mbit/s{bursts}, from 0.01", rate_bps / 1_000_000),
                );
            }
        }
    }
}

/// Messages with pauses beside one flow that always has data, on 1 Gbit/s and 40 ms with 1 ms of
/// noise, within 30 seconds: milliseconds of the first message, and the median and the longest of the
/// later ones. `fair` is a round trip and the time of the bytes at half of the rate.
fn messages() {
    println!("| beside | loss | KiB | pause ms | later | first | median | longest | fair |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (kind, name) in [
        (None, "nothing"),
        (Some(FlowKind::Bbr), "BBR"),
        (Some(FlowKind::Cubic), "CUBIC"),
    ] {
        for loss in [0.0, 0.01] {
            for kib in [64, 256, 1_024, 8_192] {
                for pause_ms in [1, 40, 200, 500] {
                    let mut case = Case {
                        loss,
                        packet_bytes: Some(4_096),
                        jitter_ns: 1_000_000,
                        ..Case::new(1_000_000_000, 40_000_000)
                    };
                    if let Some(kind) = kind {
                        case = case.beside(kind, 0.0);
                    }
                    let start = format!("| {name} | {loss} | {kib} | {pause_ms} |");
                    messages_row(case, kib << 10, pause_ms, &start);
                }
            }
        }
    }
}

fn messages_row(mut case: Case, bytes: u64, pause_ms: u64, start: &str) {
    case.flows[0].start_rounds = 75.0;
    case.flows[0].messages = Some(Messages {
        bytes,
        pause_ns: pause_ms * 1_000_000,
    });
    let times_ns = run(&case.lasting(825.0, 75.0)).message_times_ns;
    let Some((first_ns, later_ns)) = times_ns.split_first() else {
        return println!("{start} 0 | - | - | - | - |");
    };
    let mut later_ns = later_ns.to_vec();
    later_ns.sort_unstable();
    let median_ns = later_ns.get(later_ns.len() / 2).unwrap_or(&0);
    let longest_ns = later_ns.last().unwrap_or(&0);
    let fair_ns = 40_000_000 + bytes * 16;
    let cells = [*first_ns, *median_ns, *longest_ns, fair_ns].map(|ns| ns / 1_000_000);
    let [first, median, longest, fair] = cells;
    println!(
        "{start} {} | {first} | {median} | {longest} | {fair} |",
        later_ns.len()
    );
}

fn start() {
    head();
    for path in grids::paths() {
        for buffer in [0.2, 1.0] {
            let case = Case {
                buffer,
                ..path.clone()
            }
            .lasting(40.0, 20.0);
            row(&case, "none");
            for factor in [0.1, 0.5, 1.0, 2.0, 10.0] {
                row(&case.clone().hinted(factor), &format!("{factor}"));
            }
        }
    }
}

/// The first 20 round trips on a path that hands over packets in bursts, between hosts with 1 ms of
/// noise: means of 20 seeds.
fn bursts() {
    println!(
        "| Mbit/s | RTT ms | buffer | loss | burst us | used | worst | to 90% | worst | dropped |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (rate_bps, rtt_ns, buffer, packet_bytes) in [
        (10_000_000_000, 25_000_000, 1.0, 9_000),
        (3_000_000_000, 25_000_000, 1.0, 9_000),
        (1_000_000_000, 10_000_000, 0.25, 1_500),
        (20_000_000, 40_000_000, 0.25, 1_500),
    ] {
        for loss in [0.0, 0.01] {
            for burst_ns in [0, 500_000, 1_000_000, 2_000_000] {
                let case = Case {
                    buffer,
                    loss,
                    burst_ns,
                    packet_bytes: Some(packet_bytes),
                    jitter_ns: 1_000_000,
                    ..Case::new(rate_bps, rtt_ns)
                };
                bursts_row(&case.lasting(20.0, 0.0));
            }
        }
    }
}

fn bursts_row(case: &Case) {
    let outcomes: Vec<_> = (1..=20)
        .map(|seed| {
            run(&Case {
                seed,
                ..case.clone()
            })
        })
        .collect();
    let mean = |of: &dyn Fn(&CaseResult) -> f64| outcomes.iter().map(of).sum::<f64>() / 20.0;
    let rounds = |out: &CaseResult| out.rounds_to_90.unwrap_or(case.rounds);
    println!(
        "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.1} | {} | {:.4} |",
        case.rate_bps / 1_000_000,
        case.rtt_ns as f64 / 1e6,
        case.buffer,
        case.loss,
        case.burst_ns / 1_000,
        mean(&|out| out.utilisation),
        outcomes
            .iter()
            .map(|out| out.utilisation)
            .fold(1.0, f64::min),
        mean(&rounds),
        outcomes.iter().map(rounds).fold(0.0, f64::max),
        mean(&|out| out.dropped),
    );
}

fn steps() {
    head();
    for path in grids::paths() {
        for (rate_factor, rtt_factor) in [(0.5, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 2.0)] {
            let step = PathStep {
                at_rounds: 60.0,
                rate_factor,
                rtt_factor,
            };
            let case = Case {
                step: Some(step),
                ..path.clone()
            }
            .lasting(120.0, 90.0);
            row(&case, &format!("{rate_factor},{rtt_factor}"));
        }
    }
}

/// Seconds of a message on paths whose delay varies, and those of BBR with the same delays: medians of
/// three seeds. `ratio` is the quotient. The goal is 1.2, and 1.0 with random loss.
fn vary() {
    println!("| path | MB | s | BBR, s | ratio | dropped | BBR, dropped |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let rows = varied::rows();
    let next = AtomicUsize::new(0);
    let lines = Mutex::new(vec![None; rows.len()]);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.get(number) else {
                        break;
                    };
                    let line = vary_row(row);
                    lines.lock().unwrap()[number] = Some(line);
                }
            });
        }
    });
    for line in lines.into_inner().unwrap() {
        println!("{}", line.unwrap());
    }
}

fn vary_row(Row { name, case }: &Row) -> String {
    let [ours, bbr] = [FlowKind::Adaptive, FlowKind::Bbr].map(|kind| {
        let mut outcomes: Vec<_> = (1..=3)
            .map(|seed| {
                let mut case = case.clone();
                case.seed = seed;
                case.flows[0].kind = kind;
                let out = run(&case);
                let ended_ns = out.message_times_ns.first();
                (ended_ns.copied().unwrap_or(u64::MAX), out.dropped)
            })
            .collect();
        outcomes.sort_by_key(|(ns, _)| *ns);
        outcomes[1]
    });
    let seconds = |ns: u64| match ns {
        u64::MAX => format!("> {:.0}", case.rounds * case.rtt_ns as f64 / 1e9),
        ns => format!("{:.1}", ns as f64 / 1e9),
    };
    let ratio = match (ours.0, bbr.0) {
        (u64::MAX, _) | (_, u64::MAX) => "-".to_owned(),
        (ours, bbr) => format!("{:.2}", ours as f64 / bbr as f64),
    };
    let bytes = case.flows[0].messages.map_or(0, |messages| messages.bytes);
    format!(
        "| {name} | {} | {} | {} | {ratio} | {:.1} % | {:.1} % |",
        bytes as f64 / 1e6,
        seconds(ours.0),
        seconds(bbr.0),
        ours.1 * 100.0,
        bbr.1 * 100.0,
    )
}
