//! The result of a transfer, for people and for programs.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use farwrite::{Cipher, EcnField, PeerStats, QpStats, RateControl, Start};
use farwrite_files::{FileCause, Source};
use farwrite_units::show::{Bytes, Count, Percent, Rate, Time, real};
use serde::Serialize;

use crate::bottleneck::{Bottleneck, Bottlenecks};
use crate::choices::Choices;
use crate::loss::PathLoss;
use crate::results::{FailedFile, FileResults, SharedResults};
use crate::shape::Shape;
use crate::{Error, ErrorKind};

/// The state of an ECN field that does not arrive, in JSON.
const CLEARED: &str = "cleared";

/// Which end reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that reads files.
    Sender,
    /// The end that writes files.
    Receiver,
}

/// A transfer that completed, though some files may have failed. As JSON it is the `result` of
/// `docs/json.md`.
#[derive(Debug, Serialize)]
pub struct TransferReport {
    #[serde(skip)]
    role: Role,
    #[serde(flatten)]
    delivered: Delivered,
    synced: bool,
    cipher: Option<&'static str>,
    seconds: f64,
    goodput_bps: f64,
    scheme: String,
    auto: Option<Choices>,
    #[serde(flatten)]
    sending: Sending,
    mtu: u32,
    first_mtu: u32,
    #[serde(skip)]
    unsealed_mtu: u32,
    #[serde(skip)]
    is_narrow: bool,
    segment_bytes: u64,
    slots: u32,
    rtt_ms: f64,
    retransmitted_share: Option<f64>,
    duplicate_share: Option<f64>,
    rebuilt_chunks: Option<u64>,
    send_loss: Option<PathLoss>,
    receive_loss: Option<PathLoss>,
}

/// What became of the files. After a transfer that failed, it is the `result` of `docs/json.md`, with fewer
/// fields.
#[derive(Debug, Serialize)]
pub struct Delivered {
    peer: String,
    #[serde(flatten)]
    results: FileResults,
    /// How many of the warnings, the first ones, the user has seen.
    #[serde(skip)]
    seen: usize,
}

impl Delivered {
    /// Files that have their final names.
    #[must_use]
    pub fn files(&self) -> u32 {
        self.results.verified_files
    }

    /// Bytes of these files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.results.verified_bytes
    }

    fn new(peer: String, results: FileResults) -> Self {
        Self {
            peer,
            results,
            seen: 0,
        }
    }

    /// The files went to the machine `peer` in a way of which the user was warned.
    pub fn note_way(&mut self, peer: &str, warning: String) {
        peer.clone_into(&mut self.peer);
        self.results.warnings.insert(self.seen, warning);
        self.seen += 1;
    }

    /// Files that did not arrive.
    #[must_use]
    pub fn failed_files(&self) -> u32 {
        self.results.failed_files
    }

    /// The first of the files that did not arrive; at most 1000.
    #[must_use]
    pub fn failures(&self) -> &[FailedFile] {
        &self.results.failures
    }

    /// Warnings about the files that no other field shows, and that the user has not seen.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.results.warnings[self.seen..]
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let results = &self.results;
        let files = results.verified_files.saturating_add(results.kept_files);
        let verb = match files {
            0 => return "no file has its final name at the receiver".to_owned(),
            1 => "has its",
            _ => "have their",
        };
        let bytes = results.verified_bytes.saturating_add(results.kept_bytes);
        let unchanged = match results.kept_files {
            0 => String::new(),
            count => format!(", {count} of them unchanged"),
        };
        format!(
            "{} with {} {verb} final name at the receiver{unchanged}",
            Count(files.into(), "file"),
            Bytes(bytes)
        )
    }
}

/// A transfer that failed.
#[derive(Debug)]
pub struct Unfinished {
    /// Why it failed.
    pub error: Error,
    /// What became of the files before; `None` if there is nothing to say.
    pub delivered: Option<Box<Delivered>>,
    has_met: bool,
}

impl Unfinished {
    /// `shared_results` has the verdicts until the failure.
    pub(crate) fn new(
        error: Error,
        peer: impl fmt::Display,
        shared_results: &SharedResults,
    ) -> Self {
        let results = shared_results.take();
        let has_met = results.has_met || results.verified_files > 0;
        let is_empty = results.verified_files == 0
            && results.kept_files == 0
            && results.failed_files == 0
            && results.warnings.is_empty();
        let delivered = Delivered::new(peer.to_string(), results);
        Self {
            error,
            delivered: (!is_empty).then(|| Box::new(delivered)),
            has_met,
        }
    }

    /// A transfer of the files of `source` that failed before [`send`](crate::send). `peer` is the other
    /// end, for people.
    #[must_use]
    pub fn before(error: Error, peer: impl fmt::Display, source: &Source) -> Self {
        Self::new(error, peer, &SharedResults::of(source))
    }

    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Whether the two ends have reached each other: a sender knows of data that have arrived. A receiver
    /// has given a file its final name.
    #[must_use]
    pub fn has_met(&self) -> bool {
        self.has_met
    }
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Self {
            error,
            delivered: None,
            has_met: false,
        }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for Unfinished {}

/// How fast a sender was, and what limited it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sending {
    rate_control: Option<&'static str>,
    max_rate_bps: Option<u64>,
    path_rate_bps: Option<u64>,
    base_rtt_ms: Option<f64>,
    marked_packets: Option<u64>,
    stale_packets: Option<u64>,
    refused_feedback: Option<u64>,
    excess_feedback: Option<u64>,
    ecn: Option<&'static str>,
    limited_by: Option<Bottlenecks>,
    #[serde(skip)]
    learned: Option<Start>,
}

impl Sending {
    pub(crate) fn new(control: RateControl, peer: &PeerStats, bottlenecks: Bottlenecks) -> Self {
        let max_rate_bps = control.max_rate_bps();
        // At the configured maximum, the path may carry more than was measured, whatever single queues showed.
        let is_of_path = |start: &Start| {
            max_rate_bps.is_none_or(|max| start.rate_bps < max / 8 * 7)
                && bottlenecks.main() != Some(Bottleneck::Rate)
        };
        let base_rtt = peer.base_rtt_ns.map(Duration::from_nanos);
        Self {
            rate_control: Some(control.name().as_str()),
            max_rate_bps,
            path_rate_bps: peer.learned.map(|learned| learned.rate_bps),
            base_rtt_ms: base_rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            marked_packets: Some(peer.marked_packets),
            stale_packets: Some(peer.stale_packets),
            refused_feedback: Some(peer.refused_feedback),
            excess_feedback: Some(peer.excess_feedback),
            ecn: Some(match peer.ecn_to_peer {
                EcnField::Unknown => "unknown",
                EcnField::Kept => "kept",
                EcnField::Cleared => CLEARED,
            }),
            limited_by: Some(bottlenecks),
            learned: peer.learned.filter(is_of_path),
        }
    }
}

/// The facts for a report.
pub(crate) struct Facts {
    pub(crate) role: Role,
    pub(crate) peer: String,
    /// Whether the files that arrived survive a power failure at the receiver.
    pub(crate) synced: bool,
    /// The cipher of data packets; `None` if they were not sealed.
    pub(crate) cipher: Option<Cipher>,
    pub(crate) results: FileResults,
    pub(crate) elapsed: Duration,
    pub(crate) scheme: String,
    pub(crate) choices: Option<Choices>,
    /// What determined the sender's rate; empty at the receiver.
    pub(crate) sending: Sending,
    /// At the end.
    pub(crate) shape: Shape,
    /// Payload bytes of a packet at the start.
    pub(crate) first_mtu: u32,
    /// As [`TransferReport::unsealed_mtu`].
    pub(crate) unsealed_mtu: u32,
    /// Whether the path to the receiver loses larger packets.
    pub(crate) is_narrow: bool,
    pub(crate) stats: QpStats,
}

/// The share of chunks that were sent again.
fn retransmitted_share(stats: &QpStats) -> f64 {
    real(stats.sender.retransmitted_chunks) / real(stats.sender.sent_chunks.max(1))
}

/// The share of packets that were duplicates.
pub(crate) fn duplicate_share(stats: &QpStats) -> f64 {
    let useless = stats.duplicate_packets + stats.late_packets;
    real(useless) / real(stats.received_packets.max(1))
}

fn cipher_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::Aes256Gcm => "AES-256-GCM",
        Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
    }
}

impl TransferReport {
    pub(crate) fn new(facts: Facts) -> Self {
        let seconds = facts.elapsed.as_secs_f64().max(1e-6);
        let is_receiver = facts.role == Role::Receiver;
        Self {
            role: facts.role,
            synced: facts.synced,
            cipher: facts.cipher.map(cipher_name),
            seconds,
            goodput_bps: real(facts.results.sent_bytes()) * 8.0 / seconds,
            delivered: Delivered::new(facts.peer, facts.results),
            scheme: facts.scheme,
            auto: facts.choices,
            sending: facts.sending,
            mtu: facts.shape.mtu,
            first_mtu: facts.first_mtu,
            unsealed_mtu: facts.unsealed_mtu,
            is_narrow: facts.is_narrow,
            segment_bytes: facts.shape.segment_bytes,
            slots: facts.shape.slots,
            rtt_ms: Duration::from_nanos(facts.stats.rtt_ns).as_secs_f64() * 1e3,
            retransmitted_share: (!is_receiver).then(|| retransmitted_share(&facts.stats)),
            duplicate_share: is_receiver.then(|| duplicate_share(&facts.stats)),
            rebuilt_chunks: is_receiver.then_some(facts.stats.rebuilt_chunks),
            send_loss: PathLoss::of(&facts.stats.send_loss),
            receive_loss: PathLoss::of(&facts.stats.receive_loss),
        }
    }

    /// The worst reason why files failed, if any failed. Wrong bytes are worse than missing bytes.
    #[must_use]
    pub fn trouble(&self) -> Option<ErrorKind> {
        let results = &self.delivered.results;
        let first = results.failures.first()?.cause;
        let worst = match results.any_corrupt {
            true => FileCause::Corrupt,
            false => first,
        };
        Some(ErrorKind::of_file(worst, self.role == Role::Sender))
    }

    /// Measurements that a later transfer to the same receiver can start with. `None` if the
    /// transfer was too short to measure the rate of the path, or if its maximum rate was lower.
    #[must_use]
    pub fn learned(&self) -> Option<Start> {
        self.sending.learned
    }

    /// Payload bytes of unsealed packets that are as long as the transfer's packets at the end.
    #[must_use]
    pub fn unsealed_mtu(&self) -> u32 {
        self.unsealed_mtu
    }

    /// As [`TransferReport::unsealed_mtu`], if the path did not carry larger packets that this machine sends. A later
    /// transfer to the same receiver need not try those. Only a sender knows it.
    #[must_use]
    pub fn narrow_mtu(&self) -> Option<u32> {
        self.is_narrow.then_some(self.unsealed_mtu)
    }

    /// What became of the files.
    #[must_use]
    pub fn delivered(&self) -> &Delivered {
        &self.delivered
    }

    /// As [`TransferReport::delivered`], to change it.
    pub fn delivered_mut(&mut self) -> &mut Delivered {
        &mut self.delivered
    }

    /// One line for people: what crossed, how fast, and what limited the rate.
    #[must_use]
    pub fn line(&self) -> String {
        let verb = match self.role {
            Role::Sender => "sent",
            Role::Receiver => "received",
        };
        let results = &self.delivered.results;
        let mut line = format!(
            "{verb} {}, {}, in {}: {}",
            Count(results.verified_files.into(), "file"),
            Bytes(results.verified_bytes),
            Time(Duration::from_secs_f64(self.seconds)),
            Rate(self.goodput_bps)
        );
        if results.kept_files > 0 {
            line += &format!("; {} unchanged", results.kept_files);
        }
        if results.resumed_bytes > 0 {
            let bytes = Bytes(results.resumed_bytes);
            line += &format!("; {bytes} of them were there already");
        }
        if results.deleted_files > 0 {
            line += &format!("; {} deleted", results.deleted_files);
        }
        if let Some(bottleneck) = self.sending.limited_by.and_then(|seen| seen.main()) {
            line += &format!(", limited by {}", bottleneck.name());
        }
        if self.cipher.is_none() {
            line += "; not sealed";
        }
        if !self.synced {
            line += "; not synced";
        }
        if results.failed_files > 0 {
            line += &format!("; {} failed", results.failed_files);
        }
        line
    }

    /// What else people may want to know about the transfer, one fact a line.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        let preposition = match self.role {
            Role::Sender => "to",
            Role::Receiver => "from",
        };
        let rtt = Time(Duration::from_secs_f64(self.rtt_ms / 1e3));
        let mut lines = vec![
            format!("{preposition} {}", self.delivered.peer),
            format!("round trip: {rtt}"),
        ];
        let mut add = |line: String| lines.push(line);
        if let Some(loss) = self.send_loss.as_ref().or(self.receive_loss.as_ref()) {
            add(format!("lost by the path: {loss}"));
        }
        if let Some(share) = self.retransmitted_share {
            add(format!("sent again: {}", Percent(share)));
        }
        if let Some(share) = self.duplicate_share {
            add(format!("came twice: {}", Percent(share)));
        }
        if let Some(chunks @ 1..) = self.rebuilt_chunks {
            add(format!("rebuilt from parity: {chunks} chunks"));
        }
        add(match self.mtu < self.first_mtu {
            false => format!("packets: {} bytes", self.mtu),
            true => format!(
                "packets: {} bytes, {} before the path shrank",
                self.mtu, self.first_mtu
            ),
        });
        add(match &self.auto {
            Some(choices) => format!("scheme: {}", choices.line()),
            None => format!("scheme: {}", self.scheme),
        });
        add(match self.cipher {
            Some(cipher) => format!("sealed: {cipher}"),
            None => "not sealed: anyone on the path could read the data".to_owned(),
        });
        if self.sending.ecn == Some(CLEARED) {
            add("the path clears the ECN field".to_owned());
        }
        if let Some(reports @ 1..) = self.sending.refused_feedback {
            add(format!("implausible reports of the receiver: {reports}"));
        }
        if let Some(reports @ 1..) = self.sending.excess_feedback {
            add(format!(
                "reports of the receiver of more than was sent: {reports}"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_there_already_have_their_names_too() {
        let line = |verified_files, kept_files| {
            let results = FileResults {
                verified_files,
                kept_files,
                kept_bytes: 10 * u64::from(kept_files),
                ..FileResults::default()
            };
            Delivered::new("there".into(), results).line()
        };
        assert_eq!(line(0, 0), "no file has its final name at the receiver");
        let unchanged = "1 file with 10 B has its final name at the receiver, 1 of them unchanged";
        assert_eq!(line(0, 1), unchanged);
        assert!(line(1, 2).starts_with("3 files with 20 B have their final name"));
    }
}
