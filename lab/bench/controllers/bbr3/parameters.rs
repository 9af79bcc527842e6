//! The parameters that the model sets: pace and window.

use super::super::delivery::{Sample, bytes_in, mul_div};
use super::*;

impl Bbr3 {
    pub(super) fn min_pipe_cwnd(&self) -> u64 {
        MIN_PIPE_PACKETS * self.packet_bytes
    }

    /// Multiple of the path, in percent.
    pub(super) fn bdp(&self, gain: u64) -> u64 {
        if self.min_rtt_ns == INFINITY {
            return INITIAL_PACKETS * self.packet_bytes;
        }
        mul_div(bytes_in(self.bw, self.min_rtt_ns), gain, 100)
    }

    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp(100).min(self.cwnd)
    }

    pub(super) fn quantized(&self, inflight: u64) -> u64 {
        let extra = if self.state == State::Up {
            2 * self.packet_bytes
        } else {
            0
        };
        inflight.max(self.min_pipe_cwnd()) + extra
    }

    pub(super) fn inflight(&self, gain: u64) -> u64 {
        self.quantized(self.bdp(gain))
    }

    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let headroom = (self.inflight_longterm / 100 * HEADROOM).max(self.packet_bytes);
        let inflight = self.inflight_longterm.saturating_sub(headroom);
        inflight.max(self.min_pipe_cwnd())
    }

    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(PROBE_RTT_CWND_GAIN).max(self.min_pipe_cwnd())
    }

    pub(super) fn set_pacing_rate(&mut self, gain: u64) {
        let percent = gain * (100 - PACING_MARGIN);
        let rate_bps = mul_div(self.bw, percent, 10_000).clamp(1, MAX_BPS);
        if self.is_full_bw_reached || rate_bps > self.pacing_bps {
            self.pacing_bps = rate_bps;
        }
    }

    pub(super) fn set_cwnd(&mut self, rs: &Sample) {
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

    pub(super) fn deadline_after(&self, now_ns: u64) -> u64 {
        let is_unknown = self.min_rtt_ns == INFINITY;
        let wait_ns = if is_unknown { 0 } else { 4 * self.min_rtt_ns };
        now_ns + wait_ns + 1_000_000_000
    }
}
