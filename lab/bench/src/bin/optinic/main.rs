//! The figures of `OptiNIC`'s paper that need no network: the Hadamard transform and the adaptive
//! timeouts that ship, at the paper's settings.
//!
//! `make -C lab figures-optinic` writes their rows, from which `make -C lab figures` draws.

#[path = "../../conditions.rs"]
mod conditions;
mod layouts;
mod measured;
#[path = "../../../examples/common/rows.rs"]
mod rows;
mod splits;
mod timeouts;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use rows::Rows;

type Failure = Box<dyn std::error::Error>;

/// Runs the Hadamard transform and the adaptive timeouts at the settings of OptiNIC's figures.
#[derive(Parser)]
struct Args {
    /// The parts to run; all if not given.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Messages for each setting of `layouts`.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Runs of each measurement of `splits`; medians count.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Groups of `timeouts`, each with a seed of its own.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    groups: u64,
    /// The file for the results, one row for each number.
    #[arg(long)]
    csv: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Errors after losses, by layout and stride (O7, Fig. 7).
    Layouts,
    /// Time of the transform, by the number of blocks (OT3, Table 3).
    Splits,
    /// Timeouts by policy, as a path becomes slower (OA, section 3.1.2).
    Timeouts,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let parts = match args.parts.is_empty() {
        true => Part::value_variants(),
        false => &args.parts,
    };
    let rows = Rows::new();
    for part in parts {
        let start = Instant::now();
        match part {
            Part::Layouts => layouts::run(&rows, args.messages)?,
            Part::Splits => splits::run(&rows, args.runs)?,
            Part::Timeouts => timeouts::run(&rows, args.groups),
        }
        println!("{:.0} s", start.elapsed().as_secs_f64());
    }
    rows.write(args.csv.as_deref());
    Ok(())
}
