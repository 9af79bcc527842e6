//! Benchmarks of Farwrite, and what they are held against.

mod blast;
mod fabric;
mod meter;

use blast::{BlastConfig, BlastResult};
use clap::Parser;
use fabric::FabricPair;

/// Moves memory over loopback and prints how fast.
#[derive(Parser)]
struct Args {
    /// Bytes to move, in MiB.
    #[arg(long, default_value_t = 1024)]
    size_mib: usize,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    mtu: usize,
    /// Runs of each kind, turn and turn about, of which the median is printed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Most KiB in flight.
    #[arg(long, default_value_t = 2048)]
    window_kib: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    // Written to once, so that pages are there, and far larger than any cache.
    let cold = |fill| vec![fill; args.size_mib << 20];
    let (source, mut destination) = (cold(0x5a_u8), cold(0xff));
    let config = BlastConfig {
        mtu: args.mtu,
        window_bytes: args.window_kib << 10,
    };
    let mut pair = FabricPair::new(args.mtu, cold(0x5a), cold(0xff))?;
    let (mut raw, mut fabric) = (Vec::new(), Vec::new());
    for _ in 0..args.runs.max(1) {
        raw.push(blast::blast(config, &source, &mut destination)?);
        fabric.push(pair.run(config)?);
    }
    let raw = median(raw);
    let fabric = median(fabric);
    let bound = raw.goodput_bps();
    for (name, result) in [("raw blast", raw), ("udp fabric", fabric)] {
        println!(
            "{name:<12} {:6.2} Gbit/s  {:4.2} of raw  loss {:.1e}  cores {:.2}",
            result.goodput_bps() / 1e9,
            result.goodput_bps() / bound,
            result.loss_packet(),
            result.usage.cores()
        );
    }
    Ok(())
}

/// The result with the median goodput.
fn median(mut results: Vec<BlastResult>) -> BlastResult {
    results.sort_by(|a, b| a.goodput_bps().total_cmp(&b.goodput_bps()));
    results[results.len() / 2]
}
