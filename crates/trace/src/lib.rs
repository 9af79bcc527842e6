//! Writes the events of endpoints to a file, one JSON object per line: what `farwrite send --trace`
//! and `farwrite.torch.trace` do. `docs/trace.md` describes the file.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use farwrite::events::TARGET;
use farwrite_units::show::real;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The prefix of event names.
pub const NAMESPACE: &str = "farwrite:";

/// The event that begins a transfer.
pub const RUN: &str = "run";

/// A trace of this process. There is at most one.
#[derive(Clone)]
pub struct Trace(Arc<Recorder>);

impl Trace {
    /// Writes all events from now on to the new file `path`. An existing file is replaced.
    ///
    /// # Errors
    ///
    /// The file cannot be made, or this process already has a trace or another subscriber of
    /// [`tracing`].
    pub fn start(path: &Path) -> io::Result<Self> {
        if tracing::dispatcher::has_been_set() {
            return Err(io::Error::other(
                "the events of this process are already recorded",
            ));
        }
        let file = File::create(path)?;
        let recorder = Arc::new(Recorder(Mutex::new(Lines {
            file: BufWriter::new(file),
            first_ns: None,
            newest_ns: 0,
            failure: None,
        })));
        tracing::subscriber::set_global_default(Arc::clone(&recorder)).map_err(io::Error::other)?;
        Ok(Self(recorder))
    }

    /// Notes the start of a transfer. `farwrite trace` draws each transfer in its own panel.
    pub fn begin_run(&self, title: &str) {
        self.0.lines().push(RUN, None, &json!({ "title": title }));
    }

    /// Writes the events that are not yet in the file.
    ///
    /// # Errors
    ///
    /// An event could not be written, now or earlier. After such an event, the file has no more
    /// events.
    pub fn flush(&self) -> io::Result<()> {
        let mut lines = self.0.lines();
        let flushed = lines.file.flush();
        lines.failure.take().map_or(flushed, Err)
    }
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

/// Receives the events.
struct Recorder(Mutex<Lines>);

impl Recorder {
    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
