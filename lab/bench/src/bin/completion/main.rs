//! Measures completion times over a long, lossy path, by scheme: from posting the message, with the
//! clear-to-send already there, to the final acknowledgement (paper sections 4.2.1, 5.2; Fig. 9 and
//! 10). Uses UDP sockets and a link emulator in real time; `agreement` does the same in virtual
//! time.

mod emulated;
mod path;
mod table;

use std::io::Write;
use std::time::Duration;

use clap::Parser;
use farwrite::SchemeName;
use path::Path;
use table::Row;

type Failure = Box<dyn std::error::Error>;

/// Measures completion times of messages over a long, lossy path.
#[derive(Parser)]
struct Args {
    /// Rate of the sender on the wire, in Gbit/s; the path is 5% faster.
    #[arg(long, default_value_t = 1.0)]
    rate_gbps: f64,
    /// Round-trip time in ms.
    #[arg(long, default_value_t = 25.0)]
    rtt_ms: f64,
    /// Length of a message, in KiB.
    #[arg(long, value_delimiter = ',', default_value = "8192,131072")]
    size_kib: Vec<u64>,
    /// Share of packets that the path loses in each direction.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1e-6,1e-5,1e-4,1e-3,1e-2,1e-1"
    )]
    loss: Vec<f64>,
    /// Mean length of a burst of losses in packets; 0: independent losses.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    burst: Vec<u32>,
    /// Schemes to compare.
    #[arg(
        long,
        value_delimiter = ';',
        value_parser = SchemeName::parse_exact,
        default_value = "sr-rto;sr-nack;ec-xor:32,8;ec-mds:32,8"
    )]
    schemes: Vec<SchemeName>,
    /// Messages of each kind.
    #[arg(long, default_value_t = 100)]
    samples: usize,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// Seed of the losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    println!(
        "{} Gbit/s, {} ms, packets and chunks of {} bytes, {} messages each, seed {}",
        args.rate_gbps, args.rtt_ms, args.mtu, args.samples, args.seed
    );
    table::print_head();
    for &kib in &args.size_kib {
        for &burst in &args.burst {
            for &loss_packet in &args.loss {
                compare(&args, kib << 10, loss_packet, burst)?;
            }
        }
    }
    Ok(())
}

/// Compares all schemes for one message size and one loss.
fn compare(args: &Args, bytes: u64, loss_packet: f64, burst: u32) -> Result<(), Failure> {
    let path = Path {
        rtt: Duration::from_secs_f64(args.rtt_ms / 1e3),
        rate_bps: args.rate_gbps * 1e9,
        loss_packet,
        burst,
        mtu: args.mtu,
        seed: args.seed,
    };
    let mut rows = Vec::new();
    for &scheme in &args.schemes {
        let times_s = emulated::run(&path, scheme, bytes, args.samples)?;
        let row = Row::new(&path, scheme, bytes, times_s);
        row.print();
        std::io::stdout().flush()?;
        rows.push(row);
    }
    table::print_best(&rows);
    Ok(())
}
