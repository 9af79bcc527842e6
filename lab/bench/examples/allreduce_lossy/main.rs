//! Measures all-reduces over a path that loses packets, in virtual time: exact and bounded.
//!
//! Each rank has a link to every other one. `cargo run --release -p farwrite-bench --example
//! allreduce_lossy -- --help` lists the options.
//!
//! Rounds follow one another, `pause-ms` apart, but at least a round trip. Each round has `in-flight`
//! all-reduces at once, like a training step with several buckets of gradients. A row shows the times
//! of the rounds after the first ten.
//!
//! With `--sites 2`, half of the ranks are in each of two sites. All pairs of ranks between the sites
//! share one link, with a queue of a round trip, and adapt to it ([`sites`]).
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

#[allow(dead_code)]
#[path = "../../../../crates/collectives/tests/virtual_time/world.rs"]
mod world;

mod sites;

use std::error::Error;
use std::time::Duration;

use clap::{Parser, value_parser};
use farwrite::RateControl;
use farwrite::fabric::sim::{LinkConfig, Loss};
use farwrite_collectives::{
    Buffers, Delivery, ElementType, GroupOptions, Hadamard, Operation, OperationOptions, Reduction,
    Report,
};
use farwrite_deadline::{Bounds, Policy};

use world::World;

const WARM_UP: usize = 10;

const ALL_REDUCE: Operation = Operation::AllReduce {
    element: ElementType::F32,
    reduction: Reduction::Sum,
};

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u16).range(1..))]
    ranks: u16,
    /// KiB of a tensor
    #[arg(long, default_value_t = 600)]
    kib: u32,
    /// Mbit/s of a link
    #[arg(long, default_value_t = 1_000.0)]
    mbit: f64,
    #[arg(long, default_value_t = 10_000.0)]
    rtt_us: f64,
    /// Part of the packets that is lost
    #[arg(long, default_value_t = 0.01)]
    loss: f64,
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u16).range(1..))]
    rounds: u16,
    /// All-reduces at once
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u16).range(1..))]
    in_flight: u16,
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=2))]
    sites: u8,
    /// Between two rounds, at least a round trip
    #[arg(long, default_value_t = 0.0)]
    pause_ms: f64,
}

/// The parameters of a measurement.
struct Setting {
    ranks: usize,
    bytes: usize,
    link: LinkConfig,
    rtt: Duration,
    rounds: usize,
    in_flight: usize,
    has_sites: bool,
    pause: Duration,
}

impl Setting {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let Args {
            ranks,
            kib,
            mbit,
            rtt_us,
            loss: loss_packet,
            rounds,
            in_flight,
            sites,
            pause_ms,
        } = Args::parse();
        let has_sites = sites == 2;
        if has_sites && (in_flight != 1 || ranks % 2 != 0) {
            return Err("--sites 2 needs --in-flight 1 and an even number of ranks".into());
        }
        let rtt = Duration::from_secs_f64(rtt_us * 1e-6);
        let rate_bps = (mbit * 1e6) as u64;
        Ok(Self {
            ranks: ranks.into(),
            bytes: usize::try_from(kib)? * 1024,
            rtt,
            rounds: rounds.into(),
            in_flight: in_flight.into(),
            has_sites,
            pause: Duration::from_secs_f64(pause_ms * 1e-3).max(rtt),
            link: LinkConfig {
                delay: rtt / 2,
                rate_bps: Some(rate_bps),
                loss: Loss::Iid { loss_packet },
                queue_time: has_sites.then_some(rtt),
                ..LinkConfig::default()
            },
        })
    }

    fn options(&self) -> GroupOptions {
        let mut options = GroupOptions {
            initial_rtt: self.rtt,
            ..GroupOptions::default()
        };
        if !self.has_sites {
            let rate_bps = self.link.rate_bps.unwrap_or(1_000_000_000) * 95 / 100;
            options.rate_control = RateControl::Fixed { rate_bps };
        }
        options.bounded.policy = Policy::LossTarget {
            target_ppm: 20_000,
            rtt_ns: self.rtt.as_nanos() as u64,
        };
        options.bounded.bounds = Bounds {
            min_ns: 100_000,
            max_ns: 60_000_000_000,
        };
        options
    }

    fn measure(&self, name: &str, options: &GroupOptions, delivery: Delivery) {
        let mut world = World::new(1, self.ranks, self.link, options);
        if self.has_sites {
            sites::join(&world, self.link, |rank| rank * 2 / self.ranks);
        }
        let how = OperationOptions {
            delivery,
            ..OperationOptions::default()
        };
        self.show(name, &mut world, |world| {
            for rank in 0..self.ranks {
                for _ in 0..self.in_flight {
                    let buffers = Buffers::in_place(vec![0; self.bytes]);
                    world.start(rank, &ALL_REDUCE, how, buffers);
                }
            }
            world.run_until_over(self.in_flight);
            let ended = (0..self.ranks).flat_map(|rank| world.take(rank));
            ended.map(|ended| ended.expect("it ends").0).collect()
        });
    }

    /// Runs all rounds and prints a row. `round` runs one of them.
    fn show(
        &self,
        name: &str,
        world: &mut World,
        mut round: impl FnMut(&mut World) -> Vec<Report>,
    ) {
        let (mut times_ns, mut missing, mut results) = (Vec::new(), 0, 0);
        let (mut lacking, mut operations) = (0, 0);
        for number in 0..WARM_UP + self.rounds {
            let start_ns = world.network.now_ns();
            let reports = round(world);
            if number >= WARM_UP {
                times_ns.push(world.network.now_ns() - start_ns);
                missing += reports.iter().map(|r| r.missing_bytes).sum::<u64>();
                results += reports.iter().map(|r| r.bytes).sum::<u64>();
                lacking += reports.iter().filter(|r| r.missing_bytes > 0).count();
                operations += reports.len();
            }
            // The last messages are confirmed before the next round.
            world.run(self.pause.as_nanos() as u64, |_| false);
        }
        times_ns.sort_unstable();
        let at = |share: f64| times_ns[((times_ns.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        let mean = times_ns.iter().sum::<u64>() as f64 / times_ns.len() as f64 / 1e6;
        println!(
            "{name:<28} mean {mean:8.2} ms, median {:8.2}, p99 {:8.2}; lacking {:.2}% of bytes, {:.0}% of operations",
            at(0.5),
            at(0.99),
            missing as f64 * 100.0 / results as f64,
            lacking as f64 * 100.0 / operations as f64,
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let setting = Setting::parse()?;
    let exact = setting.options();
    if setting.has_sites {
        sites::measure(&setting, &exact);
        return Ok(());
    }
    let mut coded = exact.clone();
    coded.scheme = "ec-mds:32,8".parse()?;
    let mut auto = exact.clone();
    auto.scheme = "auto".parse()?;
    setting.measure("exact, sr-nack", &exact, Delivery::Exact);
    setting.measure("exact, ec-mds:32,8", &coded, Delivery::Exact);
    setting.measure("exact, auto", &auto, Delivery::Exact);
    setting.measure("bounded, auto", &auto, Delivery::Bounded);
    let mut parts = exact.clone();
    parts.bounded.parts = Delivery::Bounded;
    setting.measure("bounded, bounded parts", &parts, Delivery::Bounded);
    parts.bounded.hadamard = Some(Hadamard::default());
    setting.measure("bounded parts, Hadamard", &parts, Delivery::Bounded);
    for (name, options) in [("bounded, sr-nack", exact), ("bounded, ec-mds:32,8", coded)] {
        setting.measure(name, &options, Delivery::Bounded);
        let mut transformed = options;
        transformed.bounded.hadamard = Some(Hadamard::default());
        setting.measure(
            &format!("{name}, Hadamard"),
            &transformed,
            Delivery::Bounded,
        );
    }
    Ok(())
}
