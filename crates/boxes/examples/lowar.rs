//! The figures of LoWAR's paper in virtual time, over 10 Gbit/s with an MTU of 1024.
//!
//! - `goodput` (figure 9, claim L9): one connection over 40 and 80 ms with random losses, messages
//!   of 1 MB: Go-Back-N alone, LoWAR with fixed r and c, and LoWAR that adapts.
//! - `bursts` (figure 11, L11): LoWAR(64, 8) over 40 ms with bursts of losses.
//! - `small` (figure 12, L12): small messages, of which 128 are under way, over 40 ms at 0.1% loss.
//! - `latency` (figure 13, L13): one message of 1 MB in a local network, with chosen losses.
//!
//! Without a name: all four. `--seconds S` sets the length of the runs, `--gbps R`, `--rtt-us T,T`
//! and `--loss P,P` the path of `goodput`.
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of an example"
)]

#[path = "../tests/common/network.rs"]
mod network;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use farwrite_boxes::Backpressure;
use farwrite_boxes::lowar::{Coding, Config, Lowar, Shape};
use farwrite_link::Dice;
use farwrite_net::{Loss, Payload};
use farwrite_rc::{QpConfig, Remote, Request};
use network::Setting;

const MB: u32 = 1_000_000;
const RKEY: u32 = 1;
/// How often a burst of losses begins, per packet.
const BURSTS: f64 = 1e-4;
/// Far above the time for which a box holds packets.
const MIN_ACK_TIMEOUT_NS: u64 = 20_000_000;
const FIGURES: [&str; 4] = ["goodput", "bursts", "small", "latency"];
const SHAPES: [(u16, u8); 8] = [
    (256, 1),
    (128, 1),
    (64, 1),
    (32, 1),
    (16, 1),
    (8, 1),
    (4, 1),
    (2, 1),
];

/// What is measured.
#[derive(Clone)]
struct Options {
    figures: Vec<String>,
    rate_bps: u64,
    rtts: Vec<Duration>,
    losses: Vec<f64>,
    seconds: f64,
}

/// A connection that always has messages to send.
#[derive(Clone, Copy)]
struct Case {
    rate_bps: u64,
    rtt: Duration,
    loss: Loss,
    coding: Option<Coding>,
    message_bytes: u32,
    /// Messages that are posted and not done.
    queue: u64,
    seconds: f64,
}

fn main() {
    let options = arguments();
    let began = Instant::now();
    let wants = |name: &str| options.figures.iter().any(|figure| figure == name);
    if wants("goodput") {
        for &rtt in &options.rtts {
            goodput(&options, rtt);
        }
        println!(
            "paper, (32,1) beside a ConnectX-5: 2.05 (1e-5) to 5.01 (1e-4) at 40 ms, 11.55 to \
             19.07 at 80 ms"
        );
    }
    if wants("bursts") {
        bursts(&options);
    }
    if wants("small") {
        small(&options);
    }
    if wants("latency") {
        latency(&options);
    }
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

fn arguments() -> Options {
    let mut options = Options {
        figures: Vec::new(),
        rate_bps: 10_000_000_000,
        rtts: [40, 80].map(Duration::from_millis).to_vec(),
        losses: vec![0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3],
        seconds: 2.0,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if FIGURES.contains(&arg.as_str()) {
            options.figures.push(arg);
            continue;
        }
        let value = args.next().unwrap_or_default();
        let numbers = value.split(',').map(str::parse::<f64>);
        let numbers = || -> Vec<f64> { numbers.map(|n| n.expect("a number")).collect() };
        match arg.as_str() {
            "--seconds" => options.seconds = numbers()[0],
            "--gbps" => options.rate_bps = (numbers()[0] * 1e9) as u64,
            "--rtt-us" => {
                let rtts = numbers();
                let rtts = rtts.iter().map(|us| Duration::from_secs_f64(us * 1e-6));
                options.rtts = rtts.collect();
            }
            "--loss" => options.losses = numbers(),
            _ => panic!(
                "{arg}: the figures are {}; the options are --seconds, --gbps, --rtt-us and --loss",
                FIGURES.join(", ")
            ),
        }
    }
    if options.figures.is_empty() {
        options.figures = FIGURES.map(String::from).to_vec();
    }
    options
}

fn fixed(packets: u16, units: u8) -> Option<Coding> {
    Some(Coding::Fixed(Shape::new(packets, units).expect("a shape")))
}

fn iid(loss_packet: f64) -> Loss {
    if loss_packet > 0.0 {
        Loss::Iid { loss_packet }
    } else {
        Loss::None
    }
}

impl Options {
    /// Messages of 1 MB over 40 ms.
    fn case(&self) -> Case {
        Case {
            rate_bps: self.rate_bps,
            rtt: Duration::from_millis(40),
            loss: Loss::None,
            coding: None,
            message_bytes: MB,
            queue: 512,
            seconds: self.seconds,
        }
    }
}

fn goodput(options: &Options, rtt: Duration) {
    println!("round trip {rtt:?}, goodput in Gbit/s");
    print!("{:>8} {:>8}", "loss", "GBN");
    for (r, c) in SHAPES {
        print!(" {:>8}", format!("({r},{c})"));
    }
    println!(" {:>8} {:>9} {:>10}", "adaptive", "of best", "(32,1)/GBN");
    for &loss in &options.losses {
        let run = |coding| {
            goodput_gbps(Case {
                rtt,
                loss: iid(loss),
                coding,
                ..options.case()
            })
        };
        let plain = run(None);
        print!("{loss:>8.0e} {plain:>8.3}");
        let mut best: f64 = 0.0;
        let mut of_paper = 0.0;
        for (r, c) in SHAPES {
            let goodput = run(fixed(r, c));
            if (r, c) == (32, 1) {
                of_paper = goodput;
            }
            best = best.max(goodput);
            print!(" {goodput:>8.3}");
        }
        let adaptive = run(Some(Coding::Adaptive));
        let (share, ratio) = (adaptive / best, of_paper / plain);
        println!(" {adaptive:>8.3} {share:>9.3} {ratio:>10.2}");
    }
}

/// L11. Bursts begin at 0.01% of the packets, and lose a share `p_high` of theirs. They have a fixed
/// number of data packets, or a mean one (a Markov chain, so some are much longer).
fn bursts(options: &Options) {
    for is_fixed in [true, false] {
        let kind = if is_fixed { "fixed" } else { "mean" };
        println!("round trip 40 ms, bursts of a {kind} length; goodput in Gbit/s");
        bursts_of(options, is_fixed);
    }
    println!("paper: (64,8) about 8 up to bursts of 8 and beyond; Go-Back-N declines");
}

fn bursts_of(options: &Options, is_fixed: bool) {
    println!(
        "{:>6} {:>6} {:>8} {:>8} {:>8}",
        "p_high", "burst", "GBN", "(64,8)", "adaptive"
    );
    for loss_bad in [0.3, 0.7] {
        for burst in [2, 4, 6, 8, 10, 12] {
            let markov = Loss::Markov {
                p_good_to_bad: BURSTS,
                p_bad_to_good: 1.0 / f64::from(burst),
                loss_good: 0.0,
                loss_bad,
            };
            let run = |coding| {
                let case = Case {
                    loss: if is_fixed { Loss::None } else { markov },
                    coding,
                    ..options.case()
                };
                goodput_of(&case, is_fixed.then(|| fixed_bursts(burst, loss_bad)))
            };
            let [plain, coded, adaptive] = [None, fixed(64, 8), Some(Coding::Adaptive)].map(run);
            println!("{loss_bad:>6} {burst:>6} {plain:>8.3} {coded:>8.3} {adaptive:>8.3}");
        }
    }
}

/// The numbers of lost packets.
fn fixed_bursts(burst: u32, loss_bad: f64) -> BTreeSet<u64> {
    let mut dice = Dice::new(11);
    let mut lost = BTreeSet::new();
    let mut at = 0;
    while at < 10_000_000 {
        if dice.chance(BURSTS) {
            lost.extend((at..at + u64::from(burst)).filter(|_| dice.chance(loss_bad)));
            at += u64::from(burst);
        }
        at += 1;
    }
    lost
}

/// L12.
fn small(options: &Options) {
    println!("round trip 40 ms, 128 messages under way; goodput in Gbit/s");
    println!(
        "{:>8} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "bytes", "lossless", "GBN 0.1%", "(32,1)", "(8,1)", "(32,1) keeps"
    );
    for message_bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        let run = |(loss, coding)| {
            goodput_gbps(Case {
                loss: iid(loss),
                coding,
                message_bytes,
                queue: 128,
                seconds: 5.0 * options.seconds,
                ..options.case()
            })
        };
        let runs = [
            (0.0, None),
            (1e-3, None),
            (1e-3, fixed(32, 1)),
            (1e-3, fixed(8, 1)),
        ];
        let [lossless, plain, coded, more] = runs.map(run);
        println!(
            "{message_bytes:>8} {lossless:>9.4} {plain:>9.4} {coded:>9.4} {more:>9.4} {:>12.3}",
            coded / lossless
        );
    }
    println!("paper: LoWAR nearly equals lossless, the ConnectX-5 falls");
}

/// L13: what LoWAR adds to one message without losses, and what losses add to that.
fn latency(options: &Options) {
    println!("local network, one message of 1 MB, time in us");
    println!(
        "{:>9} {:>9} {:>9} {:>10} {:>10} {:>11}",
        "", "lossless", "added", "one loss", "16 losses", "two blocks"
    );
    let plain = time_us(options, None, BTreeSet::new());
    println!("{:>9} {plain:>9.1}", "GBN");
    for (r, c) in [(8, 1), (32, 1), (64, 1), (128, 1), (128, 16)] {
        let run = |lost: BTreeSet<u64>| time_us(options, fixed(r, c), lost);
        let lossless = run(BTreeSet::new());
        // The message follows one of a packet. Losses begin at several places of several blocks,
        // where a burst of c packets does not leave its block.
        let (block, places) = (u64::from(r), u64::from(r - u16::from(c) + 1));
        let first = |place: u64| 1 + (1 + 37 * place % 700) / block * block + 29 * place % places;
        let firsts = (0..20).map(first);
        let mean = |lost: &dyn Fn(u64) -> BTreeSet<u64>| {
            let times: Vec<f64> = firsts.clone().map(|at| run(lost(at)) - lossless).collect();
            times.iter().sum::<f64>() / times.len() as f64
        };
        let one = mean(&|at| [at].into());
        let two = mean(&|at| [at, at + block].into());
        let many = if c == 16 {
            format!("{:.1}", mean(&|at| (at..at + 16).collect()))
        } else {
            String::new()
        };
        let (shape, added) = (format!("({r},{c})"), lossless - plain);
        println!("{shape:>9} {lossless:>9.1} {added:>9.1} {one:>10.1} {many:>10} {two:>11.1}");
    }
    println!("paper: added is the time of the repair packets; losses add in proportion to r,");
    println!("       twice as much in two blocks, and 16 in one block as much as one");
}

fn path(case: &Case, lost: Option<BTreeSet<u64>>) -> (network::Path<Lowar>, u32) {
    let config = case.coding.map(|coding| Config {
        coding,
        ..Config::default()
    });
    let setting = Setting {
        rate_bps: case.rate_bps,
        delay: case.rtt / 2,
        loss: case.loss,
        seed: 9,
        boxes: [config.clone(), config],
        backpressure: Backpressure::default(),
    };
    let mut path = match lost {
        Some(lost) => network::Path::<Lowar>::with_lost(&setting, lost),
        None => network::Path::<Lowar>::new(&setting),
    };
    let qpn = path.connect(
        0,
        QpConfig {
            mtu_bytes: 1024,
            window_packets: 200_000,
            ack_timeout_ns: (4 * case.rtt.as_nanos() as u64).max(MIN_ACK_TIMEOUT_NS),
            retry_limit: 255,
            ..QpConfig::new(2)
        },
    );
    let memory = &mut path.nic(1).memory;
    let registered = memory.register_ghost(RKEY, 0, u64::from(MB));
    registered.expect("a free key");
    (path, qpn)
}

fn write(bytes: u32) -> Request {
    Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote {
            rkey: RKEY,
            addr: 0,
        },
        imm: None,
    }
}

/// The goodput between the start and the end of a run.
fn goodput_gbps(case: Case) -> f64 {
    goodput_of(&case, None)
}

/// The same, where the path loses packets with these numbers too.
fn goodput_of(case: &Case, lost: Option<BTreeSet<u64>>) -> f64 {
    let (mut path, qpn) = path(case, lost);
    let mut done = 0;
    let (mut posted, mut now_ns) = (0, 0);
    let end_ns = (case.seconds * 1e9) as u64;
    while now_ns < end_ns {
        while posted < done + case.queue {
            let request = write(case.message_bytes);
            path.nic(0)
                .post(qpn, posted, request)
                .expect("a queue pair");
            posted += 1;
        }
        now_ns += 100_000;
        path.network.run_until(now_ns);
        done += path.completions(0, qpn).len() as u64;
    }
    // The first round trip brings nothing.
    let useful_s = case.seconds - case.rtt.as_secs_f64();
    done as f64 * f64::from(case.message_bytes) * 8e-9 / useful_s
}

/// From the post of a message until its acknowledgement. A message of a packet goes before it, so
/// that the boxes know each other.
fn time_us(options: &Options, coding: Option<Coding>, lost: BTreeSet<u64>) -> f64 {
    let case = Case {
        rtt: Duration::from_micros(10),
        coding,
        ..options.case()
    };
    let (mut path, qpn) = path(&case, Some(lost));
    let begin_ns = 1_000_000;
    path.nic(0).post(qpn, 0, write(1000)).expect("a queue pair");
    path.network.run_until(begin_ns);
    path.completions(0, qpn);
    path.nic(0).post(qpn, 1, write(MB)).expect("a queue pair");
    while path.completions(0, qpn).is_empty() {
        let now_ns = path.network.now_ns();
        path.network.run_until(now_ns + 100);
    }
    (path.network.now_ns() - begin_ns) as f64 / 1000.0
}
