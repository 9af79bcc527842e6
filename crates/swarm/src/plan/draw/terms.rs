//! Draws deadlines and terms of messages.

use farwrite::{RateControl, SchemeName, SchemeTag};

use super::{Draft, slowest_bps};
use crate::plan::{MessagePlan, Repair, SECOND};

/// Share of the terms of receives that the messages do not meet.
const WRONG: f64 = 0.05;
/// Later than the end of every case.
const HOUR_NS: u64 = 3600 * SECOND;

impl Draft {
    /// Draws the deadlines of the last message.
    pub(super) fn set_limits(&mut self) {
        if !self.rng.chance(self.deadline_share) {
            return;
        }
        let usual_ns = self.usual_ns();
        let (at_sender, at_receiver) =
            self.rng
                .pick(&[(true, false), (false, true), (false, true), (true, true)]);
        let send_limit_ns = self.limit(usual_ns);
        let recv_limit_ns = self.limit(usual_ns);
        let message = self.last();
        let is_stream = message.scheme == Repair::Stream;
        message.send_limit_ns = (at_sender && !is_stream).then_some(send_limit_ns);
        // A buffer that is posted early must first wait for its message.
        let early_ns = message.send_ns.saturating_sub(message.recv_ns);
        message.recv_limit_ns = at_receiver.then_some(recv_limit_ns + early_ns);
    }

    fn last(&mut self) -> &mut MessagePlan {
        let messages = &mut self.plan.messages;
        messages.last_mut().expect("one was added")
    }

    /// Approximate duration of the last message without faults.
    fn usual_ns(&mut self) -> u64 {
        let &mut MessagePlan { pair, bytes, .. } = self.last();
        let pair = &self.plan.pairs[pair];
        let path = &self.plan.paths[pair.path];
        let links = &path.links;
        let rtt_ns = u64::try_from((links[0].delay + links[1].delay).as_nanos());
        let rate_bps = match path.rate_control {
            RateControl::Fixed { rate_bps } => rate_bps,
            _ => slowest_bps(links),
        };
        let wire_ns = bytes as u64 * 8 * SECOND / rate_bps;
        rtt_ns.expect("a short delay") + wire_ns
    }

    /// How long an end waits: too short, about long enough, or very long.
    fn limit(&mut self, usual_ns: u64) -> u64 {
        match self.rng.within(0..10) {
            0 => 0,
            1..3 => self.rng.within(1..usual_ns),
            3..7 => usual_ns / 2 + self.rng.within(0..2 * usual_ns),
            7 => HOUR_NS,
            _ => self.rng.within(10 * usual_ns..10 * usual_ns + 10 * SECOND),
        }
    }

    /// Draws the terms of the last message's receive. The message meets most of them.
    pub(super) fn set_terms(&mut self, schemes: &[SchemeName]) {
        if !self.rng.chance(self.terms_share) {
            return;
        }
        let rng = &mut self.rng;
        let message = self.plan.messages.last_mut().expect("one was added");
        let sdr = &self.plan.pairs[message.pair].options.sdr;
        let tag = match message.scheme {
            Repair::Scheme(scheme) if !rng.chance(WRONG) => scheme.tag(),
            Repair::Nothing | Repair::Stream if !rng.chance(WRONG) => SchemeTag::NONE,
            _ => rng.pick(schemes).tag(),
        };
        message.terms.scheme = rng.chance(0.6).then_some(tag);
        message.terms.accepts_partial = rng.chance(0.6);
        if !rng.chance(0.6) {
            return;
        }
        message.terms.exact_length = true;
        if message.capacity >= message.bytes && !rng.chance(WRONG) {
            message.capacity = message.bytes;
        }
        let has_immediate = message.immediate.is_some();
        let is_wrong = sdr.split.user_bits > 0 && rng.chance(WRONG);
        message.terms.immediate = has_immediate != is_wrong;
    }
}
