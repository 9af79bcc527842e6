//! The duplicate pool (section III.C.1): copies of sent packets, to repeat them.
//!
//! When the pool is full, it first drops copies older than `copy_ns`. Then it drops the oldest copy
//! of the flow with the fewest requests (LFU). Among flows with equally few requests, it chooses
//! the flow with the oldest copy.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::format::Request;
use crate::psn;
use crate::streams::StreamKey;

#[derive(Debug)]
pub(crate) struct DuplicatePool {
    max_bytes: usize,
    copy_ns: u64,
    bytes: usize,
    peak_bytes: usize,
    copied: u64,
    flows: BTreeMap<StreamKey, Copies>,
    /// Flows with copies, ordered by requests, then by the number of the oldest copy.
    by_requests: BTreeSet<(u32, u64, StreamKey)>,
    /// Flows with copies, ordered by the number of the oldest copy.
    by_age: BTreeSet<(u64, StreamKey)>,
}

/// The copies of a flow: the latest packets that it sent, in order and without gaps.
#[derive(Debug, Default)]
struct Copies {
    requests: u32,
    bytes: usize,
    copies: VecDeque<Copy>,
}

impl Copies {
    fn push(&mut self, copy: Copy) {
        self.bytes += copy.frame.len();
        self.copies.push_back(copy);
    }

    fn drop_oldest(&mut self) {
        let copy = self.copies.pop_front();
        self.bytes -= copy.map_or(0, |copy| copy.frame.len());
    }

    /// Keeps the `keep` oldest copies, and drops the others.
    fn truncate(&mut self, keep: usize) {
        for copy in self.copies.drain(keep..) {
            self.bytes -= copy.frame.len();
        }
    }

    /// Sort key of the flow in the orders of the pool: requests, and the number of the oldest copy.
    fn place(&self) -> Option<(u32, u64)> {
        let oldest = self.copies.front()?;
        Some((self.requests, oldest.number))
    }
}

#[derive(Debug)]
struct Copy {
    psn: u32,
    /// Serial number among the copies of all flows.
    number: u64,
    sent_ns: u64,
    repeated_ns: Option<u64>,
    frame: Vec<u8>,
}

impl DuplicatePool {
    /// A pool of `max_bytes` that first drops copies older than `copy_ns`.
    pub(crate) fn new(max_bytes: usize, copy_ns: u64) -> Self {
        Self {
            max_bytes,
            copy_ns,
            bytes: 0,
            peak_bytes: 0,
            copied: 0,
            flows: BTreeMap::new(),
            by_requests: BTreeSet::new(),
            by_age: BTreeSet::new(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes as u64
    }

    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    /// Adds a copy of the packet that a flow has just sent.
    pub(crate) fn add(&mut self, now_ns: u64, key: StreamKey, psn: u32, frame: &[u8]) {
        if frame.len() > self.max_bytes {
            // No copy of this packet is possible, and the copies of a flow must not have a gap.
            return self.change(key, |flow| flow.truncate(0));
        }
        while self.bytes + frame.len() > self.max_bytes && self.drop_one(now_ns) {}
        self.copied += 1;
        let copy = Copy {
            psn,
            number: self.copied,
            sent_ns: now_ns,
            repeated_ns: None,
            frame: frame.to_vec(),
        };
        self.change(key, |flow| flow.push(copy));
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }

    /// Drops the copies from a PSN on, because the sender sends these packets again.
    pub(crate) fn rewind(&mut self, key: StreamKey, psn: u32) {
        self.change(key, |flow| {
            let before = |copy: &Copy| psn::distance(psn, copy.psn) < 0;
            let keep = flow.copies.partition_point(before);
            flow.truncate(keep);
        });
    }

    pub(crate) fn clear(&mut self, key: StreamKey) {
        self.change(key, |flow| flow.truncate(0));
    }

    pub(crate) fn forget(&mut self, key: StreamKey) {
        self.clear(key);
        self.flows.remove(&key);
    }

    pub(crate) fn count_request(&mut self, key: StreamKey) {
        self.change(key, |flow| flow.requests = flow.requests.saturating_add(1));
    }

    /// The PSNs and frame lengths of the requested packets, except for those repeated less than
    /// `guard_ns` ago. `None` if there is no copy of the expected packet.
    pub(crate) fn wanted(
        &self,
        now_ns: u64,
        key: &StreamKey,
        expected: u32,
        request: &Request,
        guard_ns: u64,
    ) -> Option<Vec<(u32, usize)>> {
        let copies = &self.flows.get(key)?.copies;
        if psn::distance(copies.front()?.psn, expected) < 0 {
            return None;
        }
        let at = copies.partition_point(|copy| psn::distance(expected, copy.psn) < 0);
        // PSNs between two neighbouring copies are not packets of this flow: they belong to the
        // response of a READ.
        let distance = |copy: &Copy| psn::distance(expected, copy.psn).unsigned_abs();
        let span = u32::from(request.span);
        let within = copies.range(at..).take_while(|&copy| distance(copy) < span);
        let mut within = within.peekable();
        within.peek()?;
        let fresh = |copy: &&Copy| {
            let since = |at_ns| now_ns.saturating_sub(at_ns);
            copy.repeated_ns.is_some_and(|at| since(at) < guard_ns)
        };
        let wanted = within.filter(|copy| request.wants(distance(copy)) && !fresh(copy));
        Some(wanted.map(|copy| (copy.psn, copy.frame.len())).collect())
    }

    /// Returns the frame of a packet, and records that it is repeated now.
    pub(crate) fn repeat(&mut self, now_ns: u64, key: &StreamKey, psn: u32) -> Option<&[u8]> {
        let copies = &mut self.flows.get_mut(key)?.copies;
        let at = copies.partition_point(|copy| psn::distance(psn, copy.psn) < 0);
        let copy = copies.get_mut(at).filter(|copy| copy.psn == psn)?;
        copy.repeated_ns = Some(now_ns);
        Some(&copy.frame)
    }

    /// Returns `false` if there is no copy.
    fn drop_one(&mut self, now_ns: u64) -> bool {
        let old = self.by_age.first().map(|(_, key)| *key).filter(|key| {
            let oldest = self.flows.get(key).and_then(|flow| flow.copies.front());
            oldest.is_some_and(|copy| now_ns.saturating_sub(copy.sent_ns) >= self.copy_ns)
        });
        let least = || self.by_requests.first().map(|(_, _, key)| *key);
        let Some(key) = old.or_else(least) else {
            return false;
        };
        self.change(key, Copies::drop_oldest);
        true
    }

    /// Changes the copies of a flow, and updates the sum of bytes and the orders.
    fn change(&mut self, key: StreamKey, change: impl FnOnce(&mut Copies)) {
        let flow = self.flows.entry(key).or_default();
        let (bytes, place) = (flow.bytes, flow.place());
        change(flow);
        let (bytes_now, place_now) = (flow.bytes, flow.place());
        self.bytes = self.bytes - bytes + bytes_now;
        if place == place_now {
            return;
        }
        if let Some((requests, number)) = place {
            self.by_requests.remove(&(requests, number, key));
            self.by_age.remove(&(number, key));
        }
        if let Some((requests, number)) = place_now {
            self.by_requests.insert((requests, number, key));
            self.by_age.insert((number, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::Space;
    use core::net::Ipv4Addr;

    fn key(qpn: u32) -> StreamKey {
        StreamKey::of(Ipv4Addr::LOCALHOST.into(), qpn, Space::Request)
    }

    fn all(span: u8) -> Request {
        Request { span, bitmap: 0 }
    }

    fn psns(pool: &DuplicatePool, qpn: u32, expected: u32, span: u8) -> Option<Vec<u32>> {
        let wanted = pool.wanted(0, &key(qpn), expected, &all(span), 0)?;
        Some(wanted.into_iter().map(|(psn, _)| psn).collect())
    }

    #[test]
    fn the_oldest_copy_of_the_least_requested_flow_goes_first() {
        let mut pool = DuplicatePool::new(60, 1000);
        for psn in 0..3 {
            pool.add(0, key(1), psn, &[1; 10]);
            pool.add(0, key(2), psn, &[2; 10]);
        }
        assert_eq!(pool.bytes(), 60);
        // With equal requests, the pool drops the oldest copy of all flows.
        pool.add(0, key(3), 9, &[3; 10]);
        assert_eq!(psns(&pool, 1, 0, 3), None);
        assert_eq!(psns(&pool, 1, 1, 3), Some([1, 2].into()));
        // Flows 1 and 3 have requests, so flow 2 makes room.
        pool.count_request(key(1));
        pool.count_request(key(3));
        pool.add(0, key(3), 10, &[3; 10]);
        pool.add(0, key(3), 11, &[3; 10]);
        assert_eq!(psns(&pool, 2, 2, 3), Some([2].into()));
        assert_eq!(psns(&pool, 1, 1, 3), Some([1, 2].into()));
        assert_eq!(psns(&pool, 3, 9, 3), Some([9, 10, 11].into()));
        assert_eq!(
            (pool.bytes(), pool.peak_bytes(), pool.copied()),
            (60, 60, 9)
        );
    }

    #[test]
    fn old_copies_make_room_before_those_of_flows_with_fewer_requests() {
        let mut pool = DuplicatePool::new(20, 1000);
        pool.add(0, key(1), 0, &[1; 10]);
        pool.count_request(key(1));
        pool.add(900, key(2), 0, &[2; 10]);
        pool.add(999, key(2), 1, &[2; 10]);
        assert_eq!(psns(&pool, 1, 0, 1), Some([0].into()));
        pool.add(1000, key(2), 2, &[2; 10]);
        assert_eq!(psns(&pool, 1, 0, 1), None);
        assert_eq!(psns(&pool, 2, 1, 2), Some([1, 2].into()));
    }

    #[test]
    fn copies_have_no_gaps_and_follow_a_sender_that_goes_back() {
        let mut pool = DuplicatePool::new(100, 1000);
        for psn in [0xFF_FFFE, 0xFF_FFFF, 0, 1] {
            pool.add(0, key(1), psn, &[0; 10]);
        }
        assert_eq!(psns(&pool, 1, 0xFF_FFFF, 2), Some([0xFF_FFFF, 0].into()));
        pool.rewind(key(1), 0);
        assert_eq!((psns(&pool, 1, 0, 5), pool.bytes()), (None, 20));
        // A frame longer than the pool would be a gap in the copies, so the pool drops them all.
        pool.add(0, key(1), 0, &[0; 101]);
        assert_eq!((psns(&pool, 1, 0xFF_FFFE, 5), pool.bytes()), (None, 0));
        pool.forget(key(1));
        assert!(pool.by_age.is_empty() && pool.by_requests.is_empty());
    }

    #[test]
    fn a_packet_is_not_repeated_twice_within_a_round_trip() {
        let mut pool = DuplicatePool::new(100, 1000);
        // PSNs 1 to 3 belong to the response of a READ.
        pool.add(0, key(1), 0, b"read");
        pool.add(0, key(1), 4, b"next");
        assert_eq!(psns(&pool, 1, 1, 4), Some([4].into()));
        assert_eq!(psns(&pool, 1, 1, 3), None);
        assert_eq!(pool.repeat(50, &key(1), 4), Some(&b"next"[..]));
        assert_eq!(pool.repeat(50, &key(1), 3), None);
        let wanted = |now_ns| pool.wanted(now_ns, &key(1), 0, &all(9), 10).unwrap();
        assert_eq!(wanted(59), [(0, 4)]);
        assert_eq!(wanted(60), [(0, 4), (4, 4)]);
    }
}
