//! The paths to peers. A path has the state that all queue pairs between two endpoints share.
//!
//! A path has a sending half ([`sending`]): one controller, one token bucket and a log of what is
//! in flight, for all queue pairs together. Its receiving half ([`reports`]) counts what arrives,
//! and reports the counts to the sender.

mod asking;
mod controller;
mod credited;
mod crediting;
mod departures;
mod drain;
mod drops;
mod received;
mod reports;
mod sending;
mod silence;
mod stats;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use farwrite_fabric::contract::Counters;
use farwrite_schemes::rtt::RttEstimator;
use farwrite_sdr::EndpointId;
use farwrite_wire::control::{Control, Credit, CreditRequest, Echo, PathFeedback};
use farwrite_wire::packet::ip_udp_bytes;
use farwrite_wire::request::WriteImm;
use farwrite_wire::timing::Timing;
use slab::Slab;

use crate::error::Error;
use crate::intake::InletCounts;
use crate::options::{QpOptions, RateControl};
use asking::{PACKETS_A_REQUEST, Waits};
use crediting::{Crediting, Pulls};
pub(crate) use departures::Run;
pub(crate) use reports::NewestPacket;
use reports::Reports;
use sending::Sending;
pub(crate) use sending::{Named, Standing, TurnEnd};
pub use stats::{EcnField, PathLimit, PathStats};

/// Bytes of a data packet's UDP datagram other than the payload: BTH, RETH, immediate and ICRC.
pub const ROCE_OVERHEAD_BYTES: u32 = WriteImm::OVERHEAD_BYTES;

/// Bytes of a data packet on the wire other than the payload: [`ROCE_OVERHEAD_BYTES`], UDP and IP.
///
/// ```
/// // What fits into an Ethernet frame of 1500 bytes over IPv4.
/// assert_eq!(1500 - farwrite::packet_overhead_bytes(true), 1436);
/// ```
#[must_use]
pub const fn packet_overhead_bytes(is_ipv4: bool) -> u32 {
    ip_udp_bytes(is_ipv4) + ROCE_OVERHEAD_BYTES
}

/// Bytes of a control packet's UDP datagram other than its payload: BTH and ICRC.
const CONTROL_OVERHEAD_BYTES: u64 = 16;

/// Returns the number of a path among the flows of the pacer of credit.
fn flow_of(path: usize) -> u32 {
    u32::try_from(path).expect("at most as many paths as queue pairs")
}

/// A path joins this endpoint to one other instance, at the address of its control packets.
///
/// The peer claims its id (P6.1). The address is part of the name for this reason: a peer that
/// learns the id of another peer must not affect the round trip of that peer's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    peer: EndpointId,
    address: SocketAddr,
}

/// The way to a peer.
#[derive(Debug)]
pub(crate) struct PeerPath {
    name: Name,
    rtt: RttEstimator,
    /// When the last control packet left that the peer is likely to echo.
    probed_ns: u64,
    queue_pairs: usize,
    overhead_bytes: u64,
    timing: Timing,
    sending: Sending,
    reports: Reports,
    crediting: Crediting,
}

/// The round trip of a path, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// The smoothed round trip. Until the first measurement, the initial value of the first queue
    /// pair.
    pub(crate) smoothed_ns: u64,
    /// Whether a round trip was measured.
    pub(crate) is_measured: bool,
    /// When the last control packet left, on any queue pair, that the peer is likely to echo.
    pub(crate) probed_ns: u64,
}

impl RoundTrip {
    /// Returns the values assumed before the first measurement.
    pub(crate) fn guess(initial: Duration) -> Self {
        Self {
            smoothed_ns: RttEstimator::new(initial).smoothed_ns(),
            is_measured: false,
            probed_ns: 0,
        }
    }
}

impl PeerPath {
    /// Handles an echo of a timestamp of this end. An implausible echo changes nothing.
    pub(crate) fn handle_echo(&mut self, now_ns: u64, echo: &Echo) {
        let _ = self
            .rtt
            .handle_echo(now_ns, echo.timestamp_ns, echo.hold_ns);
    }

    /// Records a control packet that left and that the peer is likely to echo.
    pub(crate) fn note_probe(&mut self, left_ns: u64) {
        self.probed_ns = self.probed_ns.max(left_ns);
    }

    /// Returns the round trip of the path.
    pub(crate) fn round_trip(&self) -> RoundTrip {
        RoundTrip {
            smoothed_ns: self.rtt.smoothed_ns(),
            is_measured: self.is_measured(),
            probed_ns: self.probed_ns,
        }
    }

    fn is_measured(&self) -> bool {
        self.rtt.shortest_ns().is_some()
    }

    /// Returns the bytes of a data packet on the wire other than its payload.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.overhead_bytes
    }

    /// Returns how many bytes queue pair `index` may send now. The last packet may exceed this
    /// number.
    pub(crate) fn allowance(&mut self, now_ns: u64, index: u32) -> u64 {
        self.sending.allowance(now_ns, index)
    }

    /// Records packets that left.
    pub(crate) fn note_departure(&mut self, now_ns: u64, run: &Run) {
        self.sending.note_departure(now_ns, run);
    }

    /// Returns whether the controller needs to know how much is left to send.
    pub(crate) fn needs_backlog(&self) -> bool {
        self.sending.needs_backlog()
    }

    /// Ends the turn of queue pair `index`.
    pub(crate) fn end_turn(
        &mut self,
        now_ns: u64,
        index: u32,
        standing: &mut Standing,
        end: &TurnEnd,
    ) {
        let waits = self.waits();
        self.sending.end_turn(now_ns, index, standing, end, &waits);
    }

    /// Does the work that is due at `now_ns`. Returns the queue pair that may send now, if one
    /// waits.
    pub(crate) fn release(&mut self, now_ns: u64) -> Option<u32> {
        self.sending.release(now_ns)
    }

    /// Returns when the path has work next: queue pairs to release, or a control message to send.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let messages = self.messages().into_iter().flatten();
        let times = messages.map(|(_, due_ns)| due_ns);
        times.chain(self.sending.next_ns(now_ns)).min()
    }

    /// Returns the queue pairs whose control packets must carry a message of the path now.
    pub(crate) fn carriers(&self, now_ns: u64) -> impl Iterator<Item = u32> + use<> {
        let messages = self.messages().into_iter().flatten();
        messages.filter_map(move |(index, due_ns)| (due_ns <= now_ns).then_some(index))
    }

    /// Returns the queue pairs that carry the next messages of the path, and when these are due.
    fn messages(&self) -> [Option<(u32, u64)>; 3] {
        [
            self.reports.due(),
            self.sending.request_due(),
            self.crediting.due(),
        ]
    }

    /// Records what arrived through queue pair `index` since the last call for it.
    pub(crate) fn note_arrivals(
        &mut self,
        now_ns: u64,
        index: u32,
        gained: &InletCounts,
        newest: Option<NewestPacket>,
    ) {
        let period_ns = self.period_ns();
        self.reports.note(now_ns, index, gained, newest, period_ns);
    }

    /// Returns a report for a control packet of queue pair `index` that leaves now, if a report is
    /// due. If a packet leaves anyway, it also carries a report that is due soon.
    pub(crate) fn take_report(
        &mut self,
        now_ns: u64,
        index: u32,
        leaves_anyway: bool,
        counters: &Counters,
    ) -> Option<PathFeedback> {
        let period_ns = self.period_ns();
        self.reports
            .take(now_ns, index, period_ns, leaves_anyway, counters)
    }

    /// Returns a request for credit, and credit, for a control packet of queue pair `index` that
    /// leaves now, if they are due.
    pub(crate) fn take_credit(&mut self, now_ns: u64, index: u32) -> [Option<Control>; 2] {
        let waits = self.waits();
        let request = self.sending.take_request(now_ns, index, &waits);
        let credit = self.crediting.take(now_ns, index, &waits);
        [
            request.map(Control::CreditRequest),
            credit.map(Control::Credit),
        ]
    }

    /// Handles a request of the peer for credit, which arrived through queue pair `index`.
    /// [`PeerPaths::grant`] passes it to the pacer later. Returns false if this end grants no credit.
    pub(crate) fn handle_credit_request(
        &mut self,
        now_ns: u64,
        index: u32,
        request: &CreditRequest,
    ) -> bool {
        let RateControl::Eqds(options) = *self.sending.choice() else {
            return false;
        };
        let waits = self.waits();
        // What covers the way of a request and of its credit, the wait of both, and the packets
        // between two requests.
        let ahead_ns = self.rtt.smoothed_ns() + 4 * waits.period_ns;
        let bytes = u128::from(options.line_rate_bps) * u128::from(ahead_ns) / 8_000_000_000;
        let ahead_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let step_bytes = (PACKETS_A_REQUEST + 1) * self.sending.packet_bytes();
        let ahead_bytes = ahead_bytes.saturating_add(step_bytes);
        self.crediting
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
        if let RateControl::Eqds(_) = self.sending.choice() {
            let ip_udp_bytes = u64::from(ip_udp_bytes(self.name.address.is_ipv4()));
            let bytes = bytes as u64 + CONTROL_OVERHEAD_BYTES + ip_udp_bytes;
            self.crediting.note_control(bytes);
        }
    }

    fn waits(&self) -> Waits {
        let period_ns = self.period_ns();
        Waits {
            period_ns,
            answer_ns: self.rtt.smoothed_ns() + 2 * period_ns + self.timing.lateness_ns,
            longest_ns: self.timing.max_probe_ns,
        }
    }

    fn period_ns(&self) -> u64 {
        let rtt_ns = self.is_measured().then(|| self.rtt.smoothed_ns());
        self.reports.period_ns(rtt_ns)
    }

    /// Handles a report that arrived through the queue pair with serial number `serial`, or refuses
    /// it.
    pub(crate) fn handle_feedback(
        &mut self,
        now_ns: u64,
        serial: u32,
        named: Named,
        report: &PathFeedback,
    ) {
        self.sending.handle_feedback(now_ns, serial, named, report);
    }

    /// Counts a report that was refused because its counts contradict each other (P4.10).
    pub(crate) fn refuse_feedback(&mut self) {
        self.sending.refuse_feedback();
    }

    pub(crate) fn stats(&self) -> PathStats {
        let counts = self.reports.counts();
        let ecn_from_peer = EcnField::of(counts.data_packets, counts.ect_packets);
        self.sending.stats(self.rtt.smoothed_ns(), ecn_from_peer)
    }
}

/// All paths of an endpoint. A path lives as long as it has queue pairs.
#[derive(Debug, Default)]
pub(crate) struct PeerPaths {
    paths: Slab<PeerPath>,
    by_name: HashMap<Name, usize>,
    /// Grants credit to all paths under EQDS. `None` while there are none.
    pulls: Option<Pulls>,
    /// Number of paths opened so far.
    opened: u64,
}

impl PeerPaths {
    /// Checks whether a queue pair with this rate control can join the path to a peer.
    ///
    /// # Errors
    /// [`Error::RateControl`] if the path has a different rate control, [`Error::LineRate`] if other
    /// paths have another line rate.
    pub(crate) fn check(
        &self,
        peer: EndpointId,
        address: SocketAddr,
        wanted: &RateControl,
    ) -> Result<(), Error> {
        if let (Some(pulls), RateControl::Eqds(options)) = (&self.pulls, wanted)
            && pulls.line_rate_bps != options.line_rate_bps
        {
            return Err(Error::LineRate {
                present_bps: pulls.line_rate_bps,
                wanted_bps: options.line_rate_bps,
            });
        }
        let number = self.by_name.get(&Name { peer, address });
        let path = number.map(|&number| &self.paths[number]);
        match path.map(|path| path.sending.choice()) {
            Some(present) if !present.is_like(wanted) => Err(Error::RateControl {
                present: Box::new(*present),
                wanted: Box::new(*wanted),
            }),
            _ => Ok(()),
        }
    }

    /// Adds a queue pair to the path to a peer. [`PeerPaths::check`] must allow this. If the queue
    /// pair is the first, its `options` become those of the path. Returns the number of the path.
    pub(crate) fn join(
        &mut self,
        peer: EndpointId,
        address: SocketAddr,
        options: &QpOptions,
        counters: &Counters,
    ) -> usize {
        let name = Name { peer, address };
        let (paths, opened) = (&mut self.paths, &mut self.opened);
        let pulls = &mut self.pulls;
        let number = *self.by_name.entry(name).or_insert_with(|| {
            *opened += 1;
            let path = PeerPath::new(name, *opened, options, counters);
            if let RateControl::Eqds(options) = &options.rate_control {
                let packet_bytes = path.sending.packet_bytes();
                let pulls = pulls.get_or_insert_with(|| Pulls::new(options, packet_bytes));
                pulls.paths += 1;
            }
            paths.insert(path)
        });
        self.paths[number].queue_pairs += 1;
        number
    }

    /// Removes queue pair `index` from a path that it has joined. Returns whether the path was
    /// removed.
    pub(crate) fn leave(&mut self, number: usize, index: u32, standing: Standing) -> bool {
        let path = &mut self.paths[number];
        path.queue_pairs -= 1;
        if path.queue_pairs == 0 {
            let path = self.paths.remove(number);
            self.by_name.remove(&path.name);
            self.forget_flow(number, path.sending.choice());
            return true;
        }
        path.sending.leave(index, standing);
        path.reports.leave(index);
        path.crediting.leave(index);
        false
    }

    fn forget_flow(&mut self, number: usize, choice: &RateControl) {
        if let (Some(pulls), RateControl::Eqds(_)) = (&mut self.pulls, choice) {
            pulls.forget(flow_of(number));
            if pulls.paths == 0 {
                self.pulls = None;
            }
        }
    }

    /// Grants the credit that is due at `now_ns`, if path `number` has a credit to send.
    pub(crate) fn grant(&mut self, now_ns: u64, number: usize) {
        let Some(pulls) = &mut self.pulls else {
            return;
        };
        let Some(path) = self.paths.get_mut(number) else {
            return;
        };
        let waits = path.waits();
        pulls.charge(now_ns, path.crediting.take_control());
        if let Some(bytes) = path.crediting.take_ask() {
            let late_ns = waits.period_ns + controller::jitter_ns(&path.timing);
            pulls.ask(now_ns, flow_of(number), bytes, late_ns);
        }
        if !path.crediting.is_due(now_ns) {
            return;
        }
        while let Some((flow, bytes)) = pulls.poll(now_ns) {
            if let Some(path) = self.paths.get_mut(flow as usize) {
                path.crediting.grant(bytes);
            }
        }
        self.paths[number].crediting.put_off(now_ns, &waits);
    }

    /// Returns a path that has queue pairs.
    pub(crate) fn get(&self, number: usize) -> &PeerPath {
        &self.paths[number]
    }

    /// Returns a path that has queue pairs.
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut PeerPath {
        &mut self.paths[number]
    }

    /// Returns a path if it still has queue pairs.
    pub(crate) fn live(&mut self, number: usize) -> Option<&mut PeerPath> {
        self.paths.get_mut(number)
    }
}

impl PeerPath {
    fn new(name: Name, opened: u64, options: &QpOptions, counters: &Counters) -> Self {
        let overhead_bytes = u64::from(packet_overhead_bytes(name.address.is_ipv4()));
        let packet_bytes = u64::from(options.sdr.mtu) + overhead_bytes;
        Self {
            name,
            rtt: RttEstimator::new(options.initial_rtt),
            probed_ns: 0,
            queue_pairs: 0,
            overhead_bytes,
            timing: options.timing,
            sending: Sending::new(
                opened,
                options.rate_control,
                options.burst_bytes,
                packet_bytes,
                options.timing,
            ),
            reports: Reports::new(opened, overhead_bytes, &options.timing, counters),
            crediting: Crediting::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Echo = Echo {
        timestamp_ns: 1_000,
        hold_ns: 500,
    };

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn join(paths: &mut PeerPaths, id: u8, port: u16) -> usize {
        let options = QpOptions::default();
        let peer = EndpointId([id; 16]);
        paths.join(peer, address(port), &options, &Counters::default())
    }

    #[test]
    fn queue_pairs_to_one_peer_share_a_round_trip() {
        let mut paths = PeerPaths::default();
        let first = join(&mut paths, 1, 1);
        paths.get_mut(first).handle_echo(4_500, &ECHO);
        paths.get_mut(first).note_probe(4_000);
        paths.get_mut(first).note_probe(3_000);
        let second = join(&mut paths, 1, 1);
        let round_trip = paths.get_mut(second).round_trip();
        assert_eq!(round_trip.smoothed_ns, 3_000);
        assert!(round_trip.is_measured);
        assert_eq!(round_trip.probed_ns, 4_000);
    }

    #[test]
    fn another_address_or_instance_is_another_path() {
        let mut paths = PeerPaths::default();
        let names = [(1, 1), (1, 2), (2, 1)];
        let found: Vec<_> = names
            .iter()
            .map(|&(id, port)| join(&mut paths, id, port))
            .collect();
        assert!(found[0] != found[1] && found[0] != found[2] && found[1] != found[2]);
    }

    #[test]
    fn a_path_is_forgotten_with_its_last_queue_pair() {
        let mut paths = PeerPaths::default();
        let path = join(&mut paths, 1, 1);
        assert_eq!(join(&mut paths, 1, 1), path);
        paths.get_mut(path).handle_echo(4_500, &ECHO);
        paths.leave(path, 0, Standing::default());
        assert!(paths.get_mut(path).round_trip().is_measured);
        paths.leave(path, 0, Standing::default());
        let path = join(&mut paths, 1, 1);
        assert!(!paths.get_mut(path).round_trip().is_measured);
    }
}
