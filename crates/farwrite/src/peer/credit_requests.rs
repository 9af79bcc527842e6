//! How a sender asks a peer for credit (P4.12).

use farwrite_wire::control::{Credit, CreditRequest};

/// Packets of credit that a sender uses before it says so. Requests take a share of the receiver's
/// port, so each of them must stand for several packets.
pub(super) const PACKETS_A_REQUEST: u64 = 16;

/// Times that the requests to a peer depend on, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimes {
    /// Shortest time between two requests, or between two credits.
    pub(super) period_ns: u64,
    /// Time until a request that was lost is repeated.
    pub(super) answer_ns: u64,
    /// Longest time until that, because the wait doubles.
    pub(super) longest_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreditEffect {
    /// The sum of all credit has grown to this number of bytes.
    Granted(u64),
    /// A newer credit arrived before it, or it was granted to an earlier epoch.
    Overtaken,
    /// A correct receiver does not grant this.
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct CreditRequests {
    /// The number of this end's state of the peer.
    epoch: u64,
    /// Credit that is used between two requests.
    step_bytes: u64,
    used_bytes: u64,
    /// What is left to send, in bytes on the wire.
    backlog_bytes: u64,
    granted_bytes: u64,
    asked: CreditRequest,
    /// The most that any request wanted. No credit may be higher.
    most_wanted_bytes: u64,
    /// The queue pair whose control packets carry the next request.
    index: Option<u32>,
    due_ns: Option<u64>,
    asked_ns: Option<u64>,
    /// Requests since the last news at either end.
    repeats: u32,
    /// Since when the sender waits for more credit.
    waits_since_ns: Option<u64>,
    /// Time from one credit to the next. It is long if many senders share the receiver's port.
    gap_ns: u64,
}

impl CreditRequests {
    /// Requests to a peer for packets of `packet_bytes` on the wire.
    pub(super) fn new(epoch: u64, packet_bytes: u64) -> Self {
        Self {
            epoch,
            step_bytes: packet_bytes.saturating_mul(PACKETS_A_REQUEST),
            ..Self::default()
        }
    }

    fn wanted_bytes(&self) -> u64 {
        self.used_bytes.saturating_add(self.backlog_bytes)
    }

    fn lacks_credit(&self) -> bool {
        // The last packet may have used more than was granted.
        self.backlog_bytes > 0 && self.wanted_bytes() > self.granted_bytes
    }

    /// Records the credit used so far and what is left to send, after a turn of queue pair `index`.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        index: u32,
        (used_bytes, backlog_bytes): (u64, u64),
        waits: &RequestTimes,
    ) {
        self.used_bytes = self.used_bytes.max(used_bytes);
        self.backlog_bytes = backlog_bytes;
        let wanted = self.wanted_bytes();
        // The receiver would grant what is no longer wanted.
        let asked_too_much = self.asked.wanted_bytes > wanted.max(self.granted_bytes);
        let lacks_credit = self.lacks_credit();
        if !lacks_credit {
            self.waits_since_ns = None;
        }
        if !lacks_credit && !asked_too_much {
            self.due_ns = None;
            return;
        }
        self.index = Some(index);
        if !lacks_credit || self.is_news() {
            let earliest_ns = self.asked_ns.map_or(now_ns, |ns| ns + waits.period_ns);
            let due_ns = earliest_ns.max(now_ns);
            self.due_ns = Some(self.due_ns.map_or(due_ns, |ns| ns.min(due_ns)));
        } else if self.due_ns.is_none() {
            self.due_ns = Some(self.again_ns(now_ns, waits));
        }
    }

    /// Whether the receiver would soon stop to grant credit by what it knows: it bounds the credit
    /// beyond what is used, and grants no more than is wanted.
    fn is_news(&self) -> bool {
        let used_bytes = self.used_bytes - self.asked.used_bytes;
        let known_bytes = self.asked.wanted_bytes.saturating_sub(self.granted_bytes);
        let wants_more = self.wanted_bytes() > self.asked.wanted_bytes;
        used_bytes >= self.step_bytes || (wants_more && known_bytes < self.step_bytes)
    }

    /// When to repeat a request to which no credit came.
    fn again_ns(&self, now_ns: u64, waits: &RequestTimes) -> u64 {
        let wait_ns = waits.answer_ns.max(self.gap_ns.saturating_mul(2));
        let doubled_ns = wait_ns.saturating_mul(1 << self.repeats.min(32));
        now_ns.saturating_add(doubled_ns.min(waits.longest_ns))
    }

    /// Returns the queue pair that carries the next request, and when the request is due.
    pub(super) fn due(&self) -> Option<(u32, u64)> {
        Some((self.index?, self.due_ns?))
    }

    /// Returns the request for a control packet of queue pair `index` that leaves now, if one is
    /// due.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        index: u32,
        waits: &RequestTimes,
    ) -> Option<CreditRequest> {
        let (through, due_ns) = self.due()?;
        if through != index || due_ns > now_ns {
            return None;
        }
        let request = CreditRequest {
            epoch: self.epoch,
            used_bytes: self.used_bytes,
            wanted_bytes: self.wanted_bytes(),
        };
        let is_repeat = request == self.asked;
        self.repeats = if is_repeat { self.repeats + 1 } else { 0 };
        self.asked = request;
        self.most_wanted_bytes = self.most_wanted_bytes.max(request.wanted_bytes);
        self.asked_ns = Some(now_ns);
        self.due_ns = None;
        if self.lacks_credit() {
            self.waits_since_ns.get_or_insert(now_ns);
            // The request or its answer may be lost.
            self.due_ns = Some(self.again_ns(now_ns, waits));
        }
        Some(request)
    }

    pub(super) fn hear(
        &mut self,
        now_ns: u64,
        credit: &Credit,
        waits: &RequestTimes,
    ) -> CreditEffect {
        if credit.epoch > self.epoch {
            return CreditEffect::Refused;
        }
        if credit.epoch < self.epoch || credit.granted_bytes <= self.granted_bytes {
            return CreditEffect::Overtaken;
        }
        if credit.granted_bytes > self.most_wanted_bytes {
            return CreditEffect::Refused;
        }
        self.granted_bytes = credit.granted_bytes;
        self.repeats = 0;
        if let Some(since_ns) = self.waits_since_ns.replace(now_ns) {
            let gap_ns = now_ns.saturating_sub(since_ns).min(waits.longest_ns);
            self.gap_ns = gap_ns.max(self.gap_ns - self.gap_ns / 8);
        }
        // Credit comes, so the request has arrived.
        if !self.is_news() {
            self.due_ns = self.lacks_credit().then(|| self.again_ns(now_ns, waits));
        }
        CreditEffect::Granted(credit.granted_bytes)
    }

    /// Records that a queue pair has ended. `next` is one that waits to send, if there is one.
    pub(super) fn leave(&mut self, index: u32, next: Option<u32>) {
        if self.index == Some(index) {
            self.index = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CreditEffect::{Granted, Overtaken, Refused};
    use super::*;

    const WAITS: RequestTimes = RequestTimes {
        period_ns: 10,
        answer_ns: 100,
        longest_ns: 300,
    };

    const PACKET: u64 = 100;

    /// Asks for 5000 bytes at time 0.
    fn requests() -> CreditRequests {
        let mut requests = CreditRequests::new(7, PACKET);
        requests.note(0, 1, (0, 5_000), &WAITS);
        let request = requests.take(0, 1, &WAITS).expect("due at once");
        assert_eq!((request.epoch, request.wanted_bytes), (7, 5_000));
        requests
    }

    fn grant(requests: &mut CreditRequests, epoch: u64, granted_bytes: u64) -> CreditEffect {
        grant_at(requests, 0, epoch, granted_bytes)
    }

    fn grant_at(
        requests: &mut CreditRequests,
        now_ns: u64,
        epoch: u64,
        granted_bytes: u64,
    ) -> CreditEffect {
        let credit = Credit {
            epoch,
            granted_bytes,
        };
        requests.hear(now_ns, &credit, &WAITS)
    }

    #[test]
    fn a_sender_without_credit_asks_again_after_longer_and_longer_waits() {
        let mut requests = requests();
        let mut times = Vec::new();
        for _ in 0..4 {
            let (index, due_ns) = requests.due().expect("no credit came");
            assert_eq!(requests.take(due_ns, index + 1, &WAITS), None);
            assert!(requests.take(due_ns, index, &WAITS).is_some());
            times.push(due_ns);
        }
        assert_eq!(times, [100, 300, 600, 900]);
        // Credit came late once, so repeats come later.
        assert_eq!(grant_at(&mut requests, 910, 7, 100), Granted(100));
        assert_eq!(requests.due(), Some((1, 910 + WAITS.longest_ns)));
    }

    #[test]
    fn a_request_leaves_for_sixteen_packets_of_credit() {
        let mut requests = requests();
        for packets in 1..=16 {
            let now_ns = packets * 20;
            let sum = packets * PACKET;
            assert_eq!(grant_at(&mut requests, now_ns, 7, sum), Granted(sum));
            let again_ns = requests.due().expect("credit is short").1;
            assert_eq!(again_ns, now_ns + WAITS.answer_ns);
            requests.note(now_ns, 1, (sum, 5_000 - sum), &WAITS);
            let is_due = requests.take(now_ns, 1, &WAITS).is_some();
            assert_eq!(is_due, packets == 16, "{packets}");
        }
    }

    /// With many senders at the receiver's port, the time between two credits is longer than an
    /// answer takes.
    #[test]
    fn a_sender_whose_credit_comes_slowly_does_not_repeat_its_request() {
        let mut requests = requests();
        for packets in 1..=8 {
            let now_ns = packets * 140;
            let sum = packets * PACKET;
            assert_eq!(grant_at(&mut requests, now_ns, 7, sum), Granted(sum));
            requests.note(now_ns, 1, (sum, 5_000 - sum), &WAITS);
            let again_ns = requests.due().expect("credit is short").1;
            assert!(again_ns > now_ns + 140, "{packets}");
        }
    }

    #[test]
    fn more_is_requested_when_little_is_left_to_grant_and_a_sender_with_enough_credit_is_silent() {
        let mut requests = requests();
        requests.note(3, 2, (0, 6_000), &WAITS);
        assert_eq!(
            requests.due(),
            Some((2, 100)),
            "the receiver can grant 50 packets"
        );
        assert_eq!(grant(&mut requests, 7, 4_000), Granted(4_000));
        requests.note(3, 2, (0, 6_000), &WAITS);
        assert_eq!(requests.due(), Some((2, 10)));
        assert!(requests.take(10, 2, &WAITS).is_some());
        assert_eq!(grant(&mut requests, 7, 6_000), Granted(6_000));
        requests.note(20, 2, (2_000, 4_000), &WAITS);
        assert_eq!(requests.due(), None);
    }

    #[test]
    fn what_is_no_longer_wanted_is_taken_back_once() {
        let mut requests = requests();
        assert_eq!(grant(&mut requests, 7, 1_000), Granted(1_000));
        requests.note(20, 1, (1_000, 0), &WAITS);
        let request = requests
            .take(20, 1, &WAITS)
            .expect("the receiver grants more");
        assert_eq!((request.used_bytes, request.wanted_bytes), (1_000, 1_000));
        requests.note(40, 1, (1_000, 0), &WAITS);
        assert_eq!(requests.due(), None);
        // Credit for the earlier request may be under way.
        assert_eq!(grant(&mut requests, 7, 5_000), Granted(5_000));
    }

    #[test]
    fn credit_that_was_never_wanted_is_refused_and_old_credit_ignored() {
        let mut requests = requests();
        assert_eq!(grant(&mut requests, 7, 5_001), Refused);
        assert_eq!(grant(&mut requests, 7, u64::MAX), Refused);
        assert_eq!(grant(&mut requests, 8, 10), Refused);
        assert_eq!(grant(&mut requests, 6, u64::MAX), Overtaken);
        assert_eq!(grant(&mut requests, 7, 3_000), Granted(3_000));
        assert_eq!(grant(&mut requests, 7, 2_000), Overtaken);
        assert_eq!(grant(&mut requests, 7, 3_000), Overtaken);
    }

    #[test]
    fn another_queue_pair_asks_when_one_has_ended() {
        let mut requests = requests();
        requests.leave(2, Some(3));
        assert_eq!(requests.due(), Some((1, 100)));
        requests.leave(1, Some(3));
        assert_eq!(requests.due(), Some((3, 100)));
        requests.leave(3, None);
        assert_eq!(requests.due(), None);
    }
}
