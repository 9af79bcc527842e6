//! Reads a trace back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use farwrite_trace::{NAMESPACE, RUN};
use farwrite_units::input::{open, too_long};
use serde::Deserialize;
use serde_json::Value;

use crate::exit::{Exit, Failure, OrExit};

/// The latest valid time of an event, in milliseconds: 300 years.
const MOST_MS: f64 = 1e13;

/// The longest line of an event.
const MOST_LINE_BYTES: u64 = 64 << 10;
/// The longest trace. What is kept of its events takes about as much memory.
const MOST_BYTES: u64 = 4 << 30;

/// One transfer of a trace.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) title: Option<String>,
    /// The times of the first and the last event, in milliseconds.
    pub(super) start_ms: f64,
    pub(super) end_ms: f64,
    pub(super) messages: BTreeMap<Number, Message>,
    pub(super) marks: Vec<Mark>,
    /// The times and the reports of the path, in the order of time.
    pub(super) paths: Vec<(f64, PathReport)>,
    events: u64,
    pub(super) rebuilt: u64,
    pub(super) late: u64,
    pub(super) duplicates: u64,
    pub(super) dropped: u64,
}

/// Identifies a message by its direction, its queue pair, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    pub(super) side: Side,
    pub(super) qp: u32,
    pub(super) message: u64,
}

/// The end that saw the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Sender,
    Receiver,
}

/// The sizes of a message, and the times of its events in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    /// The number of data and parity chunks that were seen.
    pub(super) chunks: u32,
    pub(super) parity_chunks: u32,
    pub(super) offered_ms: Option<f64>,
    pub(super) cleared_ms: Option<f64>,
    pub(super) first_ms: Option<f64>,
    /// When the last chunk left for the first time.
    pub(super) last_new_ms: Option<f64>,
    pub(super) ended_ms: Option<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) ms: f64,
    pub(super) of: Number,
    pub(super) kind: Kind,
    pub(super) chunks: Range<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Chunks sent for the first time.
    New,
    /// Chunks sent again.
    Repeat,
    /// Parity chunks sent.
    Parity,
    /// Chunks that the receiver reports as missing.
    Nack,
    /// Chunks `0..end` have arrived, as the sender knows from reports or as the receiver counts.
    Arrived,
    /// Parity has arrived. It is not drawn.
    ArrivedParity,
}

impl Kind {
    /// Whether the mark shows packets that left the sender, or that arrived at the receiver.
    pub(super) fn is_traffic(self, side: Side) -> bool {
        match side {
            Side::Sender => matches!(self, Self::New | Self::Repeat | Self::Parity),
            Side::Receiver => matches!(self, Self::Arrived | Self::ArrivedParity),
        }
    }
}

/// What the sender knew about its path at one time.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PathReport {
    pub(super) rtt_ns: u64,
    pub(super) pace_bps: u64,
    pub(super) limit: String,
}

/// A line of the file.
#[derive(Deserialize)]
struct Line {
    time: f64,
    name: String,
    data: Value,
}

/// The fields of events of messages. Each event has some of these fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    qp: u32,
    message: u64,
    first_chunk: u32,
    end_chunk: u32,
    cumulative: u32,
    chunks: u32,
    seen: u32,
    count: u64,
    parity: bool,
    repeat: bool,
    title: Option<String>,
}

/// Reads a file that `--trace` wrote.
///
/// An incomplete last line, which a killed program leaves, is ignored.
pub(super) fn read(path: &Path) -> Result<Vec<Run>, Failure> {
    let name = path.display();
    let file = open(path).or_exit(Exit::Files, format_args!("opening {name}"))?;
    read_lines(BufReader::new(file), path)
}

/// Reads the lines of a trace. `path` names it in errors.
pub(super) fn read_lines(mut file: impl BufRead, path: &Path) -> Result<Vec<Run>, Failure> {
    let name = path.display();
    let mut runs: Vec<Run> = Vec::new();
    let mut broken: Option<usize> = None;
    let mut bytes = 0;
    for number in 1.. {
        let mut line = Vec::new();
        let limited = (&mut file).take(MOST_LINE_BYTES + 1);
        let read = { limited }.read_until(b'\n', &mut line);
        let read = read.and_then(|read| {
            bytes += read as u64;
            (bytes <= MOST_BYTES)
                .then_some(read)
                .ok_or_else(|| too_long(MOST_BYTES))
        });
        if read.or_exit(Exit::Files, format_args!("reading {name}"))? == 0 {
            break;
        }
        if line.len() as u64 > MOST_LINE_BYTES {
            broken.get_or_insert(number);
        }
        if let Some(number) = broken {
            return Err(not_a_trace(path, number));
        }
        match serde_json::from_slice::<Line>(&line) {
            Ok(line) => take(&mut runs, line).map_err(|()| not_a_trace(path, number))?,
            Err(_) => broken = Some(number),
        }
    }
    runs.retain(|run| run.events > 0);
    if runs.is_empty() {
        return Err(not_a_trace(path, broken.unwrap_or(1)));
    }
    Ok(runs)
}

fn not_a_trace(path: &Path, line: usize) -> Failure {
    let what = format!(
        "{}, line {line}: this is no event of a trace; traces come from --trace of send, recv and demo, \
         and from farwrite.torch.trace",
        path.display()
    );
    Failure::new(Exit::Files, what)
}

/// Processes a line; fails if the line is not an event.
fn take(runs: &mut Vec<Run>, line: Line) -> Result<(), ()> {
    let name = line.name.strip_prefix(NAMESPACE).ok_or(())?;
    if !(0.0..=MOST_MS).contains(&line.time) {
        return Err(());
    }
    if name == "path_feedback" {
        let report = serde_json::from_value(line.data).map_err(|_| ())?;
        run_at(runs, line.time).paths.push((line.time, report));
        return Ok(());
    }
    let fields: Fields = serde_json::from_value(line.data).map_err(|_| ())?;
    if fields.first_chunk > fields.end_chunk {
        return Err(());
    }
    if name == RUN {
        runs.push(Run {
            title: fields.title,
            ..Run::default()
        });
        return Ok(());
    }
    run_at(runs, line.time).take(line.time, name, &fields);
    Ok(())
}

/// The run that an event at this time belongs to.
fn run_at(runs: &mut Vec<Run>, ms: f64) -> &mut Run {
    if runs.is_empty() {
        runs.push(Run::default());
    }
    let run = runs.last_mut().expect("one was pushed");
    if run.events == 0 {
        run.start_ms = ms;
    }
    run.events += 1;
    run.end_ms = run.end_ms.max(ms);
    run
}

impl Run {
    fn take(&mut self, ms: f64, name: &str, fields: &Fields) {
        let side = match name.starts_with("recv_") {
            true => Side::Receiver,
            false => Side::Sender,
        };
        let of = Number {
            side,
            qp: fields.qp,
            message: fields.message,
        };
        let range = fields.first_chunk..fields.end_chunk;
        match name {
            "send_offered" | "recv_offered" => {
                let message = self.messages.entry(of).or_default();
                message.offered_ms.get_or_insert(ms);
            }
            "send_cleared" => self.messages.entry(of).or_default().cleared_ms = Some(ms),
            "send_chunks" => self.sent(ms, of, range, fields),
            "send_acked" => self.mark(ms, of, Kind::Arrived, 0..fields.cumulative),
            "recv_arrived" => {
                let message = self.messages.entry(of).or_default();
                message.first_ms.get_or_insert(ms);
                let kind = if fields.parity {
                    Kind::ArrivedParity
                } else {
                    message.chunks = message.chunks.max(fields.seen);
                    Kind::Arrived
                };
                self.mark(ms, of, kind, 0..fields.chunks);
            }
            "send_nacked" | "recv_nacked" => self.mark(ms, of, Kind::Nack, range),
            "send_ended" | "recv_ended" => self.messages.entry(of).or_default().ended_ms = Some(ms),
            "recv_rebuilt" => self.rebuilt += u64::from(fields.chunks),
            "recv_late" => self.late += 1,
            "recv_duplicate" => self.duplicates += 1,
            "packets_dropped" => self.dropped += fields.count,
            // An event of a later version, or an event that the picture does not show.
            _ => {}
        }
    }

    fn sent(&mut self, ms: f64, of: Number, range: Range<u32>, fields: &Fields) {
        let message = self.messages.entry(of).or_default();
        message.first_ms.get_or_insert(ms);
        let kind = match (fields.parity, fields.repeat) {
            (true, _) => Kind::Parity,
            (false, true) => Kind::Repeat,
            (false, false) => Kind::New,
        };
        if kind == Kind::Parity {
            message.parity_chunks = message.parity_chunks.max(range.end);
        } else {
            message.chunks = message.chunks.max(range.end);
        }
        if kind == Kind::New {
            message.last_new_ms = Some(ms);
        }
        self.mark(ms, of, kind, range);
    }

    fn mark(&mut self, ms: f64, of: Number, kind: Kind, chunks: Range<u32>) {
        self.marks.push(Mark {
            ms,
            of,
            kind,
            chunks,
        });
    }

    /// The end whose events are drawn: the sender's, if it is in the trace.
    pub(super) fn side(&self) -> Side {
        let sender = self.messages.keys().any(|of| of.side == Side::Sender);
        if sender { Side::Sender } else { Side::Receiver }
    }

    /// The number of messages that are drawn.
    pub(super) fn drawn_messages(&self) -> usize {
        let side = self.side();
        self.messages.keys().filter(|of| of.side == side).count()
    }

    /// The marks of a kind that are drawn.
    pub(super) fn marks(&self, kind: Kind) -> impl Iterator<Item = &Mark> {
        let side = self.side();
        let marks = self.marks.iter();
        marks.filter(move |mark| mark.kind == kind && mark.of.side == side)
    }

    /// The number of chunks in the marks of a kind.
    pub(super) fn chunks(&self, kind: Kind) -> u64 {
        self.marks(kind)
            .map(|mark| u64::from(mark.chunks.end.saturating_sub(mark.chunks.start)))
            .sum()
    }
}
