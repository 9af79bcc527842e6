//! A plan for 128 MiB over 3750 km at 400 Gbit/s.
//!
//! `cargo run --release -p farwrite-bench --example model_plan [LOSS_CHUNK [MESSAGE_BYTES [BURST_CHUNKS]]]`
//!
//! With bursts, it also prints how long the brief plan of `farwrite send --scheme auto` takes.

use std::time::Instant;

use clap::Parser;
use farwrite_model::Loss;
use farwrite_model::plan::Question;

/// As in `crates/choice`: the candidates, and the limit of the random numbers and losses.
const CHOICE: [&str; 5] = [
    "sr-nack",
    "ec-xor:32,8",
    "ec-mds:128,4",
    "ec-mds:32,4",
    "ec-mds:32,8",
];
const CHOICE_WORK: u64 = 60_000;

#[derive(Parser)]
struct Args {
    /// Part of the chunks that are lost
    #[arg(default_value_t = 1e-4)]
    loss_chunk: f64,
    #[arg(default_value_t = 134_217_728.0)]
    message_bytes: f64,
    /// Mean length of bursts of losses; without it, losses are independent
    burst_chunks: Option<f64>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args {
        loss_chunk,
        message_bytes,
        burst_chunks,
    } = Args::parse();
    let mut question = Question::new(message_bytes, 400e9, 25e-3, loss_chunk);
    if let Some(burst) = burst_chunks {
        question.loss = Loss::Markov {
            p_good_to_bad: loss_chunk / (1.0 - loss_chunk) / burst,
            p_bad_to_good: 1.0 / burst,
            loss_good: 0.0,
            loss_bad: 1.0,
            packets_per_chunk: 1,
        };
        let mut brief = question.clone();
        brief.draw_work = CHOICE_WORK;
        brief.candidates = CHOICE
            .map(str::parse)
            .into_iter()
            .collect::<Result<_, _>>()?;
        let begin = Instant::now();
        let best = brief.plan()?.best().scheme;
        println!(
            "briefly, among {}: {best}, in {:?}",
            CHOICE.join(" "),
            begin.elapsed()
        );
    }
    let begin = Instant::now();
    let plan = question.plan()?;
    let planned = begin.elapsed();
    println!(
        "{:<14}{:>10}{:>10}{:>10}{:>8}{:>8}",
        "scheme", "mean ms", "p99", "p99.9", "parity", "cores"
    );
    for at in plan.alternatives() {
        let chosen = if at == plan.best() { " <" } else { "" };
        println!(
            "{:<14}{:>10.3}{:>10.3}{:>10.3}{:>8.3}{:>8.2}{chosen}",
            at.scheme.to_string(),
            at.mean_s * 1e3,
            at.p99_s * 1e3,
            at.p999_s * 1e3,
            at.parity_overhead,
            at.cores
        );
    }
    for sensitivity in plan.sensitivity()? {
        println!("{} = {:e}:", sensitivity.name, sensitivity.value);
        for (border, side) in [(sensitivity.below, "below"), (sensitivity.above, "above")] {
            if let Some(border) = border {
                println!("  {side} {:.2e}: {}", border.value, border.scheme);
            }
        }
        for stake in sensitivity.stakes {
            println!(
                "  at {:.2e}: {:.2} times {}",
                stake.value, stake.cost, stake.best
            );
        }
    }
    println!("planned in {planned:?}, all in {:?}", begin.elapsed());
    Ok(())
}
