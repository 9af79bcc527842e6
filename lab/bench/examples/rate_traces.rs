//! Prints a trace of a mobile or of a satellite link for `farwrite link --trace`, as the grid uses it.
//!
//! `cargo run --release -p farwrite-bench --example rate_traces lte 1 120 > lte.down`: the kind (`lte` or
//! `leo`), a seed, and seconds.

#[path = "../../../crates/rate/tests/common/mod.rs"]
mod common;

use clap::{Parser, ValueEnum};
use common::traces;

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// A mobile link
    Lte,
    /// A satellite link
    Leo,
}

#[derive(Parser)]
struct Args {
    kind: Kind,
    seed: u32,
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

fn main() {
    let Args {
        kind,
        seed,
        seconds,
    } = Args::parse();
    let trace = match kind {
        Kind::Lte => traces::lte(seed.into(), seconds, 5.0),
        Kind::Leo => traces::leo(seed.into(), seconds),
    };
    let lines = trace.times_ms().iter().map(|at_ms| format!("{at_ms}\n"));
    print!("{}", lines.collect::<String>());
}
