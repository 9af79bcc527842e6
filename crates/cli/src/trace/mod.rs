//! `farwrite trace`, and the traces that other commands write.

mod picture;
mod read;
mod recorder;
mod waits;

use std::path::{Path, PathBuf};

use clap::Args;
use farwrite_units::show::Count;
use serde_json::{Value, json};

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
    let picture = picture.unwrap_or_else(|| args.trace.with_extension("svg"));
    if picture == args.trace {
        let what = format!(
            "{}: the picture would replace the trace; name it with --out",
            picture.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    for run in &runs {
        console.say(described(run));
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
    console.json(&json!({
        "picture": picture.display().to_string(),
        "runs": runs.iter().map(of_run).collect::<Vec<_>>(),
    }))
}

/// Reads and draws the bytes of a trace, for a fuzz target.
pub(crate) fn draw_bytes(bytes: &[u8]) {
    let Ok(runs) = read::read_lines(bytes, Path::new("trace")) else {
        return;
    };
    for run in &runs {
        described(run);
        of_run(run);
    }
    picture::draw(&runs);
}

/// A transfer of a trace, for JSON.
fn of_run(run: &Run) -> Value {
    let side = match run.side() {
        Side::Sender => "sender",
        Side::Receiver => "receiver",
    };
    json!({
        "title": run.title,
        "side": side,
        "seconds": (run.end_ms - run.start_ms) / 1e3,
        "messages": run.drawn_messages(),
        "sent_chunks": run.chunks(Kind::New) + run.chunks(Kind::Repeat),
        "repeated_chunks": run.chunks(Kind::Repeat),
        "parity_chunks": run.chunks(Kind::Parity),
        "rebuilt_chunks": run.rebuilt,
        "reported_gaps": run.marks(Kind::Nack).count(),
        "late_packets": run.late,
        "duplicate_packets": run.duplicates,
        "dropped_packets": run.dropped,
    })
}

fn described(run: &Run) -> String {
    let mut text = String::new();
    if let Some(title) = &run.title {
        text.push_str(&format!("{title}\n"));
    }
    let time = waits::shown(run.end_ms - run.start_ms);
    let messages = Count(run.drawn_messages() as u64, "message");
    let gaps = Count(run.marks(Kind::Nack).count() as u64, "gap");
    text.push_str(&match run.side() {
        Side::Sender => {
            let (again, parity) = (run.chunks(Kind::Repeat), run.chunks(Kind::Parity));
            let sent = Count(run.chunks(Kind::New) + again, "chunk");
            format!(
                "{messages} in {time}: {sent} sent, {again} of them again; {parity} of parity; {gaps} \
                 reported\n"
            )
        }
        Side::Receiver => format!(
            "{messages} in {time}: {gaps} reported, {} rebuilt, {} duplicate and {} late packets\n",
            Count(run.rebuilt, "chunk"),
            run.duplicates,
            run.late
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
    let mut rows = vec![header];
    rows.extend(waits::phases(run).into_iter().map(|phase| {
        [
            phase.name.to_owned(),
            phase.messages.to_string(),
            waits::shown(phase.median_ms),
            waits::shown(phase.longest_ms),
            format!("message {}", phase.slowest),
        ]
    }));
    text.push_str(&lay_out(&rows, 1));
    if let Some(pause) = waits::longest_pause(run) {
        text.push_str(&format!("\nlongest pause: {pause}"));
    }
    text
}
