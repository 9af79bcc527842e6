//! The model of the path: round trips, losses, delivery rate and aggregation.

use super::super::delivery::{MILLION, Sample, bytes_in, mul_div};
use super::*;

impl Bbr3 {
    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.delivery.delivered_bytes();
    }

    pub(super) fn update_round(&mut self, rs: &Sample) {
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

    pub(super) fn is_excess(&self, lost_bytes: u64, sent_bytes: u64) -> bool {
        self.random
            .is_exceeded(lost_bytes, sent_bytes, self.packet_bytes, LOSS_THRESH_PPM)
    }

    /// Whether the loss of the last round trip is more than random loss. Late packets count as lost
    /// until they arrive, and they are more if the rate is higher. So on a path that reorders packets,
    /// the loss must stay for another round trip.
    pub(super) fn is_too_much(&mut self, rs: &Sample) -> bool {
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

    pub(super) fn handle_losses(&mut self, rs: &Sample) {
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

    pub(super) fn handle_inflight_too_high(&mut self, rs: &Sample) {
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
    pub(super) fn inflight_at_loss(&self, rs: &Sample) -> u64 {
        let thresh_ppm = LOSS_THRESH_PPM + self.random.ppm();
        let inflight_prev = rs.in_flight_bytes.saturating_sub(rs.newly_lost_bytes);
        let lost_prev = rs.lost_bytes.saturating_sub(rs.newly_lost_bytes);
        let allowed = mul_div(inflight_prev, thresh_ppm, MILLION);
        let prefix = allowed.saturating_sub(lost_prev);
        inflight_prev + mul_div(prefix, MILLION, MILLION - thresh_ppm)
    }

    pub(super) fn update_congestion_signals(&mut self, rs: &Sample) {
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

    pub(super) fn lower_bounds(&mut self) {
        let bw = self.bw_shortterm.min(self.max_bw);
        let inflight = if self.inflight_shortterm == INFINITY {
            self.cwnd
        } else {
            self.inflight_shortterm
        };
        self.bw_shortterm = self.bw_latest.max(bw / 100 * BETA);
        self.inflight_shortterm = self.inflight_latest.max(inflight / 100 * BETA);
    }

    pub(super) fn advance_latest(&mut self, rs: &Sample) {
        if self.is_loss_round_start {
            self.bw_latest = rs.rate_bps;
            self.inflight_latest = rs.delivered_bytes;
        }
    }

    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = INFINITY;
        self.inflight_shortterm = INFINITY;
    }

    pub(super) fn update_ack_aggregation(&mut self, rs: &Sample) {
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

    pub(super) fn reset_full_bw(&mut self, full_bw: u64) {
        self.full_bw = full_bw;
        self.full_bw_count = 0;
        self.is_full_bw_now = false;
    }

    pub(super) fn check_full_bw_reached(&mut self, rs: &Sample) {
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
}
