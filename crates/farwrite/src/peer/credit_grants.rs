//! How a receiver grants credit to its peers (P4.12).

use farwrite_rate::{EqdsOptions, PullPacer};
use farwrite_wire::control::{Credit, CreditRequest};

use super::credit_requests::RequestTimes;

/// Percentage of the port's rate for which credit is granted. The rest keeps the queue in
/// front of the port short.
const RATE_PERCENT: u64 = 99;

/// The pacer of credit that all peers of an endpoint share.
#[derive(Debug)]
pub(super) struct CreditPacer {
    pub(super) line_rate_bps: u64,
    rate_bps: u64,
    packet_bytes: u64,
    pacer: PullPacer,
    /// Number of peers under EQDS.
    pub(super) peers: usize,
}

impl CreditPacer {
    /// Grants packets of `packet_bytes` bytes on the wire.
    pub(super) fn new(options: &EqdsOptions, packet_bytes: u64) -> Self {
        let rate_bps = options.line_rate_bps / 100 * RATE_PERCENT;
        Self {
            line_rate_bps: options.line_rate_bps,
            rate_bps: rate_bps.max(1),
            packet_bytes,
            // Flows ask for what they want, so no bound on packets ahead is needed.
            pacer: PullPacer::new(rate_bps, packet_bytes, 1),
            peers: 0,
        }
    }

    /// Returns the bytes for which credit is granted in a time.
    pub(super) fn bytes_in(&self, ns: u64) -> u64 {
        let bytes = u128::from(self.rate_bps) * u128::from(ns) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Sets what peer `flow` asks for. Credit of `late_ns` may be granted at once, because the pacer
    /// is not called at each packet.
    pub(super) fn ask(&mut self, now_ns: u64, flow: u32, bytes: u64, late_ns: u64) {
        let burst_bytes = self.bytes_in(late_ns).max(self.packet_bytes);
        self.pacer.set_burst(now_ns, burst_bytes);
        self.pacer
            .ask(now_ns, flow, bytes.div_ceil(self.packet_bytes));
    }

    /// Returns the peer of the next packet for which credit is due, and the bytes of the packet.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<(u32, u64)> {
        use farwrite_rate::ReceiverControl;
        let (flow, _) = self.pacer.poll(now_ns)?;
        Some((flow, self.packet_bytes))
    }

    /// Takes the bytes of control packets from the credit: they arrive at the same port.
    pub(super) fn charge(&mut self, now_ns: u64, bytes: u64) {
        self.pacer.charge(now_ns, bytes);
    }

    pub(super) fn forget(&mut self, flow: u32) {
        self.pacer.forget(flow);
        self.peers -= 1;
    }
}

/// The credit of one peer.
#[derive(Debug, Default)]
pub(super) struct CreditGrants {
    latest: CreditRequest,
    granted_bytes: u64,
    /// Up to which sum credit is granted for the latest request.
    target_bytes: u64,
    /// Bytes that the pacer does not know of yet.
    to_ask: Option<u64>,
    /// Bytes of control packets that have arrived, and that the pacer does not know of yet.
    control_bytes: u64,
    /// The queue pair that the latest request arrived through.
    index: Option<u32>,
    due_ns: Option<u64>,
    credited_ns: Option<u64>,
    /// Whether a credit must leave: there is a new request, or more was granted.
    has_news: bool,
}

impl CreditGrants {
    /// Handles a request that arrived through queue pair `index`. At most `ahead_bytes` beyond the
    /// used credit are granted, whatever is wanted.
    pub(super) fn hear(
        &mut self,
        now_ns: u64,
        index: u32,
        request: &CreditRequest,
        ahead_bytes: u64,
        waits: &RequestTimes,
    ) {
        let latest = &self.latest;
        if (request.epoch, request.used_bytes) < (latest.epoch, latest.used_bytes) {
            return;
        }
        if request.epoch > latest.epoch {
            self.granted_bytes = 0;
        }
        self.latest = *request;
        self.index = Some(index);
        // A receiver that opened its state after the sender begins with what the sender has used.
        self.granted_bytes = self.granted_bytes.max(request.used_bytes);
        let most_bytes = request.used_bytes.saturating_add(ahead_bytes);
        self.target_bytes = request.wanted_bytes.min(most_bytes);
        self.to_ask = Some(self.target_bytes.saturating_sub(self.granted_bytes));
        if request.wanted_bytes > request.used_bytes {
            self.has_news = true;
            let earliest_ns = self.credited_ns.map_or(now_ns, |ns| ns + waits.period_ns);
            self.due_ns = Some(earliest_ns.max(now_ns));
        }
    }

    /// Returns the bytes to ask the pacer for, if a request has changed them.
    pub(super) fn take_ask(&mut self) -> Option<u64> {
        self.to_ask.take()
    }

    /// Records a control packet that has arrived.
    pub(super) fn note_control(&mut self, bytes: u64) {
        self.control_bytes += bytes;
    }

    /// Returns the bytes of control packets that arrived since the last call.
    pub(super) fn take_control(&mut self) -> u64 {
        std::mem::take(&mut self.control_bytes)
    }

    pub(super) fn grant(&mut self, bytes: u64) {
        let granted_bytes = self.granted_bytes.saturating_add(bytes);
        let granted_bytes = granted_bytes.min(self.target_bytes);
        self.has_news |= granted_bytes > self.granted_bytes;
        self.granted_bytes = self.granted_bytes.max(granted_bytes);
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns.is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// Puts off a credit that is due but has no news.
    pub(super) fn put_off(&mut self, now_ns: u64, waits: &RequestTimes) {
        if self.is_due(now_ns) && !self.has_news {
            self.due_ns = self.next_ns(now_ns, waits);
        }
    }

    fn next_ns(&self, now_ns: u64, waits: &RequestTimes) -> Option<u64> {
        let grants_more = self.granted_bytes < self.target_bytes;
        grants_more.then(|| now_ns.saturating_add(waits.period_ns))
    }

    /// Returns the queue pair that carries the next credit, and when the credit is due.
    pub(super) fn due(&self) -> Option<(u32, u64)> {
        Some((self.index?, self.due_ns?))
    }

    /// Returns the credit for a control packet of queue pair `index` that leaves now, if one is
    /// due.
    pub(super) fn take(&mut self, now_ns: u64, index: u32, waits: &RequestTimes) -> Option<Credit> {
        if self.index != Some(index) || !self.is_due(now_ns) || !self.has_news {
            return None;
        }
        self.has_news = false;
        self.credited_ns = Some(now_ns);
        self.due_ns = self.next_ns(now_ns, waits);
        Some(Credit {
            epoch: self.latest.epoch,
            granted_bytes: self.granted_bytes,
        })
    }

    /// Records that a queue pair has ended. The sender asks through another one.
    pub(super) fn leave(&mut self, index: u32) {
        if self.index == Some(index) {
            self.index = None;
            self.due_ns = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: RequestTimes = RequestTimes {
        period_ns: 1_000,
        answer_ns: 10_000,
        longest_ns: 100_000,
    };
    const AHEAD: u64 = 8_000;

    /// Two peers ask for `wanted` bytes each at time 0.
    fn two_peers(wanted: [u64; 2]) -> (CreditPacer, [CreditGrants; 2]) {
        // A packet takes a microsecond.
        let options = EqdsOptions {
            line_rate_bps: 8_000_000_000_u64.div_ceil(RATE_PERCENT) * 100,
            first_window_bytes: 1,
        };
        let mut pulls = CreditPacer::new(&options, 1_000);
        let mut peers = [CreditGrants::default(), CreditGrants::default()];
        for (flow, wanted_bytes) in (0..).zip(wanted) {
            let peer = &mut peers[flow as usize];
            ask(peer, 0, 0, wanted_bytes);
            pulls.ask(0, flow, peer.take_ask().expect("new"), WAITS.period_ns);
            pulls.peers += 1;
        }
        (pulls, peers)
    }

    fn ask(peer: &mut CreditGrants, now_ns: u64, used_bytes: u64, wanted_bytes: u64) {
        let request = CreditRequest {
            epoch: 3,
            used_bytes,
            wanted_bytes,
        };
        peer.hear(now_ns, 1, &request, AHEAD, &WAITS);
    }

    /// Grants what is due each microsecond, and returns the credit at the end.
    fn run(
        pulls: &mut CreditPacer,
        peers: &mut [CreditGrants; 2],
        ns: std::ops::RangeInclusive<u64>,
    ) {
        for now_ns in ns.step_by(1_000) {
            while let Some((flow, bytes)) = pulls.poll(now_ns) {
                peers[flow as usize].grant(bytes);
            }
        }
    }

    #[test]
    fn peers_share_the_rate_and_none_gets_more_than_it_wants_or_than_the_bound() {
        let (mut pulls, mut peers) = two_peers([1_500, 1 << 40]);
        run(&mut pulls, &mut peers, 0..=2_000);
        assert_eq!(
            peers.each_ref().map(|peer| peer.granted_bytes),
            [1_500, 1_000]
        );
        run(&mut pulls, &mut peers, 3_000..=100_000);
        assert_eq!(
            peers.each_ref().map(|peer| peer.granted_bytes),
            [1_500, AHEAD]
        );
        // The sender says that it has used some.
        ask(&mut peers[1], 200_000, 5_000, 1 << 40);
        let asked = peers[1].take_ask();
        assert_eq!(asked, Some(5_000));
        ask(&mut peers[1], 200_000, 4_000, 4_000);
        assert_eq!(peers[1].take_ask(), None, "it was overtaken");
    }

    #[test]
    fn a_credit_leaves_once_a_period_and_answers_a_repeated_request() {
        let (mut pulls, mut peers) = two_peers([3_000, 0]);
        run(&mut pulls, &mut peers, 0..=0);
        let peer = &mut peers[0];
        let credit = peer.take(0, 1, &WAITS).expect("one packet");
        assert_eq!((credit.epoch, credit.granted_bytes), (3, 1_000));
        assert_eq!(peer.take(0, 1, &WAITS), None);
        peer.put_off(1_000, &WAITS);
        assert_eq!(peer.due(), Some((1, 2_000)));
        run(&mut pulls, &mut peers, 1_000..=9_000);
        let peer = &mut peers[0];
        assert_eq!(peer.take(9_000, 2, &WAITS), None, "another queue pair");
        let credit = peer.take(9_000, 1, &WAITS).expect("all packets");
        assert_eq!((credit.granted_bytes, peer.due()), (3_000, None));
        ask(peer, 50_000, 0, 3_000);
        let again = peer.take(50_000, 1, &WAITS).expect("the credit was lost");
        assert_eq!((again.granted_bytes, peer.due()), (3_000, None));
    }

    #[test]
    fn a_state_that_is_opened_again_at_either_end_gets_credit() {
        let mut peer = CreditGrants::default();
        ask(&mut peer, 0, 70_000, 90_000);
        assert_eq!((peer.granted_bytes, peer.take_ask()), (70_000, Some(AHEAD)));
        let reopened = CreditRequest {
            epoch: 4,
            used_bytes: 0,
            wanted_bytes: 2_000,
        };
        peer.hear(1, 2, &reopened, AHEAD, &WAITS);
        assert_eq!((peer.granted_bytes, peer.take_ask()), (0, Some(2_000)));
        ask(&mut peer, 2, 80_000, 90_000);
        assert_eq!(peer.take_ask(), None, "it names the earlier epoch");
    }

    #[test]
    fn absurd_requests_grant_no_more_than_the_bound() {
        let mut peer = CreditGrants::default();
        ask(&mut peer, 0, u64::MAX, u64::MAX);
        assert_eq!(peer.take_ask(), Some(0));
        peer.grant(u64::MAX);
        assert_eq!(peer.granted_bytes, u64::MAX);
        let mut peer = CreditGrants::default();
        ask(&mut peer, 0, 5, u64::MAX);
        peer.grant(u64::MAX);
        assert_eq!(peer.granted_bytes, 5 + AHEAD);
    }
}
