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

mod model;
mod parameters;
mod states;

use farwrite_rate::{Feedback, Limits, RateControl, Sent};

use super::delivery::{Delivery, Extreme, RandomLoss, rate_of};

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

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        let is_due = self.deadline_ns.is_some_and(|ns| now_ns >= ns);
        if is_due {
            self.deadline_ns = None;
            self.delivery.settle();
            self.cwnd = self.min_pipe_cwnd();
        }
        is_due
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
