//! Measures the speed of codes, compared with reading the same memory and with ISA-L (paper Fig.
//! 11), and of the Hadamard transform, compared with copying.

mod coded_message;
mod hadamard;
mod reading;
mod table;

use clap::Parser;
use coded_message::{CodedMessage, ISAL_TILES, What};
use farwrite_codes::{Code, Kind};
use reading::Loop;

/// Measures encoding and recovering a message in cold memory, alternating with reading it.
#[derive(Parser)]
struct Args {
    /// Size of the message, in MiB.
    #[arg(long, default_value_t = 128)]
    size_mib: usize,
    /// Size of a chunk, in KiB.
    #[arg(long, default_value_t = 64)]
    chunk_kib: usize,
    /// Data chunks of a group.
    #[arg(long, default_value_t = 32)]
    k: usize,
    /// Parity chunks of a group.
    #[arg(long, default_value_t = 8)]
    m: usize,
    /// Runs of each operation; the median is printed.
    #[arg(long, default_value_t = 21)]
    runs: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let code = |kind| Code::new(kind, args.k, args.m);
    let (mds, xor) = (code(Kind::Mds)?, code(Kind::Xor)?);
    let mut coded_message = CodedMessage::new(mds, args.size_mib << 20, args.chunk_kib << 10)?;
    let mut whats: Vec<What> = Loop::available().map(What::Read).collect();
    // Encode with the MDS code last, because the recovery uses its parity.
    whats.extend([What::Encode(xor), What::Encode(mds)]);
    whats.extend(ISAL_TILES.map(What::IsalEncode));
    for lost in [1, 4, 8]
        .into_iter()
        .filter(|&lost| lost <= args.m.min(args.k))
    {
        whats.push(What::Recover(lost));
        whats.extend(ISAL_TILES.map(|tile| What::IsalRecover(lost, tile)));
    }
    whats.push(What::EncodeOnThreads(mds));
    let mut seconds = vec![Vec::new(); whats.len()];
    for run in 0..args.runs.max(1) {
        for (&what, seconds) in whats.iter().zip(&mut seconds) {
            seconds.push(coded_message.run(what)?);
            if run == 0 {
                coded_message.check(what)?;
            }
        }
    }
    table::print(&coded_message, &whats, &seconds);
    drop(coded_message);
    hadamard::print(args.size_mib << 20, args.runs)
}
