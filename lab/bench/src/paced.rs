//! What a pace costs: the full stack below a maximum rate and with an adaptive rate, beside the same stack without
//! either. A paced sender sleeps often, and each of its system calls carries fewer packets.

use farwrite::{RateControl, SchemeName, Sealing};
use farwrite_units::stats::median;

use crate::Failure;
use crate::blast::{BlastConfig, blast};
use crate::meter::Moved;
use crate::stack::StackPair;
use crate::table;

const GBIT: u64 = 1_000_000_000;
const MTU: u32 = 4096;
/// Much more than the caches, and half a second at the lowest pace.
const BYTES: usize = 64 << 20;
/// More than loopback carries.
const UNPACED_BPS: u64 = 100 * GBIT;

/// A way to send, and its goals.
struct Way {
    name: &'static str,
    control: RateControl,
    /// The maximum rate on the wire, if loopback carries it.
    max_bps: Option<u64>,
    /// Highest processor time of a packet, as a multiple of that of the first way.
    most_cost: Option<f64>,
}

/// Of a maximum rate, the least that arrives.
const LEAST_RATE: f64 = 0.95;

const fn fixed(name: &'static str, rate_bps: u64, most_cost: Option<f64>) -> Way {
    let max_bps = if rate_bps < UNPACED_BPS {
        Some(rate_bps)
    } else {
        None
    };
    Way {
        name,
        control: RateControl::Fixed { rate_bps },
        max_bps,
        most_cost,
    }
}

const fn adaptive(name: &'static str, max_bps: Option<u64>, most_cost: Option<f64>) -> Way {
    Way {
        name,
        control: RateControl::Adaptive {
            max_bps,
            start: None,
        },
        max_bps,
        most_cost,
    }
}

const WAYS: [Way; 6] = [
    fixed("fixed, unpaced", UNPACED_BPS, None),
    adaptive("adaptive", None, Some(1.1)),
    fixed("fixed, 1 Gbit/s", GBIT, Some(1.3)),
    adaptive("adaptive, at most 1 Gbit/s", Some(GBIT), Some(1.3)),
    fixed("fixed, 4 Gbit/s", 4 * GBIT, Some(1.3)),
    adaptive("adaptive, at most 4 Gbit/s", Some(4 * GBIT), Some(1.3)),
];

/// UDP sockets alone.
const FLOORS: [(&str, Option<u64>); 3] = [
    ("raw blast, unpaced", None),
    ("raw blast, 1 Gbit/s", Some(GBIT)),
    ("raw blast, 4 Gbit/s", Some(4 * GBIT)),
];

/// Moves the memory in each way in alternation, prints medians, and fails if a goal is missed.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let memory = || (vec![0x5a; BYTES], vec![0xff; BYTES]);
    let stacks = WAYS.iter().map(|way| {
        let (source, target) = memory();
        StackPair::new(MTU, way.control, 0, Sealing::Off, source, target)
    });
    let mut stacks = stacks.collect::<Result<Vec<_>, _>>()?;
    let (source, mut target) = memory();
    let mut rounds = Vec::new();
    for _ in 0..runs {
        let mut round = Vec::new();
        for stack in &mut stacks {
            round.push(stack.run(SchemeName::SrNack.tag())?);
        }
        for (_, pace_bps) in FLOORS {
            let config = BlastConfig {
                mtu: MTU as usize,
                window_bytes: 2 << 20,
                pace_bps,
            };
            round.push(blast(config, &source, &mut target)?);
        }
        rounds.push(round);
    }
    let (mut rows, mut missed) = (Vec::new(), 0);
    for (number, way) in WAYS.iter().enumerate() {
        let (cells, goals) = row(way, &rounds, number);
        rows.push(cells);
        missed += goals;
    }
    for (number, (name, pace_bps)) in FLOORS.into_iter().enumerate() {
        let floor = fixed(name, pace_bps.unwrap_or(UNPACED_BPS), None);
        rows.push(row(&floor, &rounds, WAYS.len() + number).0);
    }
    let title = format!(
        "paced: {} MiB in packets of {MTU} bytes over loopback, both ends in one process; medians of {runs} runs.\n\
         A packet's processor time is that of both ends, user and system. The ratio is to the first row of the \
         same\nrun, and its goal stands behind it. of: what arrived with headers, divided by the maximum rate (goal \
         {LEAST_RATE}).\nThe last rows are the floor: UDP sockets alone, which send and sleep in the same batches.",
        BYTES >> 20
    );
    let header = ["", "Gbit/s", "of", "us/packet", "ratio", "goal", ""];
    table::print(&title, header, &rows);
    match missed {
        0 => Ok(()),
        _ => Err(format!("{missed} goals are missed").into()),
    }
}

fn cost_us(moved: &Moved) -> f64 {
    moved.usage.cpu.as_secs_f64() * 1e6 / moved.sent as f64
}

/// The medians of one way, and the number of its goals that are missed.
fn row(way: &Way, rounds: &[Vec<Moved>], number: usize) -> ([String; 7], u32) {
    let of = |what: &dyn Fn(&[Moved]) -> f64| median(rounds.iter().map(|round| what(round)));
    let packet_bytes = u64::from(MTU) + u64::from(farwrite::packet_overhead_bytes(true));
    let wire_bps = of(&|round| {
        let moved = &round[number];
        (moved.received * packet_bytes * 8) as f64 / moved.usage.wall.as_secs_f64()
    });
    let share = way.max_bps.map(|max_bps| wire_bps / max_bps as f64);
    let ratio = of(&|round| cost_us(&round[number]) / cost_us(&round[0]));
    let is_slow = share.is_some_and(|share| share < LEAST_RATE);
    let is_dear = way.most_cost.is_some_and(|most| ratio > most);
    let verdict = match (is_slow, is_dear) {
        (false, false) => "",
        (true, false) => "rate missed",
        (false, true) => "cost missed",
        (true, true) => "both missed",
    };
    let cells = [
        way.name.to_owned(),
        format!("{:.2}", wire_bps / 1e9),
        share.map_or_else(String::new, |share| format!("{share:.2}")),
        format!("{:.2}", of(&|round| cost_us(&round[number]))),
        format!("{ratio:.2}"),
        way.most_cost
            .map_or_else(String::new, |most| format!("{most:.1}")),
        verdict.to_owned(),
    ];
    (cells, u32::from(is_slow) + u32::from(is_dear))
}
