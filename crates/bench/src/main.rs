//! Benchmarks of Farwrite, and what they are held against.

mod blast;
mod conditions;
mod fabric;
mod loopback;
mod meter;
mod stack;
mod table;
mod transfers;
mod window;

use clap::{Parser, ValueEnum};
use loopback::LoopbackArgs;

type Failure = Box<dyn std::error::Error>;

/// Measures Farwrite, each number beside another of the same run.
#[derive(Parser)]
struct Args {
    /// What to measure; without one, everything.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Runs of each kind, of which medians are printed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    loopback: LoopbackArgs,
}

/// One measurement, which prints one table.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    /// Goodput and bytes per core-second over loopback, beside UDP sockets alone.
    Loopback,
    /// Simulated transfers a second.
    Transfers,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let runs = usize::from(args.runs);
    conditions::print();
    let parts = if args.parts.is_empty() {
        Part::value_variants()
    } else {
        &args.parts
    };
    for part in parts {
        match part {
            Part::Loopback => loopback::run(&args.loopback, runs)?,
            Part::Transfers => transfers::run(runs)?,
        }
    }
    Ok(())
}
