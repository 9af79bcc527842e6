//! The scoreboard of a requester with selective repeat (IRN, SIGCOMM 2018; like TCP's SACK
//! scoreboard).

use alloc::collections::{BTreeMap, BTreeSet};

use farwrite_net::Payload;

/// State of each packet after the oldest unacknowledged one: arrived, or to be retransmitted. All
/// packets are named by count.
///
/// A packet is lost when a packet that was sent later is known to have arrived. For that reason it
/// is retransmitted once. If the retransmission is lost too, the timeout retransmits it again.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    /// Packets that have arrived after a gap. Packets of READ responses are kept with their
    /// payload.
    early: BTreeMap<u64, Payload>,
    /// READs that the peer has received after a gap, by their first packet. The peer executes them
    /// when the gap is closed.
    waiting_reads: BTreeSet<u64>,
    /// Ranges to retransmit, as first packet and end (exclusive). The first range always begins
    /// with a packet that has not arrived.
    lost: BTreeMap<u64, u64>,
    /// Requests below this count have been checked for gaps.
    request_scan: u64,
    /// Responses below this count have been checked for gaps.
    response_scan: u64,
}

impl Scoreboard {
    /// Records that a request packet has arrived after a gap. Returns whether this is new.
    pub(crate) fn request_arrived(&mut self, count: u64) -> bool {
        let empty = Payload::Bytes([].into());
        self.early.insert(count, empty).is_none()
    }

    /// Records that the peer has received a READ after a gap. Returns whether this is new.
    pub(crate) fn read_waits(&mut self, first: u64) -> bool {
        self.waiting_reads.insert(first)
    }

    pub(crate) fn is_waiting_read(&self, first: u64) -> bool {
        self.waiting_reads.contains(&first)
    }

    /// Records a response packet. Returns whether it is new.
    pub(crate) fn response_arrived(&mut self, count: u64, payload: Payload) -> bool {
        let new = self.early.insert(count, payload).is_none();
        self.prune();
        new
    }

    /// Removes and returns the payload of a response packet.
    pub(crate) fn take(&mut self, count: u64) -> Option<Payload> {
        self.early.remove(&count)
    }

    pub(crate) fn has_arrived(&self, count: u64) -> bool {
        self.early.contains_key(&count)
    }

    /// The first arrived packet from `count` to before `end`; `end` if there is none.
    pub(crate) fn next_arrived(&self, count: u64, end: u64) -> u64 {
        let next = self.early.range(count..end).next();
        next.map_or(end, |(count, _)| *count)
    }

    /// The request packets before `end` that were not checked for gaps yet. Marks them as checked.
    pub(crate) fn scan_requests(&mut self, oldest: u64, end: u64) -> core::ops::Range<u64> {
        let from = self.request_scan.max(oldest);
        self.request_scan = self.request_scan.max(end);
        from..end
    }

    /// Same as [`scan_requests`](Self::scan_requests), for responses.
    pub(crate) fn scan_responses(&mut self, oldest: u64, end: u64) -> core::ops::Range<u64> {
        let from = self.response_scan.max(oldest);
        self.response_scan = self.response_scan.max(end);
        from..end
    }

    /// Marks a range as lost.
    pub(crate) fn lose(&mut self, from: u64, end: u64) {
        if from < end {
            let to = self.lost.entry(from).or_insert(end);
            *to = end.max(*to);
            self.prune();
        }
    }

    /// Marks the packets of a range that have not arrived as lost. Returns whether there are any.
    pub(crate) fn lose_missing(&mut self, from: u64, end: u64) -> bool {
        let (mut from, mut lost) = (from, false);
        while from < end {
            let to = self.next_arrived(from, end);
            lost |= from < to;
            self.lose(from, to);
            from = to;
            while from < end && self.has_arrived(from) {
                from += 1;
            }
        }
        lost
    }

    /// The highest packet that has arrived after a gap; 0 if there is none.
    pub(crate) fn highest_arrived(&self) -> u64 {
        self.early.last_key_value().map_or(0, |(count, _)| *count)
    }

    /// Marks a packet as lost although its arrival was reported: the peer could not execute it, or
    /// its acknowledgement was lost.
    pub(crate) fn lose_again(&mut self, count: u64) {
        self.early.remove(&count);
        self.lose(count, count + 1);
    }

    /// The first range of lost packets: its first packet and its end (exclusive).
    pub(crate) fn next_lost(&self) -> Option<(u64, u64)> {
        self.lost.first_key_value().map(|(from, end)| (*from, *end))
    }

    /// Records that lost packets before `end` were retransmitted.
    pub(crate) fn repeated(&mut self, end: u64) {
        if let Some((_, to)) = self.lost.pop_first() {
            self.lose(end, to);
            self.prune();
        }
    }

    /// Records that all packets before `oldest` are complete.
    pub(crate) fn advance(&mut self, oldest: u64) {
        while self
            .early
            .first_key_value()
            .is_some_and(|(count, _)| *count < oldest)
        {
            self.early.pop_first();
        }
        while self
            .waiting_reads
            .first()
            .is_some_and(|count| *count < oldest)
        {
            self.waiting_reads.pop_first();
        }
        while let Some((from, end)) = self.next_lost().filter(|(from, _)| *from < oldest) {
            self.lost.remove(&from);
            self.lose(oldest, end);
        }
        self.prune();
    }

    pub(crate) fn forget(&mut self) {
        *self = Self {
            request_scan: self.request_scan,
            response_scan: self.response_scan,
            ..Self::default()
        };
    }

    /// Removes arrived packets from the start of the lost ranges.
    fn prune(&mut self) {
        while let Some((from, end)) = self.next_lost() {
            let mut first = from;
            while first < end && self.early.contains_key(&first) {
                first += 1;
            }
            if first == from {
                return;
            }
            self.lost.remove(&from);
            if first < end {
                let to = self.lost.entry(first).or_insert(end);
                *to = end.max(*to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_after_all_is_not_sent_again() {
        let mut state = Scoreboard::default();
        state.lose(5, 8);
        assert!(state.request_arrived(9));
        assert!(!state.request_arrived(9));
        assert!(state.response_arrived(5, Payload::Ghost(1)));
        assert_eq!(state.next_lost(), Some((6, 8)));
        state.repeated(7);
        assert_eq!(state.next_lost(), Some((7, 8)));
        state.advance(8);
        assert_eq!(state.next_lost(), None);
    }

    #[test]
    fn each_packet_is_looked_at_once() {
        let mut state = Scoreboard::default();
        assert_eq!(state.scan_requests(10, 14), 10..14);
        assert!(state.scan_requests(10, 12).is_empty());
        assert_eq!(state.scan_requests(11, 16), 14..16);
        assert_eq!(state.scan_requests(20, 25), 20..25);
    }
}
