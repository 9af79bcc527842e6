//! Benchmarks of Farwrite and of its references.

mod bitmap;
mod blast;
mod conditions;
mod connect;
mod cores;
mod counting;
mod fabric;
mod idle;
mod loopback;
mod memory;
mod meter;
mod paced;
mod queue_pairs;
#[path = "../examples/common/rows.rs"]
mod rows;
mod sealed;
mod sim;
mod stack;
mod table;
mod transfers;
mod window;
mod workers;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use cores::CoresArgs;
use counting::CountingAllocator;
use loopback::LoopbackArgs;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Failure = Box<dyn std::error::Error>;

/// Measures Farwrite, and compares each value with a reference of the same run.
#[derive(Parser)]
struct Args {
    /// The parts to measure; all if not given.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Runs of each measurement; medians are printed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// The file for the bytes of queue pairs that `memory` measures, one row for each number.
    #[arg(long)]
    csv: Option<PathBuf>,
    #[command(flatten)]
    loopback: LoopbackArgs,
    #[command(flatten)]
    cores: CoresArgs,
}

/// A measurement, which prints a table.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    // This part runs first: memory that other parts have freed would hide the memory of queue
    // pairs.
    /// Memory of an idle queue pair, beside the bytes of XP in a NIC.
    Memory,
    /// Goodput and bytes per core-second over loopback, beside UDP sockets alone.
    Loopback,
    /// Bytes per core-second of sealed packets beside unsealed ones.
    Sealed,
    /// Bytes per core-second with 0, 1, 2 and 4 receive workers.
    Workers,
    /// Codes alone, receiving, and messages with parity, against threads.
    Cores,
    /// Processor time of a message with 0, 1,000 and 10,000 idle queue pairs.
    Idle,
    /// Messages of 256 KiB a second on 1, 100 and 1,000 queue pairs.
    QueuePairs,
    /// Simulated transfers a second.
    Transfers,
    /// Packets into chunk bitmaps a second, without a network.
    Bitmap,
    // This part runs last, because it may fail.
    /// Processor time of a packet below a maximum rate; fails if a goal is missed.
    Paced,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let runs = usize::from(args.runs);
    println!("{}", conditions::text());
    let parts = if args.parts.is_empty() {
        Part::value_variants()
    } else {
        &args.parts
    };
    for part in parts {
        match part {
            Part::Memory => memory::run(args.csv.as_deref())?,
            Part::Loopback => loopback::run(&args.loopback, runs)?,
            Part::Sealed => sealed::run(runs)?,
            Part::Workers => workers::run(runs)?,
            Part::Cores => cores::run(&args.cores, runs)?,
            Part::Idle => idle::run(runs)?,
            Part::QueuePairs => queue_pairs::run(runs)?,
            Part::Transfers => transfers::run(runs)?,
            Part::Bitmap => bitmap::run(runs)?,
            Part::Paced => paced::run(runs)?,
        }
    }
    Ok(())
}
