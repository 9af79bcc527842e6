//! `farwrite codes bench`: how fast this machine encodes and decodes, compared with reading memory.

mod report;
mod work;

use std::num::NonZeroUsize;

use clap::Args;
use farwrite_codes::{Code, Codec, Kernel};
use serde_json::json;

use crate::console::{Console, Progress};
use crate::exit::{Exit, Failure};
use crate::memory::check_available;
use crate::proc::proc_value;
use farwrite_transfer::Cancel;
use farwrite_units::parse::{List, parse_size};
use report::{CodeReport, Row};
use work::{Task, Work};

const EXAMPLES: &str = "\
Examples:
  farwrite codes bench
  farwrite codes bench --code ec-mds:20,4 --lost 1,2,3,4 --chunk-bytes 4KiB
  farwrite codes bench --kernel scalar --rounds 1 --bytes 16MiB
  farwrite codes bench --threads 2 --json > codes.json

Speeds are bytes of data over time; parity is not counted. Chunks lie one behind the other. Decoding
rebuilds the first chunks of every group; ec-xor does not need all others for that. Reading adds all
data up and keeps nothing. Every round does everything once, in turn, so that all run under the
same conditions. What every kernel rebuilds is compared with the data.";

/// The numbers of lost chunks in a group that are measured by default, as far as the code repairs
/// them.
const LOSSES: [usize; 3] = [1, 4, 8];

/// Measures encoding and decoding with each kernel of this machine, and reading the same data.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BenchArgs {
    /// Erasure codes, as ec-mds:32,8 or ec-xor:32,8
    #[arg(long, value_name = "CODES", default_value = "ec-xor:32,8,ec-mds:32,8")]
    code: List<Code>,
    /// Bytes of a chunk
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    chunk_bytes: u64,
    /// Bytes of data, of which whole groups are taken, one at least: 1 to 16GiB
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    bytes: u64,
    /// Lost data chunks of each group to rebuild; without it, 1, 4 and 8, as far as the code
    /// repairs them
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    #[arg(allow_hyphen_values = true)]
    lost: Option<Vec<usize>>,
    /// Threads to compute on
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024), allow_hyphen_values = true)]
    threads: u16,
    /// Kernels to measure; without it, all of this machine
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_kernel)]
    kernel: Option<Vec<Kernel>>,
    /// Rounds, of which the median counts: 1 to 1000
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000), allow_hyphen_values = true)]
    rounds: u16,
}

fn parse_kernel(text: &str) -> Result<Kernel, String> {
    let found = Kernel::available().find(|kernel| kernel.as_str() == text);
    found.ok_or_else(|| {
        let names: Vec<_> = Kernel::available().map(Kernel::as_str).collect();
        format!(
            "not a kernel of this machine, which has {}",
            names.join(", ")
        )
    })
}

pub(super) fn run(args: &BenchArgs, console: &Console) -> Result<(), Failure> {
    let cancel = crate::interrupt::catch()?;
    let kernels = match &args.kernel {
        Some(kernels) => kernels.clone(),
        None => Kernel::available().collect(),
    };
    let threads = NonZeroUsize::new(args.threads.into()).unwrap_or(NonZeroUsize::MIN);
    let chunk_bytes = usize::try_from(args.chunk_bytes).expect("64-bit machine");
    let mut plans = Vec::new();
    for &code in args.code.iter() {
        plans.push((code, tasks(code, args.lost.as_deref(), &kernels)?));
        let help = "take smaller --bytes or --chunk-bytes";
        check_available(wanted(code, args), "codes bench", help)?;
    }
    // The processor model (proc(5)).
    let cpu = proc_value("/proc/cpuinfo", "model name");
    console.say(report::introduction(args, cpu.as_deref()));
    let mut codes = Vec::new();
    for (code, tasks) in plans {
        let groups = usize::try_from(groups(code, args)).expect("64-bit machine");
        let mut work = Work::new(code, chunk_bytes, groups, threads);
        let steps = tasks.len() as u64 * u64::from(args.rounds);
        let progress = console.progress(&code.to_string(), steps);
        let rows = measure(&mut work, &tasks, args.rounds, &progress, &cancel)?;
        progress.finish(steps, "");
        codes.push(CodeReport {
            code: code.to_string(),
            data_bytes: work.data.len(),
            rows,
        });
    }
    console.say(report::table(&codes));
    console.json(&json!({
        "cpu": cpu,
        "chunk_bytes": args.chunk_bytes,
        "threads": args.threads,
        "rounds": args.rounds,
        "codes": codes,
    }))
}

/// The tasks for a code: reading, then encoding and decoding with each kernel.
fn tasks(code: Code, lost: Option<&[usize]>, kernels: &[Kernel]) -> Result<Vec<Task>, Failure> {
    let most = code.m().min(code.k());
    let losses = match lost {
        Some(lost) => lost.to_vec(),
        None => LOSSES.into_iter().filter(|lost| *lost <= most).collect(),
    };
    if let Some(lost) = losses.iter().find(|lost| !(1..=most).contains(*lost)) {
        let what = format!("--lost {lost}: {code} repairs 1 to {most} lost chunks of a group");
        return Err(Failure::new(Exit::Usage, what));
    }
    let mut tasks = vec![Task::Read];
    for &kernel in kernels {
        let codec = Codec::with_kernel(code, kernel);
        tasks.push(Task::Encode(codec.clone()));
        for &lost in &losses {
            tasks.push(Task::Decode(codec.clone(), lost));
        }
    }
    Ok(tasks)
}

fn groups(code: Code, args: &BenchArgs) -> u64 {
    (args.bytes / (code.k() as u64 * args.chunk_bytes)).max(1)
}

/// The memory for data, parity, and a copy of the data, in bytes.
fn wanted(code: Code, args: &BenchArgs) -> u64 {
    let group = (2 * code.k() + code.m()) as u64 * args.chunk_bytes;
    group.saturating_mul(groups(code, args))
}

/// Runs all rounds and returns the median of each task.
fn measure(
    work: &mut Work,
    tasks: &[Task],
    rounds: u16,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Vec<Row>, Failure> {
    let mut times = vec![Vec::new(); tasks.len()];
    let mut done = 0;
    for _ in 0..rounds {
        for (task, times) in tasks.iter().zip(&mut times) {
            cancel.check()?;
            times.push(work.run(task)?);
            done += 1;
            progress.show(done, task);
        }
    }
    let medians = times.iter_mut().map(|times| {
        times.sort();
        times[times.len() / 2]
    });
    Ok(Row::all(tasks, medians, work.data.len(), work.threads))
}
