//! `farwrite codes encode`: computes the parity of a file.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use farwrite_codes::Codec;
use serde_json::json;

use super::cut::CutArgs;
use super::input::Input;
use super::output::Output;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use farwrite_units::show::{ByteRate, Bytes};

const EXAMPLES: &str = "\
Examples:
  farwrite codes encode --code ec-mds:32,8 --chunk-bytes 64KiB --in data --out data.parity
  farwrite codes encode --code ec-xor:10,2 --chunk-bytes 1MiB --in data --out parity --threads 1

The file is divided into chunks of N bytes, and the chunks into groups of K. The output has the M
parity chunks of each group, group after group: byte b of parity chunk i of group g is byte
(g M + i) N + b of the output. The last group is treated as padded with zeros to K whole chunks, so
it also has M parity chunks. An empty file has no group, and no parity.";

/// Writes the parity of a file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EncodeArgs {
    #[command(flatten)]
    cut: CutArgs,
    /// File to read
    #[arg(long = "in", value_name = "FILE")]
    input: PathBuf,
    /// File for the parity; it gets its name when it is complete, and replaces an existing file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: &EncodeArgs, console: &Console) -> Result<(), Failure> {
    let cancel = crate::interrupt::catch()?;
    let cut = args.cut.cut()?;
    let mut input = Input::open(&args.input)?;
    let mut output = Output::create(&args.out, &[&input])?;
    let codec = Codec::new(cut.code);
    // The length of a pipe is unknown in advance.
    let total = match input.metadata.is_file() {
        true => input.bytes(),
        false => u64::MAX,
    };
    let progress = console.progress("encode", total);
    let start = Instant::now();
    let batch_bytes = cut.batch_groups() * cut.group_bytes();
    let (mut data, mut parity) = (Vec::new(), Vec::new());
    let mut data_bytes = 0;
    loop {
        cancel.check()?;
        input.read(batch_bytes, &mut data)?;
        if data.is_empty() {
            break;
        }
        cut.encode(&codec, &data, &mut parity)
            .or_exit(Exit::Other, "making parity")?;
        output.write(&parity)?;
        data_bytes += data.len() as u64;
        progress.show(data_bytes, ByteRate::of(data_bytes, start.elapsed()));
    }
    output.finish()?;
    let elapsed = start.elapsed();
    progress.finish(data_bytes, ByteRate::of(data_bytes, elapsed));
    let parity_bytes = cut.parity_bytes(data_bytes).unwrap_or(u64::MAX);
    console.say(format_args!(
        "wrote {}: {} of parity for {}, {} groups of {} with chunks of {} bytes",
        args.out.display(),
        Bytes(parity_bytes),
        Bytes(data_bytes),
        cut.groups(data_bytes),
        cut.code,
        cut.chunk_bytes
    ));
    console.json(&json!({
        "code": cut.code.to_string(),
        "chunk_bytes": cut.chunk_bytes,
        "data_bytes": data_bytes,
        "groups": cut.groups(data_bytes),
        "parity_bytes": parity_bytes,
        "kernel": codec.kernel().as_str(),
        "threads": cut.threads,
        "seconds": elapsed.as_secs_f64(),
        "out": args.out.display().to_string(),
    }))
}
