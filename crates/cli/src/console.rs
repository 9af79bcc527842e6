//! The output of the program: results go to standard output, progress and errors to standard error.
//!
//! Each stream has a thread that writes. So a terminal that was stopped by Ctrl-S, or a pipe
//! without a reader, blocks only its own stream. Lines are counted and not shown while the queue is
//! full.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_keys::printable;
use farwrite_transfer::{Event, FileState, Observer};
use farwrite_units::show::{ByteRate, Bytes, Rate};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::fs::fstat;
use serde::Serialize;
use serde_json::json;

use crate::exit::{Exit, Failure, OrExit, without_keys};
use crate::standard::Blocking;

/// The time between two lines of progress if there is no terminal to draw on.
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of lines that wait for a stream.
const QUEUED: usize = 1024;
/// The maximum number of lines that wait for standard output with `--json-lines`.
const QUEUED_FILES: usize = 1 << 16;
/// The time limit for the last lines on standard error at the end of the program.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The destination of results, progress and errors.
#[derive(Clone)]
pub(crate) struct Console {
    /// A JSON object goes to standard output at the end.
    json: bool,
    /// Objects about events go to standard output before the result.
    lines: bool,
    /// Standard output carries JSON or data, so text for people goes to standard error.
    is_output_taken: bool,
    /// Both streams are terminals, so text for people takes the stream that draws progress: otherwise the
    /// two would write into each other's lines.
    is_one_terminal: bool,
    quiet: bool,
    /// The name of the command in JSON.
    command: String,
    /// The transfer that is reported, if it is one of several: its number and its name.
    transfer: Option<(u64, String)>,
    out: Stream,
    err: Stream,
}

impl Console {
    /// Starts the two threads. `carries_data`: the command writes data to standard output.
    pub(crate) fn start(
        (json, lines): (bool, bool),
        quiet: bool,
        command: String,
        carries_data: bool,
    ) -> Self {
        let json = json || lines;
        let drawing = (!quiet).then(Drawing::new);
        Self {
            json,
            lines,
            is_output_taken: json || carries_data,
            is_one_terminal: is_one_terminal(),
            quiet,
            command,
            transfer: None,
            out: Stream::start(Blocking(io::stdout()), None, lines),
            err: Stream::start(Blocking(io::stderr()), drawing, false),
        }
    }

    /// The same console for one of several transfers at once. Its lines begin with a name, and its events
    /// have a number.
    pub(crate) fn for_transfer(&self, number: u64, name: String) -> Self {
        Self {
            transfer: Some((number, name)),
            ..self.clone()
        }
    }

    /// A line, with the name of the transfer if it is one of several.
    fn named(&self, line: impl fmt::Display) -> String {
        match &self.transfer {
            Some((_, name)) => format!("{name}: {line}"),
            None => line.to_string(),
        }
    }

    /// Whether standard output is for scripts.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether [`Console::say`] writes to a terminal.
    pub(crate) fn says_to_terminal(&self) -> bool {
        match self.is_output_taken {
            true => !self.quiet && io::stderr().is_terminal(),
            false => io::stdout().is_terminal(),
        }
    }

    /// Shows a result to people: on standard output, unless JSON or data go there.
    pub(crate) fn say(&self, text: impl fmt::Display) {
        // As with scp -q, a copy then shows only what is wrong.
        let is_silent = self.quiet && (self.is_output_taken || self.command == "cp");
        if !is_silent {
            self.for_people().offer(Item::for_people(&self.named(text)));
        }
    }

    /// The stream of results for people.
    fn for_people(&self) -> &Stream {
        match self.is_output_taken || self.is_one_terminal {
            true => &self.err,
            false => &self.out,
        }
    }

    /// As [`Console::say`], but waits until there is room for the line, so that none is lost.
    pub(crate) fn say_all(&self, text: impl fmt::Display) {
        self.for_people().push(Item::for_people(&text.to_string()));
    }

    /// Warns people of a problem that the result alone does not show.
    pub(crate) fn warn(&self, text: impl fmt::Display) {
        let text = without_keys(&text.to_string());
        if self.lines {
            self.event(json!({ "event": "warning", "message": text.to_string() }));
        }
        let line = format!("farwrite: warning: {}", self.named(text));
        self.err.offer(Item::for_people(&line));
    }

    /// Prints the result as JSON, if the user requested it.
    pub(crate) fn json(&self, result: &impl Serialize) -> Result<(), Failure> {
        self.json_result(None, result)
    }

    /// Prints a result as JSON, together with its problem, if there is one.
    pub(crate) fn json_result(
        &self,
        failure: Option<&Failure>,
        result: &impl Serialize,
    ) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let result = serde_json::to_value(result).or_exit(Exit::Other, "writing JSON")?;
        self.print_json(failure, result);
        Ok(())
    }

    /// Prints the result of a command that may have failed after it had a result, and shows the
    /// failure to people. Returns the exit code: scripts get one object.
    pub(crate) fn end(
        &self,
        ended: Result<(), Failure>,
        result: &impl Serialize,
    ) -> Result<ExitCode, Failure> {
        let failure = ended.err();
        if let Some(failure) = &failure {
            self.show_failure(failure);
        }
        self.json_result(failure.as_ref(), result)?;
        Ok(failure.map_or(ExitCode::SUCCESS, |failure| failure.exit.into()))
    }

    /// Prints an object about something that happens. If nobody reads the lines, some are lost, and a line
    /// says how many.
    fn event(&self, mut event: serde_json::Value) {
        self.add_number(&mut event);
        self.out.offer(Item::Line(event.to_string()));
    }

    /// Prints the object of an event, if it has one and the user requested that.
    pub(crate) fn event_of(&self, event: &Event) {
        if self.lines
            && let Some(line) = event_line(event)
        {
            self.event(line);
        }
    }

    pub(crate) fn draw(&self, event: Event) {
        if let Event::Progress {
            label,
            done_bytes,
            total_bytes,
            detail,
            is_last,
            numbers: _,
        } = event
        {
            self.err.offer_progress(ProgressState {
                label: label.to_owned(),
                done: done_bytes,
                total: total_bytes,
                detail,
                is_last,
            });
        }
    }

    fn show_failure(&self, failure: &Failure) {
        self.err.offer(Item::EndProgress);
        let line = format!("farwrite: {}", self.named(failure));
        self.err.offer(Item::for_people(&line));
    }

    /// Shows why a command failed: one line for people, and an object for scripts if JSON was
    /// requested.
    pub(crate) fn fail(&self, failure: &Failure) {
        self.show_failure(failure);
        if self.json {
            self.print_json(Some(failure), serde_json::Value::Null);
        }
    }

    fn print_json(&self, failure: Option<&Failure>, result: serde_json::Value) {
        let mut object = json_object(&self.command, failure, &result);
        self.add_number(&mut object);
        self.out.push(Item::Line(object.to_string()));
    }

    /// Adds the number of the transfer, if it is one of several.
    fn add_number(&self, object: &mut serde_json::Value) {
        if let Some((number, _)) = &self.transfer {
            object["transfer"] = json!(number);
        }
    }

    /// Starts showing progress towards `total` units.
    pub(crate) fn progress(&self, label: &str, total: u64) -> Progress {
        Progress {
            err: self.err.clone(),
            label: label.to_owned(),
            total,
        }
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// [`Exit::Files`] if the result could not be written: otherwise a failure would look like success. A
    /// reader that closes a pipe early has seen enough of a text, but not of JSON.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let mut written = self.out.flush(Duration::MAX);
        if self.is_one_terminal {
            written = written.and(self.err.flush(Duration::MAX));
        }
        let written = match written {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe && !self.json => Ok(()),
            written => written,
        };
        let written = written.or_exit(Exit::Files, "writing to standard output");
        if let Err(failure) = &written {
            self.show_failure(failure);
        }
        // Warnings may remain unwritten.
        let _ = self.err.flush(LAST_LINES);
        written
    }
}

/// Whether standard output and standard error are one terminal.
fn is_one_terminal() -> bool {
    let device = |fd: BorrowedFd<'_>| fstat(fd).ok().map(|stat| stat.st_rdev);
    let (out, err) = (io::stdout(), io::stderr());
    out.is_terminal() && err.is_terminal() && device(out.as_fd()) == device(err.as_fd())
}

/// The object that every command prints for scripts; `docs/json.md` describes it.
pub(crate) fn json_object(
    command: &str,
    failure: Option<&Failure>,
    result: &serde_json::Value,
) -> serde_json::Value {
    let error = failure
        .map(|failure| json!({ "kind": failure.exit.name(), "message": failure.to_string() }));
    json!({
        "command": command,
        "exit_code": failure.map_or(0, |failure| failure.exit as u8),
        "error": error,
        "result": result,
    })
}

/// The line of an event in `--json-lines`; `None` for what has no line, or has one as a warning.
fn event_line(event: &Event) -> Option<serde_json::Value> {
    Some(match event {
        Event::Start {
            peer,
            files,
            bytes,
            unsent_bytes,
        } => json!({
            "event": "start",
            "peer": peer,
            "files": files,
            "bytes": bytes,
            "unsent_bytes": unsent_bytes,
        }),
        Event::Progress {
            done_bytes,
            total_bytes,
            numbers,
            ..
        } => json!({
            "event": "progress",
            "done_bytes": done_bytes,
            "total_bytes": total_bytes,
            "rate_bps": numbers.rate_bps,
            "mean_bps": numbers.mean_bps,
            "left_s": numbers.left.map(|left| left.as_secs_f64()),
            "files_left": numbers.files_left,
            "limited_by": numbers.limited_by,
        }),
        Event::File(file) => {
            let (state, reason) = match &file.state {
                FileState::Arrived => ("arrived", None),
                FileState::Unchanged => ("unchanged", None),
                FileState::Failed(reason) => ("failed", Some(reason.as_str())),
            };
            let hex = |hash: [u8; 32]| hash.map(|byte| format!("{byte:02x}")).concat();
            json!({
                "event": "file",
                "path": file.path.as_str(),
                "bytes": file.bytes,
                "state": state,
                "blake3": file.hash.map(hex),
                "reason": reason,
            })
        }
        Event::Note(_)
        | Event::Warning(_)
        | Event::Busy { .. }
        | Event::RouteShrunk(_)
        | Event::Counters(_) => {
            return None;
        }
    })
}

impl Observer for Console {
    fn wants_files(&self) -> bool {
        self.lines
    }

    fn observe(&self, event: Event) {
        self.event_of(&event);
        match event {
            Event::Note(line) => self.say(line),
            Event::Warning(line) => self.warn(line),
            Event::RouteShrunk(shrunk) => {
                self.warn(format!("{shrunk}; the transfer goes on with these"));
            }
            Event::Counters(_) | Event::Busy { .. } | Event::Start { .. } | Event::File(_) => {}
            Event::Progress { .. } => self.draw(event),
        }
    }
}

/// The progress of one activity: a bar on a terminal, otherwise a line from time to time.
pub(crate) struct Progress {
    err: Stream,
    label: String,
    total: u64,
}

impl Progress {
    /// Shows that `done` units are done, and adds `detail`.
    pub(crate) fn show(&self, done: u64, detail: impl fmt::Display) {
        self.report(done, detail, false);
    }

    /// Leaves the last state on the screen.
    pub(crate) fn finish(&self, done: u64, detail: impl fmt::Display) {
        self.report(done, detail, true);
    }

    fn report(&self, done: u64, detail: impl fmt::Display, is_last: bool) {
        self.err.offer_progress(ProgressState {
            label: self.label.clone(),
            done,
            total: self.total,
            detail: detail.to_string(),
            is_last,
        });
    }
}

/// The progress of a pipe, whose total length is unknown.
pub(crate) struct Passing {
    progress: Progress,
    start: Instant,
    shown: Instant,
}

impl Passing {
    pub(crate) fn new(console: &Console, label: &str) -> Self {
        let now = Instant::now();
        Self {
            progress: console.progress(label, 0),
            start: now,
            shown: now,
        }
    }

    /// Shows that `bytes` have passed, a few times a second.
    pub(crate) fn show(&mut self, bytes: u64) {
        if self.shown.elapsed() >= Duration::from_millis(200) {
            self.shown = Instant::now();
            self.progress.show(bytes, self.detail(bytes));
        }
    }

    pub(crate) fn finish(&self, bytes: u64) {
        self.progress.finish(bytes, self.detail(bytes));
    }

    fn detail(&self, bytes: u64) -> String {
        let rate = Rate(ByteRate::of(bytes, self.start.elapsed()).0 * 8.0);
        format!("{} {rate}", Bytes(bytes))
    }
}

/// The state of an activity.
struct ProgressState {
    label: String,
    done: u64,
    /// 0 if it is not known.
    total: u64,
    detail: String,
    is_last: bool,
}

/// An item for the thread of a stream.
enum Item {
    Line(String),
    Progress(ProgressState),
    /// Ends the display of progress.
    EndProgress,
    /// Requests the first error since the start, if there is one.
    Flush(std::sync::mpsc::Sender<io::Result<()>>),
}

impl Item {
    /// Lines for people. Names of files in them cannot control the terminal.
    fn for_people(text: &str) -> Self {
        Self::Line(printable(text))
    }
}

/// A stream, and the lines that wait to be written.
#[derive(Clone)]
struct Stream {
    queue: SyncSender<Item>,
    not_shown: Arc<AtomicU64>,
    /// Whether a state of progress is queued. Later states are dropped until it is written, so that they do
    /// not fill the queue.
    has_progress: Arc<AtomicBool>,
}

impl Stream {
    /// `is_events`: the lines are objects of `--json-lines`.
    fn start(
        stream: impl Write + Send + 'static,
        drawing: Option<Drawing>,
        is_events: bool,
    ) -> Self {
        let (queue, items) = sync_channel(if is_events { QUEUED_FILES } else { QUEUED });
        let not_shown = Arc::new(AtomicU64::new(0));
        let has_progress = Arc::new(AtomicBool::new(false));
        let of_thread_too = (Arc::clone(&not_shown), Arc::clone(&has_progress));
        thread::spawn(move || write_all(stream, drawing, is_events, &items, &of_thread_too));
        Self {
            queue,
            not_shown,
            has_progress,
        }
    }

    /// Queues a state of progress, unless an earlier one waits. The last one is always queued.
    fn offer_progress(&self, state: ProgressState) {
        let is_due = !self.has_progress.swap(true, Ordering::Relaxed) || state.is_last;
        if is_due && !self.offer(Item::Progress(state)) {
            self.has_progress.store(false, Ordering::Relaxed);
        }
    }

    /// Queues an item, which is lost if the queue is full. Returns whether it was queued.
    fn offer(&self, item: Item) -> bool {
        let is_queued = self.queue.try_send(item).is_ok();
        if !is_queued {
            self.not_shown.fetch_add(1, Ordering::Relaxed);
        }
        is_queued
    }

    /// Queues an item that must not be lost.
    fn push(&self, item: Item) {
        // The thread runs until the program ends.
        let _ = self.queue.send(item);
    }

    /// Waits until all queued items are written, for at most `patience`.
    fn flush(&self, patience: Duration) -> io::Result<()> {
        let (done, finished) = channel();
        let start = Instant::now();
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let mut item = Item::Flush(done);
        while let Err(TrySendError::Full(refused)) = self.queue.try_send(item) {
            if start.elapsed() >= patience {
                return Err(late());
            }
            thread::sleep(Duration::from_millis(5));
            item = refused;
        }
        let left = patience.saturating_sub(start.elapsed());
        finished.recv_timeout(left).map_err(|_| late())?
    }
}

fn write_all(
    mut stream: impl Write,
    mut drawing: Option<Drawing>,
    is_events: bool,
    items: &Receiver<Item>,
    (not_shown, has_progress): &(Arc<AtomicU64>, Arc<AtomicBool>),
) {
    let mut failed = None;
    for item in items {
        let missed = not_shown.swap(0, Ordering::Relaxed);
        if missed > 0 {
            let _ = match is_events {
                false => writeln!(stream, "farwrite: {missed} lines were not shown"),
                true => writeln!(stream, r#"{{"event":"lost","lines":{missed}}}"#),
            };
        }
        match item {
            Item::Line(line) => {
                let mut write = || writeln!(stream, "{line}").and_then(|()| stream.flush());
                let written = match &drawing {
                    Some(drawing) => drawing.bar.suspend(write),
                    None => write(),
                };
                failed = failed.or(written.err());
            }
            Item::Progress(state) => {
                has_progress.store(false, Ordering::Relaxed);
                if let Some(drawing) = &mut drawing {
                    drawing.show(&mut stream, &state);
                }
            }
            Item::EndProgress => {
                if let Some(drawing) = &mut drawing {
                    drawing.end(&mut stream);
                }
            }
            Item::Flush(done) => {
                let _ = done.send(failed.take().map_or(Ok(()), Err));
            }
        }
    }
}

struct Drawing {
    on_terminal: bool,
    bar: ProgressBar,
    /// The label of the bar.
    label: Option<String>,
    line_at: Instant,
}

impl Drawing {
    fn new() -> Self {
        Self {
            on_terminal: io::stderr().is_terminal(),
            bar: ProgressBar::hidden(),
            label: None,
            line_at: Instant::now(),
        }
    }

    fn show(&mut self, stream: &mut impl Write, state: &ProgressState) {
        if self.label.as_ref() != Some(&state.label) {
            self.begin(state);
        }
        if self.on_terminal {
            self.bar.set_length(state.total);
            self.bar.set_message(state.detail.clone());
            self.bar.set_position(state.done);
        } else if state.is_last || self.line_at.elapsed() >= LINE_PERIOD {
            self.line_at = Instant::now();
            let (label, detail) = (&state.label, &state.detail);
            let percent = match state.total {
                0 => String::new(),
                total => format!("{:>3} % ", u128::from(state.done) * 100 / u128::from(total)),
            };
            let _ = writeln!(stream, "  {label:<10}  {percent}{detail}");
        }
        if state.is_last {
            self.end(stream);
        }
    }

    /// Leaves the bar, if there is one, on the screen.
    fn end(&mut self, stream: &mut impl Write) {
        if self.label.take().is_some() && self.on_terminal {
            std::mem::replace(&mut self.bar, ProgressBar::hidden()).abandon();
            // The bar ends without a line end.
            let _ = writeln!(stream);
        }
    }

    fn begin(&mut self, state: &ProgressState) {
        self.label = Some(state.label.clone());
        self.line_at = Instant::now();
        if !self.on_terminal {
            return;
        }
        let template = match state.total {
            0 => "  {prefix:10} {wide_msg}",
            _ => "  {prefix:10} [{bar:6}] {percent:>3} % {wide_msg}",
        };
        let style = ProgressStyle::with_template(template)
            .expect("the templates are constant")
            .progress_chars("=> ");
        let target = ProgressDrawTarget::stderr_with_hz(15);
        self.bar = ProgressBar::with_draw_target(Some(state.total), target).with_style(style);
        self.bar.set_prefix(state.label.clone());
    }
}
