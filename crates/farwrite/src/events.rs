//! Events: what an endpoint did and when. They help to answer questions such as "why did this
//! message wait?".
//!
//! An endpoint reports events through [`tracing`]. Without a subscriber, an event costs a check of
//! one atomic variable. All events have the target [`TARGET`] and the level `DEBUG`, and each has
//! these fields:
//!
//! - `at_ns`: the time of the endpoint's poll in which the event happened, by the clock of that
//!   endpoint;
//! - `qp`: the index of the queue pair in its endpoint.
//!
//! Events of messages also have `message`, the number of the message on its queue pair. A run of
//! chunks is `first_chunk..end_chunk`. `parity` is true if they are chunks of the parity.
//!
//! | event | when | fields |
//! |---|---|---|
//! | `send_offered` | an offer leaves; it is repeated until it is answered | `bytes` (absent for streams), `scheme` |
//! | `send_cleared` | the receiver's buffer is known | |
//! | `send_chunks` | the fabric takes packets of a run | `first_chunk`, `end_chunk`, `packets`, `parity`, `repeat` |
//! | `send_acked` | an ACK comes | `cumulative`: chunks `0..cumulative` have arrived |
//! | `send_nacked` | a NACK comes, one event for each run | `first_chunk`, `end_chunk` |
//! | `send_ended` | the message has ended for the sender | `outcome` |
//! | `recv_requested` | a read's request leaves; it is repeated until its message has started | `region`, `offset`, `bytes` |
//! | `recv_offered` | the first offer of a message comes | `bytes`, `scheme` |
//! | `recv_cleared` | a clear-to-send leaves; it is repeated until it is answered | `posted`: messages `0..posted` have buffers |
//! | `recv_arrived` | a poll finds new packets of a message | `chunks` whole so far, `seen` (one past the highest), `parity` |
//! | `recv_nacked` | a NACK leaves, one event for each run | `first_chunk`, `end_chunk` |
//! | `recv_rebuilt` | chunks are computed from others | `chunks` |
//! | `recv_late` | a packet of an ended message arrives | |
//! | `recv_duplicate` | a packet comes again | |
//! | `recv_ended` | the message has ended for the receiver | `outcome` |
//! | `path_feedback` | the peer reports what has arrived | `rtt_ns`, `pace_bps`, `window_bytes` (absent without one), `in_flight_bytes`, `limit`, `phase` (of the adaptive controller) |
//! | `packets_dropped` | the fabric has dropped packets since the last poll; without `qp` | `reason`, `count` |
//!
//! The commands `farwrite send`, `recv` and `demo` write the events with `--trace FILE`, and
//! `farwrite trace FILE` draws them.

use farwrite_fabric::contract::{Counters, DropReason};
use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{Arrivals, Report};
use farwrite_wire::control::{Control, MessageId, Nack, Outcome, SchemeTag};
use tracing::Level;

use crate::peer::{PeerStats, Run};

/// The target of all events.
pub const TARGET: &str = "farwrite";

/// Returns whether a subscriber receives the events.
fn enabled() -> bool {
    tracing::enabled!(target: TARGET, Level::DEBUG)
}

/// Reports an event of a queue pair.
macro_rules! report {
    ($events:expr, $name:literal, $($field:tt)*) => {
        if $events.are_reported {
            tracing::event!(
                name: $name,
                target: TARGET,
                Level::DEBUG,
                at_ns = $events.now_ns,
                qp = $events.qp,
                $($field)*
            )
        }
    };
}

#[derive(Debug)]
pub(crate) struct Events {
    qp: u32,
    are_reported: bool,
    /// The time of the last call that passed the time.
    now_ns: u64,
}

impl Events {
    pub(crate) fn new(qp: u32, are_reported: bool) -> Self {
        Self {
            qp,
            are_reported,
            now_ns: 0,
        }
    }

    pub(crate) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Reports a control message of the SDR core that leaves.
    pub(crate) fn control_leaves(&self, control: &Control) {
        if !enabled() {
            return;
        }
        match control {
            Control::Offer(offer) if offer.withdrawn.is_none() => {
                let scheme = scheme(offer.scheme);
                let (message, bytes) = (offer.message, offer.length);
                report!(self, "send_offered", message, bytes, scheme);
            }
            Control::ClearToSend(clear) => {
                report!(self, "recv_cleared", posted = clear.posted);
            }
            Control::Read(read) if read.remaining_ns > 0 => {
                let (message, region, offset) = (read.message, read.region, read.offset);
                let bytes = read.length;
                report!(self, "recv_requested", message, region, offset, bytes);
            }
            _ => {}
        }
    }

    pub(crate) fn send_cleared(&self, message: u64) {
        report!(self, "send_cleared", message);
    }

    /// Reports that the fabric has taken packets. Each chunk has `per_chunk` packets.
    pub(crate) fn send_chunks(&self, run: &Run, per_chunk: u32) {
        report!(
            self,
            "send_chunks",
            message = run.message.data(),
            first_chunk = run.packets.start / per_chunk,
            end_chunk = run.packets.end.div_ceil(per_chunk),
            packets = run.packets.end - run.packets.start,
            parity = run.message.is_parity(),
            repeat = run.is_repeat,
        );
    }

    /// Reports that a report of the receiver arrived.
    pub(crate) fn send_reported(&self, report: &Report) {
        match report {
            Report::Ack(ack) => {
                let (message, cumulative) = (ack.message, ack.cumulative);
                report!(self, "send_acked", message, cumulative);
            }
            Report::Nack(nack) if enabled() => {
                for run in &nack.lost {
                    let (first_chunk, end_chunk) = (run.start, run.end);
                    let message = nack.message;
                    report!(self, "send_nacked", message, first_chunk, end_chunk);
                }
            }
            Report::Nack(_) => {}
        }
    }

    pub(crate) fn send_ended(&self, message: u64, outcome: Outcome) {
        report!(self, "send_ended", message, outcome = word(outcome));
    }

    pub(crate) fn recv_offered(&self, message: u64, bytes: Option<u64>, tag: SchemeTag) {
        if enabled() {
            let scheme = scheme(tag);
            report!(self, "recv_offered", message, bytes, scheme);
        }
    }

    pub(crate) fn recv_arrived(&self, message: MessageId, arrivals: &impl Arrivals) {
        report!(
            self,
            "recv_arrived",
            message = message.data(),
            chunks = arrivals.count(message),
            seen = arrivals.seen(message),
            parity = message.is_parity(),
        );
    }

    /// Reports a NACK that leaves.
    pub(crate) fn recv_nacked(&self, nack: &Nack) {
        if enabled() {
            for run in &nack.lost {
                let (first_chunk, end_chunk) = (run.start, run.end);
                let message = nack.message;
                report!(self, "recv_nacked", message, first_chunk, end_chunk);
            }
        }
    }

    pub(crate) fn recv_rebuilt(&self, message: u64, chunks: usize) {
        report!(self, "recv_rebuilt", message, chunks);
    }

    pub(crate) fn recv_late(&self, message: u64) {
        report!(self, "recv_late", message);
    }

    pub(crate) fn recv_duplicate(&self, message: MessageId) {
        report!(self, "recv_duplicate", message = message.data());
    }

    pub(crate) fn recv_ended(&self, message: u64, outcome: Outcome) {
        report!(self, "recv_ended", message, outcome = word(outcome));
    }

    /// Reports feedback from the peer about what arrived. `stats` is called only if a subscriber
    /// receives events.
    pub(crate) fn path_feedback(&self, stats: impl FnOnce() -> PeerStats) {
        if !enabled() {
            return;
        }
        let stats = stats();
        report!(
            self,
            "path_feedback",
            rtt_ns = stats.rtt_ns,
            pace_bps = stats.pace_bps,
            window_bytes = stats.window_bytes,
            in_flight_bytes = stats.in_flight_bytes,
            limit = ?stats.limit,
            phase = stats.phase.map(tracing::field::debug),
        );
    }
}

/// Reports the packets that a fabric drops.
#[derive(Debug, Default)]
pub(crate) struct DropEvents {
    reported: [u64; DropReason::ALL.len()],
}

impl DropEvents {
    /// Reports the drops since the last call.
    pub(crate) fn report(&mut self, now_ns: u64, counters: impl FnOnce() -> Counters) {
        if !enabled() {
            return;
        }
        let dropped = counters().dropped;
        for reason in DropReason::ALL {
            let reported = &mut self.reported[reason as usize];
            let count = dropped[reason as usize].saturating_sub(*reported);
            if count > 0 {
                *reported += count;
                tracing::event!(
                    name: "packets_dropped",
                    target: TARGET,
                    Level::DEBUG,
                    at_ns = now_ns,
                    reason = ?reason,
                    count,
                );
            }
        }
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Whole => "whole",
        Outcome::Partial => "partial",
        Outcome::Failed => "failed",
    }
}

/// Returns the name of a scheme, or the number of a scheme that a user has added.
fn scheme(tag: SchemeTag) -> String {
    if tag == SchemeTag::NONE {
        return "none".to_owned();
    }
    SchemeName::from_tag(tag).map_or_else(|| tag.id.to_string(), |name| name.to_string())
}
