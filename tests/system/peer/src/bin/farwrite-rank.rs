//! One rank of a group, for the system tests. The ranks meet in a folder, which namespaces share.
//!
//! It writes `joined BYTES` with the packet size that the ranks have agreed on, then `reduced N` after
//! each all-reduce whose result is right, with the number of the operation.

use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use clap::Parser;
use farwrite::RateControl;
use farwrite_collectives::{
    Buffers, Communicator, CommunicatorOptions, ElementType, Operation, Reduction,
};

/// How long a rank waits for the files of the others, and for an operation.
const PATIENCE: Duration = Duration::from_secs(30);

/// One rank of a group.
#[derive(Parser)]
struct Args {
    /// This rank.
    #[arg(long)]
    rank: usize,
    /// The number of ranks.
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Address to bind.
    #[arg(long)]
    bind: SocketAddr,
    /// Address at which the others reach this rank, if it is not the bound one.
    #[arg(long)]
    advertise: Option<IpAddr>,
    /// Payload bytes of a packet, instead of what the paths carry.
    #[arg(long)]
    packet_bytes: Option<u32>,
    /// Wire bits a second.
    #[arg(long, default_value_t = 100_000_000)]
    rate: u64,
    /// The folder in which the ranks meet.
    #[arg(long)]
    folder: PathBuf,
    /// Values of an all-reduce.
    #[arg(long, default_value_t = 100_000)]
    values: u32,
    /// Number of all-reduces.
    #[arg(long, default_value_t = 1)]
    operations: u32,
}

fn main() {
    if let Err(e) = run(&Args::parse()) {
        eprintln!("error: {e}");
        std::process::exit(1);
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut options = CommunicatorOptions::new(args.bind);
    options.advertised = args.advertise;
    options.packet_bytes = args.packet_bytes;
    options.group.timeout = PATIENCE;
    options.group.rate_control = RateControl::Fixed {
        rate_bps: args.rate,
    };
    let communicator = Communicator::new(args.rank, args.ranks, options)?;
    let mut messages = Vec::new();
    let mut round = 0;
    while let Some(said) = communicator.meet(messages)? {
        messages = exchange(args, round, &said)?;
        round += 1;
    }
    say(&format!(
        "joined {}",
        communicator.packet_bytes().unwrap_or(0)
    ))?;
    let sum = Operation::AllReduce {
        element: ElementType::I32,
        reduction: Reduction::Sum,
    };
    for number in 0..args.operations {
        let values = (0..args.values).flat_map(|i| value(args.rank, i, number).to_ne_bytes());
        let ticket =
            communicator.submit(sum.clone(), Buffers::in_place(values.collect::<Vec<_>>()))?;
        ticket.wait(PATIENCE)?;
        let output = ticket.take_buffers().and_then(|buffers| buffers.output);
        let output = output.and_then(|buffer| buffer.into_vec());
        let expected = (0..args.values).flat_map(|i| {
            let values = (0..args.ranks).map(|rank| value(rank, i, number));
            values.fold(0, i32::wrapping_add).to_ne_bytes()
        });
        if output != Some(expected.collect()) {
            return Err(format!("all-reduce {number}: the sum is wrong").into());
        }
        say(&format!("reduced {number}"))?;
    }
    Ok(())
}

/// A value of a rank, which depends on its place and on the operation.
fn value(rank: usize, place: u32, number: u32) -> i32 {
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    let mixed = (place ^ number.rotate_left(16)).wrapping_mul(0x9E37_79B1);
    mixed.wrapping_mul(rank + 1).cast_signed()
}

/// Gives a message to all ranks, and returns the messages of all.
fn exchange(args: &Args, round: u32, said: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let name = |rank: usize| args.folder.join(format!("{round}.{rank}"));
    // A file gets its name when it is complete.
    let unfinished = args.folder.join(format!("{round}.{}.new", args.rank));
    fs::write(&unfinished, said)?;
    fs::rename(&unfinished, name(args.rank))?;
    let end = Instant::now() + PATIENCE;
    (0..args.ranks).map(|rank| read(&name(rank), end)).collect()
}

fn read(path: &Path, end: Instant) -> Result<Vec<u8>, Box<dyn Error>> {
    loop {
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                thread::sleep(Duration::from_millis(5));
            }
            other => return Ok(other?),
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
