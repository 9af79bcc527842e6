//! Paths that people have: delay that varies, packets that overtake, policers, thin links, traces.
//!
//! Each path carries one message of the first flow. What counts is its time beside that of BBR, which
//! meets the same delays.

use std::sync::Arc;
use std::time::Duration;

use farwrite_link::{Policer, Reorder, Spread, Variation};

use super::case::{Case, FlowKind, Messages, Waits, uniform};
use super::traces;

const MS: u64 = 1_000_000;
const KBIT: u64 = 1_000;
const MBIT: u64 = 1_000_000;

/// A path, and a name that says what it does.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) case: Case,
}

/// How the delay of a stated row varies.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Drawn again every 20 ms; packets stay in order.
    Kept,
    /// Drawn for each packet; packets overtake.
    Free,
    /// As `Kept`, with a share of packets lost behind the queue.
    Losing(f64),
    /// As `Kept`, beside another flow that always has data.
    Beside(FlowKind),
}

use FlowKind::{Bbr, Cubic};
use Order::{Beside, Free, Kept, Losing};

/// Mbit/s, round trip in ms, longest additional delay of each direction in ms, and how it varies.
const STATED: [(u64, u64, u64, Order); 40] = [
    (10, 5, 0, Kept),
    (10, 5, 1, Kept),
    (10, 5, 3, Kept),
    (100, 5, 0, Losing(0.001)),
    (100, 5, 1, Free),
    (100, 5, 3, Losing(0.01)),
    (1_000, 5, 0, Kept),
    (1_000, 5, 1, Kept),
    (1_000, 5, 3, Free),
    (10_000, 5, 0, Kept),
    (10_000, 5, 1, Losing(0.001)),
    (10_000, 5, 3, Kept),
    (10, 50, 0, Beside(Cubic)),
    (10, 50, 1, Kept),
    (10, 50, 3, Losing(0.01)),
    (10, 50, 10, Free),
    (10, 50, 20, Kept),
    (100, 50, 0, Losing(0.01)),
    (100, 50, 1, Free),
    (100, 50, 3, Beside(Cubic)),
    (100, 50, 10, Kept),
    (100, 50, 20, Losing(0.001)),
    (1_000, 50, 0, Losing(0.001)),
    (1_000, 50, 1, Kept),
    (1_000, 50, 3, Beside(Bbr)),
    (1_000, 50, 10, Losing(0.01)),
    (1_000, 50, 20, Kept),
    (10_000, 50, 0, Kept),
    (10_000, 50, 1, Kept),
    (10_000, 50, 3, Losing(0.001)),
    (10_000, 50, 10, Free),
    (10_000, 50, 20, Kept),
    (10, 600, 0, Kept),
    (10, 600, 20, Kept),
    (100, 600, 0, Losing(0.01)),
    (100, 600, 10, Free),
    (1_000, 600, 0, Kept),
    (1_000, 600, 20, Losing(0.001)),
    (10_000, 600, 0, Kept),
    (10_000, 600, 10, Kept),
];

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = reported();
    rows.extend(STATED.map(stated));
    rows.extend(traced());
    rows.extend(waiting());
    rows
}

/// A message that ends the case. After eight times the time that its bytes need, the case ends too.
fn row(name: String, mut case: Case, bytes: u64) -> Row {
    case.flows[0].messages = Some(Messages {
        bytes,
        pause_ns: 1 << 60,
    });
    case.ends_with_message = true;
    let policed_bps = case.policer.map_or(u64::MAX, |policer| policer.rate_bps);
    let rate_bps = case.rate_bps.min(policed_bps) as f64;
    let needed_ns = case.rtt_ns as f64 + bytes as f64 * 8e9 / rate_bps;
    let rounds = 8.0 * needed_ns / case.rtt_ns as f64;
    Row {
        name,
        case: case.lasting(rounds.ceil(), 0.0),
    }
}

/// One of [`STATED`]: what the path carries in 5 seconds, or in 30 round trips.
fn stated((mbit, rtt_ms, most_ms, order): (u64, u64, u64, Order)) -> Row {
    let (mut variation, mut case) = (
        uniform(most_ms, 20),
        Case::between_hosts(mbit * MBIT, rtt_ms * MS),
    );
    let what = match order {
        Kept => "in order".to_owned(),
        Free => {
            variation.overtakes = true;
            variation.every = Duration::ZERO;
            "overtaking".to_owned()
        }
        Losing(loss) => {
            case.loss = loss;
            format!("in order, {} % lost", loss * 100.0)
        }
        Beside(kind) => {
            case = case.beside(kind, 0.0);
            format!("in order, beside {kind:?}")
        }
    };
    let name = format!("{mbit} Mbit/s, {rtt_ms} ms + {most_ms} ms, {what}");
    let ms = 5_000.max(30 * rtt_ms);
    row(name, case.varying(variation), mbit * MBIT / 8_000 * ms)
}

/// A path of a low rate whose delay varies.
fn slow(mbit: u64) -> Case {
    Case::between_hosts(mbit * MBIT, 30 * MS).varying(uniform(10, 30))
}

/// Messages of three seconds on the paths of [`slow`], whose delay is drawn again every `every_ms`.
#[allow(dead_code, reason = "only the example `rate_grid` needs them")]
pub(crate) fn short_messages(every_ms: u64, hint: Option<f64>) -> impl Iterator<Item = Row> {
    [2, 5, 10].into_iter().map(move |mbit| {
        let mut case = slow(mbit).varying(uniform(10, every_ms));
        case.flows[0].hint = hint;
        row(format!("{mbit} Mbit/s"), case, mbit * MBIT / 8 * 3)
    })
}

/// Paths on which users had slow transfers.
fn reported() -> Vec<Row> {
    let wifi = || Case::between_hosts(50 * MBIT, 30 * MS);
    let spikes = Variation {
        spread: Spread::Spikes {
            share: 0.05,
            most: Duration::from_millis(20),
        },
        ..uniform(0, 10)
    };
    let late = |rtt_ms, probability, extra_ms| Case {
        reorder: Reorder {
            probability,
            extra_delay: Duration::from_millis(extra_ms),
        },
        ..Case::between_hosts(50 * MBIT, rtt_ms * MS)
    };
    let policed = Case {
        policer: Some(Policer {
            rate_bps: 10 * MBIT,
            burst_bytes: 24_000,
        }),
        ..Case::between_hosts(100 * MBIT, 30 * MS)
    };
    let named = [
        ("10 ms each 30 ms", slow(2), 2),
        ("10 ms each 30 ms", slow(5), 3),
        ("10 ms each 30 ms, rate known", slow(10).hinted(1.0), 3),
        ("10 ms each 30 ms", wifi().varying(uniform(10, 30)), 20),
        (
            "the same, forward only",
            Case {
                variation: uniform(10, 30),
                ..wifi()
            },
            20,
        ),
        (
            "the same, backward only",
            Case {
                back_variation: uniform(10, 30),
                ..wifi()
            },
            20,
        ),
        ("3 ms each 30 ms", wifi().varying(uniform(3, 30)), 20),
        ("spikes of 20 ms", wifi().varying(spikes), 20),
        (
            "5 ms each 100 ms",
            Case::between_hosts(200 * MBIT, 50 * MS).varying(uniform(5, 100)),
            100,
        ),
        (
            "1 ms each 100 ms",
            Case::between_hosts(200 * MBIT, 50 * MS).varying(uniform(1, 100)),
            100,
        ),
        ("5 % of packets 8 ms late", late(20, 0.05, 8), 20),
        ("2 % of packets 10 ms late", late(50, 0.02, 10), 20),
        ("policer of 10 Mbit/s with 24 kB", policed, 20),
    ];
    let mut rows: Vec<_> = named
        .into_iter()
        .map(|(what, case, size)| {
            let (mbit, rtt_ms) = (case.rate_bps / MBIT, case.rtt_ns / MS);
            let name = format!("{mbit} Mbit/s, {rtt_ms} ms, {what}");
            row(name, case, size * 1_000_000)
        })
        .collect();
    let thin = Case::between_hosts(64 * KBIT, 100 * MS);
    rows.push(row("64 kbit/s, 100 ms".to_owned(), thin, 150_000));
    rows
}

/// Mobile and satellite links.
fn traced() -> Vec<Row> {
    [
        ("LTE, up to 12 Mbit/s", traces::lte(1, 120, 1.0), 60, 5),
        ("LTE, up to 60 Mbit/s", traces::lte(2, 120, 5.0), 60, 30),
        ("LEO", traces::leo(1, 120), 50, 300),
        ("LEO, other rates", traces::leo(2, 120), 50, 300),
    ]
    .into_iter()
    .map(|(what, trace, rtt_ms, mb)| {
        let mbit = trace.mean_bps() / MBIT;
        let case = Case {
            // Mobile networks and satellites have long queues.
            buffer: 4.0,
            trace: Some(Arc::new(trace)),
            ..Case::between_hosts(mbit * MBIT, rtt_ms * MS)
        };
        let name = format!("{what}, {mbit} Mbit/s in the mean, {rtt_ms} ms");
        row(name, case, mb * 1_000_000)
    })
    .collect()
}

/// Hosts that are busy, so that programs wait for a processor.
fn waiting() -> impl Iterator<Item = Row> {
    let waits = [(7, 1), (7, 6), (50, 20)];
    [0, 3, 10].into_iter().flat_map(move |vary_ms| {
        waits.map(|(every_ms, most_ms)| {
            let case = Case {
                waits: Some(Waits {
                    every_ns: every_ms * MS,
                    most_ns: most_ms * MS,
                }),
                ..Case::between_hosts(50 * MBIT, 30 * MS).varying(uniform(vary_ms, 30))
            };
            let name = format!(
                "50 Mbit/s, 30 ms, {vary_ms} ms each 30 ms, hosts wait up to {most_ms} of {every_ms} ms"
            );
            row(name, case, 20_000_000)
        })
    })
}
