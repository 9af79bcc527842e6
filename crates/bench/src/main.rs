//! Benchmarks of Farwrite, and what they are held against.

mod bitmap;
mod blast;
mod fabric;
mod meter;
mod stack;
mod transfers;

use bitmap::{BitmapResult, Order};
use blast::{BlastConfig, BlastResult};
use clap::Parser;
use fabric::FabricPair;
use farwrite::SchemeName;
use stack::StackPair;
use transfers::TransfersResult;

/// Moves memory over loopback and prints how fast.
#[derive(Parser)]
struct Args {
    /// Bytes to move, in MiB; 0 for none.
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
    /// Pace of the full stack, in Gbit/s on the wire.
    #[arg(long, default_value_t = 100)]
    rate_gbps: u64,
    /// Scheme of the full stack, and of the simulated transfers.
    #[arg(long, default_value = "sr-nack")]
    scheme: SchemeName,
    /// Simulated transfers in a run; 0 for none.
    #[arg(long, default_value_t = 1000)]
    transfers: u32,
    /// Whether to leave out the chunk bitmap.
    #[arg(long)]
    no_bitmap: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if args.size_mib > 0 {
        move_memory(&args)?;
    }
    if args.transfers > 0 {
        simulate(&args)?;
    }
    if !args.no_bitmap {
        count_packets(&args)?;
    }
    Ok(())
}

/// Moves cold memory over loopback by ever more of the stack.
fn move_memory(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    // Written to once, so that pages are there, and far larger than any cache.
    let cold = |fill| vec![fill; args.size_mib << 20];
    let (source, mut destination) = (cold(0x5a_u8), cold(0xff));
    let config = BlastConfig {
        mtu: args.mtu,
        window_bytes: args.window_kib << 10,
    };
    let mut pair = FabricPair::new(args.mtu, cold(0x5a), cold(0xff))?;
    let rate_bps = args.rate_gbps * 1_000_000_000;
    let tag = args.scheme.tag();
    let mtu = u32::try_from(args.mtu)?;
    let mut stack_pair = StackPair::new(mtu, rate_bps, tag, cold(0x5a), cold(0xff))?;
    let (mut raw, mut fabric, mut stack) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.runs.max(1) {
        raw.push(blast::blast(config, &source, &mut destination)?);
        fabric.push(pair.run(config)?);
        stack.push(stack_pair.run()?);
    }
    let (raw, fabric, stack) = (median(raw), median(fabric), median(stack));
    let bound = raw.goodput_bps();
    for (name, result) in [
        ("raw blast", raw),
        ("udp fabric", fabric),
        ("full stack", stack),
    ] {
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

/// Moves small messages over a lossy path in virtual time.
fn simulate(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let scheme = args.scheme.scheme().tag();
    let mut results = Vec::new();
    for _ in 0..args.runs.max(1) {
        results.push(transfers::run(args.transfers, scheme)?);
    }
    results.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    let median: TransfersResult = results[results.len() / 2];
    println!(
        "simulated    {:6.0} transfers/s of 256 KiB at 1% loss, with a network, two endpoints and \
         queue pairs made for each  cores {:.2}",
        median.per_second(),
        median.usage.cores()
    );
    Ok(())
}

/// Takes packets into chunk bitmaps.
fn count_packets(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    for (name, order) in [
        ("in order", Order::Sequential),
        ("shuffled within 64", Order::Shuffled),
    ] {
        let mut results = Vec::new();
        for _ in 0..args.runs.max(1) {
            results.push(bitmap::run(order)?);
        }
        results.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
        let median: BitmapResult = results[results.len() / 2];
        println!(
            "bitmap       {:6.1} million packets/s on one core, 64 a chunk, {name}",
            median.per_second() / 1e6
        );
    }
    Ok(())
}

/// The result with the median goodput.
fn median(mut results: Vec<BlastResult>) -> BlastResult {
    results.sort_by(|a, b| a.goodput_bps().total_cmp(&b.goodput_bps()));
    results[results.len() / 2]
}
