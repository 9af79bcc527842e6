//! What BBR version 3 and Copa learn from the reports of the receiver, in integers.

use std::collections::VecDeque;

use farwrite_rate::{Feedback, Sent};

/// Parts of a million.
pub(crate) const MILLION: u64 = 1_000_000;

/// `a * b / c`, rounded down; a divisor of 0 counts as 1.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b) / u128::from(c.max(1));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// Bytes that a rate in bits a second moves in `ns` nanoseconds.
pub(crate) fn bytes_in(rate_bps: u64, ns: u64) -> u64 {
    mul_div(rate_bps, ns, 8_000_000_000)
}

/// Bits a second that move `bytes` in `ns` nanoseconds.
pub(crate) fn rate_of(bytes: u64, ns: u64) -> u64 {
    mul_div(bytes, 8_000_000_000, ns)
}

/// The smallest or largest of the values of a time.
pub(crate) struct Extreme {
    is_better: fn(u64, u64) -> bool,
    /// Time and value; each value is better than all later ones.
    values: VecDeque<(u64, u64)>,
}

impl Extreme {
    pub(crate) fn smallest() -> Self {
        Self {
            is_better: |new, old| new <= old,
            values: VecDeque::new(),
        }
    }

    pub(crate) fn largest() -> Self {
        Self {
            is_better: |new, old| new >= old,
            values: VecDeque::new(),
        }
    }

    /// Adds a value, and removes those from before `oldest`.
    pub(crate) fn note(&mut self, time: u64, value: u64, oldest: u64) {
        while self
            .values
            .back()
            .is_some_and(|(_, old)| (self.is_better)(value, *old))
        {
            self.values.pop_back();
        }
        self.values.push_back((time, value));
        while self.values.front().is_some_and(|(time, _)| *time < oldest) {
            self.values.pop_front();
        }
    }

    pub(crate) fn get(&self) -> Option<u64> {
        self.values.front().map(|(_, value)| *value)
    }
}

/// The random loss of a path. Both controllers take only loss beyond it for congestion.
#[derive(Clone, Copy, Default)]
pub(crate) struct RandomLoss {
    lost_bytes: u64,
    sent_bytes: u64,
}

impl RandomLoss {
    /// The random loss never counts as more than this, in parts of a million.
    const MOST_PPM: u64 = 250_000;

    /// Adds a round trip in which the queue was short. Older ones lose an eighth of their weight.
    pub(crate) fn learn(&mut self, lost_bytes: u64, sent_bytes: u64) {
        self.lost_bytes = self.lost_bytes - self.lost_bytes / 8 + lost_bytes;
        self.sent_bytes = self.sent_bytes - self.sent_bytes / 8 + sent_bytes;
    }

    pub(crate) fn ppm(&self) -> u64 {
        mul_div(self.lost_bytes, MILLION, self.sent_bytes).min(Self::MOST_PPM)
    }

    /// Whether a loss is more than the random loss and `threshold_ppm` together, and more than
    /// chance makes of the random loss: two packets and two standard deviations beyond the mean.
    pub(crate) fn is_exceeded(
        &self,
        lost_bytes: u64,
        sent_bytes: u64,
        packet_bytes: u64,
        threshold_ppm: u64,
    ) -> bool {
        let mean_bytes = mul_div(sent_bytes, self.ppm(), MILLION);
        let deviation_bytes = mean_bytes.saturating_mul(packet_bytes).isqrt();
        let chance_bytes = mean_bytes + 2 * (packet_bytes + deviation_bytes);
        let allowed_bytes = mul_div(sent_bytes, self.ppm() + threshold_ppm, MILLION);
        lost_bytes > chance_bytes.max(allowed_bytes)
    }
}

/// State of the connection when a packet left.
struct Mark {
    sent_bytes: u64,
    sent_ns: u64,
    first_sent_ns: u64,
    delivered_bytes: u64,
    delivered_ns: u64,
    lost_bytes: u64,
    in_flight_bytes: u64,
    is_app_limited: bool,
}

/// What a report says about the newest packet, and about the time since it left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) now_ns: u64,
    /// `None` if the packet repeats a lost one.
    pub(crate) rtt_ns: Option<u64>,
    /// Bytes delivered since the last report, and lost.
    pub(crate) newly_delivered_bytes: u64,
    pub(crate) newly_lost_bytes: u64,
    /// Bytes delivered before the packet left.
    pub(crate) prior_delivered_bytes: u64,
    /// Bytes delivered since then, and lost.
    pub(crate) delivered_bytes: u64,
    pub(crate) lost_bytes: u64,
    /// Delivery rate in bits a second; 0 if the interval is too short.
    pub(crate) rate_bps: u64,
    /// Bytes in flight when it left, including it.
    pub(crate) in_flight_bytes: u64,
    pub(crate) is_app_limited: bool,
}

/// Samples of the delivery rate (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
///
/// Departures from the draft: the time of an acknowledgement is that of the report minus the time for
/// which the receiver held the newest packet; a packet counts as lost as soon as a later one is
/// reported, and no longer if it arrives after all.
#[derive(Default)]
pub(crate) struct Delivery {
    marks: VecDeque<Mark>,
    sent_bytes: u64,
    /// Bytes sent up to the newest packet reported, or before a timeout.
    settled_bytes: u64,
    delivered_bytes: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    lost_bytes: u64,
    /// When a packet last arrived that had counted as lost.
    late_ns: Option<u64>,
    /// Bytes sent when the sender last had no more data to send.
    app_limited_bytes: u64,
}

impl Delivery {
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.sent_bytes - self.settled_bytes
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// Whether packets have overtaken others since `from_ns`.
    pub(crate) fn is_reordering(&self, from_ns: u64) -> bool {
        self.late_ns.is_some_and(|ns| ns >= from_ns)
    }

    pub(crate) fn settled_bytes(&self) -> u64 {
        self.settled_bytes
    }

    /// Samples of what was sent so far do not measure the path.
    pub(crate) fn mark_app_limited(&mut self) {
        self.app_limited_bytes = self.sent_bytes.max(1);
    }

    /// Nothing counts as in flight any more.
    pub(crate) fn settle(&mut self) {
        self.settled_bytes = self.sent_bytes;
    }

    pub(crate) fn note_sent(&mut self, sent: &Sent) {
        if self.in_flight_bytes() == 0 {
            self.first_sent_ns = sent.now_ns;
            self.delivered_ns = sent.now_ns;
        }
        self.sent_bytes += sent.bytes;
        if sent.app_limited {
            self.mark_app_limited();
        }
        self.marks.push_back(Mark {
            sent_bytes: self.sent_bytes,
            sent_ns: sent.now_ns,
            first_sent_ns: self.first_sent_ns,
            delivered_bytes: self.delivered_bytes,
            delivered_ns: self.delivered_ns,
            lost_bytes: self.lost_bytes,
            in_flight_bytes: self.in_flight_bytes(),
            is_app_limited: self.app_limited_bytes > self.settled_bytes,
        });
    }

    /// Processes a report. `None`: it says nothing new, or a newer one has overtaken it.
    pub(crate) fn take(&mut self, feedback: &Feedback, least_ns: u64) -> Option<Sample> {
        let newest = feedback.newest?;
        if feedback.received_bytes <= self.delivered_bytes {
            return None;
        }
        while self.marks.len() > 1 && self.marks[0].sent_bytes < newest.sent_bytes {
            self.marks.pop_front();
        }
        let mark = self.marks.front()?;
        let is_newer = newest.sent_bytes > self.settled_bytes;
        let hold_ns = if is_newer { newest.hold_ns } else { 0 };
        let arrived_ns = feedback.now_ns.saturating_sub(hold_ns);
        let newly_delivered_bytes = feedback.received_bytes - self.delivered_bytes;
        self.delivered_bytes = feedback.received_bytes;
        self.delivered_ns = self.delivered_ns.max(arrived_ns);
        self.first_sent_ns = self.first_sent_ns.max(mark.sent_ns);
        self.settled_bytes = self.settled_bytes.max(newest.sent_bytes);
        let lost_bytes = newest.sent_bytes.saturating_sub(self.delivered_bytes);
        let newly_lost_bytes = lost_bytes.saturating_sub(self.lost_bytes);
        if lost_bytes < self.lost_bytes {
            self.late_ns = Some(feedback.now_ns);
        }
        self.lost_bytes = lost_bytes;
        let send_ns = mark.sent_ns.saturating_sub(mark.first_sent_ns);
        let ack_ns = self.delivered_ns.saturating_sub(mark.delivered_ns);
        let interval_ns = send_ns.max(ack_ns);
        let delivered_bytes = self.delivered_bytes - mark.delivered_bytes;
        let is_reliable = interval_ns >= least_ns && interval_ns > 0;
        let rtt_ns = newest
            .departed_ns
            .map(|ns| arrived_ns.saturating_sub(ns))
            .filter(|&ns| is_newer && ns > 0);
        Some(Sample {
            now_ns: feedback.now_ns,
            rtt_ns,
            newly_delivered_bytes,
            newly_lost_bytes,
            prior_delivered_bytes: mark.delivered_bytes,
            delivered_bytes,
            lost_bytes: lost_bytes.saturating_sub(mark.lost_bytes),
            rate_bps: if is_reliable {
                rate_of(delivered_bytes, interval_ns)
            } else {
                0
            },
            in_flight_bytes: mark.in_flight_bytes,
            is_app_limited: mark.is_app_limited,
        })
    }
}
