//! Measures how well an endpoint fills an unknown path, in virtual time.
//!
//! `cargo run --release -p farwrite-bench --bin paths` runs all paths, and ends with status 1 if one
//! misses a goal.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use farwrite::fabric::sim::{LinkConfig, SimFabric, SimNetwork};
use farwrite::{
    Endpoint, MemoryRegion, QpConfig, QpOptions, QueuePair, RecvHandle, Region, SendHandle,
    SendOptions, packet_overhead_bytes,
};
use farwrite_link::{Loss, Spread, Variation};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long an additional delay stays.
const SLOT: Duration = Duration::from_millis(20);

const SEND: usize = 0;
const RECEIVE: usize = 1;

/// Fills simulated paths with the default options of a queue pair.
#[derive(Parser)]
struct Args {
    /// Rates of the bottleneck, in Mbit/s.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    rates: Vec<u64>,
    /// Round trips in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "1,10,40,80")]
    rtts: Vec<u64>,
    /// Lengths of the queue, as multiples of the bandwidth-delay product.
    #[arg(long, value_delimiter = ',', default_value = "0.25,1,4")]
    queues: Vec<f64>,
    /// Probability that a packet is lost behind the queue.
    #[arg(long, value_delimiter = ',', default_value = "0,1e-4,1e-3,1e-2")]
    losses: Vec<f64>,
    /// Longest additional delays of each direction in milliseconds: uniform from 0, drawn again every
    /// 20 ms. Those above the round trip are left out.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    variations: Vec<u64>,
    /// Draw an additional delay for each packet, so that packets overtake one another. Otherwise they
    /// stay in order.
    #[arg(long)]
    overtaking: bool,
    /// Simulated seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Seconds at the start that are not measured.
    #[arg(long, default_value_t = 5)]
    warm_up: u64,
    /// Print CSV instead of a table.
    #[arg(long)]
    csv: bool,
    /// Threads; each simulates one path at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// One path.
#[derive(Clone, Copy)]
struct Path {
    rate_bps: u64,
    rtt: Duration,
    /// Length of the queue, as a multiple of the bandwidth-delay product.
    queue: f64,
    loss: f64,
    variation: Variation,
}

/// The results of a path.
struct Outcome {
    /// Payload that arrived, in bits per second.
    goodput_bps: f64,
    /// Payload that arrived, divided by the payload of a perfect sender.
    filled: f64,
    /// Median and 99th percentile of the delay in the queue.
    queue_delays: [Duration; 2],
    /// Share of the packets that the queue dropped.
    dropped: f64,
    /// Share of the chunks that were repeated without having been lost.
    needless: f64,
}

/// Rounds down to whole bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "paths hold gigabytes at most"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

impl Path {
    /// Uses long packets on fast paths, so that the simulation takes acceptable time.
    fn mtu(&self) -> u32 {
        if self.rate_bps <= 1_000_000_000 {
            1436
        } else if self.rate_bps <= 10_000_000_000 {
            8936
        } else {
            65_468
        }
    }

    /// The longest additional delay in milliseconds.
    fn most_ms(&self) -> u128 {
        match self.variation.spread {
            Spread::Uniform { most } => most.as_millis(),
            _ => 0,
        }
    }

    fn held_bytes(&self) -> f64 {
        self.rate_bps as f64 / 8.0 * self.rtt.as_secs_f64()
    }

    /// Length of the queue in bytes, at least eight packets.
    fn queue_bytes(&self) -> u64 {
        let least = 8 * (self.mtu() + packet_overhead_bytes(true));
        whole(self.held_bytes() * self.queue).max(least.into())
    }

    fn links(&self) -> [LinkConfig; 2] {
        let back = LinkConfig {
            delay: self.rtt / 2,
            variation: self.variation,
            ..LinkConfig::default()
        };
        let forward = LinkConfig {
            rate_bps: Some(self.rate_bps),
            queue_bytes: Some(self.queue_bytes()),
            loss: Loss::Iid {
                loss_packet: self.loss,
            },
            ..back
        };
        [forward, back]
    }
}

/// Two endpoints that exchange messages without memory, as many as the path carries.
struct Ends {
    network: SimNetwork,
    endpoints: [Endpoint<SimFabric>; 2],
    queue_pairs: [QueuePair; 2],
    memory: [MemoryRegion; 2],
    message_bytes: u64,
    /// Time of a packet at the bottleneck, in nanoseconds.
    packet_ns: u64,
    sends: VecDeque<SendHandle>,
    receives: VecDeque<RecvHandle>,
    arrived_bytes: u64,
}

impl Ends {
    fn new(path: &Path) -> Result<Self, Failure> {
        let network = SimNetwork::new(1);
        let addrs = [1, 2].map(|host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5000)));
        let [forward, back] = path.links();
        network.connect(addrs[0].ip(), addrs[1].ip(), forward, back)?;
        let [tx, rx] = addrs.map(|addr| network.endpoint(addr, 1));
        let mut endpoints = [Endpoint::new(tx?, [7; 32]), Endpoint::new(rx?, [7; 32])];
        // A message takes about a quarter of a round trip to send.
        let chunk = u64::from(path.mtu());
        let message_bytes = whole(path.held_bytes() / 4.0).clamp(16 * chunk, 64 << 20);
        let message_bytes = message_bytes / chunk * chunk;
        let options = QpOptions {
            sdr: QpConfig {
                mtu: path.mtu(),
                slots: 64,
                max_message_bytes: message_bytes,
                ..QpConfig::default()
            },
            initial_rtt: path.rtt,
            ..QpOptions::default()
        };
        let mut infos = Vec::new();
        let mut queue_pairs = Vec::new();
        for endpoint in &mut endpoints {
            let qp = endpoint.create_qp(options.clone())?;
            infos.push(endpoint.qp_info(qp)?);
            queue_pairs.push(qp);
        }
        let queue_pairs = [queue_pairs[0], queue_pairs[1]];
        endpoints[SEND].connect_qp(queue_pairs[SEND], &infos[RECEIVE])?;
        endpoints[RECEIVE].connect_qp(queue_pairs[RECEIVE], &infos[SEND])?;
        let mut register =
            |end: usize| endpoints[end].register_region(Region::ghost(message_bytes));
        let memory = [register(SEND)?, register(RECEIVE)?];
        Ok(Self {
            network,
            endpoints,
            queue_pairs,
            memory,
            message_bytes,
            packet_ns: chunk * 8 * 1_000_000_000 / path.rate_bps,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            arrived_bytes: 0,
        })
    }

    /// Keeps all slots busy. Messages share their memory, because it is not read.
    fn post(&mut self) -> Result<(), Failure> {
        let is_over = |handle: &SendHandle| handle.outcome().is_some();
        while self.sends.front().is_some_and(is_over) {
            self.sends.pop_front();
        }
        let is_over = |handle: &RecvHandle| handle.outcome().is_some();
        while self.receives.front().is_some_and(is_over) {
            self.receives.pop_front();
            self.arrived_bytes += self.message_bytes;
        }
        loop {
            let whole = self.memory[RECEIVE].whole();
            match self.endpoints[RECEIVE].post_recv(self.queue_pairs[RECEIVE], whole) {
                Ok(handle) => self.receives.push_back(handle),
                Err(farwrite::Error::Retry { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        loop {
            let whole = self.memory[SEND].whole();
            let options = SendOptions::default();
            match self.endpoints[SEND].post_send(self.queue_pairs[SEND], whole, options) {
                Ok(handle) => self.sends.push_back(handle),
                Err(farwrite::Error::Retry { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Runs to `end_ns`, and calls `sample` every `period_ns`.
    fn run(
        &mut self,
        end_ns: u64,
        period_ns: u64,
        mut sample: impl FnMut(&SimNetwork),
    ) -> Result<(), Failure> {
        // Fine enough for a queue of a few packets and for the bursts of the sender, but coarse
        // enough for an acceptable run time.
        let grain_ns = (period_ns / 16)
            .min(2 * self.packet_ns)
            .clamp(1_000, 50_000);
        let mut sample_ns = self.network.now_ns() + period_ns;
        while self.network.now_ns() < end_ns {
            let now_ns = self.network.now_ns();
            if now_ns >= sample_ns {
                sample(&self.network);
                sample_ns += period_ns;
            }
            self.post()?;
            let mut next_ns = sample_ns.min(end_ns);
            for endpoint in &mut self.endpoints {
                next_ns = next_ns.min(endpoint.poll(now_ns)?.unwrap_or(u64::MAX));
            }
            next_ns = next_ns.min(self.network.next_ns().unwrap_or(u64::MAX));
            self.network.advance_to(next_ns.max(now_ns + grain_ns));
        }
        Ok(())
    }
}

fn fill(path: &Path, args: &Args) -> Result<Outcome, Failure> {
    let mut ends = Ends::new(path)?;
    let [from, to] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host).into());
    let period_ns = u64::try_from(path.rtt.as_nanos())? / 8;
    let [warm_ns, end_ns] = [args.warm_up, args.seconds].map(|seconds| seconds * 1_000_000_000);
    ends.run(warm_ns, period_ns, |_| ())?;
    let stats = |ends: &Ends| ends.endpoints[SEND].qp_stats(ends.queue_pairs[SEND]);
    let (bytes, before, link) = (
        ends.arrived_bytes,
        stats(&ends)?.sender,
        ends.network.link_counters(from, to)?,
    );
    let mut delays = Vec::new();
    ends.run(end_ns, period_ns, |network| {
        let backlog = network.link_backlog_bytes(from, to).unwrap_or(0);
        delays.push(backlog as f64 * 8.0 / path.rate_bps as f64);
    })?;
    delays.sort_by(f64::total_cmp);
    let delay = |percent: usize| Duration::from_secs_f64(delays[delays.len() * percent / 100]);
    let (after, link_after) = (stats(&ends)?.sender, ends.network.link_counters(from, to)?);
    let ideal_bps = path.rate_bps as f64 * (1.0 - path.loss) * f64::from(path.mtu())
        / f64::from(path.mtu() + packet_overhead_bytes(true));
    let measured_s = (end_ns - warm_ns) as f64 / 1e9;
    let goodput_bps = (ends.arrived_bytes - bytes) as f64 * 8.0 / measured_s;
    let sent = (after.sent_chunks - before.sent_chunks).max(1) as f64;
    let again = (after.retransmitted_chunks - before.retransmitted_chunks) as f64;
    let offered = (link_after.offered - link.offered).max(1) as f64;
    Ok(Outcome {
        goodput_bps,
        filled: goodput_bps / ideal_bps,
        queue_delays: [delay(50), delay(99)],
        dropped: (link_after.queue_dropped - link.queue_dropped) as f64 / offered,
        needless: again / sent - path.loss,
    })
}

fn paths(args: &Args) -> Vec<Path> {
    let mut paths = Vec::new();
    for &rate in &args.rates {
        for &rtt in &args.rtts {
            for &queue in &args.queues {
                for &most_ms in args.variations.iter().filter(|most_ms| **most_ms <= rtt) {
                    paths.extend(args.losses.iter().map(|&loss| Path {
                        rate_bps: rate * 1_000_000,
                        rtt: Duration::from_millis(rtt),
                        queue,
                        loss,
                        variation: variation(most_ms, args.overtaking),
                    }));
                }
            }
        }
    }
    paths
}

fn variation(most_ms: u64, overtakes: bool) -> Variation {
    if most_ms == 0 {
        return Variation::NONE;
    }
    Variation {
        spread: Spread::Uniform {
            most: Duration::from_millis(most_ms),
        },
        every: match overtakes {
            true => Duration::ZERO,
            false => SLOT,
        },
        overtakes,
    }
}

/// The goals that a path misses: goodput, median queueing delay, needless repeats.
fn misses(path: &Path, outcome: &Outcome) -> String {
    let queue_s = path.queue_bytes() as f64 * 8.0 / path.rate_bps as f64;
    let most = (0.3 * queue_s).max(0.005);
    let checks = [
        ("goodput", outcome.filled < 0.9),
        ("queue", outcome.queue_delays[0].as_secs_f64() > most),
        ("repeats", outcome.needless > 0.005),
    ];
    let missed = checks.iter().filter(|(_, missed)| *missed);
    missed.map(|(name, _)| *name).collect::<Vec<_>>().join("; ")
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    if args.warm_up >= args.seconds {
        return Err(format!(
            "--warm-up {} leaves nothing of --seconds {}",
            args.warm_up, args.seconds
        )
        .into());
    }
    let paths = paths(&args);
    if args.csv {
        println!(
            "rate_bps,rtt_ms,variation_ms,overtaking,queue,loss,goodput_bps,filled,queue_p50_ms,queue_p99_ms,dropped,needless,\
             missed"
        );
    } else {
        println!(
            "{} paths, seconds {} to {}; goals: goodput 0.9, median queue delay at most the larger of \
             0.3 of\nthe queue and 5 ms, needless repeats 0.5 %. Packets carry 1436 bytes up to 1 \
             Gbit/s, 8936 to 10 Gbit/s,\n65468 beyond.\n",
            paths.len(),
            args.warm_up,
            args.seconds
        );
        println!(
            "Mbit/s   ms  varies  queue    loss  goodput  queue ms  p99 ms  dropped  needless  missed"
        );
    }
    let next = AtomicUsize::new(0);
    let missed = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match fill(path, &args) {
                        Ok(outcome) => {
                            let text = misses(path, &outcome);
                            missed.fetch_add(usize::from(!text.is_empty()), Ordering::Relaxed);
                            print_line(&args, path, &outcome, &text);
                        }
                        Err(error) => {
                            failure.lock().expect("no panics").get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().expect("no panics") {
        return Err(error);
    }
    let missed = missed.into_inner();
    if !args.csv {
        println!("\n{missed} of {} paths missed a goal", paths.len());
    }
    if missed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

fn print_line(args: &Args, path: &Path, outcome: &Outcome, missed: &str) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if args.csv {
        return println!(
            "{},{},{},{},{},{},{:.0},{:.4},{:.3},{:.3},{:.5},{:.5},{missed}",
            path.rate_bps,
            path.rtt.as_millis(),
            path.most_ms(),
            u8::from(path.variation.overtakes),
            path.queue,
            path.loss,
            outcome.goodput_bps,
            outcome.filled,
            ms(outcome.queue_delays[0]),
            ms(outcome.queue_delays[1]),
            outcome.dropped,
            outcome.needless,
        );
    }
    println!(
        "{:>6}  {:>3}  {:>6}  {:>5}  {:>6}  {:>7.3}  {:>8.2}  {:>6.2}  {:>7.4}  {:>8.4}  {missed}",
        path.rate_bps / 1_000_000,
        path.rtt.as_millis(),
        path.most_ms(),
        path.queue,
        path.loss,
        outcome.filled,
        ms(outcome.queue_delays[0]),
        ms(outcome.queue_delays[1]),
        outcome.dropped,
        outcome.needless,
    );
}
