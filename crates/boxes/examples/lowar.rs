//! Goodput of one connection over a long path that loses packets: Go-Back-N alone, LoWAR with fixed
//! r and c, and LoWAR that adapts. The settings are those of the paper's figure 9 (claim L9): 10
//! Gbit/s, round trips of 40 and 80 ms, an MTU of 1024, messages of 1 MB. Options
//! change them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of an example"
)]

#[path = "../tests/common/network.rs"]
mod network;

use std::time::{Duration, Instant};

use farwrite_boxes::Backpressure;
use farwrite_boxes::lowar::{Coding, Config, Lowar, Shape};
use farwrite_net::{Loss, Payload};
use farwrite_rc::{QpConfig, Remote, Request};
use network::Setting;

const MESSAGE_BYTES: u32 = 1_000_000;
const RKEY: u32 = 1;
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
struct Sweep {
    rate_bps: u64,
    rtts: Vec<Duration>,
    losses: Vec<f64>,
    seconds: f64,
}

fn main() {
    let sweep = arguments();
    let began = Instant::now();
    for &rtt in &sweep.rtts {
        table(&sweep, rtt);
    }
    println!(
        "paper, (32,1) beside a ConnectX-5: 2.05 (1e-5) to 5.01 (1e-4) at 40 ms, 11.55 to 19.07 \
         at 80 ms"
    );
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

/// `--seconds S`, `--gbps R`, `--rtt-us T,T`, `--loss P,P`.
fn arguments() -> Sweep {
    let mut sweep = Sweep {
        rate_bps: 10_000_000_000,
        rtts: [40, 80].map(Duration::from_millis).to_vec(),
        losses: vec![0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3],
        seconds: 2.0,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        let numbers = value.split(',').map(str::parse::<f64>);
        let numbers: Vec<_> = numbers.map(|n| n.expect("a number")).collect();
        match arg.as_str() {
            "--seconds" => sweep.seconds = numbers[0],
            "--gbps" => sweep.rate_bps = (numbers[0] * 1e9) as u64,
            "--rtt-us" => {
                let rtts = numbers.iter().map(|us| Duration::from_secs_f64(us * 1e-6));
                sweep.rtts = rtts.collect();
            }
            "--loss" => sweep.losses = numbers,
            _ => panic!("{arg}: the options are --seconds, --gbps, --rtt-us and --loss"),
        }
    }
    sweep
}

fn table(sweep: &Sweep, rtt: Duration) {
    println!("round trip {rtt:?}, goodput in Gbit/s");
    print!("{:>8} {:>8}", "loss", "GBN");
    for (r, c) in SHAPES {
        print!(" {:>8}", format!("({r},{c})"));
    }
    println!(" {:>8} {:>9} {:>10}", "adaptive", "of best", "(32,1)/GBN");
    for &loss in &sweep.losses {
        let run = |coding| goodput_gbps(sweep, rtt, loss, coding);
        let plain = run(None);
        print!("{loss:>8.0e} {plain:>8.3}");
        let mut best: f64 = 0.0;
        let mut of_paper = 0.0;
        for (r, c) in SHAPES {
            let shape = Shape::new(r, c).expect("a shape");
            let goodput = run(Some(Coding::Fixed(shape)));
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

/// The goodput between the start and the end of a run.
fn goodput_gbps(sweep: &Sweep, rtt: Duration, loss_packet: f64, coding: Option<Coding>) -> f64 {
    let config = coding.map(|coding| Config {
        coding,
        ..Config::default()
    });
    let loss = if loss_packet > 0.0 {
        Loss::Iid { loss_packet }
    } else {
        Loss::None
    };
    let mut path = network::Path::<Lowar>::new(&Setting {
        rate_bps: sweep.rate_bps,
        delay: rtt / 2,
        loss,
        seed: 9,
        boxes: [config.clone(), config],
        backpressure: Backpressure::default(),
    });
    let qpn = path.connect(
        0,
        QpConfig {
            mtu_bytes: 1024,
            window_packets: 200_000,
            ack_timeout_ns: 4 * rtt.as_nanos() as u64,
            retry_limit: 255,
            ..QpConfig::new(2)
        },
    );
    let memory = &mut path.nic(1).memory;
    let registered = memory.register_ghost(RKEY, 0, u64::from(MESSAGE_BYTES));
    registered.expect("a free key");
    let mut done = 0;
    let (mut posted, mut now_ns) = (0, 0);
    let end_ns = (sweep.seconds * 1e9) as u64;
    while now_ns < end_ns {
        while posted < done + 512 {
            let request = Request::Write {
                data: Payload::Ghost(MESSAGE_BYTES),
                to: Remote {
                    rkey: RKEY,
                    addr: 0,
                },
                imm: None,
            };
            path.nic(0)
                .post(qpn, posted, request)
                .expect("a queue pair");
            posted += 1;
        }
        now_ns += 10_000_000;
        path.network.run_until(now_ns);
        done += path.completions(0, qpn).len() as u64;
    }
    // The first round trip brings nothing.
    let useful_s = sweep.seconds - rtt.as_secs_f64();
    done as f64 * f64::from(MESSAGE_BYTES) * 8e-9 / useful_s
}
