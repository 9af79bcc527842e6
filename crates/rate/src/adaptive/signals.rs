//! Detects congestion, and measures the flow's share of the path.

use super::path::{self, ReportSpan, Sample};
use super::{Adaptive, State};
use crate::math::mul_div;

impl Adaptive {
    /// Queueing delay in nanoseconds, without delays of single packets. `None` if no packet has
    /// measured it since the last cut.
    pub(super) fn queue_ns(&self) -> Option<u64> {
        let standing_ns = self.path.standing_sample_ns()?;
        Some(standing_ns.saturating_sub(self.path.base_ns()))
    }

    /// Delay from which on a queue is detected: a sixteenth of the round trip, plus the noise of the
    /// hosts, plus one packet of the flow.
    pub(super) fn threshold_ns(&self) -> u64 {
        (self.path.base_ns() / 16)
            .saturating_add(self.noise_ns())
            .saturating_add(self.packet_ns())
    }

    /// Delay of an empty queue that hosts cause. On a short path, a few samples decide, and the shortest of them is
    /// seldom that of an empty queue.
    fn noise_ns(&self) -> u64 {
        let most_ns = self.options.jitter_ns;
        let least_ns = if self.path.is_short() { most_ns / 4 } else { 0 };
        self.path.noise_ns(most_ns).max(least_ns)
    }

    /// Time of one packet at the rate of the flow, at most half a round trip.
    pub(super) fn packet_ns(&self) -> u64 {
        let base_ns = self.path.base_ns();
        mul_div(base_ns, self.options.packet_bytes, self.window_bytes).min(base_ns / 2)
    }

    /// Whether the newest reported packet left while the sender had less data than it was allowed
    /// to send.
    pub(super) fn is_app_limited(&self) -> bool {
        self.path.reported_bytes() <= self.app_limited_bytes
    }

    /// Whether the newest reported packet left less than a window after the sender last had no more
    /// data. Then the flow may not have filled its window since.
    fn was_app_limited(&self) -> bool {
        let filled_bytes = self.app_limited_bytes.saturating_add(self.window_bytes);
        self.app_limited_bytes > 0 && self.path.reported_bytes() < filled_bytes
    }

    /// Whether the flow had so little in flight when a packet left that a queue is not its own, and
    /// that it could not drain it.
    fn is_bystander(&self, sample: Option<Sample>) -> bool {
        let few = sample.is_some_and(|sample| sample.in_flight_bytes < self.window_bytes / 8);
        few && self.was_app_limited()
    }

    /// Whether a report about packets sent since the last cut shows congestion.
    pub(super) fn is_congested(&self, sample: Option<Sample>, dropped: bool) -> bool {
        let queue_ns = self.queue_ns().unwrap_or(0);
        let threshold_ns = self.threshold_ns();
        let is_long = queue_ns > threshold_ns && self.path.is_standing();
        if dropped || is_long && !self.is_bystander(sample) {
            return true;
        }
        let from_bytes = self.cycle.cut_bytes();
        let base_ns = self.path.base_ns();
        if let Some(recent) = self.path.span(base_ns / 4, from_bytes)
            && recent.marked > recent.packets / 8
        {
            return true;
        }
        // Without a queue, only heavy loss among many packets is a signal: of a policer.
        let is_queue = queue_ns > threshold_ns / 4;
        // In a small window, this number of packets takes several round trips.
        let least_bytes = if is_queue { 16 } else { 64 } * self.options.packet_bytes;
        let span = self.path.span_of(base_ns, least_bytes, from_bytes);
        let span = span.filter(|span| span.sent_bytes >= least_bytes);
        span.is_some_and(|span| {
            let is_heavy = self.excess_loss_ppm(&span) > path::MILLION / 10;
            is_heavy || is_queue && self.is_lossy(&span)
        })
    }

    /// Whether more of a span was lost than random loss explains.
    fn is_lossy(&self, span: &ReportSpan) -> bool {
        self.excess_loss_ppm(span) > path::MILLION / 50 && !self.is_chance(span)
    }

    /// Whether random loss may have caused the loss of a span: up to two packets and two standard
    /// deviations more than the mean. One lost packet of a small window is several percent.
    fn is_chance(&self, span: &ReportSpan) -> bool {
        let packet_bytes = self.options.packet_bytes;
        let lost_bytes = span.sent_bytes.saturating_sub(span.received_bytes);
        let mean_bytes = mul_div(span.sent_bytes, self.path.random_loss_ppm(), path::MILLION);
        let deviation_bytes = mean_bytes.saturating_mul(packet_bytes).isqrt();
        lost_bytes <= mean_bytes.saturating_add(2 * (packet_bytes + deviation_bytes))
    }

    /// Bytes in flight that fill the flow's part of the path without a queue: the bytes in flight
    /// with a packet, without their share of the queue. If packets were dropped, only bytes that
    /// arrived count.
    ///
    /// After an idle time, a sender has fewer bytes in flight, and they say nothing about its share.
    /// Then the share shrinks in proportion to the delay only: a burst of others during the first
    /// packets of a message must not leave the flow with a share of a few packets.
    pub(super) fn measured_share(&self, sample: Option<Sample>) -> u64 {
        let base_ns = self.path.base_ns();
        let share_bytes = match sample {
            Some(sample) if sample.in_flight_bytes < self.window_bytes / 2 => {
                self.share_of_few_bytes(sample)
            }
            Some(sample) => {
                let unused_bytes = if self.was_app_limited() {
                    self.share_bytes
                } else {
                    0
                };
                let held_bytes = sample.in_flight_bytes.max(unused_bytes);
                mul_div(held_bytes, base_ns, sample.rtt_ns)
            }
            None => {
                let span = self.path.span(base_ns, 0);
                let span = span.filter(|_| self.path.is_short());
                let most_bytes = span.map_or(u64::MAX, |span| span.sent_bytes);
                let held_bytes = self.window_bytes.min(most_bytes);
                mul_div(held_bytes, base_ns, self.path.standing_ns())
            }
        };
        let share_bytes = if self.path.variation_ns() > 0 || self.path.is_short() {
            // The delay of one packet says little: the mean rate of some round trips is the share.
            let delivered_bytes = self.path.delivered_bytes(base_ns, self.cycle.cut_bytes());
            share_bytes.max(delivered_bytes)
        } else {
            share_bytes
        };
        let share_bytes = match self.delivered_bytes() {
            // Bytes in flight with a packet are what the path delivered while that packet was on it.
            Some(bytes) if sample.is_none() || self.path.is_short() => share_bytes.min(bytes),
            _ => share_bytes,
        };
        let span = self.path.span(base_ns, self.cycle.cut_bytes());
        let excess_ppm = span.map_or(0, |span| self.excess_loss_ppm(&span));
        if excess_ppm <= path::MILLION / 20 {
            return share_bytes;
        }
        // Without a queue, all loss counts, because only a lower rate shows whether it is random.
        let is_queue = self.queue_ns().unwrap_or(0) >= self.threshold_ns() / 4;
        let lost_ppm = match span {
            Some(span) if !is_queue => span.loss_ppm(),
            _ => excess_ppm,
        };
        mul_div(share_bytes, path::MILLION - lost_ppm, path::MILLION)
    }

    /// The share, from a packet with few bytes in flight.
    ///
    /// In the first round trip of growth, the window is not full yet. A queue that has grown by q
    /// since growth began, a time t before the packet left, shows that the path carries t / (t + q)
    /// of the pace.
    ///
    /// Earlier than half a round trip, the formula uses half a round trip. Then t is small, and a
    /// host that waits for a processor would look like a path that carries almost nothing.
    fn share_of_few_bytes(&self, sample: Sample) -> u64 {
        let base_ns = self.path.base_ns();
        if self.was_app_limited() {
            return mul_div(self.share_bytes, base_ns, sample.rtt_ns);
        }
        let measured_bytes = mul_div(sample.in_flight_bytes, base_ns, sample.rtt_ns);
        let State::Grow { since_ns } = self.state else {
            return measured_bytes;
        };
        let elapsed_ns = sample.departed_ns.saturating_sub(since_ns);
        if elapsed_ns >= base_ns {
            return measured_bytes;
        }
        let grown_ns = elapsed_ns.max(base_ns / 2);
        let queue_ns = sample.rtt_ns.saturating_sub(base_ns);
        let carried_bytes = mul_div(self.share_bytes, grown_ns, grown_ns + queue_ns);
        carried_bytes.max(measured_bytes)
    }

    /// Loss beyond the random loss, in parts of a million.
    pub(super) fn excess_loss_ppm(&self, span: &ReportSpan) -> u64 {
        span.loss_ppm().saturating_sub(self.path.random_loss_ppm())
    }
}
