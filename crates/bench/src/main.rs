//! Benchmarks of Farwrite, and what they are held against.

mod blast;
mod meter;

use blast::{BlastConfig, BlastResult};
use clap::Parser;

/// Moves memory over loopback and prints how fast.
#[derive(Parser)]
struct Args {
    /// Bytes to move, in MiB.
    #[arg(long, default_value_t = 1024)]
    size_mib: usize,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    mtu: usize,
    /// Runs, of which the median is printed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Most KiB in flight.
    #[arg(long, default_value_t = 2048)]
    window_kib: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    // Written to once, so that pages are there, and far larger than any cache.
    let source = vec![0x5a; args.size_mib << 20];
    let mut destination = vec![0xff; args.size_mib << 20];
    let config = BlastConfig {
        mtu: args.mtu,
        window_bytes: args.window_kib << 10,
    };
    let mut results: Vec<BlastResult> = (0..args.runs.max(1))
        .map(|_| blast::blast(config, &source, &mut destination))
        .collect::<Result<_, _>>()?;
    results.sort_by(|a, b| a.goodput_bps().total_cmp(&b.goodput_bps()));
    let median = &results[results.len() / 2];
    println!(
        "raw blast  {:6.2} Gbit/s  loss {:.1e}  cores {:.2}",
        median.goodput_bps() / 1e9,
        median.loss_packet(),
        median.usage.cores()
    );
    Ok(())
}
