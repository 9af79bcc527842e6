//! The window of CUBIC (RFC 9438), for paths where other flows fill the queue.

use crate::math::{cube_root, mul_div};

/// A window in bytes that follows CUBIC between losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    packet_bytes: u64,
    /// Window at the last loss.
    highest_bytes: u64,
    /// Window after the last loss.
    start_bytes: u64,
    since_ns: u64,
    /// Time from `since_ns` until the window is `highest_bytes` again.
    plateau_ms: u64,
}

impl Cubic {
    pub(super) fn new(now_ns: u64, window_bytes: u64, packet_bytes: u64) -> Self {
        Self {
            packet_bytes: packet_bytes.max(1),
            highest_bytes: window_bytes,
            start_bytes: window_bytes,
            since_ns: now_ns,
            plateau_ms: 0,
        }
    }

    /// The window at `now_ns` with a round trip of `rtt_ns`: the larger of the cubic curve (RFC
    /// 9438 section 4.2) and of the Reno-friendly line (section 4.3).
    pub(super) fn window_bytes(&self, now_ns: u64, rtt_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        let elapsed_ms = elapsed_ns / 1_000_000;
        // C = 0.4 packets a cubic second.
        let cube = |ms: u64| mul_div(ms.saturating_pow(3), self.packet_bytes * 2, 5_000_000_000);
        let curve = if elapsed_ms >= self.plateau_ms {
            let above = cube(elapsed_ms - self.plateau_ms);
            self.highest_bytes.saturating_add(above)
        } else {
            let below = cube(self.plateau_ms - elapsed_ms);
            self.highest_bytes.saturating_sub(below)
        };
        // 3 (1 - beta) / (1 + beta) = 9 / 17 packets a round trip.
        let line = mul_div(elapsed_ns, self.packet_bytes * 9 / 17, rtt_ns);
        curve.max(self.start_bytes.saturating_add(line))
    }

    /// Continues from another window.
    pub(super) fn set(&mut self, now_ns: u64, window_bytes: u64) {
        *self = Self::new(now_ns, window_bytes, self.packet_bytes);
    }

    /// Cuts the window to seven tenths after a loss.
    pub(super) fn on_loss(&mut self, now_ns: u64, rtt_ns: u64) {
        let window = self.window_bytes(now_ns, rtt_ns);
        // Fast convergence (section 4.7): a flow whose window shrinks gives up more capacity.
        self.highest_bytes = if window < self.highest_bytes {
            mul_div(window, 17, 20)
        } else {
            window
        };
        self.start_bytes = mul_div(window, 7, 10);
        self.since_ns = now_ns;
        let short = self.highest_bytes.saturating_sub(self.start_bytes);
        self.plateau_ms = cube_root(mul_div(short, 2_500_000_000, self.packet_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_window_returns_to_where_packets_were_lost() {
        // 100 packets: K = cbrt(30 / 0.4) = 4.217 s (RFC 9438 section 4.2).
        let mut cubic = Cubic::new(0, 100_000, 1_000);
        cubic.on_loss(0, SECOND);
        assert!(cubic.window_bytes(0, SECOND).abs_diff(70_000) < 100);
        let plateau = cubic.window_bytes(4_217_000_000, SECOND);
        assert!(plateau.abs_diff(100_000) < 100, "{plateau}");
        let beyond = cubic.window_bytes(6_217_000_000, SECOND);
        assert!(beyond.abs_diff(103_200) < 100, "{beyond}");
    }

    #[test]
    fn short_round_trips_grow_as_reno_does() {
        let mut cubic = Cubic::new(0, 100_000, 1_000);
        cubic.on_loss(0, SECOND / 1_000);
        // 100 round trips of 1 ms, 529 bytes each.
        let window = cubic.window_bytes(SECOND / 10, SECOND / 1_000);
        assert!(window.abs_diff(122_900) < 200, "{window}");
    }
}
