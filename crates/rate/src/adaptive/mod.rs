//! The adaptive controller: a rate that follows the path.

mod compete;
mod constants;
mod cubic;
mod cycle;
mod delivered;
mod growth;
mod path;
mod probe;
mod signals;
mod steps;
mod tail_probe;
mod variation;

use crate::math::{bytes_in, mul_div, rate_of, time_of};
use crate::receiver_limit::ReceiverLimit;
use crate::{Feedback, Limits, RateControl, Sent, Start};
use compete::Compete;
use constants::{
    FIRST_TIMEOUT_NS, GROWN_PACKETS, MAX_BPS, MAX_BYTES, MAX_RTT_NS, REPEATS, SHORT_SAMPLES,
    SILENT_NS, SLOW_PACKET_NS, SLOW_SAMPLES, UNGROWN,
};
use cycle::Cycle;
use delivered::Delivered;
use growth::Growth;
use path::PathEstimate;
use probe::Probe;
use tail_probe::TailProbe;
use variation::Noise;

/// Options of an [`Adaptive`] controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveOptions {
    /// Bytes of a full packet on the wire, headers included.
    pub packet_bytes: u64,
    /// Highest rate in bits a second, even if the path carries more: the sender's part of the path,
    /// or the rate of its network card.
    pub max_rate_bps: u64,
    /// Variation of the delay that the hosts at both ends cause, in nanoseconds. It is not taken
    /// for a queue.
    pub jitter_ns: u64,
    /// Recovery after drops at the receiver: in this time, in nanoseconds, the pace would grow from
    /// 0 to `max_rate_bps` (`pace_recovery` of P5.8).
    pub recovery_ns: u64,
    /// Estimates of the path, if it is known.
    pub start: Option<Start>,
}

/// The phase of an [`Adaptive`] controller. The table in the documentation of the crate describes
/// the phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sends short trains of packets to measure the rate of the path.
    Probe,
    /// Sends less for a quarter of a round trip, so that the queue becomes empty.
    Drain,
    /// Sends its share and a growing surplus, until a queue forms.
    Grow,
    /// Holds its share beside flows that keep the queue full.
    Compete,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Probe(Probe),
    Drain { back: Option<Compete> },
    Grow { since_ns: u64 },
    Compete(Compete),
}

/// Fills a path, keeps its queue short, and shares it; the default controller.
///
/// The documentation of the crate describes the algorithm.
#[derive(Clone, Debug)]
pub struct Adaptive {
    options: AdaptiveOptions,
    path: PathEstimate,
    receiver: ReceiverLimit,
    state: State,
    cycle: Cycle,
    /// The flow's share of the path: rate times round trip without queues.
    share_bytes: u64,
    /// Whether the share comes from a measurement. Before the first train has a result, it does
    /// not.
    is_measured: bool,
    /// The window in the current state, which derives it from the share.
    window_bytes: u64,
    delivered: Delivered,
    /// Recent maximum of the share: the flow's estimate of the bytes that the path holds.
    peak_bytes: u64,
    /// When `Compete` last ended.
    competed_ns: Option<u64>,
    /// The share at that time. If less than half of it is left, others have taken the rest, and the
    /// flow competes again.
    competed_bytes: u64,
    now_ns: u64,
    /// Until when it is decided which times count as growth.
    decided_ns: u64,
    sent_bytes: u64,
    sent_ns: u64,
    /// Bytes sent when the sender last had no more data to send.
    app_limited_bytes: u64,
    /// Bytes sent at the last timeout of reports. They no longer count as in flight.
    settled_bytes: u64,
    /// Drops at the receiver up to this number of sent bytes are attributed to its silence. This
    /// includes the train after the silence, because sockets report drops together with later
    /// packets.
    silent_bytes: u64,
    deadline_ns: Option<u64>,
    timeouts: u32,
    /// On a short path, until when the window is two packets after a cut. Then the queue is empty.
    stop_ns: u64,
    tail_probe: TailProbe,
}

impl Adaptive {
    /// A controller for one path.
    ///
    /// Values of 0 count as 1, rates above 2^50 bit/s as 2^50 bit/s, and a jitter of more than 10 s as 10 s.
    pub fn new(options: AdaptiveOptions) -> Self {
        let options = AdaptiveOptions {
            packet_bytes: options.packet_bytes.clamp(1, 1 << 30),
            max_rate_bps: options.max_rate_bps.clamp(1, MAX_BPS),
            jitter_ns: options.jitter_ns.min(MAX_RTT_NS),
            ..options
        };
        let probe = Probe::first(options.packet_bytes, options.max_rate_bps);
        let mut controller = Self {
            path: PathEstimate::between(options.jitter_ns),
            receiver: ReceiverLimit::new(options.max_rate_bps, options.recovery_ns),
            state: State::Probe(probe),
            cycle: Cycle::default(),
            share_bytes: probe.train_bytes(),
            is_measured: false,
            window_bytes: probe.train_bytes(),
            delivered: Delivered::default(),
            peak_bytes: 0,
            competed_ns: None,
            competed_bytes: 0,
            now_ns: 0,
            decided_ns: 0,
            sent_bytes: 0,
            sent_ns: 0,
            app_limited_bytes: 0,
            settled_bytes: 0,
            silent_bytes: 0,
            deadline_ns: None,
            timeouts: 0,
            stop_ns: 0,
            tail_probe: TailProbe::default(),
            options,
        };
        if let Some(start) = options.start {
            controller.path.note_path(start.rtt_ns);
            controller.expect(Start {
                rtt_ns: controller.path.with_hosts(start.rtt_ns),
                ..start
            });
            controller.ignore_queue_before();
        }
        controller
    }

    /// The least and the usual greatest number of round trips that a long transfer spends on finding
    /// this rate on an unknown path: one for each train, and two for trains whose result is in
    /// doubt. A transfer that ends with one of the trains needs fewer.
    pub fn search_round_trips(packet_bytes: u64, rate_bps: u64) -> [u32; 2] {
        let trains = Probe::search_trains(packet_bytes.clamp(1, 1 << 30), rate_bps);
        [trains, trains.saturating_add(REPEATS)]
    }

    /// What the controller is doing.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Probe(_) => Phase::Probe,
            State::Drain { .. } => Phase::Drain,
            State::Grow { .. } => Phase::Grow,
            State::Compete(_) => Phase::Compete,
        }
    }

    /// The estimates with which a later transfer on this path can start; `None` before the rate is
    /// measured. A transfer that is too short for trains measures no rate.
    pub fn learned(&self) -> Option<Start> {
        let rtt_ns = self.base_rtt_ns().filter(|_| self.is_measured)?;
        let most_bps = self.delivered.most_bps().unwrap_or(u64::MAX);
        Some(Start {
            rate_bps: self.rate_bps().min(most_bps),
            rtt_ns,
        })
    }

    /// The learned estimates, with the round trip of [`PathEstimate::with_hosts`].
    fn known(&self) -> Option<Start> {
        self.learned().map(|learned| Start {
            rtt_ns: self.path.with_hosts(learned.rtt_ns),
            ..learned
        })
    }

    /// The shortest round trip, in nanoseconds; `None` before the first one is measured.
    pub fn base_rtt_ns(&self) -> Option<u64> {
        Some(self.path.shortest_ns()).filter(|&ns| ns > 0)
    }

    /// Highest pace in bits a second that the receiver and [`AdaptiveOptions::max_rate_bps`] allow
    /// now. If the pace is lower, the path limits it.
    pub fn ceiling_bps(&self) -> u64 {
        self.receiver.ceiling_bps()
    }

    /// The flow's share of the path, in bits a second.
    fn rate_bps(&self) -> u64 {
        rate_of(self.share_bytes, self.path.base_ns()).clamp(1, self.options.max_rate_bps)
    }

    /// Starts a train that tests whether the path carries the rate of `start`. If the flow had much
    /// more before, faster trains follow where the path carries it.
    fn expect(&mut self, start: Start) {
        let start = Start {
            rate_bps: start.rate_bps.clamp(1, self.options.max_rate_bps),
            rtt_ns: start.rtt_ns.max(1),
        };
        let packet_bytes = self.options.packet_bytes;
        let jitter_ns = self.jitter_ns();
        let has_lost_much = self.share_bytes < self.peak_bytes / 4;
        self.probe(if has_lost_much {
            Probe::searching(start, packet_bytes, jitter_ns)
        } else {
            Probe::expecting(start, packet_bytes, jitter_ns)
        });
    }

    /// Adds to the share what the window has grown without a queue, before the train that follows an
    /// idle time tests the share. Otherwise, flows that end before a queue forms would start at the
    /// same low rate each time.
    ///
    /// The share at most doubles: the train fills a queue if the path is much slower, and other flows
    /// can send trains at the same time.
    fn keep_growth(&mut self) {
        if let State::Grow { since_ns } = self.state {
            let most_bytes = self.share_bytes.saturating_mul(2);
            self.set_share(self.grown(since_ns, 0).min(most_bytes));
        }
    }

    /// Tests what is known of the path, after a time that measured nothing.
    fn test_again(&mut self) {
        match (self.known(), self.state) {
            (Some(learned), _) => self.expect(learned),
            (None, State::Probe(probe)) => {
                self.probe(probe.restored(self.options.max_rate_bps));
            }
            (None, _) => {}
        }
    }

    /// Nothing of this flow is in flight, so a queue that is there before the train is that of others, or the
    /// path has become longer.
    fn ignore_queue_before(&mut self) {
        if let State::Probe(probe) = self.state {
            self.state = State::Probe(probe.ignoring_queue());
        }
    }

    /// Delays that are not a queue: those of the hosts, and the variation of the path.
    fn jitter_ns(&self) -> u64 {
        let most_ns = self.options.jitter_ns;
        let noise_ns = match self.path.is_short() {
            // A queue may be shorter than what hosts can cause. The noise is that of standing delays, and trains look
            // at single ones.
            true => (2 * self.path.noise_ns(most_ns)).clamp(most_ns / 4, most_ns),
            false => most_ns,
        };
        noise_ns.saturating_add(self.path.variation_ns())
    }

    /// What else than a variation of the path makes the delay rise.
    ///
    /// The share of a new flow is uncertain. Taking its queue for a variation would be worse than
    /// learning a variation late: such a flow would keep the queue.
    fn noise(&self) -> Noise {
        let packet_ns = time_of(self.options.packet_bytes, self.peak_bps());
        Noise {
            // On a short path, hosts that wait for a processor look like a variation.
            jitter_ns: match self.path.is_short() {
                true => 2 * self.options.jitter_ns,
                false => self.options.jitter_ns,
            },
            packet_ns: packet_ns.min(self.path.base_ns() / 2),
            free_bytes: match self.cycle.is_young() {
                true => 0,
                false => self.share_bytes,
            },
        }
    }

    /// How many samples show the shortest delay. Where packets take long, few samples measure it, and where the round
    /// trip is short, the delays of hosts are longer than a queue may be. Before the first measurement, neither is
    /// known.
    fn least_samples(&self) -> u32 {
        let packet_ns = time_of(self.options.packet_bytes, self.peak_bps());
        match self.is_measured {
            true if self.path.is_short() => SHORT_SAMPLES,
            true if packet_ns >= SLOW_PACKET_NS => SLOW_SAMPLES,
            _ => 1,
        }
    }

    /// Highest recent share of the path, in bits a second.
    fn peak_bps(&self) -> u64 {
        rate_of(self.peak_bytes, self.path.base_ns())
    }

    /// Keeps the rate when the variation of the path, and with it the base, has changed from
    /// `before_ns`. If the variation has just been detected, a train tests twice the share, because
    /// the variation has ended growth too early.
    fn follow_variation(&mut self, before_ns: u64) {
        let variation_ns = self.path.variation_ns();
        if variation_ns == before_ns {
            return;
        }
        let base_ns = self.path.base_ns();
        let base_before_ns = base_ns - variation_ns + before_ns;
        self.share_bytes = mul_div(self.share_bytes, base_ns, base_before_ns);
        self.peak_bytes = mul_div(self.peak_bytes, base_ns, base_before_ns);
        let is_uncertain = self.cycle.is_young() || self.share_bytes < self.peak_bytes / 2;
        if before_ns == 0 && self.is_measured && is_uncertain {
            self.test_multiple(UNGROWN);
        }
    }

    /// No report came about the end of a train. If part of the train arrived, a full queue or token
    /// bucket dropped the rest, and the time of what arrived measures the rate. Otherwise a slower train
    /// follows.
    fn end_train(&mut self, probe: Probe) {
        let base_ns = self.path.base_ns();
        let (received_bytes, arrived_ns) = (self.path.received_bytes(), self.path.arrived_ns());
        let arrived_bps = probe.arrived_bps(received_bytes, arrived_ns, base_ns);
        let Some(arrived_bps) = arrived_bps.filter(|_| base_ns > 0) else {
            return self.probe(probe.slower());
        };
        // The receiver was not silent.
        self.timeouts = 0;
        self.cycle.skip_to(self.sent_bytes);
        self.delivered.note(arrived_bps);
        self.grow(bytes_in(arrived_bps, base_ns));
    }

    fn probe(&mut self, probe: Probe) {
        // A rate that proves wrong must not fill the path for long.
        let probe = match self.delivered_bytes() {
            Some(bytes) if self.is_measured => probe.within(bytes.saturating_mul(2)),
            _ => probe,
        };
        self.state = State::Probe(probe.after(self.sent_bytes, self.path.received_bytes()));
        self.cycle.forget();
        self.cycle
            .start(self.sent_bytes, self.path.base_ns(), false);
    }

    /// The most bytes that the path has delivered in a round trip; `None` if that is not known.
    fn delivered_bytes(&self) -> Option<u64> {
        let most_bps = self.delivered.most_bps()?;
        Some(bytes_in(most_bps, self.path.base_ns()))
    }

    fn set_share(&mut self, share_bytes: u64) {
        self.is_measured = true;
        let least = (self.options.packet_bytes / 16).max(1);
        let most = bytes_in(self.options.max_rate_bps, self.path.base_ns());
        self.share_bytes = share_bytes.clamp(least, most.clamp(least, MAX_BYTES));
        self.peak_bytes = self.peak_bytes.max(self.share_bytes);
    }

    /// Updates the window.
    fn refresh(&mut self) {
        let base_ns = self.path.base_ns();
        if let State::Drain { back } = self.state
            && self.cycle.has_drained_for(base_ns / 4, self.now_ns)
        {
            match back {
                None => self.grow(self.share_bytes),
                Some(compete) => self.compete(compete),
            }
        }
        let window_bytes = match self.state {
            // Such a train measures nothing, so the sender need not wait for its end. It has one train in flight.
            State::Probe(probe) if probe.is_interrupted() => probe.train_bytes(),
            // Allow the train, and no packets after it.
            State::Probe(probe) => {
                let settled_bytes = self.path.reported_bytes().max(self.settled_bytes);
                probe.end_bytes().saturating_sub(settled_bytes)
            }
            State::Drain { .. } => self.cycle.dip(self.share_bytes),
            State::Grow { since_ns } => self.grown(since_ns, 0),
            State::Compete(compete) => compete.window_bytes(self.now_ns, &self.path),
        };
        self.window_bytes = window_bytes.min(MAX_BYTES);
    }

    /// The largest window of growth: twice what the path has delivered in a round trip. More has to arrive before it
    /// grows further. Where a path holds few packets, single ones say little.
    fn most_grown_bytes(&self) -> u64 {
        let delivered_bytes = self.delivered_bytes().unwrap_or(MAX_BYTES);
        let few_bytes = GROWN_PACKETS.saturating_mul(self.options.packet_bytes);
        let most_bytes = delivered_bytes.saturating_mul(2);
        most_bytes.max(few_bytes).max(self.share_bytes)
    }

    /// The window `ahead_rounds` round trips from now, after growing since `since_ns`.
    fn grown(&self, since_ns: u64, ahead_rounds: u64) -> u64 {
        let base_ns = self.path.base_ns();
        let elapsed_ns = self
            .now_ns
            .saturating_sub(since_ns)
            .saturating_add(ahead_rounds * base_ns);
        // Hosts report a queue later than the path alone would.
        let growth = Growth::after(elapsed_ns, self.path.with_hosts(base_ns));
        let grown_bytes = growth.bytes(self.share_bytes, self.options.packet_bytes);
        let grown_bytes = self.share_bytes.saturating_add(grown_bytes).min(MAX_BYTES);
        grown_bytes.min(self.most_grown_bytes())
    }

    /// The sender has data again, after it had none since `from_ns`. `is_alone`: whether nothing else
    /// is in flight.
    fn resume(&mut self, from_ns: u64, is_alone: bool) {
        if is_alone {
            self.pause_growth(from_ns);
            self.decided_ns = self.now_ns;
        }
        if let State::Probe(probe) = &mut self.state {
            probe.note_resumed();
            let probe = *probe;
            if is_alone && probe.is_interrupted() {
                self.probe(probe.restored(self.options.max_rate_bps));
            }
        }
    }

    /// Does not count the time from `from_ns` until now as time of growth: a window that is not used
    /// proves nothing about a larger one.
    fn pause_growth(&mut self, from_ns: u64) {
        if let State::Grow { since_ns } = &mut self.state {
            *since_ns += self.now_ns.saturating_sub(from_ns.max(*since_ns));
        }
    }

    /// Bytes that were sent and not reported.
    fn in_flight_bytes(&self) -> u64 {
        let settled_bytes = self.path.reported_bytes().max(self.settled_bytes);
        self.sent_bytes.saturating_sub(settled_bytes)
    }

    /// When a tail probe is due if packets are in flight and no report comes of them. On longer paths, a window does not
    /// stop the flow while its queue drains.
    fn tail_probe_ns(&self) -> Option<u64> {
        let wait_ns = self.path.standing_ns() + 2 * self.path.interval_ns();
        let due_ns = self.now_ns.saturating_add(wait_ns);
        (self.path.is_short() && self.in_flight_bytes() > 0).then_some(due_ns)
    }

    /// The timeout for a report.
    fn timeout_ns(&self) -> u64 {
        let standing_ns = self.path.standing_ns();
        let (wait_ns, longest_ns) = if standing_ns == 0 {
            (FIRST_TIMEOUT_NS, u64::MAX)
        } else {
            // Before the first result, the share is only a guess, and a train may be slower.
            let rate_bps = match self.state {
                State::Probe(probe) => self.rate_bps().min(probe.rate_bps()),
                _ => self.rate_bps(),
            };
            let packet_ns = time_of(2 * self.options.packet_bytes, rate_bps);
            let wait_ns = (3 * standing_ns)
                .saturating_add(4 * self.path.interval_ns())
                .saturating_add(4u64.saturating_mul(self.options.jitter_ns))
                .saturating_add(packet_ns);
            (wait_ns, wait_ns.saturating_mul(4).max(SILENT_NS))
        };
        let doubled_ns = wait_ns.saturating_mul(1 << self.timeouts.min(6));
        doubled_ns.min(longest_ns)
    }
}

impl RateControl for Adaptive {
    fn on_sent(&mut self, sent: &Sent) {
        let before_ns = self.now_ns;
        self.now_ns = self.now_ns.max(sent.now_ns);
        if self.app_limited_bytes > 0 && self.app_limited_bytes == self.sent_bytes {
            self.resume(before_ns, sent.in_flight_bytes <= sent.bytes);
        }
        let idle_ns = self.now_ns.saturating_sub(self.sent_ns);
        let was_idle = sent.in_flight_bytes <= sent.bytes && idle_ns / 2 > self.timeout_ns();
        // Beside flows that keep the queue full, a train after each pause would measure what they left.
        let goes_on = matches!(self.state, State::Compete(_)) && idle_ns < self.warned_ns();
        if was_idle && !goes_on {
            self.keep_growth();
            self.test_again();
            self.ignore_queue_before();
        }
        self.sent_bytes = self.sent_bytes.saturating_add(sent.bytes);
        self.sent_ns = self.now_ns;
        self.cycle.note_sent(self.now_ns);
        if let State::Probe(probe) = &mut self.state {
            probe.note_sent(self.now_ns);
        }
        if sent.app_limited {
            self.app_limited_bytes = self.sent_bytes;
        }
        if self.deadline_ns.is_none() {
            self.deadline_ns = Some(self.now_ns.saturating_add(self.timeout_ns()));
        }
        self.refresh();
        let due_ns = self.tail_probe_ns();
        self.tail_probe.note_sent(due_ns, self.in_flight_bytes());
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let before_ns = self.now_ns;
        let variation_ns = self.path.variation_ns();
        let Some(sample) = self.path.take(feedback, self.noise(), self.least_samples()) else {
            return;
        };
        self.now_ns = self.now_ns.max(feedback.now_ns);
        if self.is_measured
            && let Some(rate_bps) = self.path.arrival_bps()
        {
            self.delivered.note(rate_bps);
        }
        self.follow_variation(variation_ns);
        let was_silent = core::mem::take(&mut self.timeouts) > 0;
        let reported_bytes = self.path.reported_bytes();
        let dropped = if was_silent || reported_bytes <= self.silent_bytes {
            self.receiver.excuse(feedback);
            false
        } else {
            let pace_bps = self.limits().pace_bps;
            self.receiver.on_feedback(feedback, pace_bps)
        };
        let in_flight = self.sent_bytes > reported_bytes;
        let deadline_ns = self.now_ns.saturating_add(self.timeout_ns());
        self.deadline_ns = in_flight.then_some(deadline_ns);
        self.tail_probe.note_report(self.tail_probe_ns());
        if was_silent {
            // Packets in flight during the silence waited until its end. Their delay does not
            // measure the queue, and their rate does not measure the path.
            self.test_again();
            if let State::Probe(probe) = self.state {
                self.silent_bytes = probe.end_bytes();
            }
        } else if reported_bytes > self.cycle.cut_bytes() {
            self.path.note_cut(self.cycle.cut_bytes());
            let fresh = sample.filter(|sample| self.cycle.note_sample(*sample));
            self.step(fresh, dropped);
        } else {
            self.path.forget_samples();
        }
        // Packets that repeat lost ones give no sample, but use the window as others do.
        let in_flight_bytes = match sample {
            Some(sample) => Some(sample.in_flight_bytes),
            None if self.path.is_short() => self
                .path
                .span(self.path.base_ns(), 0)
                .map(|span| span.sent_bytes),
            None => None,
        };
        let unused = in_flight_bytes.is_some_and(|bytes| bytes < self.window_bytes / 4);
        if reported_bytes <= self.app_limited_bytes {
            self.pause_growth(self.decided_ns);
        } else if unused {
            self.pause_growth(before_ns);
        }
        self.decided_ns = self.now_ns;
        self.refresh();
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.stop_ns && self.stop_ns > self.now_ns {
            self.now_ns = self.now_ns.max(now_ns);
            self.refresh();
        }
        self.tail_probe.look(now_ns);
        if self
            .deadline_ns
            .is_none_or(|deadline_ns| now_ns < deadline_ns)
        {
            return false;
        }
        self.now_ns = self.now_ns.max(now_ns);
        self.deadline_ns = None;
        self.timeouts = self.timeouts.saturating_add(1);
        self.settled_bytes = self.sent_bytes;
        self.tail_probe = TailProbe::Idle;
        match self.state {
            State::Probe(probe) => self.end_train(probe),
            _ => self.test_again(),
        }
        self.refresh();
        true
    }

    fn next_timeout(&self) -> Option<u64> {
        let stop_ns = Some(self.stop_ns).filter(|&ns| ns > self.now_ns);
        let all = [stop_ns, self.tail_probe.due_ns(), self.deadline_ns];
        all.into_iter().flatten().min()
    }

    fn set_max_rate(&mut self, max_rate_bps: u64) {
        let was_at_most = self.rate_bps() >= self.options.max_rate_bps;
        let learned = self.learned();
        let before_bps = self.options.max_rate_bps;
        self.options.max_rate_bps = max_rate_bps.clamp(1, MAX_BPS);
        self.receiver.set_max(self.options.max_rate_bps);
        match learned {
            // The path may carry more than it was allowed to show.
            Some(_) if was_at_most && self.options.max_rate_bps > before_bps => {
                self.test_multiple(1);
            }
            Some(_) => self.set_share(self.share_bytes),
            None => {}
        }
    }

    fn limits(&self) -> Limits {
        let packet_bytes = self.options.packet_bytes;
        let standing_ns = self.path.standing_ns();
        let pace_bps = match self.state {
            State::Probe(probe) => probe.rate_bps(),
            State::Grow { since_ns } => rate_of(self.grown(since_ns, 1), standing_ns),
            _ => rate_of(self.window_bytes, standing_ns),
        };
        let pace_bps = pace_bps.clamp(1, self.receiver.ceiling_bps());
        if matches!(self.state, State::Probe(_)) {
            return Limits {
                pace_bps,
                window_bytes: self.window_bytes.max(1),
            };
        }
        // Packets that arrived since the last report still count as in flight.
        let unreported_bytes = mul_div(self.window_bytes, self.path.interval_ns(), standing_ns);
        let window_bytes = self.window_bytes.saturating_add(unreported_bytes);
        let held_bytes = match self.state {
            // Batches and late reports need more than a window; the pace alone keeps the queue short.
            State::Grow { .. } => 0,
            _ if !self.path.is_short() => 0,
            State::Drain { .. } if self.now_ns < self.stop_ns => u64::MAX,
            State::Drain { .. } => 0,
            _ => self.path.held_bytes(self.now_ns),
        };
        let window_bytes = window_bytes.saturating_sub(held_bytes);
        let in_flight_bytes = self.in_flight_bytes();
        let least_bytes = self
            .tail_probe
            .least_window_bytes(in_flight_bytes, packet_bytes);
        Limits {
            pace_bps,
            window_bytes: window_bytes.max(2 * packet_bytes).max(least_bytes),
        }
    }
}
