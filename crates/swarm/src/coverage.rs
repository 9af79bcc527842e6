//! The faults and outcomes that a case met, as its plan and its counters show them.

use std::time::Duration;

use farwrite::{RateControl, Timing};
use farwrite_link::{LinkCounters, Loss};

use crate::case::Coverage;
use crate::plan::{Plan, Repair};
use crate::world::World;

/// All kinds of events that a case can meet.
pub(crate) const KINDS: [&str; 101] = [
    "loss, packet by packet",
    "loss in bursts",
    "queue overflow",
    "duplication",
    "corruption",
    "reordering",
    "cut",
    "cut one way",
    "asymmetric path",
    "control packets lost",
    "control packets late",
    "late packets of an older message",
    "late packets kept back whole",
    "late packets to a freed or other slot",
    "a packet repeated",
    "a packet repeated more often than packets were sent",
    "sealed packets",
    "sealed packets forged",
    "bytes without a tag changed",
    "route packets repeated",
    "an end that sealed for wrong addresses",
    "messages open when an attacker left",
    "chunks rebuilt beside other work",
    "pause",
    "fabric full",
    "restart",
    "close",
    "peer left behind",
    "slot used by all generations",
    "late post of a buffer",
    "an end connects later",
    "several queue pairs",
    "more than two hosts",
    "several channels",
    "several packets a chunk",
    "no parity ids",
    "one slot",
    "datacenter timing far away",
    "timing of no profile",
    "empty message",
    "message of 1 byte",
    "length not a multiple of 4",
    "immediate",
    "no scheme",
    "stream",
    "sr-rto",
    "sr-nack",
    "gbn",
    "ec-xor",
    "ec-mds",
    "best-effort",
    "best-effort+sr",
    "best-effort+ec-xor",
    "best-effort+ec-mds",
    "best-effort+first",
    "best-effort+exact",
    "several critical ranges",
    "critical ranges of all chunks",
    "partial with all exact ranges",
    "failed without all exact ranges",
    "partial before any deadline",
    "chunks sent again",
    "timeouts",
    "chunks rebuilt",
    "duplicate packets",
    "received whole",
    "received partial, none there",
    "received partial, some there",
    "received failed",
    "cancelled",
    "completed early",
    "buffer too short",
    "both ends agree",
    "ends differ",
    "deadline in time",
    "deadline of the receive before the offer",
    "deadline of the receive after the offer",
    "whole at the deadline of the receive",
    "deadline of the send, partial",
    "deadline of the send, failed",
    "deadline of the send before any data",
    "receive ended by the deadline of the send",
    "deadline in a pause",
    "refused for its scheme",
    "refused for its length",
    "refused for its immediate",
    "whole as foreseen",
    "write sent",
    "write cut, some has left",
    "write cut, nothing has left",
    "write ended by its stream",
    "read whole",
    "read partial, some there",
    "read refused",
    "fixed rate",
    "dcqcn",
    "swift",
    "eqds",
    "adaptive rate",
    "adaptive rate with a hint",
    "adaptive rate with a maximum",
];

impl World<'_> {
    /// Records the events that the plan and the counters of the case show.
    pub(crate) fn cover(&mut self, links: &LinkCounters) {
        let mut coverage = std::mem::take(&mut self.coverage);
        cover_plan(&mut coverage, self.plan);
        let plan_links = || self.plan.paths.iter().flat_map(|path| &path.links);
        let bursts = plan_links()
            .any(|link| matches!(link.loss, Loss::Markov { .. } | Loss::MarkovInTime { .. }));
        let single = plan_links().any(|link| matches!(link.loss, Loss::Iid { .. }));
        coverage.saw_if("loss, packet by packet", links.lost > 0 && single);
        coverage.saw_if("loss in bursts", links.lost > 0 && bursts);
        coverage.saw_if("queue overflow", links.queue_dropped > 0);
        coverage.saw_if("duplication", links.duplicated > 0);
        coverage.saw_if("corruption", links.corrupted > 0);
        coverage.saw_if("reordering", links.reordered > 0);
        let tap = self.tap.borrow().counts;
        coverage.saw_if("control packets lost", tap.controls_dropped > 0);
        coverage.saw_if("control packets late", tap.controls_held > 0);
        coverage.saw_if("late packets of an older message", tap.injected_data > 0);
        coverage.saw_if("late packets kept back whole", tap.kept_back > 0);
        coverage.saw_if("a packet repeated", tap.replayed > 0);
        coverage.saw_if("sealed packets", self.plan.is_sealed());
        coverage.saw_if("sealed packets forged", tap.forged > 0);
        coverage.saw_if("bytes without a tag changed", tap.meddled > 0);
        coverage.saw_if("route packets repeated", tap.routes_repeated > 0);
        let is_flood = tap.replayed > tap.sent;
        coverage.saw_if(
            "a packet repeated more often than packets were sent",
            is_flood,
        );
        let refused: u64 = self
            .hosts
            .iter()
            .map(|host| host.fullness.borrow().refused)
            .sum();
        coverage.saw_if("fabric full", refused > 0);
        for (pair, state) in self.pairs.iter().enumerate() {
            let sdr = &self.plan.pairs[pair].options.sdr;
            let round = sdr.slots as usize * usize::from(sdr.generations);
            let longest = [0, 1].map(|from| self.plan.course(pair, from).count());
            coverage.saw_if(
                "slot used by all generations",
                longest.iter().any(|&n| n > round),
            );
            coverage.saw_if("peer left behind", state.gave_up);
            for stats in &state.stats {
                let late = "late packets to a freed or other slot";
                coverage.saw_if(late, stats.late_packets > 0);
                coverage.saw_if("chunks sent again", stats.sender.retransmitted_chunks > 0);
                coverage.saw_if("timeouts", stats.sender.timeouts > 0);
                coverage.saw_if("chunks rebuilt", stats.rebuilt_chunks > 0);
                let beside = self.plan.coding_ns > 0 && stats.rebuilt_chunks > 0;
                coverage.saw_if("chunks rebuilt beside other work", beside);
                coverage.saw_if("duplicate packets", stats.duplicate_packets > 0);
            }
        }
        self.coverage = coverage;
    }
}

fn cover_plan(coverage: &mut Coverage, plan: &Plan) {
    for path in &plan.paths {
        let [forth, back] = &path.links;
        let differ = forth.delay != back.delay || forth.rate_bps != back.rate_bps;
        coverage.saw_if("asymmetric path", differ);
        match path.rate_control {
            RateControl::Fixed { .. } => coverage.saw("fixed rate"),
            RateControl::Dcqcn(_) => coverage.saw("dcqcn"),
            RateControl::Swift(_) => coverage.saw("swift"),
            RateControl::Eqds(_) => coverage.saw("eqds"),
            RateControl::Adaptive { max_bps, start } => {
                coverage.saw("adaptive rate");
                coverage.saw_if("adaptive rate with a hint", start.is_some());
                coverage.saw_if("adaptive rate with a maximum", max_bps.is_some());
            }
        }
    }
    coverage.saw_if("several queue pairs", plan.pairs.len() > 1);
    coverage.saw_if("more than two hosts", plan.hosts() > 2);
    for pair in &plan.pairs {
        let sdr = &pair.options.sdr;
        coverage.saw_if("an end connects later", pair.lag_ns > 0);
        coverage.saw_if("several channels", sdr.channels > 1);
        coverage.saw_if("several packets a chunk", sdr.packets_per_chunk > 1);
        coverage.saw_if("no parity ids", !sdr.parity);
        coverage.saw_if("one slot", sdr.slots == 1);
        let links = &plan.paths[pair.path].links;
        let is_far = links[0].delay + links[1].delay > Duration::from_millis(20);
        let timing = pair.options.timing;
        let is_datacenter = timing == Timing::datacenter();
        coverage.saw_if("datacenter timing far away", is_datacenter && is_far);
        let is_profile = is_datacenter || timing == Timing::wide_area();
        coverage.saw_if("timing of no profile", !is_profile);
    }
    for message in &plan.messages {
        coverage.saw_if("late post of a buffer", message.recv_ns > message.send_ns);
        coverage.saw_if("empty message", message.bytes == 0);
        coverage.saw_if("message of 1 byte", message.bytes == 1);
        coverage.saw_if("length not a multiple of 4", message.bytes % 4 != 0);
        coverage.saw_if(
            "several critical ranges",
            message.critical.ranges().count() > 1,
        );
        let mut critical = message.critical.ranges();
        let is_all = critical.next() == Some(0..message.bytes as u64);
        coverage.saw_if("critical ranges of all chunks", is_all);
        coverage.saw_if("immediate", message.immediate.is_some());
        coverage.saw(match message.scheme {
            Repair::Nothing => "no scheme",
            Repair::Stream => "stream",
            Repair::Scheme(scheme) => name(&scheme.to_string()),
        });
    }
}

/// A scheme's name without its numbers.
fn name(scheme: &str) -> &'static str {
    let is_prefix = |kind: &&&str| scheme.split(':').next() == Some(**kind);
    KINDS
        .iter()
        .find(is_prefix)
        .expect("schemes are in the table")
}
