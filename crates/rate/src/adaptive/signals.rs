//! What counts as congestion, and which share of the path the flow has.

use super::Adaptive;
use super::path::{self, Sample, Span};
use crate::math::mul_div;

impl Adaptive {
    /// Delay of the queue, in nanoseconds, of which single late packets are no part.
    pub(super) fn queue_ns(&self) -> u64 {
        self.path.standing_ns().saturating_sub(self.path.base_ns())
    }

    /// Delay that counts as a queue: a sixteenth of the round trip, what the hosts make, and one
    /// packet of the flow's own.
    pub(super) fn threshold_ns(&self) -> u64 {
        let base_ns = self.path.base_ns();
        let packet_ns = mul_div(base_ns, self.options.packet_bytes, self.window_bytes);
        (base_ns / 16)
            .saturating_add(self.options.jitter_ns)
            .saturating_add(packet_ns.min(base_ns / 2))
    }

    /// The newest packet reported left when the sender had less to send than it might.
    pub(super) fn is_app_limited(&self) -> bool {
        self.path.reported_bytes() <= self.app_limited_bytes
    }

    /// Whether a report of what left since the last cut shows congestion.
    pub(super) fn is_congested(&self, dropped: bool) -> bool {
        let queue_ns = self.queue_ns();
        let threshold_ns = self.threshold_ns();
        if dropped || queue_ns > threshold_ns {
            return true;
        }
        let from_bytes = self.cycle.cut_bytes();
        let base_ns = self.path.base_ns();
        if let Some(recent) = self.path.span(base_ns / 4, from_bytes)
            && recent.marked > recent.packets / 8
        {
            return true;
        }
        // Without a queue, only much loss among many packets shows something: a policer.
        let (packets, allowed_ppm) = if queue_ns > threshold_ns / 4 {
            (16, path::MILLION / 50)
        } else {
            (64, path::MILLION / 10)
        };
        // Of a small window, as many packets are those of several round trips.
        let least_bytes = packets * self.options.packet_bytes;
        let span = self.path.span_of(base_ns, least_bytes, from_bytes);
        span.is_some_and(|span| {
            span.sent_bytes >= least_bytes && self.excess_loss_ppm(&span) > allowed_ppm
        })
    }

    /// Bytes in flight that fill the flow's part of the path and no queue: those that were in
    /// flight with a packet, less its part of the queue. Where packets were dropped, what arrived
    /// counts.
    pub(super) fn measured_share(&self, sample: Option<Sample>) -> u64 {
        let base_ns = self.path.base_ns();
        let share_bytes = match sample {
            Some(sample) => mul_div(sample.in_flight_bytes, base_ns, sample.rtt_ns),
            None => mul_div(self.window_bytes, base_ns, self.path.standing_ns()),
        };
        let span = self.path.span(base_ns, self.cycle.cut_bytes());
        let excess_ppm = span.map_or(0, |span| self.excess_loss_ppm(&span));
        if excess_ppm > path::MILLION / 20 {
            mul_div(share_bytes, path::MILLION - excess_ppm, path::MILLION)
        } else {
            share_bytes
        }
    }

    /// Loss beyond that of an empty queue, in parts of a million.
    pub(super) fn excess_loss_ppm(&self, span: &Span) -> u64 {
        span.loss_ppm().saturating_sub(self.path.random_loss_ppm())
    }
}
