//! The FIFO queue of the bottleneck, with limits and ECN marks.

use alloc::collections::VecDeque;

use crate::config::nanoseconds;
use crate::{LinkConfig, Ramp, Rng, Serialiser};

/// The datagrams that wait, and the one that is being sent. The queue counts them but does not
/// store them: the departure time of a datagram is known when it is offered, because the schedule
/// of the rate is known.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    serialiser: Serialiser,
    limit_bytes: u64,
    limit_ns: u64,
    limit_packets: usize,
    /// Departure times of the datagrams in the queue. Used only with a limit in datagrams.
    departures: VecDeque<u64>,
    ecn: Option<Ramp>,
    marking: Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// When its last bit has been sent.
    pub(crate) departure_ns: u64,
    /// Whether it gets an ECN mark, if it is ECN-capable.
    pub(crate) marked: bool,
}

impl Queue {
    /// An empty queue with the limits and the marks of a validated configuration.
    pub(crate) fn new(config: &LinkConfig, serialiser: Serialiser, marking: Rng) -> Self {
        let packets = config.queue_packets.unwrap_or(u64::MAX);
        Self {
            serialiser,
            limit_bytes: config.queue_bytes.unwrap_or(u64::MAX),
            limit_ns: config.queue_time.map_or(u64::MAX, nanoseconds),
            limit_packets: usize::try_from(packets).unwrap_or(usize::MAX),
            departures: VecDeque::new(),
            ecn: config.ecn,
            marking,
        }
    }

    /// Returns `None` if the datagram does not fit.
    pub(crate) fn offer(&mut self, now_ns: u64, bytes: u64) -> Option<Admitted> {
        while self.departures.front().is_some_and(|out| *out <= now_ns) {
            self.departures.pop_front();
        }
        let backlog = self.backlog_bytes(now_ns);
        if backlog > 0
            && (backlog.saturating_add(bytes) > self.limit_bytes
                || self.departures.len() >= self.limit_packets
                || self.serialiser.free_ns().saturating_sub(now_ns) > self.limit_ns)
        {
            return None;
        }
        let departure_ns = self.serialiser.accept(now_ns, bytes);
        if self.limit_packets < usize::MAX {
            self.departures.push_back(departure_ns);
        }
        let probability = self.ecn.map_or(0.0, |ecn| ecn.probability(backlog));
        Some(Admitted {
            departure_ns,
            marked: self.marking.chance(probability),
        })
    }

    /// Bytes in the queue. A datagram that is being sent counts as a whole.
    pub(crate) fn backlog_bytes(&self, now_ns: u64) -> u64 {
        self.serialiser.backlog_bytes(now_ns)
    }

    pub(crate) fn clear(&mut self) {
        self.serialiser.clear();
        self.departures.clear();
    }
}
