//! Copa (Arun and Balakrishnan, NSDI 2018), in integers.
//!
//! The window moves towards the rate 1 / (delta dq), in packets, where dq is the standing round trip
//! minus the shortest one. Beside flows that fill the queue, 1 / delta grows by one each round trip,
//! and is halved after a loss.
//!
//! Changed, so that random loss does not lower the rate: a round trip with loss halves 1 / delta only
//! if the loss is more than the random loss of the path, and more than chance makes of it. The random
//! loss is learned in round trips in which the queue was nearly empty. In its default mode, Copa
//! ignores loss anyway.
//!
//! Changed for reports, of which there are about eight per round trip: the pace is the window per
//! standing round trip, where the paper's is twice that, so that a report does not cause a burst; and
//! the window allows in addition what arrives between two reports.
//!
//! Other departures: slow start ends at the measured rate times the shortest round trip; the velocity
//! changes the window by at most the acknowledged bytes, so it at most doubles in a round trip; a
//! packet is the largest burst that the sender hands over at once.

use farwrite_rate::{Feedback, Limits, RateControl, Sent};

use super::delivery::{Delivery, Extreme, RandomLoss, Sample, bytes_in, mul_div, rate_of};

const INITIAL_PACKETS: u64 = 10;
const LEAST_PACKETS: u64 = 2;

/// 1 / delta in the default mode, in packets.
const DEFAULT_INVERSE: u64 = 2;
/// The velocity grows after this number of round trips in the same direction.
const SAME_ROUNDS: u32 = 3;
/// Time of the shortest round trip.
const SHORTEST_NS: u64 = 10_000_000_000;
/// Smoothed round trips of the longest round trip, and without a nearly empty queue, after which
/// others fill the queue. It is nearly empty below a tenth of the longest delay.
const LONGEST_ROUNDS: u64 = 4;
const FULL_ROUNDS: u64 = 5;
const NEARLY_EMPTY: u64 = 10;

pub(crate) struct Copa {
    packet_bytes: u64,
    delivery: Delivery,
    random: RandomLoss,
    cwnd: u64,
    is_slow_start: bool,
    velocity: u64,
    is_rising: bool,
    same_rounds: u32,
    /// 1 / delta, in packets.
    inverse: u64,
    smoothed_ns: u64,
    standing: Extreme,
    shortest: Extreme,
    longest: Extreme,
    /// When the queue was last nearly empty, and whether it was in this round trip.
    empty_ns: u64,
    was_empty: bool,
    /// The round trip ends when more than this is delivered before a packet; the window and the sums
    /// at its start.
    round_delivered: u64,
    round_cwnd: u64,
    round_settled: u64,
    round_lost: u64,
    reported_ns: u64,
    interval_ns: u64,
    deadline_ns: Option<u64>,
}

impl Copa {
    pub(crate) fn new(packet_bytes: u64) -> Self {
        let cwnd = INITIAL_PACKETS * packet_bytes;
        Self {
            packet_bytes,
            delivery: Delivery::default(),
            random: RandomLoss::default(),
            cwnd,
            is_slow_start: true,
            velocity: 1,
            is_rising: true,
            same_rounds: 0,
            inverse: DEFAULT_INVERSE,
            smoothed_ns: 0,
            standing: Extreme::smallest(),
            shortest: Extreme::smallest(),
            longest: Extreme::largest(),
            empty_ns: 0,
            was_empty: false,
            round_delivered: 0,
            round_cwnd: cwnd,
            round_settled: 0,
            round_lost: 0,
            reported_ns: 0,
            interval_ns: 0,
            deadline_ns: None,
        }
    }

    fn standing_ns(&self) -> u64 {
        self.standing.get().unwrap_or(0)
    }

    fn shortest_ns(&self) -> u64 {
        self.shortest.get().unwrap_or(0)
    }

    fn queue_ns(&self) -> u64 {
        self.standing_ns().saturating_sub(self.shortest_ns())
    }

    fn note_rtt(&mut self, now_ns: u64, rtt_ns: u64) {
        self.smoothed_ns = match self.smoothed_ns {
            0 => rtt_ns,
            ns => ns - ns / 8 + rtt_ns / 8,
        };
        let since = |ns: u64| now_ns.saturating_sub(ns);
        self.standing
            .note(now_ns, rtt_ns, since(self.smoothed_ns / 2));
        self.shortest.note(now_ns, rtt_ns, since(SHORTEST_NS));
        self.longest
            .note(now_ns, rtt_ns, since(LONGEST_ROUNDS * self.smoothed_ns));
        let longest_ns = self.longest.get().unwrap_or(0);
        let range_ns = longest_ns.saturating_sub(self.shortest_ns());
        if self.queue_ns() <= range_ns / NEARLY_EMPTY {
            self.empty_ns = now_ns;
            self.was_empty = true;
        }
    }

    fn is_competing(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.empty_ns) > FULL_ROUNDS * self.smoothed_ns
    }

    /// Ends a round trip: adapts delta and the velocity.
    fn end_round(&mut self, now_ns: u64) {
        let lost = self.delivery.lost_bytes().saturating_sub(self.round_lost);
        let settled = self.delivery.settled_bytes() - self.round_settled;
        if !self.is_competing(now_ns) {
            self.inverse = DEFAULT_INVERSE;
            if self.was_empty {
                self.random.learn(lost, settled);
            }
        } else if self.random.is_exceeded(lost, settled, self.packet_bytes, 0) {
            self.inverse = (self.inverse / 2).max(DEFAULT_INVERSE);
        } else {
            self.inverse += 1;
        }
        let is_rising = self.cwnd > self.round_cwnd;
        if is_rising == self.is_rising {
            self.same_rounds += 1;
            if self.same_rounds >= SAME_ROUNDS {
                self.velocity = self.velocity.saturating_mul(2).min(1 << 32);
            }
        } else {
            self.velocity = 1;
            self.same_rounds = 0;
        }
        self.is_rising = is_rising;
        self.was_empty = false;
        self.round_delivered = self.delivery.delivered_bytes();
        self.round_cwnd = self.cwnd;
        self.round_settled = self.delivery.settled_bytes();
        self.round_lost = self.delivery.lost_bytes();
    }

    /// Moves the window towards the target rate.
    fn adjust(&mut self, rs: &Sample) {
        let queue_ns = u128::from(self.queue_ns());
        let target = u128::from(self.inverse * self.packet_bytes) * u128::from(self.standing_ns());
        let is_below = u128::from(self.cwnd) * queue_ns <= target;
        let acked = rs.newly_delivered_bytes;
        if self.is_slow_start {
            self.is_slow_start = is_below;
            if !is_below {
                let path = bytes_in(rs.rate_bps, self.shortest_ns());
                self.cwnd = self.cwnd.min(path);
            } else if !rs.is_app_limited {
                self.cwnd += acked;
            }
            return;
        }
        let speed = self.inverse.saturating_mul(self.velocity);
        let step = mul_div(speed.saturating_mul(self.packet_bytes), acked, self.cwnd);
        if !is_below {
            self.cwnd = self.cwnd.saturating_sub(step.min(acked / 2));
        } else if !rs.is_app_limited {
            self.cwnd += step.min(acked);
        }
        self.cwnd = self.cwnd.max(LEAST_PACKETS * self.packet_bytes);
    }

    fn deadline_after(&self, now_ns: u64) -> u64 {
        now_ns + 4 * self.smoothed_ns + 1_000_000_000
    }
}

impl RateControl for Copa {
    fn on_sent(&mut self, sent: &Sent) {
        self.delivery.note_sent(sent);
        self.packet_bytes = self.packet_bytes.max(sent.bytes);
        let deadline_ns = self.deadline_after(sent.now_ns);
        self.deadline_ns.get_or_insert(deadline_ns);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let Some(rs) = self.delivery.take(feedback, 0) else {
            return;
        };
        let is_waiting = self.delivery.in_flight_bytes() > 0;
        self.deadline_ns = is_waiting.then(|| self.deadline_after(rs.now_ns));
        let gap_ns = rs.now_ns.saturating_sub(self.reported_ns);
        let gap_ns = gap_ns.min(self.smoothed_ns);
        self.interval_ns = self.interval_ns - self.interval_ns / 4 + gap_ns / 4;
        self.reported_ns = rs.now_ns;
        if let Some(rtt_ns) = rs.rtt_ns {
            self.note_rtt(rs.now_ns, rtt_ns);
        }
        if rs.prior_delivered_bytes >= self.round_delivered {
            self.end_round(rs.now_ns);
        }
        self.adjust(&rs);
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        let is_due = self.deadline_ns.is_some_and(|ns| now_ns >= ns);
        if is_due {
            self.deadline_ns = None;
            self.delivery.settle();
            self.cwnd = LEAST_PACKETS * self.packet_bytes;
            self.is_slow_start = true;
        }
        is_due
    }

    fn next_timeout(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn limits(&self) -> Limits {
        let standing_ns = self.standing_ns();
        if standing_ns == 0 {
            return Limits {
                pace_bps: rate_of(self.cwnd, 1_000_000),
                window_bytes: self.cwnd,
            };
        }
        let unreported = mul_div(self.cwnd, self.interval_ns, standing_ns);
        Limits {
            pace_bps: rate_of(self.cwnd, standing_ns).max(1),
            window_bytes: self.cwnd + unreported,
        }
    }
}
