//! Goodput over a long path with random losses.

use std::time::Duration;

use farwrite_boxes::lowar::Coding;

use crate::case::{Case, Spread, spaced};
use crate::rows::Rows;
use crate::{LONG, Options, fixed, iid, series};

/// A packet of 1024 bytes on a cable.
pub(crate) const FRAME_BYTES: f64 = 1106.0;
/// Classes of 2 to 256 packets. The last ones also repair bursts, at the cost of (8, 1).
const SHAPES: [(u16, u8); 11] = [
    (256, 1),
    (128, 1),
    (64, 1),
    (32, 1),
    (16, 1),
    (8, 1),
    (4, 1),
    (2, 1),
    (16, 2),
    (32, 4),
    (64, 8),
];
/// The NICs that are computed: ideal, and fitted.
const COMPUTED: [&str; 2] = [
    "Go-Back-N, ideal (computed)",
    "fitted to ConnectX-5 (computed)",
];

/// L9.
pub(crate) fn of_one(options: &Options, rtt: Duration, rows: &Rows) {
    let case = Case {
        rtt,
        ..options.case()
    };
    let panel = options.panel(rows, "L9", &spaced(rtt), &case.goodput_conditions(LONG));
    println!("round trip {rtt:?}, goodput in Gbit/s, {}", case.runs());
    print!("{:>8} {:>8}", "loss", "GBN");
    for (r, c) in SHAPES {
        print!(" {:>8}", format!("({r},{c})"));
    }
    println!(
        " {:>8} {:>9} {:>10} {:>8} {:>8}",
        "adaptive", "of best", "(32,1)/GBN", "ideal", "fitted"
    );
    let computed = Slowed::computed(options, rtt);
    for &loss in &options.loss {
        let run = |coding| {
            let case = Case {
                loss: iid(loss),
                coding,
                ..case
            };
            let goodput = case.goodput(&|_| None);
            goodput.add_to(&panel, &series(coding), loss, case.runs)
        };
        let plain = run(None).mean;
        print!("{loss:>8.0e} {plain:>8.3}");
        let mut best = Spread::default();
        let mut of_paper = 0.0;
        for (r, c) in SHAPES {
            let goodput = run(fixed(r, c));
            if (r, c) == (32, 1) {
                of_paper = goodput.mean;
            }
            if goodput.mean > best.mean {
                best = goodput;
            }
            print!(" {:>8.3}", goodput.mean);
        }
        let adaptive = run(Some(Coding::Adaptive));
        let (share, ratio) = (adaptive.mean / best.mean, of_paper / plain);
        print!(" {:>8.3} {share:>9.3} {ratio:>10.2}", adaptive.mean);
        for (name, nic) in COMPUTED.into_iter().zip(computed.into_iter().flatten()) {
            let goodput = nic.goodput_gbps(loss);
            panel.add(name, loss, "goodput_gbps", goodput);
            print!(" {:>8.2}", of_paper / goodput);
        }
        println!();
        if case.runs > 1 {
            let errors = [best, adaptive].map(|goodput| goodput.error / goodput.mean);
            println!(
                "         standard errors: best {:.3}, adaptive {:.3}, of best {:.3}",
                best.error,
                adaptive.error,
                share * errors[0].hypot(errors[1])
            );
        }
    }
    if let Some(fitted) = computed.map(|[_, fitted]| fitted) {
        println!(
            "ideal, fitted: (32,1) beside {} Gbit/s of which a loss costs 1 and {:.1} round trips",
            Slowed::LOSSLESS_GBPS,
            fitted.round_trips
        );
    }
}

/// A NIC with the lossless goodput of the paper's ConnectX-5, to which a loss costs round trips. The
/// paper has one at 10 Gbit/s.
#[derive(Clone, Copy)]
struct Slowed {
    flight: f64,
    round_trips: f64,
}

impl Slowed {
    const RATE_BPS: u64 = 10_000_000_000;
    const LOSSLESS_GBPS: f64 = 9.21;
    /// What is left at a loss of 1e-5 and 40 ms (section II.C).
    const LOSSY_GBPS: f64 = 2.92;

    /// The ideal one, and the one that is fitted to the ConnectX-5; none at another rate.
    fn computed(options: &Options, rtt: Duration) -> Option<[Self; 2]> {
        let known = options.rate_bps() == Self::RATE_BPS;
        known.then(|| [Self::new(rtt, 1.0), Self::fitted(options.case().rtt, rtt)])
    }

    fn new(rtt: Duration, round_trips: f64) -> Self {
        let flight = Self::RATE_BPS as f64 * rtt.as_secs_f64() / 8.0 / FRAME_BYTES;
        Self {
            flight,
            round_trips,
        }
    }

    /// With what a loss costs to the ConnectX-5, which was measured over the round trip `measured`.
    fn fitted(measured: Duration, rtt: Duration) -> Self {
        let there = Self::new(measured, 1.0);
        let round_trips = (Self::LOSSLESS_GBPS / Self::LOSSY_GBPS - 1.0) / (1e-5 * there.flight);
        Self::new(rtt, round_trips)
    }

    fn goodput_gbps(self, loss: f64) -> f64 {
        Self::LOSSLESS_GBPS / (1.0 + self.flight * loss * self.round_trips)
    }
}

/// L9 with several connections.
pub(crate) fn of_many(options: &Options, rows: &Rows) {
    for rtt in options.rtts() {
        of_many_over(options, rtt, rows);
    }
    println!("paper, 16 connections: (32,1) 1.28 and 1.50 times the ConnectX-5 at 1e-4 (40 and");
    println!("       80 ms), and 87% of its goodput at 1e-3");
}

fn of_many_over(options: &Options, rtt: Duration, rows: &Rows) {
    let runs = options.case().runs();
    println!("round trip {rtt:?}, goodput of all connections in Gbit/s, {runs}");
    println!(
        "{:>8} {:>11} {:>8} {:>8} {:>8} {:>8}",
        "loss", "connections", "GBN", "(32,1)", "(8,1)", "adaptive"
    );
    for loss in [0.0, 1e-4, 1e-3] {
        for &connections in &options.connections {
            let case = Case {
                rtt,
                loss: iid(loss),
                connections,
                ..options.case()
            };
            let name = format!("{}, connections: {connections}", spaced(case.rtt));
            let panel = options.panel(rows, "L9", &name, &case.goodput_conditions(LONG));
            let run = |coding| {
                let goodput = Case { coding, ..case }.goodput(&|_| None);
                goodput
                    .add_to(&panel, &series(coding), loss, case.runs)
                    .mean
            };
            let codings = [None, fixed(32, 1), fixed(8, 1), Some(Coding::Adaptive)];
            let [plain, wide, narrow, adaptive] = codings.map(run);
            println!(
                "{loss:>8.0e} {connections:>11} {plain:>8.3} {wide:>8.3} {narrow:>8.3} \
                 {adaptive:>8.3}"
            );
        }
    }
}
