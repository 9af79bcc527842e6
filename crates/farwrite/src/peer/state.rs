//! A peer: the state that all queue pairs between two endpoints share.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite_fabric::contract::Counters;
use farwrite_schemes::lateness::Lateness;
use farwrite_schemes::rtt::RttEstimator;
use farwrite_sdr::EndpointId;
use farwrite_wire::control::{self, Control, Credit, CreditRequest, Echo, PeerFeedback};
use farwrite_wire::packet::ip_udp_bytes;
use farwrite_wire::timing::Timing;

use super::credit_grants::CreditGrants;
use super::credit_requests::{PACKETS_A_REQUEST, RequestTimes};
use super::flight::ReportedPacket;
use super::reports::{NewestPacket, Reports};
use super::send_queue::{PlaceInQueue, TurnEnd};
use super::sending::PeerSending;
use super::stats::{EcnField, PeerStats};
use super::{packet_overhead_bytes, sealed_overhead_bytes};
use crate::completions::{Latest, ReceiveCounts};
use crate::options::{QpOptions, RateControl};

/// Bytes of a control packet's UDP datagram other than its payload: BTH and ICRC.
const CONTROL_OVERHEAD_BYTES: u64 = 16;
/// The pause between two pings is the time in which the pace carries this many of them, at most
/// `max_probe` (P4.9).
const PINGS_A_PAUSE: u64 = 32;

/// A peer is one other endpoint instance, at the address of its control packets. The name
/// follows the peer to other addresses.
///
/// The peer claims its id (P6.1). The address is part of the name for this reason: a peer that
/// learns the id of another peer must not affect the round trip to that peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) peer: EndpointId,
    pub(super) address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct PeerState {
    pub(super) name: Name,
    rtt: RttEstimator,
    /// How late packets come that others have overtaken on the way from the peer.
    pub(crate) lateness: Lateness,
    /// When the last control packet left that the peer is likely to echo.
    probed_ns: u64,
    pub(super) queue_pairs: usize,
    /// Whether the data packets of all queue pairs are sealed.
    pub(super) is_sealed: bool,
    overhead_bytes: u32,
    pub(super) timing: Timing,
    pub(crate) sending: PeerSending,
    pub(crate) reports: Reports,
    pub(super) credit_grants: CreditGrants,
}

/// The round trip to a peer, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// The smoothed round trip. Until the first measurement, the initial value of the first queue
    /// pair.
    pub(crate) smoothed_ns: u64,
    /// The shortest recent round trip: no answer comes sooner. `None` until the first measurement.
    pub(crate) shortest_ns: Option<u64>,
    /// When the last control packet left, on any queue pair, that the peer is likely to echo.
    pub(crate) probed_ns: u64,
    /// The time in which the pace carries [`PINGS_A_PAUSE`] pings; 0 before the first measurement.
    pub(crate) ping_spacing_ns: u64,
}

impl RoundTrip {
    pub(crate) fn is_measured(&self) -> bool {
        self.shortest_ns.is_some()
    }

    /// Returns the shortest time in which the answer to a packet from here can come, with some room
    /// for a path that has just become shorter. 0 until the first measurement.
    pub(crate) fn least_answer_ns(&self) -> u64 {
        self.shortest_ns.map_or(0, |ns| ns - ns / 8)
    }

    /// Returns the values assumed before the first measurement.
    pub(crate) fn guess(initial: Duration) -> Self {
        Self {
            smoothed_ns: RttEstimator::new(initial).smoothed_ns(),
            shortest_ns: None,
            probed_ns: 0,
            ping_spacing_ns: 0,
        }
    }
}

impl PeerState {
    pub(super) fn new(
        name: Name,
        opened: u64,
        options: &QpOptions,
        is_sealed: bool,
        counters: &Counters,
    ) -> Self {
        let is_ipv4 = name.address.is_ipv4();
        let overhead_bytes = if is_sealed {
            sealed_overhead_bytes(is_ipv4)
        } else {
            packet_overhead_bytes(is_ipv4)
        };
        let packet_bytes = u64::from(options.sdr.mtu) + u64::from(overhead_bytes);
        Self {
            name,
            rtt: RttEstimator::new(options.initial_rtt),
            lateness: Lateness::default(),
            probed_ns: 0,
            queue_pairs: 0,
            is_sealed,
            overhead_bytes,
            timing: options.timing,
            sending: PeerSending::new(
                opened,
                options.rate_control,
                options.burst_bytes,
                packet_bytes,
                options.timing,
            ),
            reports: Reports::new(opened, overhead_bytes.into(), &options.timing, counters),
            credit_grants: CreditGrants::default(),
        }
    }

    /// An implausible echo changes nothing.
    pub(crate) fn handle_echo(&mut self, now_ns: u64, echo: &Echo) {
        let _ = self
            .rtt
            .handle_echo(now_ns, echo.timestamp_ns, echo.hold_ns);
    }

    /// Records a control packet that left and that the peer is likely to echo.
    pub(crate) fn note_probe(&mut self, left_ns: u64) {
        self.probed_ns = self.probed_ns.max(left_ns);
    }

    pub(crate) fn round_trip(&self) -> RoundTrip {
        RoundTrip {
            smoothed_ns: self.rtt.smoothed_ns(),
            shortest_ns: self.rtt.shortest_ns(),
            probed_ns: self.probed_ns,
            ping_spacing_ns: self.ping_spacing_ns(),
        }
    }

    /// Before the first measurement, pings may come faster: everything waits for the round trip.
    fn ping_spacing_ns(&self) -> u64 {
        let bytes = self.control_bytes(control::HEADER_BYTES);
        let share_bps = (self.sending.pace_bps() / PINGS_A_PAUSE).max(1);
        match self.rtt.shortest_ns() {
            Some(_) => bytes * 8 * 1_000_000_000 / share_bps,
            None => 0,
        }
    }

    /// Returns the bytes of the IP packet of a control packet.
    fn control_bytes(&self, bytes: usize) -> u64 {
        let ip_udp_bytes = u64::from(ip_udp_bytes(self.name.address.is_ipv4()));
        bytes as u64 + CONTROL_OVERHEAD_BYTES + ip_udp_bytes
    }

    /// Records that a chunk arrived `late_ns` after a later one.
    pub(crate) fn note_lateness(&mut self, now_ns: u64, late_ns: u64) {
        let rtt_ns = self.rtt.smoothed_ns();
        self.lateness.note(now_ns, late_ns, rtt_ns);
    }

    /// Returns the bytes of a data packet on the wire other than its payload.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.overhead_bytes.into()
    }

    pub(crate) fn end_turn(
        &mut self,
        now_ns: u64,
        index: u32,
        place: &mut PlaceInQueue,
        end: &TurnEnd,
    ) {
        let waits = self.waits();
        self.sending.end_turn(now_ns, index, place, end, &waits);
    }

    /// Returns when the peer's state has work next: queue pairs to release, or a control message to send.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let messages = self.messages().into_iter().flatten();
        let times = messages.map(|(_, due_ns)| due_ns);
        times.chain(self.sending.next_ns(now_ns)).min()
    }

    /// Returns the queue pairs whose control packets must carry a message to the peer now.
    pub(crate) fn carriers(&self, now_ns: u64) -> impl Iterator<Item = u32> + use<> {
        let messages = self.messages().into_iter().flatten();
        messages.filter_map(move |(index, due_ns)| (due_ns <= now_ns).then_some(index))
    }

    /// Returns the queue pairs that carry the next messages to the peer, and when these are due.
    fn messages(&self) -> [Option<(u32, u64)>; 3] {
        [
            self.reports.due(),
            self.sending.request_due(),
            self.credit_grants.due(),
        ]
    }

    /// Records what arrived through queue pair `index` since the last call for it.
    pub(crate) fn note_arrivals(
        &mut self,
        now_ns: u64,
        index: u32,
        gained: &ReceiveCounts,
        latest: Latest<NewestPacket>,
    ) {
        let period_ns = self.period_ns();
        self.reports.note(now_ns, index, gained, latest, period_ns);
    }

    /// Returns a report for a control packet of queue pair `index` that leaves now, if a report is
    /// due. If a packet leaves anyway, it also carries a report that is due soon.
    pub(crate) fn take_report(
        &mut self,
        now_ns: u64,
        index: u32,
        leaves_anyway: bool,
        counters: &Counters,
    ) -> Option<PeerFeedback> {
        let period_ns = self.period_ns();
        self.reports
            .take(now_ns, index, period_ns, leaves_anyway, counters)
    }

    /// Returns a request for credit, and credit, for a control packet of queue pair `index` that
    /// leaves now, if they are due.
    pub(crate) fn take_credit(&mut self, now_ns: u64, index: u32) -> [Option<Control>; 2] {
        let waits = self.waits();
        let request = self.sending.take_request(now_ns, index, &waits);
        let credit = self.credit_grants.take(now_ns, index, &waits);
        [
            request.map(Control::CreditRequest),
            credit.map(Control::Credit),
        ]
    }

    /// Handles a request of the peer for credit, which arrived through queue pair `index`.
    /// [`grant`](super::PeerTable::grant) passes it to the pacer later. Returns false if this end grants
    /// no credit.
    pub(crate) fn handle_credit_request(
        &mut self,
        now_ns: u64,
        index: u32,
        request: &CreditRequest,
    ) -> bool {
        let RateControl::Eqds(options) = self.sending.choice else {
            return false;
        };
        let waits = self.waits();
        // What covers the way of a request and of its credit, the wait of both, and the packets
        // between two requests.
        let ahead_ns = self.rtt.smoothed_ns() + 4 * waits.period_ns;
        let bytes = u128::from(options.line_rate_bps) * u128::from(ahead_ns) / 8_000_000_000;
        let ahead_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let step_bytes = (PACKETS_A_REQUEST + 1) * self.sending.packet_bytes;
        let ahead_bytes = ahead_bytes.saturating_add(step_bytes);
        self.credit_grants
            .hear(now_ns, index, request, ahead_bytes, &waits);
        true
    }

    /// Handles credit of the peer, or refuses it.
    pub(crate) fn handle_credit(&mut self, now_ns: u64, credit: &Credit) {
        let waits = self.waits();
        self.sending.handle_credit(now_ns, credit, &waits);
    }

    /// Records a genuine control packet with `bytes` of payload that has arrived.
    pub(crate) fn note_control(&mut self, bytes: usize) {
        if let RateControl::Eqds(_) = self.sending.choice {
            let bytes = self.control_bytes(bytes);
            self.credit_grants.note_control(bytes);
        }
    }

    pub(super) fn waits(&self) -> RequestTimes {
        let period_ns = self.period_ns();
        RequestTimes {
            period_ns,
            answer_ns: self.rtt.smoothed_ns() + 2 * period_ns + self.timing.lateness_ns,
            longest_ns: self.timing.max_probe_ns,
        }
    }

    fn period_ns(&self) -> u64 {
        let shortest_ns = self.rtt.shortest_ns();
        let rtt_ns = shortest_ns.map(|_| self.rtt.smoothed_ns());
        self.reports.period_ns(rtt_ns)
    }

    /// Handles a report that arrived through the queue pair with serial number `serial`, or refuses
    /// it.
    pub(crate) fn handle_feedback(
        &mut self,
        now_ns: u64,
        serial: u32,
        named: ReportedPacket,
        report: &PeerFeedback,
    ) {
        let least_rtt_ns = self.round_trip().least_answer_ns();
        self.sending
            .handle_feedback(now_ns, serial, named, report, least_rtt_ns);
    }

    pub(crate) fn stats(&self) -> PeerStats {
        let counts = &self.reports.counts;
        let ecn_from_peer = EcnField::of(counts.data_packets, counts.ect_packets);
        let rtt_ns = self.rtt.smoothed_ns();
        self.sending
            .stats(rtt_ns, self.overhead_bytes, ecn_from_peer)
    }
}
