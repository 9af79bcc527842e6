//! `farwrite trace`, and the traces that other commands write.

mod picture;
mod read;
mod recorder;
mod waits;

use std::path::{Path, PathBuf};

use clap::Args;
use farwrite_units::show::Count;
use serde::Serialize;

pub(crate) use recorder::{TraceArgs, Tracing};

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::table::lay_out;
use read::{Kind, Run, Side};

const EXAMPLES: &str = "\
Examples:
  farwrite send --to far.example:4792 --psk-file far.key --trace send.jsonl archive/
  farwrite trace send.jsonl
  farwrite demo --scheme sr-nack,ec-mds:32,8 --trace demo.jsonl && farwrite trace demo.jsonl

The picture shows time from left to right and the chunks of all messages from bottom to top: chunks
that left for the first time, repeats, parity, reports of losses, and how much has arrived. Each
transfer has a panel. The trace of a receiver shows what arrived.

Each line of a trace is a JSON object with `time` in milliseconds, `name` and `data`, like qlog
events. docs/trace.md lists the events.";

/// Draws a trace, and shows what messages waited for.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DrawArgs {
    /// File that `--trace` of send, recv or demo, or `farwrite.torch.trace` wrote
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// File for the picture (SVG) [default: the name of the trace, with the ending .svg]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A transfer of a trace, for JSON.
#[derive(Serialize)]
struct RunReport {
    title: Option<String>,
    side: &'static str,
    seconds: f64,
    messages: usize,
    sent_chunks: u64,
    repeated_chunks: u64,
    parity_chunks: u64,
    rebuilt_chunks: u64,
    reported_gaps: usize,
    late_packets: u64,
    duplicate_packets: u64,
    dropped_packets: u64,
}

/// The result, for JSON.
#[derive(Serialize)]
struct TraceReport {
    picture: PathBuf,
    runs: Vec<RunReport>,
}

pub(crate) fn run(args: &DrawArgs, console: &Console) -> Result<(), Failure> {
    let runs = read::read(&args.trace)?;
    if args.out.is_none() && !args.trace.is_file() {
        let what = format!(
            "{} is no file, so the picture has no name; give --out",
            args.trace.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let picture = args.out.clone();
    let picture = picture.unwrap_or_else(|| recorder::picture_of(&args.trace));
    if picture == args.trace {
        let what = format!(
            "{}: the picture would replace the trace; name it with --out",
            picture.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let reports: Vec<RunReport> = runs.iter().map(RunReport::of).collect();
    for (run, report) in runs.iter().zip(&reports) {
        console.say(described(run, report));
    }
    files::write(&picture, picture::draw(&runs))?;
    if runs.len() > picture::MOST_PANELS {
        let most = picture::MOST_PANELS;
        console.warn(format_args!(
            "the picture has the first {most} of {} transfers",
            runs.len()
        ));
    }
    console.say(format_args!("picture: {}", picture.display()));
    console.json(&TraceReport {
        picture,
        runs: reports,
    })
}

/// Reads and draws the bytes of a trace, for a fuzz target.
pub(crate) fn draw_bytes(bytes: &[u8]) {
    let Ok(runs) = read::read_lines(bytes, Path::new("trace")) else {
        return;
    };
    for run in &runs {
        described(run, &RunReport::of(run));
    }
    picture::draw(&runs);
}

impl RunReport {
    fn of(run: &Run) -> Self {
        let side = run.side();
        Self {
            title: run.title.clone(),
            side: match side {
                Side::Sender => "sender",
                Side::Receiver => "receiver",
            },
            seconds: (run.end_ms - run.start_ms) / 1e3,
            messages: run.messages.keys().filter(|of| of.side == side).count(),
            sent_chunks: run.chunks(Kind::New) + run.chunks(Kind::Repeat),
            repeated_chunks: run.chunks(Kind::Repeat),
            parity_chunks: run.chunks(Kind::Parity),
            rebuilt_chunks: run.counts.rebuilt,
            reported_gaps: run.marks(Kind::Nack).count(),
            late_packets: run.counts.late,
            duplicate_packets: run.counts.duplicates,
            dropped_packets: run.counts.dropped,
        }
    }
}

fn described(run: &Run, report: &RunReport) -> String {
    let mut text = String::new();
    if let Some(title) = &run.title {
        text.push_str(&format!("{title}\n"));
    }
    let time = waits::shown(run.end_ms - run.start_ms);
    text.push_str(&match run.side() {
        Side::Sender => format!(
            "{} in {time}: {} sent, {} of them again; {} of parity; {} reported\n",
            Count(report.messages as u64, "message"),
            Count(report.sent_chunks, "chunk"),
            report.repeated_chunks,
            report.parity_chunks,
            Count(report.reported_gaps as u64, "gap"),
        ),
        Side::Receiver => format!(
            "{} in {time}: {} reported, {} rebuilt, {} duplicate and {} late packets\n",
            Count(report.messages as u64, "message"),
            Count(report.reported_gaps as u64, "gap"),
            Count(report.rebuilt_chunks, "chunk"),
            report.duplicate_packets,
            report.late_packets,
        ),
    });
    let header = [
        "what messages waited for",
        "messages",
        "median",
        "longest",
        "",
    ]
    .map(str::to_owned);
    let rows = waits::phases(run)
        .into_iter()
        .filter_map(|phase| phase.row());
    let rows: Vec<[String; 5]> = [header].into_iter().chain(rows).collect();
    text.push_str(&lay_out(&rows, 1));
    if let Some(pause) = waits::longest_pause(run) {
        text.push_str(&format!("\nlongest pause: {pause}"));
    }
    text
}
