//! The window of phase `Compete`, beside flows that keep the queue full.

use super::constants::{OVERFULL_ROUNDS, PAUSE_ROUNDS, RISE_ROUNDS, YIELD_ROUNDS};
use super::cubic::Cubic;
use super::path::PathEstimate;
use crate::math::mul_div;

/// A window that grows and is cut like the window of CUBIC, but with a floor. The floor is
/// `path_bytes` beside flows that do not yield, and half of that beside flows that yield.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compete {
    cubic: Cubic,
    /// Bytes that the path holds without a queue, as estimated.
    path_bytes: u64,
    /// Whether the other flows did not yield to the last cut.
    is_pressed: bool,
    /// Since when the window rises to its floor, and the window at that time.
    rise_ns: u64,
    rise_bytes: u64,
    lost_ns: Option<u64>,
    /// Number of round trips with heavy loss, minus the number with light loss.
    overfull_rounds: u32,
    pause_rounds: u64,
    /// Time of the next attempt to drain the queue.
    drain_ns: u64,
}

impl Compete {
    /// Starts with a window of `window_bytes` at `now_ns`, on a path that holds `path_bytes`.
    pub(super) fn new(now_ns: u64, window_bytes: u64, path_bytes: u64, packet_bytes: u64) -> Self {
        Self {
            cubic: Cubic::new(now_ns, window_bytes, packet_bytes),
            path_bytes,
            is_pressed: true,
            rise_ns: now_ns,
            rise_bytes: window_bytes,
            lost_ns: None,
            overfull_rounds: 0,
            pause_rounds: PAUSE_ROUNDS[0],
            drain_ns: 0,
        }
    }

    /// Sets when to try to drain the queue next.
    pub(super) fn pause(&mut self, now_ns: u64, path: &PathEstimate) {
        let pause_ns = path.base_ns().saturating_mul(self.pause_rounds);
        self.drain_ns = now_ns.saturating_add(pause_ns);
        self.pause_rounds = (2 * self.pause_rounds).min(PAUSE_ROUNDS[1]);
    }

    /// Whether to try to drain the queue.
    ///
    /// An attempt waits until [`YIELD_ROUNDS`] round trips have passed since the last loss. Before
    /// that, the other flows may have cut their windows too: the queue would drain, but only until
    /// they have recovered. Where losses are more frequent, the attempt waits for one more pause.
    pub(super) fn is_drain_due(&self, now_ns: u64, path: &PathEstimate) -> bool {
        let yield_ns = path.standing_ns().saturating_mul(YIELD_ROUNDS);
        let lost_recently = self
            .lost_ns
            .is_some_and(|ns| now_ns.saturating_sub(ns) < yield_ns);
        let delay_ns = match lost_recently {
            true => path.base_ns().saturating_mul(self.pause_rounds / 2),
            false => 0,
        };
        now_ns >= self.drain_ns.saturating_add(delay_ns)
    }

    pub(super) fn window_bytes(&self, now_ns: u64, path: &PathEstimate) -> u64 {
        let cubic_bytes = self.cubic.window_bytes(now_ns, path.standing_ns());
        if !self.is_pressed {
            return cubic_bytes.max(self.path_bytes / 2);
        }
        let elapsed_ns = now_ns.saturating_sub(self.rise_ns);
        let rise_ns = path.base_ns().saturating_mul(RISE_ROUNDS);
        let risen_bytes = mul_div(self.path_bytes, elapsed_ns, rise_ns);
        let most_bytes = self.rise_bytes.saturating_add(risen_bytes);
        cubic_bytes.max(self.path_bytes.min(most_bytes))
    }

    /// Records whether the loss in a round trip with losses was heavy. Returns whether heavy loss
    /// has lasted longer than the other flows need to detect their smaller share.
    pub(super) fn is_too_much(&mut self, is_overfull: bool) -> bool {
        self.overfull_rounds = if is_overfull {
            self.overfull_rounds + 1
        } else {
            self.overfull_rounds.saturating_sub(1)
        };
        self.overfull_rounds >= OVERFULL_ROUNDS
    }

    /// Halves the estimate of the bytes that the path holds. Returns the new estimate.
    pub(super) fn hold_half(&mut self) -> u64 {
        self.overfull_rounds = 0;
        self.path_bytes /= 2;
        self.path_bytes
    }

    /// Cuts the window after a loss.
    pub(super) fn on_loss(&mut self, now_ns: u64, path: &PathEstimate) {
        let rtt_ns = path.standing_ns();
        let window_bytes = self.window_bytes(now_ns, path);
        let patience_ns = rtt_ns.saturating_mul(YIELD_ROUNDS);
        let was_pressed = self.is_pressed;
        self.is_pressed = self
            .lost_ns
            .is_some_and(|ns| now_ns.saturating_sub(ns) < patience_ns);
        self.lost_ns = Some(now_ns);
        if self.is_pressed && !was_pressed {
            (self.rise_ns, self.rise_bytes) = (now_ns, window_bytes);
        } else if !self.is_pressed {
            self.cubic.set(now_ns, window_bytes);
        }
        self.cubic.on_loss(now_ns, rtt_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::super::variation::Noise;
    use super::*;
    use crate::{Feedback, Newest};

    const NOISE: Noise = Noise {
        jitter_ns: 0,
        packet_ns: 0,
        free_bytes: 0,
    };

    const MS: u64 = 1_000_000;
    const PATH_BYTES: u64 = 1_000_000;

    /// Returns a path of 40 ms.
    fn path() -> PathEstimate {
        let mut path = PathEstimate::default();
        path.take(
            &Feedback {
                now_ns: 40 * MS,
                newest: Some(Newest {
                    sent_bytes: 1_500,
                    departed_ns: Some(0),
                    hold_ns: 0,
                }),
                received_bytes: 1_500,
                received_packets: 1,
                ..Feedback::default()
            },
            NOISE,
            1,
        );
        path
    }

    #[test]
    fn the_window_rises_to_the_bytes_of_the_path_in_eight_round_trips() {
        let compete = Compete::new(0, 200_000, PATH_BYTES, 1_500);
        let at = |ms: u64| compete.window_bytes(ms * MS, &path());
        assert_eq!(at(80), 450_000);
        assert_eq!(at(320), PATH_BYTES);
        assert_eq!(at(400), PATH_BYTES);
    }

    #[test]
    fn a_loss_cuts_to_no_less_than_half_of_the_path() {
        let mut compete = Compete::new(0, PATH_BYTES, PATH_BYTES, 1_500);
        for (ms, least) in [(1_000, 650_000), (2_000, 500_000), (3_000, 500_000)] {
            compete.on_loss(ms * MS, &path());
            let window = compete.window_bytes(ms * MS, &path());
            assert!((least..least + 100_000).contains(&window), "{ms} {window}");
        }
    }

    #[test]
    fn the_queue_is_not_drained_shortly_after_a_loss() {
        let mut compete = Compete::new(0, PATH_BYTES, PATH_BYTES, 1_500);
        compete.pause(0, &path());
        // The first pause lasts 12 round trips, or 480 ms, and the next one 960 ms.
        let due = |compete: &Compete, ms: u64| compete.is_drain_due(ms * MS, &path());
        assert!(!due(&compete, 470) && due(&compete, 480));
        compete.on_loss(300 * MS, &path());
        assert!(!due(&compete, 480) && !due(&compete, 930));
        assert!(due(&compete, 940), "16 round trips after the loss");
        // Losses do not delay an attempt forever.
        for ms in [600, 900, 1_200] {
            compete.on_loss(ms * MS, &path());
        }
        assert!(!due(&compete, 950) && due(&compete, 960));
    }

    #[test]
    fn a_cut_that_others_fill_at_once_is_taken_back() {
        let mut compete = Compete::new(0, PATH_BYTES, PATH_BYTES, 1_500);
        compete.on_loss(1_000 * MS, &path());
        compete.on_loss(1_200 * MS, &path());
        assert!(compete.window_bytes(1_200 * MS, &path()) < 800_000);
        assert_eq!(compete.window_bytes(1_520 * MS, &path()), PATH_BYTES);
        // After the others yield, the floor falls again.
        compete.on_loss(3_000 * MS, &path());
        assert!(compete.window_bytes(3_000 * MS, &path()) < 750_000);
    }
}
