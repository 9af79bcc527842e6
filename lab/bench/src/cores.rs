//! Measures throughput and coding against threads: what the paper's Fig. 11, 14 and 16 show.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Instant;

use clap::Args;
use farwrite::{CodingThreads, RateControl, SchemeName, Sealing};
use farwrite_codes::{Codec, Layout};
use farwrite_units::stats::median;

use crate::Failure;
use crate::meter::Moved;
use crate::stack::StackPair;
use crate::table;

/// Far above the speed of the machine.
const RATE: RateControl = RateControl::Fixed {
    rate_bps: 400_000_000_000,
};
/// Bytes of a message in packets of 64 bytes: 18 bits number the packets of a message (P3.1).
const SMALL_BYTES: usize = 8 << 20;
/// Payload bytes of packets, as in the paper's Fig. 14 and 16.
const MTUS: [usize; 2] = [4096, 64];
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes a second of 400 Gbit/s.
const LINE_RATE: f64 = 50e9;

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of `cores`")]
pub(crate) struct CoresArgs {
    /// Bytes to move or to encode, in MiB.
    #[arg(long, default_value_t = 256)]
    cores_size_mib: usize,
    /// Numbers of threads; those above the number of cores are left out.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16])]
    threads: Vec<u8>,
}

/// Prints one table for codes alone, one for receive threads, and one for coding threads.
pub(crate) fn run(args: &CoresArgs, runs: usize) -> Result<(), Failure> {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    let counts = args.threads.iter().copied();
    let counts: Vec<u8> = counts
        .filter(|&count| count > 0 && usize::from(count) <= cores)
        .collect();
    let bytes = args.cores_size_mib << 20;
    codes(bytes, &counts, runs)?;
    receiving(bytes, &counts, runs)?;
    coding(bytes, &counts, runs)
}

/// Codes alone, on memory that no cache holds.
fn codes(bytes: usize, counts: &[u8], runs: usize) -> Result<(), Failure> {
    let data = vec![0x5a_u8; bytes];
    let mut rows = Vec::new();
    for name in ["ec-xor:32,8", "ec-mds:32,8"] {
        let codec = Codec::new(name.parse()?);
        let layout = Layout::new(codec.code(), bytes, CHUNK_BYTES)?;
        let mut parity = vec![0; layout.parity_bytes()];
        let mut seconds = vec![Vec::new(); counts.len()];
        for _ in 0..runs {
            for (&count, seconds) in counts.iter().zip(&mut seconds) {
                let threads = NonZeroUsize::new(count.into()).unwrap_or(NonZeroUsize::MIN);
                let start = Instant::now();
                codec.encode_message(&data, CHUNK_BYTES, &mut parity, threads)?;
                seconds.push(start.elapsed().as_secs_f64());
            }
        }
        let speeds: Vec<f64> = seconds
            .into_iter()
            .map(|seconds| bytes as f64 / median(seconds))
            .collect();
        for (&count, speed) in counts.iter().zip(&speeds) {
            rows.push([
                name.to_owned(),
                count.to_string(),
                format!("{:.1}", speed / 1e9),
                format!("{:.2}", speed / speeds[0]),
                format!("{:.1}", LINE_RATE / (speed / f64::from(count))),
            ]);
        }
    }
    let title = format!(
        "codes: {} MiB of cold memory encoded in chunks of {} KiB; medians of {runs} runs. The last \
         column: threads\nfor 400 Gbit/s at this speed of one (paper, Fig. 11: 4 for XOR, 8 for MDS).",
        bytes >> 20,
        CHUNK_BYTES >> 10
    );
    let header = ["", "threads", "GB/s", "of 1", "for 400G"];
    table::print(&title, header, &rows);
    Ok(())
}

/// Receive threads, each with a port and a channel of its own. One thread sends.
fn receiving(bytes: usize, counts: &[u8], runs: usize) -> Result<(), Failure> {
    let ways: Vec<u8> = std::iter::once(0).chain(counts.iter().copied()).collect();
    let mut rows = Vec::new();
    for mtu in MTUS {
        let bytes = if mtu < 1024 { SMALL_BYTES } else { bytes };
        let mut pairs = Vec::new();
        for &workers in &ways {
            pairs.push(pair(mtu, workers, bytes)?);
        }
        let mut rounds = Vec::new();
        for _ in 0..runs {
            let round = pairs.iter_mut();
            let round = round.map(|pair| pair.run(SchemeName::SrNack.tag()));
            rounds.push(round.collect::<Result<Vec<_>, _>>()?);
        }
        for (way, &workers) in ways.iter().enumerate() {
            let first = match workers {
                0 => format!("{mtu} bytes, one thread an end"),
                workers => format!("{mtu} bytes, {workers} that receive"),
            };
            rows.push(row(first, &rounds, way, 0, mtu));
        }
    }
    let title = format!(
        "receive threads: {} MiB in packets of 4096 bytes, {} MiB in packets of 64, by sr-nack over \
         loopback; one\nthread sends; medians of {runs} runs. Ratios are to one thread an end, in \
         the same run.",
        bytes >> 20,
        SMALL_BYTES >> 20
    );
    table::print(&title, HEADER, &rows);
    Ok(())
}

/// Coding threads at both ends, beside selective repeat.
fn coding(bytes: usize, counts: &[u8], runs: usize) -> Result<(), Failure> {
    let ways: Vec<u8> = std::iter::once(0).chain(counts.iter().copied()).collect();
    let mds: SchemeName = "ec-mds:32,8".parse()?;
    let mut pairs = Vec::new();
    for &threads in &ways {
        let mut pair = pair(MTUS[0], 0, bytes)?;
        pair.code_on(CodingThreads::Count(threads.into()))?;
        pairs.push(pair);
    }
    let mut rounds = Vec::new();
    for _ in 0..runs {
        let mut round = vec![pairs[0].run(SchemeName::SrNack.tag())?];
        for pair in &mut pairs {
            round.push(pair.run(mds.tag())?);
        }
        rounds.push(round);
    }
    let mut rows = vec![row("sr-nack".to_owned(), &rounds, 0, 0, MTUS[0])];
    for (way, threads) in ways.iter().enumerate() {
        let first = match threads {
            0 => format!("{mds}, coded in polls"),
            threads => format!("{mds}, {threads} that code"),
        };
        rows.push(row(first, &rounds, way + 1, 0, MTUS[0]));
    }
    let title = format!(
        "coding threads: {} MiB in packets of {} bytes over loopback, threads that code at both ends; \
         medians of {runs}\nruns. Bytes are those of the message, without parity. Ratios are to \
         sr-nack in the same run.",
        bytes >> 20,
        MTUS[0]
    );
    table::print(&title, HEADER, &rows);
    Ok(())
}

fn pair(mtu: usize, workers: u8, bytes: usize) -> Result<StackPair, Failure> {
    let pair = StackPair::new(
        u32::try_from(mtu)?,
        RATE,
        workers,
        Sealing::Off,
        vec![1; bytes],
        vec![2; bytes],
    )?;
    Ok(pair)
}

const HEADER: [&str; 7] = [
    "",
    "Gbit/s",
    "Mpkt/s",
    "ratio",
    "GB/core-s",
    "ratio",
    "cores",
];

/// The medians of one way, with ratios to another one.
fn row(first: String, rounds: &[Vec<Moved>], way: usize, to: usize, mtu: usize) -> [String; 7] {
    let of = |what: fn(&Moved) -> f64| median(rounds.iter().map(|round| what(&round[way])));
    let ratio = |what: fn(&Moved) -> f64| {
        let ratios = rounds
            .iter()
            .map(|round| what(&round[way]) / what(&round[to]));
        format!("{:.2}", median(ratios))
    };
    let packets = of(Moved::goodput_bps) / 8.0 / mtu as f64;
    [
        first,
        format!("{:.1}", of(Moved::goodput_bps) / 1e9),
        format!("{:.2}", packets / 1e6),
        ratio(Moved::goodput_bps),
        format!("{:.2}", of(Moved::bytes_per_core_second) / 1e9),
        ratio(Moved::bytes_per_core_second),
        format!("{:.2}", of(|moved| moved.usage.cores())),
    ]
}
