//! Reno and CUBIC as other flows on the path. Most TCP flows use one of them.

use farwrite_rate::{Feedback, Limits, RateControl, Sent};

/// Bytes of a segment of these flows.
const SEGMENT: f64 = 1_500.0;

/// A window that grows until packets are lost (RFC 5681, RFC 9438), with slow start, without marks.
pub(crate) struct LossBased {
    cubic: bool,
    window: f64,
    threshold: f64,
    highest: f64,
    since_ns: u64,
    sent_bytes: u64,
    reported_bytes: u64,
    lost_bytes: u64,
    /// Losses of bytes sent before this belong to a loss to which the flow has reacted already.
    recovered_bytes: u64,
    rtt_ns: f64,
    deadline_ns: Option<u64>,
}

impl LossBased {
    pub(crate) fn new(cubic: bool) -> Self {
        Self {
            cubic,
            window: 10.0 * SEGMENT,
            threshold: f64::MAX,
            highest: 0.0,
            since_ns: 0,
            sent_bytes: 0,
            reported_bytes: 0,
            lost_bytes: 0,
            recovered_bytes: 0,
            rtt_ns: 0.0,
            deadline_ns: None,
        }
    }

    fn deadline_after(&self, now_ns: u64) -> u64 {
        now_ns + (4.0 * self.rtt_ns) as u64 + 200_000_000
    }

    fn grow(&mut self, now_ns: u64, acked: f64) {
        if self.window < self.threshold {
            self.window += acked;
            return;
        }
        let friendly = if self.cubic { 9.0 / 17.0 } else { 1.0 };
        let line = self.window + friendly * SEGMENT * acked / self.window;
        self.window = line;
        if self.cubic {
            let t = (now_ns - self.since_ns) as f64 / 1e9;
            let k = (self.highest * 0.3 / SEGMENT / 0.4).cbrt();
            let target = self.highest + 0.4 * (t - k).powi(3) * SEGMENT;
            let target = target.min(self.window * 1.5);
            if target > line {
                self.window += (target - line) * acked / self.window;
            }
        }
    }

    fn shrink(&mut self, now_ns: u64) {
        self.highest = if self.window < self.highest {
            self.window * 0.85
        } else {
            self.window
        };
        self.window *= if self.cubic { 0.7 } else { 0.5 };
        self.window = self.window.max(2.0 * SEGMENT);
        self.threshold = self.window;
        self.since_ns = now_ns;
        self.recovered_bytes = self.sent_bytes;
    }
}

impl RateControl for LossBased {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent_bytes += sent.bytes;
        let deadline_ns = self.deadline_after(sent.now_ns);
        self.deadline_ns.get_or_insert(deadline_ns);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let Some(newest) = feedback.newest else {
            return;
        };
        let acked = newest.sent_bytes.saturating_sub(self.reported_bytes);
        self.reported_bytes = self.reported_bytes.max(newest.sent_bytes);
        let is_waiting = self.sent_bytes > self.reported_bytes;
        self.deadline_ns = is_waiting.then(|| self.deadline_after(feedback.now_ns));
        if let Some(departed_ns) = newest.departed_ns {
            let rtt_ns = (feedback.now_ns - departed_ns) as f64;
            self.rtt_ns += (rtt_ns - self.rtt_ns) / if self.rtt_ns == 0.0 { 1.0 } else { 8.0 };
        }
        let lost = newest.sent_bytes.saturating_sub(feedback.received_bytes);
        let is_new = lost > self.lost_bytes;
        self.lost_bytes = lost;
        if is_new && newest.sent_bytes > self.recovered_bytes {
            self.shrink(feedback.now_ns);
        } else if newest.sent_bytes > self.recovered_bytes {
            self.grow(feedback.now_ns, acked as f64);
        }
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        self.deadline_ns = None;
        self.shrink(now_ns);
        self.window = 2.0 * SEGMENT;
        true
    }

    fn next_timeout(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn limits(&self) -> Limits {
        let gain = if self.window < self.threshold {
            2.0
        } else {
            1.2
        };
        let pace = gain * self.window * 8e9 / self.rtt_ns.max(1e5);
        Limits {
            pace_bps: pace.max(1e4) as u64,
            window_bytes: self.window as u64,
        }
    }
}
