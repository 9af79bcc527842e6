//! The state machine: start, probing for bandwidth, and probing for the round trip.

use super::super::delivery::Sample;
use super::*;

impl Bbr3 {
    pub(super) fn check_startup_done(&mut self, rs: &Sample) {
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

    pub(super) fn check_drain_done(&mut self, now_ns: u64) {
        let is_over = self.round_count > self.drain_start_round + DRAIN_ROUNDS;
        let is_drained = self.delivery.in_flight_bytes() <= self.inflight(100);
        if self.state == State::Drain && (is_drained || is_over) {
            self.start_down(now_ns);
        }
    }

    pub(super) fn start_down(&mut self, now_ns: u64) {
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

    pub(super) fn start_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.is_prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.enter(State::Refill, 100, DEFAULT_CWND_GAIN);
    }

    pub(super) fn start_up(&mut self, rs: &Sample) {
        self.is_bw_probe_sample = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw(rs.rate_bps);
        self.enter(State::Up, UP_PACING_GAIN, UP_CWND_GAIN);
        self.raise_inflight_longterm_slope();
    }

    pub(super) fn enter(&mut self, state: State, pacing_gain: u64, cwnd_gain: u64) {
        self.state = state;
        self.pacing_gain = pacing_gain;
        self.cwnd_gain = cwnd_gain;
    }

    pub(super) fn update_probe_bw_cycle_phase(&mut self, rs: &Sample) {
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

    pub(super) fn is_time_to_probe(&self, now_ns: u64) -> bool {
        let reno_rounds = self.target_inflight() / self.packet_bytes;
        now_ns > self.cycle_ns + self.bw_probe_wait_ns
            || self.rounds_since_probe_up >= reno_rounds.min(RENO_ROUNDS)
    }

    pub(super) fn is_time_to_cruise(&self) -> bool {
        let in_flight = self.delivery.in_flight_bytes();
        in_flight <= self.inflight_with_headroom() && in_flight <= self.inflight(100)
    }

    pub(super) fn check_up_done(&mut self, rs: &Sample) {
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

    pub(super) fn adapt_long_term_model(&mut self, rs: &Sample) -> bool {
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

    pub(super) fn raise_inflight_longterm_slope(&mut self) {
        let growth = 1 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth).max(self.packet_bytes);
    }

    pub(super) fn probe_inflight_longterm_upward(&mut self, rs: &Sample) {
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

    pub(super) fn update_min_rtt(&mut self, rs: &Sample) {
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

    pub(super) fn check_probe_rtt(&mut self, rs: &Sample) {
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

    pub(super) fn exit_probe_rtt(&mut self, now_ns: u64) {
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
}
