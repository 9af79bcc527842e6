//! BBR version 3 (draft-ietf-ccwg-bbr, the working copy of August 2026), in integers.
//!
//! Names of functions and constants follow the draft. Changed, so that random loss does not lower
//! the rate:
//!
//! - The random loss of the path is learned in round trips whose shortest round trip is at most 5/4 of
//!   `min_rtt`, except while the flow probes for bandwidth after its start.
//! - A loss counts if, over the last round trip, it is more than the random loss plus `LossThresh`
//!   (2 %), and more than chance makes of the random loss. The draft compares with 2 % while it
//!   probes, and at other times lowers its bounds at each loss.
//! - Loss ends the start only after a round trip in which the delivery rate grew by less than a quarter,
//!   and counts on a path that reorders packets only if it lasts for two round trips: until a late
//!   packet arrives, it counts as lost.
//!
//! Other departures: reports take the place of acknowledgements (about eight per round trip), the
//! random choices are a hash of the time, six lost packets take the place of six lost ranges, there
//! are no fast recovery and no undo, as reports take back a loss themselves, and no offload budget.

use farwrite_rate::{Feedback, Limits, RateControl, Sent};

use super::delivery::{Delivery, Extreme, MILLION, RandomLoss, Sample, bytes_in, mul_div, rate_of};

const STARTUP_PACING_GAIN: u64 = 277;
const DRAIN_PACING_GAIN: u64 = 50;
const DOWN_PACING_GAIN: u64 = 90;
const UP_PACING_GAIN: u64 = 125;
/// Percent by which the pace is below the estimate.
const PACING_MARGIN: u64 = 1;

const DEFAULT_CWND_GAIN: u64 = 200;
const UP_CWND_GAIN: u64 = 225;
const PROBE_RTT_CWND_GAIN: u64 = 50;

const INITIAL_PACKETS: u64 = 10;
const MIN_PIPE_PACKETS: u64 = 4;

const LOSS_THRESH_PPM: u64 = 20_000;
const STARTUP_LOST_PACKETS: u64 = 6;
/// Percent.
const BETA: u64 = 70;
const HEADROOM: u64 = 15;

const MAX_BW_CYCLES: u64 = 2;
const EXTRA_ACKED_ROUNDS: u64 = 10;
const FULL_BW_ROUNDS: u32 = 3;
const DRAIN_ROUNDS: u64 = 3;
const RENO_ROUNDS: u64 = 63;

const PROBE_WAIT_NS: u64 = 2_000_000_000;
const PROBE_WAIT_RANDOM_NS: u64 = 1_000_000_000;
const MIN_RTT_NS: u64 = 10_000_000_000;
const PROBE_RTT_EVERY_NS: u64 = 5_000_000_000;
const PROBE_RTT_NS: u64 = 200_000_000;

const MAX_BPS: u64 = 400_000_000_000;
/// No bound.
const INFINITY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// Sums at the start of a round trip, and its shortest round trip.
#[derive(Clone, Copy)]
struct Round {
    settled_bytes: u64,
    lost_bytes: u64,
    shortest_ns: u64,
}

pub(crate) struct Bbr3 {
    packet_bytes: u64,
    delivery: Delivery,
    random: RandomLoss,
    state: State,
    pacing_gain: u64,
    cwnd_gain: u64,
    pacing_bps: u64,
    cwnd: u64,
    prior_cwnd: u64,
    /// Bytes sent when the window last limited the flow.
    cwnd_limited_bytes: u64,

    round_count: u64,
    is_round_start: bool,
    next_round_delivered: u64,
    round: Round,

    max_bw_filter: Extreme,
    cycle_count: u64,
    max_bw: u64,
    bw_shortterm: u64,
    bw: u64,
    bw_latest: u64,
    inflight_latest: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
    /// Whether the loss of the last round trip is more than random loss; bytes delivered when it
    /// became more.
    is_loss_too_much: bool,
    excess_delivered: Option<u64>,
    is_loss_in_round: bool,
    is_loss_round_start: bool,
    loss_round_delivered: u64,

    full_bw: u64,
    full_bw_count: u32,
    is_full_bw_now: bool,
    is_full_bw_reached: bool,
    drain_start_round: u64,

    ack_phase: AckPhase,
    cycle_ns: u64,
    bw_probe_wait_ns: u64,
    rounds_since_probe_up: u64,
    bw_probe_up_rounds: u32,
    bw_probe_up_acked: u64,
    probe_up_acked_per_inc: u64,
    is_bw_probe_sample: bool,
    is_prev_probe_too_high: bool,
    is_prev_probe_precautionary: bool,

    min_rtt_ns: u64,
    min_rtt_since_ns: u64,
    probe_rtt_min_delay_ns: u64,
    probe_rtt_min_since_ns: u64,
    is_probe_rtt_expired: bool,
    probe_rtt_done_ns: Option<u64>,
    is_probe_rtt_round_done: bool,
    is_idle_restart: bool,

    extra_acked_filter: Extreme,
    extra_acked_since_ns: u64,
    extra_acked_delivered: u64,
    deadline_ns: Option<u64>,
}

impl Bbr3 {
    pub(crate) fn new(packet_bytes: u64) -> Self {
        let cwnd = INITIAL_PACKETS * packet_bytes;
        Self {
            packet_bytes,
            delivery: Delivery::default(),
            random: RandomLoss::default(),
            state: State::Startup,
            pacing_gain: STARTUP_PACING_GAIN,
            cwnd_gain: DEFAULT_CWND_GAIN,
            pacing_bps: rate_of(cwnd, 1_000_000) / 100 * STARTUP_PACING_GAIN,
            cwnd,
            prior_cwnd: 0,
            cwnd_limited_bytes: 0,
            round_count: 0,
            is_round_start: false,
            next_round_delivered: 0,
            round: Round {
                settled_bytes: 0,
                lost_bytes: 0,
                shortest_ns: INFINITY,
            },
            max_bw_filter: Extreme::largest(),
            cycle_count: 0,
            max_bw: 0,
            bw_shortterm: INFINITY,
            bw: 0,
            bw_latest: 0,
            inflight_latest: 0,
            inflight_shortterm: INFINITY,
            inflight_longterm: INFINITY,
            is_loss_too_much: false,
            excess_delivered: None,
            is_loss_in_round: false,
            is_loss_round_start: false,
            loss_round_delivered: 0,
            full_bw: 0,
            full_bw_count: 0,
            is_full_bw_now: false,
            is_full_bw_reached: false,
            drain_start_round: 0,
            ack_phase: AckPhase::Init,
            cycle_ns: 0,
            bw_probe_wait_ns: 0,
            rounds_since_probe_up: 0,
            bw_probe_up_rounds: 0,
            bw_probe_up_acked: 0,
            probe_up_acked_per_inc: INFINITY,
            is_bw_probe_sample: false,
            is_prev_probe_too_high: false,
            is_prev_probe_precautionary: false,
            min_rtt_ns: INFINITY,
            min_rtt_since_ns: 0,
            probe_rtt_min_delay_ns: INFINITY,
            probe_rtt_min_since_ns: 0,
            is_probe_rtt_expired: false,
            probe_rtt_done_ns: None,
            is_probe_rtt_round_done: false,
            is_idle_restart: false,
            extra_acked_filter: Extreme::largest(),
            extra_acked_since_ns: 0,
            extra_acked_delivered: 0,
            deadline_ns: None,
        }
    }

    fn is_probe_bw(&self) -> bool {
        use State::{Cruise, Down, Refill, Up};
        matches!(self.state, Down | Cruise | Refill | Up)
    }

    fn is_probing_bw(&self) -> bool {
        matches!(self.state, State::Startup | State::Refill | State::Up)
    }

    fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited_bytes > self.round.settled_bytes
    }

    // Rounds and losses.

    fn start_round(&mut self) {
        self.next_round_delivered = self.delivery.delivered_bytes();
    }

    fn update_round(&mut self, rs: &Sample) {
        if let Some(rtt_ns) = rs.rtt_ns {
            self.round.shortest_ns = self.round.shortest_ns.min(rtt_ns);
        }
        self.is_round_start = rs.prior_delivered_bytes >= self.next_round_delivered;
        if !self.is_round_start {
            return;
        }
        let lost_bytes = self.delivery.lost_bytes();
        let settled_bytes = self.delivery.settled_bytes();
        let is_short = self.min_rtt_ns != INFINITY
            && self.round.shortest_ns <= self.min_rtt_ns / 4 * 5
            && !matches!(self.state, State::Refill | State::Up);
        if is_short {
            self.random.learn(
                lost_bytes.saturating_sub(self.round.lost_bytes),
                settled_bytes - self.round.settled_bytes,
            );
        }
        self.round = Round {
            settled_bytes,
            lost_bytes,
            shortest_ns: INFINITY,
        };
        self.start_round();
        self.round_count += 1;
        self.rounds_since_probe_up += 1;
    }

    fn is_excess(&self, lost_bytes: u64, sent_bytes: u64) -> bool {
        self.random
            .is_exceeded(lost_bytes, sent_bytes, self.packet_bytes, LOSS_THRESH_PPM)
    }

    /// Whether the loss of the last round trip is more than random loss. Late packets count as lost
    /// until they arrive, and they are more if the rate is higher. So on a path that reorders packets,
    /// the loss must stay for another round trip.
    fn is_too_much(&mut self, rs: &Sample) -> bool {
        if !self.is_excess(rs.lost_bytes, rs.in_flight_bytes) {
            self.excess_delivered = None;
            return false;
        }
        let since_ns = rs.now_ns.saturating_sub(MIN_RTT_NS);
        let from = *self
            .excess_delivered
            .get_or_insert(self.delivery.delivered_bytes());
        !self.delivery.is_reordering(since_ns) || rs.prior_delivered_bytes >= from
    }

    fn handle_losses(&mut self, rs: &Sample) {
        self.is_loss_too_much = self.is_too_much(rs);
        if rs.newly_lost_bytes == 0 || !self.is_loss_too_much {
            return;
        }
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.delivery.delivered_bytes();
        }
        self.is_loss_in_round = true;
        if self.is_bw_probe_sample {
            self.handle_inflight_too_high(rs);
        }
    }

    fn handle_inflight_too_high(&mut self, rs: &Sample) {
        self.is_prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !rs.is_app_limited {
            let least = self.target_inflight() / 100 * BETA;
            self.inflight_longterm = self.inflight_at_loss(rs).max(least);
        }
        if self.state == State::Up {
            self.start_down(rs.now_ns);
        }
    }

    /// Bytes in flight when the loss crossed the threshold.
    fn inflight_at_loss(&self, rs: &Sample) -> u64 {
        let thresh_ppm = LOSS_THRESH_PPM + self.random.ppm();
        let inflight_prev = rs.in_flight_bytes.saturating_sub(rs.newly_lost_bytes);
        let lost_prev = rs.lost_bytes.saturating_sub(rs.newly_lost_bytes);
        let allowed = mul_div(inflight_prev, thresh_ppm, MILLION);
        let prefix = allowed.saturating_sub(lost_prev);
        inflight_prev + mul_div(prefix, MILLION, MILLION - thresh_ppm)
    }

    // The model of the path.

    fn update_congestion_signals(&mut self, rs: &Sample) {
        self.is_loss_round_start = rs.prior_delivered_bytes >= self.loss_round_delivered;
        self.bw_latest = self.bw_latest.max(rs.rate_bps);
        self.inflight_latest = self.inflight_latest.max(rs.delivered_bytes);
        if self.is_loss_round_start {
            self.loss_round_delivered = self.delivery.delivered_bytes();
        }
        if rs.rate_bps > 0 && (rs.rate_bps >= self.max_bw || !rs.is_app_limited) {
            let oldest = (self.cycle_count + 1).saturating_sub(MAX_BW_CYCLES);
            self.max_bw_filter
                .note(self.cycle_count, rs.rate_bps, oldest);
            self.max_bw = self.max_bw_filter.get().unwrap_or(0);
        }
        if !self.is_loss_round_start {
            return;
        }
        if self.is_loss_in_round && !self.is_probing_bw() {
            self.lower_bounds();
        }
        self.is_loss_in_round = false;
    }

    fn lower_bounds(&mut self) {
        let bw = self.bw_shortterm.min(self.max_bw);
        let inflight = if self.inflight_shortterm == INFINITY {
            self.cwnd
        } else {
            self.inflight_shortterm
        };
        self.bw_shortterm = self.bw_latest.max(bw / 100 * BETA);
        self.inflight_shortterm = self.inflight_latest.max(inflight / 100 * BETA);
    }

    fn advance_latest(&mut self, rs: &Sample) {
        if self.is_loss_round_start {
            self.bw_latest = rs.rate_bps;
            self.inflight_latest = rs.delivered_bytes;
        }
    }

    fn reset_short_term_model(&mut self) {
        self.bw_shortterm = INFINITY;
        self.inflight_shortterm = INFINITY;
    }

    fn update_ack_aggregation(&mut self, rs: &Sample) {
        let interval_ns = rs.now_ns.saturating_sub(self.extra_acked_since_ns);
        let mut expected = bytes_in(self.bw, interval_ns);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_since_ns = rs.now_ns;
            expected = 0;
        }
        self.extra_acked_delivered += rs.newly_delivered_bytes;
        let extra = (self.extra_acked_delivered - expected).min(self.cwnd);
        let rounds = if self.is_full_bw_reached {
            EXTRA_ACKED_ROUNDS
        } else {
            1
        };
        let oldest = (self.round_count + 1).saturating_sub(rounds);
        self.extra_acked_filter
            .note(self.round_count, extra, oldest);
    }

    fn reset_full_bw(&mut self, full_bw: u64) {
        self.full_bw = full_bw;
        self.full_bw_count = 0;
        self.is_full_bw_now = false;
    }

    fn check_full_bw_reached(&mut self, rs: &Sample) {
        if self.is_full_bw_now || !self.is_round_start || rs.is_app_limited {
            return;
        }
        if rs.rate_bps >= self.full_bw / 4 * 5 {
            return self.reset_full_bw(rs.rate_bps);
        }
        self.full_bw_count += 1;
        self.is_full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.is_full_bw_reached |= self.is_full_bw_now;
    }

    // The state machine.

    fn check_startup_done(&mut self, rs: &Sample) {
        if self.state != State::Startup {
            return;
        }
        let is_much = rs.lost_bytes >= STARTUP_LOST_PACKETS * self.packet_bytes;
        if is_much && self.is_loss_too_much && self.full_bw_count > 0 {
            self.is_full_bw_reached = true;
            self.inflight_longterm = self.bdp(100).max(self.inflight_latest);
        }
        if self.is_full_bw_reached {
            self.state = State::Drain;
            self.pacing_gain = DRAIN_PACING_GAIN;
            self.cwnd_gain = DEFAULT_CWND_GAIN;
            self.drain_start_round = self.round_count;
        }
    }

    fn check_drain_done(&mut self, now_ns: u64) {
        let is_over = self.round_count > self.drain_start_round + DRAIN_ROUNDS;
        let is_drained = self.delivery.in_flight_bytes() <= self.inflight(100);
        if self.state == State::Drain && (is_drained || is_over) {
            self.start_down(now_ns);
        }
    }

    fn start_down(&mut self, now_ns: u64) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
        self.probe_up_acked_per_inc = INFINITY;
        let random = now_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.rounds_since_probe_up = random & 1;
        self.bw_probe_wait_ns = PROBE_WAIT_NS + random % PROBE_WAIT_RANDOM_NS;
        self.cycle_ns = now_ns;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.enter(State::Down, DOWN_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    fn start_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.is_prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.enter(State::Refill, 100, DEFAULT_CWND_GAIN);
    }

    fn start_up(&mut self, rs: &Sample) {
        self.is_bw_probe_sample = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw(rs.rate_bps);
        self.enter(State::Up, UP_PACING_GAIN, UP_CWND_GAIN);
        self.raise_inflight_longterm_slope();
    }

    fn enter(&mut self, state: State, pacing_gain: u64, cwnd_gain: u64) {
        self.state = state;
        self.pacing_gain = pacing_gain;
        self.cwnd_gain = cwnd_gain;
    }

    fn update_probe_bw_cycle_phase(&mut self, rs: &Sample) {
        if !self.is_full_bw_reached || self.adapt_long_term_model(rs) {
            return;
        }
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(rs.now_ns) => self.start_refill(),
            State::Down if self.is_time_to_cruise() => {
                self.enter(State::Cruise, 100, DEFAULT_CWND_GAIN);
            }
            State::Refill if self.is_round_start => self.start_up(rs),
            State::Up => self.check_up_done(rs),
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now_ns: u64) -> bool {
        let reno_rounds = self.target_inflight() / self.packet_bytes;
        now_ns > self.cycle_ns + self.bw_probe_wait_ns
            || self.rounds_since_probe_up >= reno_rounds.min(RENO_ROUNDS)
    }

    fn is_time_to_cruise(&self) -> bool {
        let in_flight = self.delivery.in_flight_bytes();
        in_flight <= self.inflight_with_headroom() && in_flight <= self.inflight(100)
    }

    fn check_up_done(&mut self, rs: &Sample) {
        if self.is_prev_probe_too_high && self.delivery.in_flight_bytes() >= self.inflight_longterm
        {
            self.is_prev_probe_precautionary = true;
        } else if self.is_cwnd_limited() && self.cwnd >= self.inflight_longterm {
            return self.reset_full_bw(rs.rate_bps);
        } else if !self.is_full_bw_now {
            return;
        }
        self.is_prev_probe_too_high = false;
        self.start_down(rs.now_ns);
    }

    fn adapt_long_term_model(&mut self, rs: &Sample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.is_round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.is_round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_probe_bw() && !rs.is_app_limited {
                self.cycle_count += 1;
            }
            let is_safe = self.is_prev_probe_precautionary && !self.is_prev_probe_too_high;
            if self.is_probe_bw() && is_safe {
                self.start_refill();
                return true;
            }
        }
        if !self.is_loss_too_much && self.inflight_longterm != INFINITY {
            self.inflight_longterm = self.inflight_longterm.max(rs.in_flight_bytes);
            if self.state == State::Up {
                self.probe_inflight_longterm_upward(rs);
            }
        }
        false
    }

    fn raise_inflight_longterm_slope(&mut self) {
        let growth = 1 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth).max(self.packet_bytes);
    }

    fn probe_inflight_longterm_upward(&mut self, rs: &Sample) {
        if !self.is_cwnd_limited() || self.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked += rs.newly_delivered_bytes;
        let times = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
        self.bw_probe_up_acked -= times * self.probe_up_acked_per_inc;
        self.inflight_longterm += times * self.packet_bytes;
        if self.is_round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    fn update_min_rtt(&mut self, rs: &Sample) {
        self.is_probe_rtt_expired = rs.now_ns > self.probe_rtt_min_since_ns + PROBE_RTT_EVERY_NS;
        if let Some(rtt_ns) = rs.rtt_ns
            && (rtt_ns < self.probe_rtt_min_delay_ns || self.is_probe_rtt_expired)
        {
            self.probe_rtt_min_delay_ns = rtt_ns;
            self.probe_rtt_min_since_ns = rs.now_ns;
        }
        let is_expired = rs.now_ns > self.min_rtt_since_ns + MIN_RTT_NS;
        if self.probe_rtt_min_delay_ns < self.min_rtt_ns || is_expired {
            self.min_rtt_ns = self.probe_rtt_min_delay_ns;
            self.min_rtt_since_ns = self.probe_rtt_min_since_ns;
        }
    }

    fn check_probe_rtt(&mut self, rs: &Sample) {
        if self.state != State::ProbeRtt && self.is_probe_rtt_expired && !self.is_idle_restart {
            self.prior_cwnd = self.cwnd;
            self.enter(State::ProbeRtt, 100, PROBE_RTT_CWND_GAIN);
            self.probe_rtt_done_ns = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        self.is_idle_restart = false;
        if self.state != State::ProbeRtt {
            return;
        }
        self.delivery.mark_app_limited();
        let Some(done_ns) = self.probe_rtt_done_ns else {
            if self.delivery.in_flight_bytes() <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_ns = Some(rs.now_ns + PROBE_RTT_NS);
                self.is_probe_rtt_round_done = false;
                self.start_round();
            }
            return;
        };
        self.is_probe_rtt_round_done |= self.is_round_start;
        if self.is_probe_rtt_round_done && rs.now_ns > done_ns {
            self.exit_probe_rtt(rs.now_ns);
        }
    }

    fn exit_probe_rtt(&mut self, now_ns: u64) {
        self.probe_rtt_min_since_ns = now_ns;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.reset_short_term_model();
        if self.is_full_bw_reached {
            self.start_down(now_ns);
            self.enter(State::Cruise, 100, DEFAULT_CWND_GAIN);
        } else {
            self.enter(State::Startup, STARTUP_PACING_GAIN, DEFAULT_CWND_GAIN);
        }
    }

    // The control parameters.

    fn min_pipe_cwnd(&self) -> u64 {
        MIN_PIPE_PACKETS * self.packet_bytes
    }

    /// Multiple of the path, in percent.
    fn bdp(&self, gain: u64) -> u64 {
        if self.min_rtt_ns == INFINITY {
            return INITIAL_PACKETS * self.packet_bytes;
        }
        mul_div(bytes_in(self.bw, self.min_rtt_ns), gain, 100)
    }

    fn target_inflight(&self) -> u64 {
        self.bdp(100).min(self.cwnd)
    }

    fn quantized(&self, inflight: u64) -> u64 {
        let extra = if self.state == State::Up {
            2 * self.packet_bytes
        } else {
            0
        };
        inflight.max(self.min_pipe_cwnd()) + extra
    }

    fn inflight(&self, gain: u64) -> u64 {
        self.quantized(self.bdp(gain))
    }

    fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let headroom = (self.inflight_longterm / 100 * HEADROOM).max(self.packet_bytes);
        let inflight = self.inflight_longterm.saturating_sub(headroom);
        inflight.max(self.min_pipe_cwnd())
    }

    fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(PROBE_RTT_CWND_GAIN).max(self.min_pipe_cwnd())
    }

    fn set_pacing_rate(&mut self, gain: u64) {
        let percent = gain * (100 - PACING_MARGIN);
        let rate_bps = mul_div(self.bw, percent, 10_000).clamp(1, MAX_BPS);
        if self.is_full_bw_reached || rate_bps > self.pacing_bps {
            self.pacing_bps = rate_bps;
        }
    }

    fn set_cwnd(&mut self, rs: &Sample) {
        let extra = self.extra_acked_filter.get().unwrap_or(0);
        let max_inflight = self.quantized(self.bdp(self.cwnd_gain) + extra);
        let grown = self.cwnd + rs.newly_delivered_bytes;
        if self.is_full_bw_reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight
            || self.delivery.delivered_bytes() < INITIAL_PACKETS * self.packet_bytes
        {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
        let cap = match self.state {
            State::ProbeRtt => self.inflight_with_headroom().min(self.probe_rtt_cwnd()),
            State::Cruise => self.inflight_with_headroom(),
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::Startup | State::Drain => INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(self.min_pipe_cwnd());
        self.cwnd = self.cwnd.min(cap);
    }

    fn deadline_after(&self, now_ns: u64) -> u64 {
        let is_unknown = self.min_rtt_ns == INFINITY;
        let wait_ns = if is_unknown { 0 } else { 4 * self.min_rtt_ns };
        now_ns + wait_ns + 1_000_000_000
    }
}

impl RateControl for Bbr3 {
    fn on_sent(&mut self, sent: &Sent) {
        if self.delivery.in_flight_bytes() == 0 && self.delivery.sent_bytes() > 0 {
            self.is_idle_restart = true;
            self.extra_acked_since_ns = sent.now_ns;
            if self.is_probe_bw() {
                self.set_pacing_rate(100);
            }
        }
        self.delivery.note_sent(sent);
        let packet_bytes = self.packet_bytes.max(sent.bytes);
        if sent.in_flight_bytes + packet_bytes > self.cwnd {
            self.cwnd_limited_bytes = self.delivery.sent_bytes();
        }
        let deadline_ns = self.deadline_after(sent.now_ns);
        self.deadline_ns.get_or_insert(deadline_ns);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let least_ns = if self.min_rtt_ns == INFINITY {
            0
        } else {
            self.min_rtt_ns
        };
        let Some(rs) = self.delivery.take(feedback, least_ns) else {
            return;
        };
        let is_waiting = self.delivery.in_flight_bytes() > 0;
        self.deadline_ns = is_waiting.then(|| self.deadline_after(rs.now_ns));
        self.update_round(&rs);
        self.handle_losses(&rs);
        self.update_congestion_signals(&rs);
        self.update_ack_aggregation(&rs);
        self.check_full_bw_reached(&rs);
        self.check_startup_done(&rs);
        self.check_drain_done(rs.now_ns);
        self.update_probe_bw_cycle_phase(&rs);
        self.update_min_rtt(&rs);
        self.check_probe_rtt(&rs);
        self.advance_latest(&rs);
        self.bw = self.max_bw.min(self.bw_shortterm);
        self.set_pacing_rate(self.pacing_gain);
        self.set_cwnd(&rs);
    }

    fn on_timeout(&mut self, now_ns: u64) {
        if self.deadline_ns.is_some_and(|ns| now_ns >= ns) {
            self.deadline_ns = None;
            self.delivery.settle();
            self.cwnd = self.min_pipe_cwnd();
        }
    }

    fn next_timeout(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.pacing_bps,
            window_bytes: self.cwnd,
        }
    }
}
