//! Tracks whether the other box answers the questions about a stream.

use super::controller::Controller;
use super::format::LossReport;
use crate::message::Stamp;

/// The interval between unanswered questions doubles at most this number of times.
const MAX_DOUBLINGS: u32 = 8;

/// Times of the negotiation, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeTiming {
    /// Interval between questions while the other box answers.
    pub(crate) probe_ns: u64,
    /// Time from an unanswered question until the other box counts as silent.
    pub(crate) silence_ns: u64,
}

/// The sending box's state of the negotiation about one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Negotiation {
    /// Whether the other box answers, or is relied on and was not silent for long.
    answered: bool,
    /// When the oldest unanswered question was sent.
    waits_since_ns: Option<u64>,
    asked_ns: Option<u64>,
    /// Questions since the last answer.
    unanswered: u32,
    /// Serial number of the latest question that was answered.
    latest_answered: u64,
    measurement: Option<Measurement>,
    sent: u64,
}

/// A question whose answer will measure the packets in flight.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    serial: u64,
    /// Packets of the stream sent before the question.
    sent: u64,
}

impl Negotiation {
    /// The negotiation about a new stream. `peer_known`: as [`Config::peer_known`](super::Config::peer_known).
    pub(crate) fn new(peer_known: bool) -> Self {
        Self {
            answered: peer_known,
            ..Self::default()
        }
    }

    pub(crate) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Whether the other box counts as there. Packets are coded only while it does.
    pub(crate) fn answers(&mut self, now_ns: u64, timing: ProbeTiming) -> bool {
        let silent = self
            .waits_since_ns
            .is_some_and(|since| now_ns.saturating_sub(since) > timing.silence_ns);
        self.answered &= !silent;
        self.answered
    }

    /// Whether to send a question now. The interval doubles while the other box does not answer.
    pub(crate) fn should_ask(&self, now_ns: u64, timing: ProbeTiming) -> bool {
        let doublings = if self.answered {
            0
        } else {
            self.unanswered.min(MAX_DOUBLINGS)
        };
        self.asked_ns.is_none_or(|asked| {
            now_ns.saturating_sub(asked) >= timing.probe_ns.saturating_mul(1 << doublings)
        })
    }

    pub(crate) fn asked(&mut self, now_ns: u64, stamp: Stamp) {
        self.asked_ns = Some(now_ns);
        self.unanswered = self.unanswered.saturating_add(1);
        self.waits_since_ns.get_or_insert(now_ns);
        // If the question or its answer was lost, start a new measurement after 64 questions.
        let stale = |measurement: Measurement| {
            measurement.serial <= self.latest_answered || self.unanswered.is_multiple_of(64)
        };
        if self.measurement.is_none_or(stale) {
            self.measurement = Some(Measurement {
                serial: stamp.serial,
                sent: self.sent,
            });
        }
    }

    /// Processes an answer from a box that started at `boot`. Ignores old answers, and answers to
    /// questions that this box asked before its last start (`own`). `free_units`: as
    /// [`Controller::report`] has it.
    pub(crate) fn handle_report(
        &mut self,
        own: u64,
        boot: u64,
        report: &LossReport,
        free_units: usize,
        controller: &mut Controller,
    ) {
        let answers = report.answers;
        if answers.boot != own || answers.serial <= self.latest_answered {
            return;
        }
        self.latest_answered = answers.serial;
        self.answered = true;
        self.waits_since_ns = None;
        self.unanswered = 0;
        if let Some(measurement) = self.measurement
            && measurement.serial == answers.serial
        {
            controller.measured_flight(self.sent - measurement.sent);
        }
        controller.report(boot, report, free_units);
    }
}
