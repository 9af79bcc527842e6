//! The audit log of a receiver: one JSON object on a line for each event.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

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
}

impl Audit {
    /// A log at the end of this file. It is opened for each line, so the file can be renamed and removed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn start(file: Option<PathBuf>, console: Console) -> Result<Self, Failure> {
        if let Some(file) = &file {
            let what = format_args!("the audit log {}", file.display());
            append_to(file).or_exit(Exit::Files, what)?;
        }
        let writing = Mutex::new(());
        Ok(Self {
            file,
            console,
            writing,
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

    /// Notes that a sender was refused.
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

    /// Notes how a transfer has ended.
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

/// Warnings about peers that were refused, which are events too.
impl Observer for Audit {
    fn observe(&self, event: Event) {
        if let Event::Warning(line) = &event {
            self.note(json!({ "event": "refused", "message": line }));
        }
        self.console.observe(event);
    }
}
