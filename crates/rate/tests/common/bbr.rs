//! A model of BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), Linux's `bbr`, as
//! another flow on the path.
//!
//! A loss does not change its model of the path, but it bounds the window: in the first round trip
//! of a recovery, only what has arrived is replaced ("packet conservation"). With random losses,
//! recoveries follow one another, and the queue stays short.

use std::collections::VecDeque;

use farwrite_rate::{Feedback, Limits, RateControl, Sent};

/// Bytes of a segment of these flows.
const SEGMENT: f64 = 1_500.0;

/// 2 / ln 2: doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.885;

/// Gains of the pace, one per round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// Share of the estimated rate at which Linux paces, so that queues drain.
const PACE_SHARE: f64 = 0.99;

/// Number of round trips of the maximum filter of the rate.
const RATE_ROUNDS: u64 = 10;

/// Time of the minimum filter of the round trip.
const RTT_NS: u64 = 10_000_000_000;
const PROBE_RTT_NS: u64 = 200_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    ProbeBandwidth { gain: usize, since_ns: u64 },
    ProbeRtt { until_ns: u64 },
}

/// A recovery from losses. It ends when the packets that had left before it are reported.
struct Recovery {
    end_bytes: u64,
    /// The window before it, which is restored at the end.
    prior_window: f64,
    /// Whether its first round trip has not ended.
    is_conserving: bool,
}

/// State of the receiver when a packet left.
struct Mark {
    sent_bytes: u64,
    sent_ns: u64,
    received_bytes: u64,
    received_ns: u64,
}

pub(crate) struct Bbr {
    state: State,
    /// For each round, its number and its highest rate in bytes per nanosecond.
    rates: VecDeque<(u64, f64)>,
    rtt_ns: u64,
    rtt_since_ns: u64,
    round: u64,
    /// The round ends when this is reported.
    round_bytes: u64,
    /// Rate that start-up must exceed by a quarter.
    full_rate: f64,
    full_rounds: u32,
    window: f64,
    recovery: Option<Recovery>,
    marks: VecDeque<Mark>,
    sent_bytes: u64,
    reported_bytes: u64,
    received_bytes: u64,
    received_ns: u64,
    deadline_ns: Option<u64>,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            state: State::Startup,
            rates: VecDeque::new(),
            rtt_ns: u64::MAX,
            rtt_since_ns: 0,
            round: 0,
            round_bytes: 0,
            full_rate: 0.0,
            full_rounds: 0,
            window: 10.0 * SEGMENT,
            recovery: None,
            marks: VecDeque::new(),
            sent_bytes: 0,
            reported_bytes: 0,
            received_bytes: 0,
            received_ns: 0,
            deadline_ns: None,
        }
    }
}

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    fn path_bytes(&self) -> f64 {
        self.rate() * self.rtt_ns as f64
    }

    fn in_flight(&self) -> f64 {
        (self.sent_bytes - self.reported_bytes) as f64
    }

    /// Grows the window up to its target by the bytes that arrived, unless a recovery bounds it.
    fn adjust_window(&mut self, arrived: f64, lost: f64, is_new_round: bool) {
        self.window = (self.window - lost).max(SEGMENT);
        if is_new_round && let Some(recovery) = &mut self.recovery {
            recovery.is_conserving = false;
        }
        let reported_bytes = self.reported_bytes;
        if let Some(over) = self
            .recovery
            .take_if(|recovery| reported_bytes >= recovery.end_bytes)
        {
            self.window = self.window.max(over.prior_window);
        }
        if lost > 0.0 && self.recovery.is_none() {
            self.recovery = Some(Recovery {
                end_bytes: self.sent_bytes,
                prior_window: self.window + lost,
                is_conserving: true,
            });
            // The recovery begins a round trip.
            self.round_bytes = self.sent_bytes;
            self.window = 0.0;
        }
        if self
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.is_conserving)
        {
            self.window = self.window.max(self.in_flight() + arrived);
            return;
        }
        let gain = match self.state {
            State::Startup | State::Drain => HIGH_GAIN,
            State::ProbeBandwidth { .. } | State::ProbeRtt { .. } => 2.0,
        };
        let target = gain * self.path_bytes();
        self.window = match self.state {
            State::Startup => self.window.max(target.min(self.window + arrived)),
            _ => target.min(self.window + arrived),
        };
    }

    fn deadline_after(&self, now_ns: u64) -> u64 {
        let is_unknown = self.rtt_ns == u64::MAX;
        let wait_ns = if is_unknown { 0 } else { 4 * self.rtt_ns };
        now_ns + wait_ns + 1_000_000_000
    }

    /// Updates the filters with the rate and the round trip of the newest packet.
    fn measure(&mut self, now_ns: u64, sent_bytes: u64) {
        while self.marks.len() > 1 && self.marks[0].sent_bytes < sent_bytes {
            self.marks.pop_front();
        }
        let Some(mark) = self.marks.front() else {
            return;
        };
        let rtt_ns = now_ns - mark.sent_ns;
        let arrived = (self.received_bytes - mark.received_bytes) as f64;
        let took_ns = (self.received_ns - mark.received_ns).max(rtt_ns);
        let rate = arrived / took_ns as f64;
        match self.rates.back_mut() {
            Some((round, highest)) if *round == self.round => *highest = highest.max(rate),
            _ => self.rates.push_back((self.round, rate)),
        }
        let oldest = self.round.saturating_sub(RATE_ROUNDS);
        while self.rates[0].0 < oldest {
            self.rates.pop_front();
        }
        let expired = now_ns > self.rtt_since_ns + RTT_NS;
        if rtt_ns <= self.rtt_ns || expired {
            self.rtt_ns = rtt_ns;
            self.rtt_since_ns = now_ns;
        }
        if expired && self.state != State::Startup {
            self.state = State::ProbeRtt {
                until_ns: now_ns + PROBE_RTT_NS,
            };
        }
    }

    fn advance(&mut self, now_ns: u64, is_new_round: bool) {
        match self.state {
            State::Startup if is_new_round => {
                if self.rate() > 1.25 * self.full_rate {
                    self.full_rate = self.rate();
                    self.full_rounds = 0;
                } else {
                    self.full_rounds += 1;
                }
                if self.full_rounds >= 3 {
                    self.state = State::Drain;
                }
            }
            State::Drain if self.in_flight() <= self.path_bytes() => {
                self.state = State::ProbeBandwidth {
                    gain: 2,
                    since_ns: now_ns,
                };
            }
            State::ProbeBandwidth { gain, since_ns } => {
                let over = now_ns - since_ns > self.rtt_ns;
                let drained = CYCLE[gain] < 1.0 && self.in_flight() <= self.path_bytes();
                if over || drained {
                    self.state = State::ProbeBandwidth {
                        gain: (gain + 1) % CYCLE.len(),
                        since_ns: now_ns,
                    };
                }
            }
            State::ProbeRtt { until_ns } if now_ns >= until_ns => {
                self.rtt_since_ns = now_ns;
                self.state = State::ProbeBandwidth {
                    gain: 2,
                    since_ns: now_ns,
                };
            }
            _ => {}
        }
    }
}

impl RateControl for Bbr {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent_bytes += sent.bytes;
        self.marks.push_back(Mark {
            sent_bytes: self.sent_bytes,
            sent_ns: sent.now_ns,
            received_bytes: self.received_bytes,
            received_ns: self.received_ns.max(1),
        });
        let deadline_ns = self.deadline_after(sent.now_ns);
        self.deadline_ns.get_or_insert(deadline_ns);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let Some(newest) = feedback.newest else {
            return;
        };
        let reported = newest.sent_bytes.saturating_sub(self.reported_bytes);
        let arrived = feedback.received_bytes - self.received_bytes;
        let lost = reported.saturating_sub(arrived) as f64;
        self.reported_bytes = self.reported_bytes.max(newest.sent_bytes);
        let is_waiting = self.sent_bytes > self.reported_bytes;
        self.deadline_ns = is_waiting.then(|| self.deadline_after(feedback.now_ns));
        self.received_bytes = feedback.received_bytes;
        self.received_ns = feedback.now_ns;
        let is_new_round = newest.sent_bytes > self.round_bytes;
        if is_new_round {
            self.round += 1;
            self.round_bytes = self.sent_bytes;
        }
        self.measure(feedback.now_ns, newest.sent_bytes);
        self.advance(feedback.now_ns, is_new_round);
        self.adjust_window(arrived as f64, lost, is_new_round);
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        self.deadline_ns = None;
        true
    }

    fn next_timeout(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn limits(&self) -> Limits {
        if self.rates.is_empty() {
            return Limits {
                pace_bps: 120_000_000,
                window_bytes: 10 * SEGMENT as u64,
            };
        }
        let pace_gain = match self.state {
            State::Startup => HIGH_GAIN,
            State::Drain => 1.0 / HIGH_GAIN,
            State::ProbeBandwidth { gain, .. } => CYCLE[gain],
            State::ProbeRtt { .. } => 1.0,
        };
        let window = match self.state {
            State::ProbeRtt { .. } => 4.0 * SEGMENT,
            _ => self.window.max(4.0 * SEGMENT),
        };
        Limits {
            pace_bps: (PACE_SHARE * pace_gain * self.rate() * 8e9).max(1e4) as u64,
            window_bytes: window as u64,
        }
    }
}
