//! Estimates the path from reports: round trip, queue, rate, loss, marks.

use super::constants::{MAX_RANDOM_LOSS_PPM, MAX_RTT_NS, POINTS, SHORT_PATH};
use super::variation::{Noise, Variation};
use crate::math::{mul_div, rate_of};
use crate::{Feedback, Newest};

pub(super) const MILLION: u64 = 1_000_000;

/// The sums of one report, at the instant when its newest packet arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// In the sender's clock: when the report arrived, minus the hold time. This is later than the
    /// true arrival by the one-way delay of the report.
    arrived_ns: u64,
    /// When the newest packet left; `None` if it left twice.
    departed_ns: Option<u64>,
    sent_bytes: u64,
    received_bytes: u64,
    received_packets: u64,
    marked_packets: u64,
}

/// The bytes and packets between two reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportSpan {
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) packets: u64,
    pub(super) marked: u64,
}

impl ReportSpan {
    /// Share of the bytes that did not arrive, in parts of a million.
    pub(super) fn loss_ppm(&self) -> u64 {
        let lost = self.sent_bytes.saturating_sub(self.received_bytes);
        mul_div(lost, MILLION, self.sent_bytes)
    }
}

/// A round-trip sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) departed_ns: u64,
    pub(super) rtt_ns: u64,
    /// Bytes in flight when it left, including the packet. They left the path within the round
    /// trip.
    pub(super) in_flight_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PathEstimate {
    /// Variation of the delay that the hosts cause, in nanoseconds.
    jitter_ns: u64,
    /// Delay that every round trip of a short path has in addition, in nanoseconds; 0 on other paths.
    host_ns: u64,
    /// Shortest round trip since the last detected change of the path. 0 before the first sample.
    base_ns: u64,
    /// Shortest samples of the current and the previous eighth of a round trip, or of a longer time if the path is
    /// slow.
    lowest_ns: [Option<u64>; 2],
    lowest_since_ns: u64,
    /// Number of samples of the current time.
    lowest_samples: u32,
    /// How many samples show the shortest delay, beside a full round trip.
    least_samples: u32,
    latest: Point,
    points: [Point; POINTS],
    filled: usize,
    /// Share of the bytes that is lost while the queue is empty, in parts of a million.
    random_loss_ppm: u64,
    /// Recent maximum of the delay while the queue was empty, in nanoseconds: the noise of the
    /// hosts. `None` before the first measurement.
    noise_ns: Option<u64>,
    /// The first report about packets sent after the last cut of the window.
    cut: Point,
    variation: Variation,
    /// By how much the delay varies, as of the latest sample.
    variation_ns: u64,
    /// Mean time between reports, in nanoseconds.
    interval_ns: u64,
    reported_ns: u64,
}

impl PathEstimate {
    /// An estimate between hosts that cause a variation of `jitter_ns`.
    pub(super) fn between(jitter_ns: u64) -> Self {
        Self {
            jitter_ns,
            ..Self::default()
        }
    }

    /// Notes a round trip of `rtt_ns`. Hosts cannot control a path that is not much longer than their own delays: on
    /// a short one, every round trip counts as longer by these. That stays, also if the path becomes longer.
    pub(super) fn note_path(&mut self, rtt_ns: u64) {
        if self.host_ns == 0 && rtt_ns < self.jitter_ns.saturating_mul(SHORT_PATH) {
            self.host_ns = self.jitter_ns;
            self.forget_samples();
            if self.base_ns > 0 {
                self.base_ns = self.base_ns.saturating_add(self.host_ns);
            }
        }
    }

    /// Whether the path is so short that hosts cannot control it.
    pub(super) fn is_short(&self) -> bool {
        self.host_ns > 0
    }

    /// Processes a report. Returns `None` if a newer report has overtaken it, or if nothing was
    /// received. Otherwise returns the round-trip sample of the report, if it has one. Delays up to
    /// `noise` are no variation of the path. `least_samples`: how many samples show the shortest delay.
    pub(super) fn take(
        &mut self,
        feedback: &Feedback,
        noise: Noise,
        least_samples: u32,
    ) -> Option<Option<Sample>> {
        let newest = feedback.newest?;
        if newest.sent_bytes < self.latest.sent_bytes
            || feedback.received_packets < self.latest.received_packets
        {
            return None;
        }
        let gap_ns = feedback.now_ns.saturating_sub(self.reported_ns);
        if self.reported_ns > 0 && self.base_ns > 0 {
            // Limit a single long gap, for instance of a receiver that was suspended, so that the
            // mean stays short.
            let gap_ns = gap_ns.min(self.base_ns.saturating_add(self.interval_ns));
            self.interval_ns = (self.interval_ns / 4 * 3).saturating_add(gap_ns / 4);
        }
        self.reported_ns = self.reported_ns.max(feedback.now_ns);
        self.least_samples = least_samples;
        self.note_newest(feedback.now_ns, &newest);
        let sample = self.sample(feedback.now_ns, &newest);
        if let Some(sample) = sample {
            self.note(feedback.now_ns, sample.rtt_ns);
            self.variation.note(sample, self.base_ns, noise);
            self.variation_ns = self.variation.ns(feedback.now_ns);
        }
        let arrived_ns = feedback.now_ns.saturating_sub(newest.hold_ns);
        let arrived_ns = arrived_ns.saturating_add(self.host_ns);
        self.latest = Point {
            arrived_ns: arrived_ns.max(self.latest.arrived_ns),
            departed_ns: newest.departed_ns,
            sent_bytes: newest.sent_bytes,
            received_bytes: feedback.received_bytes.max(self.latest.received_bytes),
            received_packets: feedback.received_packets,
            marked_packets: feedback.marked_packets.max(self.latest.marked_packets),
        };
        self.keep();
        Some(sample)
    }

    /// Longest round trip without queues, in nanoseconds: the shortest one, on a short path the hosts' part, and the
    /// variation of the path. 0 before the first sample.
    pub(super) fn base_ns(&self) -> u64 {
        if self.base_ns == 0 {
            return 0;
        }
        self.base_ns + self.variation_ns
    }

    /// Shortest round trip without the hosts, in nanoseconds; 0 before the first sample.
    pub(super) fn shortest_ns(&self) -> u64 {
        self.base_ns.saturating_sub(self.host_ns)
    }

    /// A round trip of `rtt_ns` as this estimate counts it.
    pub(super) fn with_hosts(&self, rtt_ns: u64) -> u64 {
        rtt_ns.saturating_add(self.host_ns)
    }

    pub(super) fn variation_ns(&self) -> u64 {
        self.variation_ns
    }

    /// As [`Variation::pending_ns`].
    pub(super) fn pending_rise_ns(&self, since_ns: u64) -> u64 {
        self.variation.pending_ns(since_ns)
    }

    /// Replaces the base after a change of the path.
    pub(super) fn set_base(&mut self, base_ns: u64) {
        self.base_ns = base_ns
            .saturating_sub(self.variation_ns)
            .clamp(self.host_ns.saturating_add(1), self.with_hosts(MAX_RTT_NS));
    }

    /// Standing round trip: the shortest one of the last eighth to quarter of a round trip, and of more on a slow
    /// path or a short one. It excludes delays of single packets. `None` before the first sample after a cut of the
    /// window: packets that repeat lost ones give none.
    pub(super) fn standing_sample_ns(&self) -> Option<u64> {
        self.lowest_ns.into_iter().flatten().min()
    }

    /// Whether the standing round trip is that of enough samples to show a queue. On a slow path and on a short one, a
    /// single sample after a cut is not enough.
    pub(super) fn is_standing(&self) -> bool {
        self.least_samples <= 1 || self.lowest_ns[1].is_some()
    }

    /// The standing round trip, or the base if there is no sample.
    pub(super) fn standing_ns(&self) -> u64 {
        self.standing_sample_ns().unwrap_or(self.base_ns())
    }

    pub(super) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Share of the bytes that is lost while the queue is empty, in parts of a million.
    pub(super) fn random_loss_ppm(&self) -> u64 {
        self.random_loss_ppm
    }

    /// Bytes sent up to the newest packet reported.
    pub(super) fn reported_bytes(&self) -> u64 {
        self.latest.sent_bytes
    }

    /// When the newest reported packet arrived, later by the one-way delay of the report, in
    /// nanoseconds.
    pub(super) fn arrived_ns(&self) -> u64 {
        self.latest.arrived_ns.saturating_sub(self.host_ns)
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.latest.received_bytes
    }

    /// Remembers the first report about packets after the first `from_bytes` bytes.
    pub(super) fn note_cut(&mut self, from_bytes: u64) {
        if self.cut.sent_bytes < from_bytes {
            self.cut = self.latest;
        }
    }

    /// Drops the samples from before a cut of the window.
    pub(super) fn forget_samples(&mut self) {
        self.lowest_ns = [None; 2];
        self.lowest_samples = 0;
    }

    /// Delay that the hosts cause, in nanoseconds: `most_ns` until less was measured.
    pub(super) fn noise_ns(&self, most_ns: u64) -> u64 {
        self.noise_ns.map_or(most_ns, |ns| ns.min(most_ns))
    }

    /// Updates the noise with the delay of an empty queue. The first value is at most `most_ns`.
    ///
    /// A single long delay raises the noise at once. It falls by an eighth each time, because the
    /// hosts are late only now and then.
    pub(super) fn note_noise(&mut self, delay_ns: u64, most_ns: u64) {
        let before_ns = self.noise_ns(most_ns);
        self.noise_ns = Some(delay_ns.max(before_ns - before_ns / 8).min(most_ns));
    }

    /// Updates the random loss with the loss of a round trip with an empty queue, soon after a cut.
    /// `is_surprising`: whether loss was the reason of the cut. Then a lower rate shows whether the
    /// loss is random, and this round trip counts as much as all before.
    pub(super) fn note_random_loss(&mut self, span: &ReportSpan, is_surprising: bool) {
        let weight = if is_surprising { 4 } else { 1 };
        let loss_ppm = (self.random_loss_ppm * (8 - weight) + span.loss_ppm() * weight) / 8;
        self.random_loss_ppm = loss_ppm.min(MAX_RANDOM_LOSS_PPM);
    }

    /// The span of the last `ns` nanoseconds, but only of packets sent after the first `from_bytes`
    /// bytes. `None` if fewer than two reports cover it.
    pub(super) fn span(&self, ns: u64, from_bytes: u64) -> Option<ReportSpan> {
        self.span_of(ns, 0, from_bytes)
    }

    /// Like [`PathEstimate::span`], but longer if less than `least_bytes` were sent in that time.
    pub(super) fn span_of(&self, ns: u64, least_bytes: u64, from_bytes: u64) -> Option<ReportSpan> {
        let mut found: Option<&Point> = None;
        for point in &self.points[..self.filled] {
            let usable = point.sent_bytes >= from_bytes;
            if !usable || point.arrived_ns >= self.latest.arrived_ns {
                continue;
            }
            let is_enough = self.latest.arrived_ns - point.arrived_ns >= ns
                && self.latest.sent_bytes - point.sent_bytes >= least_bytes;
            // The points are in order. Use the last point that gives enough bytes, otherwise the
            // first.
            if found.is_none() || is_enough {
                found = Some(point);
            }
        }
        let found = found?;
        let is_short = self.latest.sent_bytes - found.sent_bytes < least_bytes;
        let from = match is_short && self.cut.sent_bytes >= from_bytes {
            true => &self.cut,
            false => found,
        };
        Some(ReportSpan {
            sent_bytes: self.latest.sent_bytes - from.sent_bytes,
            received_bytes: self.latest.received_bytes - from.received_bytes,
            packets: self.latest.received_packets - from.received_packets,
            marked: self.latest.marked_packets - from.marked_packets,
        })
    }

    /// Bytes that arrive in `ns`, at the mean rate since `from_bytes` had been sent, of at most two
    /// round trips. 0 if that is less than one.
    pub(super) fn delivered_bytes(&self, ns: u64, from_bytes: u64) -> u64 {
        let usable = |point: &&Point| point.sent_bytes >= from_bytes;
        let Some(from) = self.points[..self.filled].iter().find(usable) else {
            return 0;
        };
        let elapsed_ns = self.latest.arrived_ns - from.arrived_ns;
        if elapsed_ns < self.base_ns {
            return 0;
        }
        let received_bytes = self.latest.received_bytes - from.received_bytes;
        mul_div(received_bytes, ns, elapsed_ns)
    }

    /// The rate in bits a second at which a round trip or more has just arrived. `None` if that was not measured.
    ///
    /// Reports that are read late seem to arrive together, so the time is at least that in which the packets left (as in
    /// the delivery rate of draft-ietf-ccwg-bbr).
    pub(super) fn arrival_bps(&self) -> Option<u64> {
        let base_ns = Some(self.base_ns).filter(|&ns| ns > 0)?;
        let elapsed_ns = |point: &Point| self.latest.arrived_ns - point.arrived_ns;
        let mut latest_first = self.points[..self.filled].iter().rev();
        let from = latest_first.find(|point| elapsed_ns(point) >= base_ns)?;
        let left_ns = self.latest.departed_ns?.saturating_sub(from.departed_ns?);
        let received_bytes = self.latest.received_bytes - from.received_bytes;
        Some(rate_of(received_bytes, elapsed_ns(from).max(left_ns)))
    }

    /// Bytes that were reported, and that count as in flight until the hosts' part of their round trip is over.
    pub(super) fn held_bytes(&self, now_ns: u64) -> u64 {
        if self.host_ns == 0 {
            return 0;
        }
        let settled_bytes = self.settled_bytes(now_ns);
        self.latest.sent_bytes.saturating_sub(settled_bytes)
    }

    fn note(&mut self, now_ns: u64, rtt_ns: u64) {
        if self.base_ns == 0 || rtt_ns < self.base_ns {
            self.base_ns = rtt_ns;
        }
        let elapsed_ns = now_ns.saturating_sub(self.lowest_since_ns);
        let is_enough = self.least_samples <= 1
            || self.lowest_samples >= self.least_samples
            || elapsed_ns >= self.base_ns;
        if elapsed_ns >= self.base_ns / 8 && is_enough {
            self.lowest_ns = [None, self.lowest_ns[0]];
            self.lowest_since_ns = now_ns;
            self.lowest_samples = 0;
        }
        self.lowest_samples = self.lowest_samples.saturating_add(1);
        let lowest_ns = self.lowest_ns[0].map_or(rtt_ns, |ns| ns.min(rtt_ns));
        self.lowest_ns[0] = Some(lowest_ns);
    }

    fn keep(&mut self) {
        if let Some(last) = self.points[..self.filled].last()
            && self.latest.arrived_ns - last.arrived_ns < self.base_ns / 8
        {
            return;
        }
        if self.filled == POINTS {
            self.points.rotate_left(1);
            self.filled -= 1;
        }
        self.points[self.filled] = self.latest;
        self.filled += 1;
    }

    fn note_newest(&mut self, now_ns: u64, newest: &Newest) {
        if let Some(rtt_ns) = raw_rtt_ns(now_ns, newest) {
            self.note_path(rtt_ns);
        }
    }

    /// The round-trip sample of the newest packet; `None` if the packet was sent twice, or if the
    /// value is implausible.
    fn sample(&self, now_ns: u64, newest: &Newest) -> Option<Sample> {
        let departed_ns = newest.departed_ns?;
        let rtt_ns = raw_rtt_ns(now_ns, newest)?;
        let settled_bytes = self.settled_bytes(departed_ns);
        Some(Sample {
            departed_ns,
            rtt_ns: self.with_hosts(rtt_ns),
            in_flight_bytes: newest.sent_bytes.saturating_sub(settled_bytes),
        })
    }

    /// Bytes that had arrived or were lost at an instant of the last two round trips, interpolated
    /// between the reports before and after it.
    fn settled_bytes(&self, at_ns: u64) -> u64 {
        let points = &self.points[..self.filled];
        let after = points.partition_point(|point| point.arrived_ns <= at_ns);
        let before = after.checked_sub(1).map_or(Point::default(), |i| points[i]);
        let after = points.get(after).unwrap_or(&self.latest);
        let gap_ns = after.arrived_ns.saturating_sub(before.arrived_ns);
        let part_ns = at_ns.saturating_sub(before.arrived_ns).min(gap_ns);
        let gap_bytes = after.sent_bytes.saturating_sub(before.sent_bytes);
        before.sent_bytes + mul_div(gap_bytes, part_ns, gap_ns)
    }
}

/// The round trip of a packet without that of the hosts; `None` if it is not known or implausible.
fn raw_rtt_ns(now_ns: u64, newest: &Newest) -> Option<u64> {
    let rtt_ns = now_ns
        .checked_sub(newest.departed_ns?)?
        .checked_sub(newest.hold_ns)?;
    (1..=MAX_RTT_NS).contains(&rtt_ns).then_some(rtt_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A path of 20 ms that delivers 1 MB each millisecond, with a report each 5 ms. The report of 40 ms is read 15 ms late,
    /// with those that follow it.
    fn reported(repeats: bool) -> PathEstimate {
        let mut path = PathEstimate::default();
        for at_ms in (5..=75).step_by(5) {
            let bytes = at_ms * 1_000_000;
            let read_ms = if at_ms == 40 { 15 } else { 0 };
            let feedback = Feedback {
                now_ns: (at_ms + 20 + read_ms) * MS,
                newest: Some(Newest {
                    sent_bytes: bytes,
                    departed_ns: (!repeats || at_ms < 70).then_some(at_ms * MS),
                    hold_ns: 0,
                }),
                received_bytes: bytes,
                received_packets: bytes / 1_000,
                ..Feedback::default()
            };
            let noise = Noise {
                jitter_ns: 100 * MS,
                packet_ns: 0,
                free_bytes: 0,
            };
            path.take(&feedback, noise, 1);
        }
        path
    }

    #[test]
    fn reports_that_are_read_together_do_not_show_a_higher_rate() {
        assert_eq!(reported(false).arrival_bps(), Some(8_000_000_000));
        // When repeats left is not known.
        assert_eq!(reported(true).arrival_bps(), None);
    }
}
