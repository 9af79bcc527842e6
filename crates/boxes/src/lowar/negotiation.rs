//! Whether the other box answers, and what it says.

use super::controller::Controller;
use super::format::Report;
use crate::message::Stamp;

/// After this many questions without an answer, the time between two no longer doubles.
const MAX_DOUBLINGS: u32 = 8;

/// Waits of the negotiation, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// Between two questions that are answered.
    pub(crate) probe_ns: u64,
    /// From a question without an answer until the other box counts as silent.
    pub(crate) silence_ns: u64,
}

/// The sending box's side of the negotiation about one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Liaison {
    answered: bool,
    /// When the first question was asked that was not answered.
    waits_since_ns: Option<u64>,
    asked_ns: Option<u64>,
    /// Questions since the last answer.
    unanswered: u32,
    /// The serial of the latest question that was answered.
    heard: u64,
    measures: Option<Measurement>,
    sent: u64,
}

/// A question under way.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    serial: u64,
    /// Packets of the stream that had been sent then.
    sent: u64,
}

impl Liaison {
    /// Counts a data packet.
    pub(crate) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Whether the other box answers: only then packets are coded.
    pub(crate) fn answers(&mut self, now_ns: u64, waits: Waits) -> bool {
        let silent = self
            .waits_since_ns
            .is_some_and(|since| now_ns.saturating_sub(since) > waits.silence_ns);
        self.answered &= !silent;
        self.answered
    }

    /// Whether to ask now. A box that has never answered is asked less and less often.
    pub(crate) fn should_ask(&self, now_ns: u64, waits: Waits) -> bool {
        let doublings = if self.answered {
            0
        } else {
            self.unanswered.min(MAX_DOUBLINGS)
        };
        self.asked_ns.is_none_or(|asked| {
            now_ns.saturating_sub(asked) >= waits.probe_ns.saturating_mul(1 << doublings)
        })
    }

    /// Notes a question.
    pub(crate) fn asked(&mut self, now_ns: u64, stamp: Stamp) {
        self.asked_ns = Some(now_ns);
        self.unanswered = self.unanswered.saturating_add(1);
        self.waits_since_ns.get_or_insert(now_ns);
        // A question that was lost ends no measurement: after some more, a new one begins.
        let stale = |measures: Measurement| {
            measures.serial <= self.heard || self.unanswered.is_multiple_of(64)
        };
        if self.measures.is_none_or(stale) {
            self.measures = Some(Measurement {
                serial: stamp.serial,
                sent: self.sent,
            });
        }
    }

    /// Takes in an answer from a box that started at `boot`. One to another box, or an old one, is
    /// not taken.
    pub(crate) fn hear(
        &mut self,
        own: u64,
        boot: u64,
        report: &Report,
        controller: &mut Controller,
    ) {
        let answers = report.answers;
        if answers.boot != own || answers.serial <= self.heard {
            return;
        }
        self.heard = answers.serial;
        self.answered = true;
        self.waits_since_ns = None;
        self.unanswered = 0;
        if let Some(measures) = self.measures
            && measures.serial == answers.serial
        {
            controller.measured_flight(self.sent - measures.sent);
        }
        controller.report(boot, report);
    }
}
