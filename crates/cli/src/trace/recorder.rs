//! Writes the events of endpoints to a file, one JSON object per line.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use farwrite::events::TARGET;
use farwrite_units::show::real;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{NAMESPACE, RUN};
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};

/// The option of commands that can write a trace.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Write what happened to each message, and when, as JSON lines; `farwrite trace FILE` draws it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl TraceArgs {
    /// Starts the trace if the user requested one. Call it once in a process.
    pub(crate) fn start(&self) -> Result<Tracing, Failure> {
        let Some(path) = &self.trace else {
            return Ok(Tracing(None));
        };
        let file =
            File::create(path).or_exit(Exit::Files, format_args!("making {}", path.display()))?;
        let recorder = Arc::new(Recorder {
            path: path.clone(),
            lines: Mutex::new(Lines {
                file: BufWriter::new(file),
                first_ns: None,
                newest_ns: 0,
                failure: None,
            }),
        });
        tracing::subscriber::set_global_default(Arc::clone(&recorder))
            .or_exit(Exit::Other, "starting the trace")?;
        Ok(Tracing(Some(recorder)))
    }
}

/// An active trace, or none.
pub(crate) struct Tracing(Option<Arc<Recorder>>);

impl Tracing {
    /// Notes the start of a transfer. `farwrite trace` draws each transfer in its own panel.
    pub(crate) fn begin_run(&self, title: &str) {
        if let Some(recorder) = &self.0 {
            recorder.lines().push(RUN, None, &json!({ "title": title }));
        }
    }

    /// Writes the remaining events. A trace that could not be written causes only a warning: the
    /// transfer itself is not affected.
    pub(crate) fn finish(self, console: &Console) {
        let Some(recorder) = self.0 else { return };
        let mut lines = recorder.lines();
        let flushed = lines.file.flush();
        let path = recorder.path.display();
        match lines.failure.take().map_or(flushed, Err) {
            Ok(()) => console.say(format_args!(
                "trace: {path}; farwrite trace {path} draws it"
            )),
            Err(error) => console.warn(format_args!("the trace {path} is not complete: {error}")),
        }
    }
}

/// Receives the events.
struct Recorder {
    path: PathBuf,
    lines: Mutex<Lines>,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    /// The time in milliseconds.
    time: f64,
    name: &'a str,
    data: &'a Value,
}

struct Lines {
    file: BufWriter<File>,
    /// The time of the first event. All times are relative to it.
    first_ns: Option<u64>,
    newest_ns: u64,
    /// Why writing failed. After a failure, nothing more is written.
    failure: Option<io::Error>,
}

impl Lines {
    /// Writes an event. An event without a time gets the time of the previous event.
    fn push(&mut self, name: &str, at_ns: Option<u64>, data: &Value) {
        if self.failure.is_some() {
            return;
        }
        if let Some(at_ns) = at_ns {
            self.newest_ns = at_ns;
            self.first_ns.get_or_insert(at_ns);
        }
        let since_ns = self.newest_ns.saturating_sub(self.first_ns.unwrap_or(0));
        let line = Line {
            time: real(since_ns) / 1e6,
            name: &format!("{NAMESPACE}{name}"),
            data,
        };
        let json = serde_json::to_string(&line).map_err(io::Error::from);
        self.failure = json.and_then(|json| writeln!(self.file, "{json}")).err();
    }
}

impl Recorder {
    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && metadata.target() == TARGET
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut lines = self.lines();
        let data = Value::Object(fields.data);
        lines.push(event.metadata().name(), fields.at_ns, &data);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // There are no spans, because `enabled` rejects them.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    at_ns: Option<u64>,
    data: Map<String, Value>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.data.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "at_ns" => self.at_ns = Some(value),
            _ => self.insert(field, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }
}

/// The default file for the picture of a trace.
pub(super) fn picture_of(trace: &Path) -> PathBuf {
    trace.with_extension("svg")
}
