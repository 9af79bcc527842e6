//! What came of a transfer, for people and for scripts.

use std::fmt;
use std::time::Duration;

use farwrite::QpStats;
use farwrite_session::Text;
use farwrite_session::files::Manifest;
use serde::Serialize;

use super::sender::Choices;
use super::shape::Shape;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::loss::PathLoss;
use crate::units::{Bytes, Percent, Rate, Time, real};

/// A transfer that reached its end, though some files may have failed.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// `send` or `recv`.
    command: &'static str,
    /// Address and TCP port of the other end.
    peer: String,
    /// Files that have their final name at the receiver.
    files: u32,
    /// Bytes of all files of the manifest.
    bytes: u64,
    /// From the first to the last word about files.
    seconds: f64,
    goodput_bps: f64,
    scheme: String,
    /// What the planner chose; at the sender, with scheme `auto`.
    auto: Option<Choices>,
    rate_bps: u64,
    mtu: u32,
    segment_bytes: u64,
    slots: u32,
    rtt_ms: f64,
    /// Of the chunks sent, those that were sent again; at the sender only.
    retransmitted_share: Option<f64>,
    /// Of the packets received, those that were there already; at the receiver only.
    duplicate_share: Option<f64>,
    /// Chunks that were computed from others and parity; at the receiver only.
    rebuilt_chunks: Option<u64>,
    /// Of the data sent, as the receiver told; at the sender only.
    send_loss: Option<PathLoss>,
    /// Of the data received; at the receiver only.
    receive_loss: Option<PathLoss>,
    failures: Vec<FailedFile>,
    /// What the program answers, where this was all it had to do.
    exit_code: u8,
}

/// Shows a number of files.
pub(super) struct Files(pub(super) u32);

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.0,
            if self.0 == 1 { "file" } else { "files" }
        )
    }
}

/// A file that did not arrive.
#[derive(Debug, Serialize)]
pub(super) struct FailedFile {
    path: Text,
    reason: Text,
    #[serde(skip)]
    exit: Exit,
}

impl FailedFile {
    /// `exit` is what it is a case of at this end.
    pub(super) fn new(manifest: &Manifest, index: u32, reason: Text, exit: Exit) -> Self {
        Self {
            path: Text::new(manifest.path(index).display()),
            reason,
            exit,
        }
    }
}

/// What a report is made from, beside the failures.
pub(super) struct Facts {
    pub(super) command: &'static str,
    pub(super) peer: String,
    pub(super) files: u32,
    pub(super) elapsed: Duration,
    pub(super) scheme: String,
    pub(super) choices: Option<Choices>,
    pub(super) rate_bps: u64,
    pub(super) shape: Shape,
    pub(super) retransmitted_share: Option<f64>,
    pub(super) duplicate_share: Option<f64>,
    pub(super) stats: QpStats,
}

impl Report {
    pub(super) fn new(facts: Facts, failures: Vec<FailedFile>) -> Self {
        let seconds = facts.elapsed.as_secs_f64().max(1e-6);
        let bytes = facts.shape.stream_bytes;
        // Wrong bytes are the worst that can happen to a file.
        let corrupt = failures.iter().any(|file| file.exit == Exit::Corrupt);
        let exit_code = match failures.first() {
            None => 0,
            Some(_) if corrupt => Exit::Corrupt as u8,
            Some(first) => first.exit as u8,
        };
        Self {
            command: facts.command,
            peer: facts.peer,
            files: facts.files,
            bytes,
            seconds,
            goodput_bps: real(bytes) * 8.0 / seconds,
            scheme: facts.scheme,
            auto: facts.choices,
            rate_bps: facts.rate_bps,
            mtu: facts.shape.mtu,
            segment_bytes: facts.shape.segment_bytes,
            slots: facts.shape.slots,
            rtt_ms: Duration::from_nanos(facts.stats.rtt_ns).as_secs_f64() * 1e3,
            retransmitted_share: facts.retransmitted_share,
            duplicate_share: facts.duplicate_share,
            rebuilt_chunks: (facts.command == "recv").then_some(facts.stats.rebuilt_chunks),
            send_loss: PathLoss::of(&facts.stats.send_loss),
            receive_loss: PathLoss::of(&facts.stats.receive_loss),
            failures,
            exit_code,
        }
    }

    /// 0, or why not all is well.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Tells people and scripts.
    pub(crate) fn tell(&self, console: &Console) -> Result<(), Failure> {
        for file in &self.failures {
            console.warn(format_args!("{}: {}", file.path, file.reason));
        }
        console.say(self.line());
        console.json(self)
    }

    pub(super) fn line(&self) -> String {
        let (verb, from) = match self.command {
            "send" => ("sent", "to"),
            _ => ("received", "from"),
        };
        let mut line = format!(
            "{verb} {}, {}, in {} {from} {}: {}",
            Files(self.files),
            Bytes(self.bytes),
            Time(Duration::from_secs_f64(self.seconds)),
            self.peer,
            Rate(self.goodput_bps)
        );
        if let Some(share) = self.retransmitted_share {
            line += &format!(", {} sent again", Percent(share));
        }
        if let Some(share) = self.duplicate_share {
            line += &format!(", {} came twice", Percent(share));
        }
        if let Some(chunks @ 1..) = self.rebuilt_chunks {
            line += &format!(", {chunks} chunks rebuilt");
        }
        if let Some(loss) = self.send_loss.as_ref().or(self.receive_loss.as_ref()) {
            line += &format!(", the path lost {loss}");
        }
        if let Some(choices) = &self.auto {
            line += &format!("; {}", choices.line());
        }
        if !self.failures.is_empty() {
            line += &format!("; {} failed", self.failures.len());
        }
        line
    }
}
