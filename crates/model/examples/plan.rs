//! A plan for 128 MiB over 3750 km at 400 Gbit/s.
//!
//! `cargo run --release -p farwrite-model --example plan [LOSS_CHUNK [MESSAGE_BYTES]]`

use std::time::Instant;

use farwrite_model::plan::Question;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<f64>());
    let loss_chunk = numbers.next().unwrap_or(Ok(1e-4))?;
    let message_bytes = numbers.next().unwrap_or(Ok(134_217_728.0))?;
    let begin = Instant::now();
    let plan = Question::new(message_bytes, 400e9, 25e-3, loss_chunk).plan()?;
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
