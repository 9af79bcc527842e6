//! The state transitions: what a report does in each state.

use super::compete::Compete;
use super::constants::{
    FREED, OVERFULL_LOSS_PPM, STILL_SHARE, STRAY_LOSS_PPM, WARNED_NS, WARNED_ROUNDS,
};
use super::path::Sample;
use super::probe::{Probe, TrainResult};
use super::{Adaptive, AdaptiveOptions, State};
use crate::Start;
use crate::math::{bytes_in, mul_div};

impl Adaptive {
    /// Cuts the window to `share_bytes`, and below that until the queue is empty.
    fn drain(&mut self, share_bytes: u64, back: Option<Compete>) {
        self.set_share(share_bytes);
        self.delivered.turn();
        self.state = State::Drain { back };
        let queue_ns = self.queue_ns().unwrap_or(0);
        let blind = queue_ns < self.threshold_ns() / 4;
        let base_ns = self.path.base_ns();
        self.cycle.start(self.sent_bytes, base_ns, blind);
        if self.path.is_short() {
            // Bytes in flight are measured too late there to tell when the queue is empty.
            let stop_ns = self.cycle.stop_ns(queue_ns, base_ns);
            self.stop_ns = self.now_ns.saturating_add(stop_ns);
        }
    }

    pub(super) fn grow(&mut self, share_bytes: u64) {
        self.set_share(share_bytes);
        self.state = State::Grow {
            since_ns: self.now_ns,
        };
    }

    /// Cuts the window, because a queue has formed or packets were dropped.
    fn cut(&mut self, sample: Option<Sample>) {
        if self.path_stood_still() {
            // What the path has carried since the last cut is growth that lasts.
            let carried = self.delivered_bytes().unwrap_or(0).min(self.window_bytes);
            return self.drain(self.share_bytes.max(carried), None);
        }
        let drained = self
            .cycle
            .was_drained(self.path.base_ns(), self.threshold_ns());
        let share_bytes = self.measured_share(sample);
        if drained {
            let target = self.fair_share(share_bytes, sample);
            self.cycle.succeed();
            if let Some(quiet_ns) = self.cycle.quiet_ns() {
                self.path.note_noise(quiet_ns, self.options.jitter_ns);
            }
            // Lower the peak slowly: other flows may be gone only for a moment, but the path may
            // also have become slower for good.
            self.peak_bytes -= self.peak_bytes / 64;
            if target < self.competed_bytes / 2 {
                return self.start_competing(self.window_bytes);
            }
            return self.drain(target, None);
        }
        self.cycle
            .fail(self.window_bytes, self.options.packet_bytes);
        let held_bytes = self.cycle.held_bytes();
        if self.follow_longer_path(held_bytes, false) {
            return;
        }
        let has_collapsed = self
            .cycle
            .has_collapsed(share_bytes, self.options.packet_bytes);
        if self.cycle.is_patient(self.is_warned()) && !has_collapsed {
            self.drain(share_bytes, None);
        } else {
            self.start_competing(held_bytes);
        }
    }

    /// Whether the queue is what the flow sent while the path, or a host, stood still. Such a queue says nothing about
    /// the share.
    ///
    /// Trains of others delay packets as suddenly, but for less than half of a round trip. If the path has become
    /// slower, the queue soon exceeds the latest rise. On a short path, hosts cause delays as long as that.
    fn path_stood_still(&self) -> bool {
        let State::Grow { since_ns } = self.state else {
            return false;
        };
        let rise_ns = self.path.pending_rise_ns(since_ns);
        let queue_ns = self.queue_ns().unwrap_or(0);
        !self.path.is_short()
            && rise_ns > self.path.base_ns() / STILL_SHARE
            && queue_ns <= rise_ns.saturating_add(self.threshold_ns())
    }

    /// Enters `Compete` with a window of `window_bytes`.
    fn start_competing(&mut self, window_bytes: u64) {
        let packet_bytes = self.options.packet_bytes;
        let compete = Compete::new(self.now_ns, window_bytes, self.peak_bytes, packet_bytes);
        self.compete(compete);
    }

    /// Whether others kept the queue full shortly before.
    fn is_warned(&self) -> bool {
        self.competed_ns
            .is_some_and(|ns| self.now_ns.saturating_sub(ns) < self.warned_ns())
    }

    /// For how long other flows are expected to fill the queue again after they did.
    pub(super) fn warned_ns(&self) -> u64 {
        let base_ns = self.path.base_ns();
        base_ns.saturating_mul(WARNED_ROUNDS).max(WARNED_NS)
    }

    /// Moves a quarter of the way from the measured share to the equal share, by at most a quarter
    /// down and an eighth up. Flows do not cut at the same instant, so the measurement is noisy, and
    /// larger steps would make the shares fluctuate. A larger step up would overflow a queue of a
    /// quarter of the path.
    fn fair_share(&self, share_bytes: u64, sample: Option<Sample>) -> u64 {
        let base_ns = self.path.base_ns();
        // A shorter rise consists of bursts, and the estimate would be far too high. With few
        // packets in flight, single packets matter more.
        let least_ns = self.threshold_ns() / 2 + self.packet_ns() / 2;
        let equal = sample.and_then(|sample| {
            self.cycle
                .equal_share(share_bytes, sample, base_ns, least_ns)
        });
        let Some(equal_bytes) = equal else {
            return share_bytes;
        };
        let next_bytes = share_bytes - share_bytes / 4 + equal_bytes / 4;
        // The path carried more than the share before: the flow took nothing from others, whatever the
        // rise of the delay. BBR fills the queue within a round trip.
        let was_free = share_bytes > self.share_bytes.saturating_add(self.share_bytes / 16);
        let least_bytes = if was_free {
            share_bytes
        } else {
            share_bytes / 4 * 3
        };
        next_bytes.clamp(least_bytes, share_bytes.saturating_add(share_bytes / 8))
    }

    /// Detects a longer path: the delay is steady although the window changed. Then sets the new
    /// base, keeps the rate of `window_bytes` before, and returns `true`.
    fn follow_longer_path(&mut self, window_bytes: u64, competes: bool) -> bool {
        let spread_ns = self.threshold_ns() / 8;
        let base_ns = self.path.base_ns();
        let steady_ns = self
            .cycle
            .steady_ns(spread_ns, base_ns, self.peak_bytes, competes);
        let Some(steady_ns) = steady_ns else {
            return false;
        };
        let share_bytes = mul_div(window_bytes, steady_ns, base_ns);
        self.path.set_base(steady_ns);
        self.cycle.excuse();
        self.drain(share_bytes, None);
        true
    }

    pub(super) fn compete(&mut self, mut compete: Compete) {
        self.cycle
            .start(self.sent_bytes, self.path.base_ns(), false);
        compete.pause(self.now_ns, &self.path);
        self.state = State::Compete(compete);
    }

    /// Leaves `Compete`, because other flows left capacity.
    fn stop_competing(&mut self, sample: Option<Sample>) {
        self.competed_ns = Some(self.now_ns);
        self.set_share(self.measured_share(sample));
        self.competed_bytes = self.share_bytes;
        self.test_multiple(FREED);
        self.cycle.suspect();
    }

    /// Starts a train that tests whether the path carries `factor` times the share, or more.
    pub(super) fn test_multiple(&mut self, factor: u64) {
        let AdaptiveOptions {
            packet_bytes,
            max_rate_bps,
            ..
        } = self.options;
        let jitter_ns = self.jitter_ns();
        let start = Start {
            rate_bps: (factor * self.rate_bps()).min(max_rate_bps),
            rtt_ns: self.path.base_ns(),
        };
        self.probe(Probe::searching(start, packet_bytes, jitter_ns));
    }

    /// Processes a report about packets sent since the last cut, in `Compete`.
    fn step_compete(&mut self, mut compete: Compete, sample: Option<Sample>) {
        let Some(queue_ns) = self.queue_ns() else {
            return;
        };
        if queue_ns <= self.threshold_ns() / 2 {
            return self.stop_competing(sample);
        }
        let lost = self
            .path
            .span(self.path.base_ns() / 4, self.cycle.cut_bytes())
            .is_some_and(|span| span.loss_ppm() > 2 * self.path.random_loss_ppm());
        if lost && self.cycle.is_queue_high(queue_ns, self.path.base_ns()) {
            if compete.is_too_much(self.is_overfull()) {
                self.peak_bytes = compete.hold_half();
            }
            compete.on_loss(self.now_ns, &self.path);
            self.cycle.skip_to(self.sent_bytes);
            self.state = State::Compete(compete);
        } else if compete.is_drain_due(self.now_ns, &self.path)
            && !self.follow_longer_path(self.window_bytes, true)
        {
            let share_bytes = self.measured_share(sample);
            self.cycle.succeed();
            self.drain(share_bytes, Some(compete));
        }
    }

    /// Whether the loss in a round trip exceeds the loss that one other flow causes.
    fn is_overfull(&self) -> bool {
        let round = self.path.span(self.path.base_ns(), self.cycle.cut_bytes());
        round.is_some_and(|round| self.excess_loss_ppm(&round) > OVERFULL_LOSS_PPM)
    }

    /// Processes a report about packets sent since the last cut, in `Grow`.
    fn step_grow(&mut self, since_ns: u64, sample: Option<Sample>, dropped: bool) {
        let queue_ns = self.queue_ns();
        if let (Some(delay_ns), Some(sample)) = (queue_ns, sample)
            && sample.departed_ns < since_ns.saturating_add(self.path.base_ns())
        {
            self.cycle.note_quiet(delay_ns);
        }
        if self.is_congested(sample, dropped) {
            return self.cut(sample);
        }
        let Some(queue_ns) = queue_ns else {
            return;
        };
        let has_yielded = self
            .cycle
            .has_yielded(self.share_bytes, self.options.packet_bytes);
        if queue_ns <= self.threshold_ns() / 4 && has_yielded && !self.is_app_limited() {
            return self.test_multiple(FREED);
        }
        let base_ns = self.path.base_ns();
        if queue_ns > self.threshold_ns() / 4 {
            if let Some(sample) = sample
                && sample.departed_ns.saturating_sub(since_ns) > base_ns / 4 * 5
            {
                self.cycle.note_queue(sample);
            }
        } else if self
            .cycle
            .is_round_over(self.path.reported_bytes(), self.sent_bytes)
            && self.cycle.is_low()
            && let Some(round) = self.path.span(base_ns, self.cycle.cut_bytes())
        {
            self.path.note_random_loss(&round, self.cycle.is_blind());
        }
    }

    pub(super) fn step(&mut self, sample: Option<Sample>, dropped: bool) {
        let round = self.path.span(self.path.base_ns(), 0);
        let allowed_ppm = 2 * self.path.random_loss_ppm() + STRAY_LOSS_PPM;
        if round.is_some_and(|round| round.loss_ppm() > allowed_ppm) {
            self.cycle.note_loss();
        }
        match self.state {
            State::Probe(probe) => self.step_probe(probe, sample),
            State::Drain { .. } => {}
            State::Grow { since_ns } => self.step_grow(since_ns, self.steadied(sample), dropped),
            State::Compete(compete) => self.step_compete(compete, self.steadied(sample)),
        }
    }

    /// A sample with the standing round trip where single ones are those of the hosts.
    fn steadied(&self, sample: Option<Sample>) -> Option<Sample> {
        if !self.path.is_short() {
            return sample;
        }
        sample.map(|sample| Sample {
            rtt_ns: self.path.standing_ns(),
            ..sample
        })
    }

    fn step_probe(&mut self, mut probe: Probe, sample: Option<Sample>) {
        if let Some(sample) = sample {
            probe.note(sample, self.path.reported_bytes());
        }
        self.state = State::Probe(probe);
        let max_rate_bps = self.options.max_rate_bps;
        let jitter_ns = self.jitter_ns();
        let base_ns = self.path.base_ns();
        let (sent_bytes, received_bytes) = (self.path.reported_bytes(), self.path.received_bytes());
        // Without a round trip, a rate cannot become a window.
        if self.is_app_limited()
            && sent_bytes == self.sent_bytes
            && let Some(shorter) = probe.shortened(sent_bytes)
        {
            probe = shorter;
        } else if self.is_app_limited() {
            return;
        }
        if probe.is_interrupted() || base_ns == 0 {
            if sent_bytes >= probe.end_bytes() {
                self.probe(probe.restored(max_rate_bps));
            }
            return;
        }
        let mut least_bps = 0;
        let carried_bps = match probe.verdict(sent_bytes, received_bytes, jitter_ns) {
            None => return,
            Some(TrainResult::Unclear) => return self.probe(probe.repeated(base_ns, jitter_ns)),
            Some(TrainResult::Limited(rate_bps)) => {
                // A short queue of others delays a short train much.
                if self.is_measured {
                    least_bps = self.rate_bps() / 2;
                }
                probe.best_bps(rate_bps)
            }
            Some(TrainResult::Doubtful(rate_bps)) => {
                if let Some(again) = probe.doubted(rate_bps, base_ns, jitter_ns) {
                    return self.probe(again);
                }
                probe.best_bps(rate_bps)
            }
            Some(TrainResult::Carried) => {
                if let Some(faster) = probe.faster(base_ns, max_rate_bps, jitter_ns) {
                    return self.probe(faster);
                }
                probe.rate_bps()
            }
        };
        let carried_bps = match self.delivered.most_bps() {
            // Such a train has measured neither a queue nor how fast its packets left.
            Some(most_bps) if !probe.has_sample() => carried_bps.min(most_bps),
            _ => carried_bps,
        };
        if probe.is_expected() {
            // The rest of the train reports the queue that the train caused. On an unknown path,
            // the queue may belong to other flows, and is a reason to cut.
            self.cycle.start(self.sent_bytes, base_ns, false);
        } else {
            // The measured rate already accounts for losses of the train.
            self.cycle.skip_to(self.sent_bytes);
        }
        self.delivered.note(carried_bps);
        self.grow(bytes_in(carried_bps.max(least_bps), base_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feedback, Newest, RateControl, Sent};

    const RTT_NS: u64 = 25_000_000;
    const RATE_BPS: u64 = 1_000_000_000;

    /// Sends what the window allows, and reports that all of it arrived. `gives_sample`: whether the newest packet left
    /// once only.
    fn exchange(controller: &mut Adaptive, gives_sample: bool) {
        let now_ns = controller.now_ns;
        let bytes = controller.limits().window_bytes - controller.in_flight_bytes();
        controller.on_sent(&Sent {
            now_ns,
            bytes,
            in_flight_bytes: bytes,
            app_limited: false,
        });
        controller.on_feedback(&Feedback {
            now_ns: now_ns + RTT_NS,
            newest: Some(Newest {
                sent_bytes: controller.sent_bytes,
                departed_ns: gives_sample.then_some(now_ns),
                hold_ns: 0,
            }),
            received_bytes: controller.sent_bytes,
            received_packets: controller.sent_bytes / 4_096,
            ..Feedback::default()
        });
    }

    /// After a burst of losses, all packets of a train can be repeats. Such a train must not let the share grow.
    #[test]
    fn a_train_of_repeats_shows_no_higher_rate() {
        let mut controller = Adaptive::new(AdaptiveOptions {
            packet_bytes: 4_096,
            max_rate_bps: 1_000 * RATE_BPS,
            jitter_ns: 0,
            recovery_ns: 1_000_000_000,
            start: Some(Start {
                rate_bps: RATE_BPS,
                rtt_ns: RTT_NS,
            }),
        });
        // The first window is that of an unknown path.
        exchange(&mut controller, true);
        exchange(&mut controller, true);
        let most_bps = controller.delivered.most_bps().expect("it is measured");
        for _ in 0..5 {
            controller.test_multiple(FREED);
            exchange(&mut controller, false);
            assert!(matches!(controller.state, State::Grow { .. }));
            let rate_bps = controller.rate_bps();
            assert!(rate_bps <= most_bps, "{rate_bps}, delivered {most_bps}");
        }
    }
}
