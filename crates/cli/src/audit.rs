//! The audit log of a receiver: one JSON object on a line for each event.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use farwrite::fabric::threads::lock;
use farwrite_transfer::{DryRun, Error, Event, Observer, TransferReport, Unfinished};
use farwrite_units::show::Moment;
use serde_json::{Value, json};

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};

/// A log, or none.
pub(crate) struct Audit {
    file: Option<PathBuf>,
    console: Console,
    /// One line at a time.
    writing: Mutex<()>,
    /// When a line last said that this end is busy, and how many refusals came since then.
    busy: Mutex<(Option<Instant>, u64)>,
}

/// The time between two lines that say that this end is busy. Peers that are told so come again and again.
const QUIET: Duration = Duration::from_secs(1);

impl Audit {
    /// A log at the end of this file. It is opened for each line, so the file can be renamed and removed.
    pub(crate) fn start(file: Option<PathBuf>, console: Console) -> Result<Self, Failure> {
        if let Some(file) = &file {
            let what = format_args!("the audit log {}", file.display());
            append_to(file).or_exit(Exit::Files, what)?;
        }
        Ok(Self {
            file,
            console,
            writing: Mutex::default(),
            busy: Mutex::default(),
        })
    }

    /// Writes a line. A line that cannot be written is a warning.
    pub(crate) fn note(&self, mut event: Value) {
        let Some(file) = &self.file else { return };
        event["time"] = json!(Moment(SystemTime::now()).to_string());
        let line = format!("{event}\n");
        let _writing = self.writing.lock();
        let written = append_to(file).and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            let file = file.display();
            self.console
                .warn(format_args!("the audit log {file} lacks a line: {error}"));
        }
    }

    pub(crate) fn note_refusal(
        &self,
        peer: Option<&str>,
        address: &str,
        why: &dyn std::fmt::Display,
    ) {
        self.note(json!({
            "event": "refused",
            "peer": peer,
            "address": address,
            "message": why.to_string(),
        }));
    }

    /// Notes that a peer was refused because this end is busy, at most once a second.
    pub(crate) fn note_busy(&self, peer: Option<&str>, address: &str, why: &dyn std::fmt::Display) {
        let mut busy = lock(&self.busy);
        if busy.0.is_some_and(|at| at.elapsed() < QUIET) {
            busy.1 += 1;
            return;
        }
        let (_, more) = std::mem::replace(&mut *busy, (Some(Instant::now()), 0));
        drop(busy);
        match more {
            0 => self.note_refusal(peer, address, why),
            more => {
                let why = format!("{why} (and {more} refusals since the last such line)");
                self.note_refusal(peer, address, &why);
            }
        }
    }

    /// Notes what a dry run has told a sender.
    pub(crate) fn note_dry_run(
        &self,
        (peer, address): (Option<&str>, &str),
        ended: &Result<DryRun, Error>,
    ) {
        let removal = ended.as_ref().ok().and_then(|run| run.removal.as_ref());
        let error = ended.as_ref().err();
        self.note(json!({
            "event": "dry_run",
            "peer": peer,
            "address": address,
            "outcome": error.map_or("done", |error| Exit::from(error.kind()).name()),
            "listed": removal.map_or(0, |removal| removal.count),
            "message": error.map(ToString::to_string),
        }));
    }

    /// Notes how a pipe has ended, after this number of bytes. `file` is the name of the file that stores it.
    pub(crate) fn note_pipe<T>(
        &self,
        (peer, address): (Option<&str>, &str),
        file: Option<&str>,
        bytes: u64,
        ended: &Result<T, Failure>,
    ) {
        let failure = ended.as_ref().err();
        self.note(json!({
            "event": "pipe",
            "peer": peer,
            "address": address,
            "outcome": failure.map_or("done", |failure| failure.exit.name()),
            "file": file,
            "bytes": bytes,
            "message": failure.map(ToString::to_string),
        }));
    }

    pub(crate) fn note_transfer(
        &self,
        (peer, address): (Option<&str>, &str),
        ended: &Result<TransferReport, Unfinished>,
    ) {
        let (exit, error, delivered) = match ended {
            Ok(report) => (
                report.trouble().map(Exit::from),
                None,
                Some(report.delivered()),
            ),
            Err(unfinished) => (
                Some(unfinished.kind().into()),
                Some(unfinished.error.to_string()),
                unfinished.delivered.as_deref(),
            ),
        };
        self.note(json!({
            "event": "transfer",
            "peer": peer,
            "address": address,
            "outcome": exit.map_or("done", Exit::name),
            "files": delivered.map_or(0, |delivered| delivered.files()),
            "bytes": delivered.map_or(0, |delivered| delivered.bytes()),
            "failed_files": delivered.map_or(0, |delivered| delivered.failed_files()),
            "message": error,
        }));
    }
}

fn append_to(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    options.open(file)
}

/// The log has each peer that was refused. The console also warns, unless this end was only busy.
impl Observer for Audit {
    fn observe(&self, event: Event) {
        match &event {
            Event::Warning(line) => self.note(json!({ "event": "refused", "message": line })),
            Event::Busy {
                peer,
                address,
                reason,
            } => self.note_busy(peer.as_deref(), address, reason),
            _ => {}
        }
        self.console.observe(event);
    }
}
