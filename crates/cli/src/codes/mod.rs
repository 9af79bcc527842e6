//! `farwrite codes`: erasure codes for files, and their speed.

mod bench;
mod cut;
mod decode;
mod encode;
mod input;
mod lost;
mod output;

use clap::{Args, Subcommand};

use crate::console::Console;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  farwrite codes bench
  farwrite codes encode --code ec-mds:32,8 --chunk-bytes 64KiB --in data --out data.parity
  farwrite codes decode --code ec-mds:32,8 --chunk-bytes 64KiB --in damaged --parity data.parity \\
      --lost 3,17,40-44 --out data

Codes: ec-xor:K,M (parity chunk i is the XOR of the data chunks j with j mod M = i) and ec-mds:K,M
(Reed-Solomon over GF(2^8), polynomial 0x11D, with the Cauchy matrix of ISA-L's
gf_gen_cauchy1_matrix: parity as ec_encode_data of ISA-L makes it).";

/// Computes parity for files, repairs files with it, and measures the speed of this machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CodesArgs {
    #[command(subcommand)]
    command: CodesCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum CodesCommand {
    /// Measure encoding and decoding with each kernel of this machine.
    Bench(bench::BenchArgs),
    /// Rebuild lost chunks of a file from its parity.
    Decode(decode::DecodeArgs),
    /// Write the parity of a file.
    Encode(encode::EncodeArgs),
}

pub(crate) fn run(args: &CodesArgs, console: &Console) -> Result<(), Failure> {
    match &args.command {
        CodesCommand::Bench(args) => bench::run(args, console),
        CodesCommand::Decode(args) => decode::run(args, console),
        CodesCommand::Encode(args) => encode::run(args, console),
    }
}
