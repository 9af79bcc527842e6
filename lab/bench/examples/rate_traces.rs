//! Prints a trace of a mobile or of a satellite link for `farwrite link --trace`, as the grid uses it.
//!
//! `cargo run --release -p farwrite-bench --example rate_traces lte 1 120 > lte.down`: the kind (`lte` or
//! `leo`), a seed, and seconds.

#[path = "../../../crates/rate/tests/common/mod.rs"]
mod common;

use common::traces;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = arguments.iter().skip(1).map(|text| text.parse::<u32>());
    let numbers: Vec<u32> = numbers.filter_map(Result::ok).collect();
    let trace = match (arguments.first().map(String::as_str), &numbers[..]) {
        (Some("lte"), &[seed, seconds @ 1..=3600]) => traces::lte(seed.into(), seconds, 5.0),
        (Some("leo"), &[seed, seconds @ 1..=3600]) => traces::leo(seed.into(), seconds),
        _ => {
            eprintln!("traces: want lte or leo, a seed, and 1 to 3600 seconds: traces lte 1 120");
            std::process::exit(2);
        }
    };
    let lines = trace.times_ms().iter().map(|at_ms| format!("{at_ms}\n"));
    print!("{}", lines.collect::<String>());
}
