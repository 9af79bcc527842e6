//! The queue of packets to repeat, paced by [`RateLimit`].

use alloc::collections::{BTreeSet, VecDeque};

use super::rate::RateLimit;
use crate::streams::StreamKey;

/// The requested packets of all flows of a port that were not yet repeated.
#[derive(Debug)]
pub(crate) struct RepeatQueue {
    limit: RateLimit,
    max_bytes: u64,
    queue: VecDeque<QueuedRepeat>,
    queued: BTreeSet<(StreamKey, u32)>,
    /// Bytes in the queue: N of [`RateLimit`].
    bytes: u64,
    /// When the next packet may be sent.
    free_ns: u64,
    /// Bitmap of the priorities of all packets queued since the queue was last empty.
    priorities: u8,
    /// Bitmap of the priorities that are paused.
    stops: u8,
    pauses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedRepeat {
    pub(crate) key: StreamKey,
    pub(crate) psn: u32,
    pub(crate) bytes: usize,
    /// The priority of its flow, 0 to 7.
    pub(crate) priority: u8,
}

impl RepeatQueue {
    /// A queue of up to `max_bytes`. Packets beyond this are not queued; the destination requests
    /// them again.
    pub(crate) fn new(limit: RateLimit, max_bytes: u64) -> Self {
        Self {
            limit,
            max_bytes,
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            bytes: 0,
            free_ns: 0,
            priorities: 0,
            stops: 0,
            pauses: 0,
        }
    }

    /// Bitmap of the priorities that the sender must not send now.
    pub(crate) fn stops(&self) -> u8 {
        self.stops
    }

    pub(crate) fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Adds a packet, unless it is in the queue or the queue is full.
    pub(crate) fn push(&mut self, repeat: QueuedRepeat) {
        let bytes = self.bytes + repeat.bytes as u64;
        if bytes > self.max_bytes || !self.queued.insert((repeat.key, repeat.psn)) {
            return;
        }
        self.bytes = bytes;
        self.priorities |= 1 << repeat.priority;
        self.queue.push_back(repeat);
        if self.bytes > self.limit.low_bytes {
            self.pauses += u64::from(self.stops == 0);
            self.stops = self.priorities;
        }
    }

    pub(crate) fn forget(&mut self, key: StreamKey) {
        let of_flow = (key, 0)..=(key, u32::MAX);
        // A sender that goes back calls this for each such packet, so most calls must be cheap.
        if self.queued.range(of_flow).next().is_none() {
            return;
        }
        self.queue.retain(|repeat| repeat.key != key);
        self.queued.retain(|(queued, _)| *queued != key);
        self.bytes = self.queue.iter().map(|repeat| repeat.bytes as u64).sum();
        self.resume();
    }

    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<QueuedRepeat> {
        if self.next_ns()? > now_ns {
            return None;
        }
        let rate_bps = u128::from(self.limit.rate_bps(self.bytes));
        let repeat = self.queue.pop_front()?;
        self.queued.remove(&(repeat.key, repeat.psn));
        self.bytes -= repeat.bytes as u64;
        let takes_ns = (repeat.bytes as u128 * 8_000_000_000).div_ceil(rate_bps);
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        self.free_ns = now_ns.saturating_add(takes_ns);
        self.resume();
        Some(repeat)
    }

    /// When [`pop_due`](Self::pop_due) returns the next packet.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        (!self.queue.is_empty()).then_some(self.free_ns)
    }

    /// Ends the pause when the queue is empty.
    fn resume(&mut self) {
        if self.queue.is_empty() {
            self.priorities = 0;
            self.stops = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::Space;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    fn repeats() -> RepeatQueue {
        RepeatQueue::new(RateLimit::new(1_000_000_000, 100_000), 60_000)
    }

    fn repeat(qpn: u32, psn: u32, priority: u8) -> QueuedRepeat {
        QueuedRepeat {
            key: StreamKey::of(Ipv4Addr::LOCALHOST.into(), qpn, Space::Request),
            psn,
            bytes: 1000,
            priority,
        }
    }

    /// Times at which packets leave, in us.
    fn drain(repeats: &mut RepeatQueue) -> Vec<u64> {
        core::iter::from_fn(|| {
            let at_ns = repeats.next_ns()?;
            repeats.pop_due(at_ns).map(|_| at_ns / 1000)
        })
        .collect()
    }

    #[test]
    fn few_packets_leave_at_line_rate_and_none_is_queued_twice() {
        let mut repeats = repeats();
        for psn in (0..20).chain(0..20) {
            repeats.push(repeat(1, psn, 3));
        }
        assert_eq!(
            (repeats.stops(), repeats.pop_due(0)),
            (0, Some(repeat(1, 0, 3)))
        );
        assert_eq!(repeats.pop_due(7_999), None);
        let want: Vec<_> = (1..20).map(|packet| 8 * packet).collect();
        assert_eq!(drain(&mut repeats), want);
    }

    #[test]
    fn many_packets_leave_slowly_and_pause_the_sender_until_all_have_left() {
        let mut repeats = repeats();
        // The queue is full for the last ten.
        for psn in 0..70 {
            repeats.push(repeat(1 + psn % 2, psn, 3 + u8::try_from(psn % 2).unwrap()));
        }
        assert_eq!((repeats.stops(), repeats.pauses()), (0b1_1000, 1));
        let mut left = Vec::new();
        while let Some(at_ns) = repeats.next_ns() {
            assert_eq!(repeats.stops(), 0b1_1000);
            left.extend(repeats.pop_due(at_ns).map(|_| at_ns / 1000));
        }
        // N = 60 KB: 25.5% of the line rate; 21 KB: 49.3%; 20 KB and below: the line rate.
        assert_eq!(left[1] - left[0], 31);
        assert_eq!(left[40] - left[39], 16);
        assert_eq!(left[59] - left[58], 8);
        assert_eq!(repeats.stops(), 0);
    }

    #[test]
    fn a_flow_that_is_forgotten_ends_its_pause() {
        let mut repeats = repeats();
        for psn in 0..30 {
            repeats.push(repeat(1, psn, 3));
        }
        repeats.push(repeat(2, 0, 4));
        repeats.forget(repeat(1, 0, 3).key);
        assert_eq!(repeats.pop_due(0), Some(repeat(2, 0, 4)));
        assert_eq!((repeats.stops(), repeats.next_ns()), (0, None));
    }
}
