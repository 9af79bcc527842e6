//! One queue pair of an endpoint: it joins SDR, schemes, control and pacing over a fabric.

mod coding;
mod control;
mod deadlines;
mod fabric_resources;
mod held_control;
mod parity;
mod reads;
mod recv;
mod sealing;
mod send;
mod spare_memory;
mod stats;

use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey, QpRoute};
use farwrite_schemes::lateness::Lateness;
use farwrite_schemes::scheme::PeerView;
use farwrite_sdr::{Awaited, EndpointId, Event, Geometry, QpInfo, SdrError, SdrQp};
use farwrite_wire::sealing::Cipher;

use crate::coding::Coding;
use crate::completions::PairReceive;
use crate::error::Error;
use crate::events::Events;
use crate::handle::QueuePair;
use crate::memory::MrSlice;
use crate::options::{QpOptions, RateControl, Sealing};
use crate::peer::{self, PeerState, PeerTable, RoundTrip};
use crate::registry::{Registry, SchemeHalves, TableArrivals};
use control::ControlState;
use fabric_resources::FabricResources;
use parity::ParityMemory;
use reads::Reads;
use recv::RecvState;
use send::SendState;
pub(crate) use send::{Halt, Turn};
use spare_memory::SpareMemory;
pub use stats::QpStats;

/// A queue pair. It has a sending side, a receiving side and a control side over one SDR core.
pub(crate) struct Pair {
    pub(crate) name: QueuePair,
    options: QpOptions,
    sdr: SdrQp,
    pub(crate) receive: Arc<PairReceive>,
    resources: FabricResources,
    halves: SchemeHalves,
    send: SendState,
    recv: RecvState,
    reads: Reads,
    control: ControlState,
    /// The round trip to the peer, as of the last poll.
    round_trip: RoundTrip,
    /// How late packets come that others have overtaken on the way here, as of the last poll.
    lateness: Lateness,
    polled_ns: u64,
    parity_memory: ParityMemory,
    connected: Option<Connected>,
    spare_memory: SpareMemory,
    /// Number of chunks that were lost and then computed from others.
    rebuilt_chunks: u64,
    events: Events,
}

/// What is known once the peer is known.
struct Connected {
    /// The endpoint that the peer belongs to.
    endpoint: EndpointId,
    /// Number of the peer in the endpoint's table.
    peer: usize,
    /// Whether the peer's version answers reads.
    answers_reads: bool,
    /// Whether the peer's version reads the count of stale packets in reports (P4.10).
    reads_stale: bool,
    /// The cipher of data packets; `None` if they are not sealed.
    cipher: Option<Cipher>,
}

impl Pair {
    pub(crate) fn create<F: Fabric>(
        fabric: &mut Adapter<F>,
        name: QueuePair,
        options: QpOptions,
        control_key: [u8; 32],
        reports_events: bool,
    ) -> Result<Self, Error> {
        let sdr = SdrQp::new(options.sdr, options.timing)?;
        let resources = FabricResources::take(fabric, name, sdr.geometry())?;
        Ok(Self {
            name,
            receive: Arc::new(PairReceive::new(name.serial, Arc::clone(sdr.table()))),
            control: ControlState::new(control_key),
            round_trip: RoundTrip::guess(options.initial_rtt),
            lateness: Lateness::default(),
            polled_ns: 0,
            send: SendState::default(),
            recv: RecvState::new(options.expected_scheme),
            reads: Reads::default(),
            options,
            sdr,
            resources,
            halves: SchemeHalves::default(),
            parity_memory: ParityMemory::default(),
            connected: None,
            spare_memory: SpareMemory::default(),
            rebuilt_chunks: 0,
            events: Events::new(name.index, reports_events),
        })
    }

    /// Returns what the peer needs to connect. This information travels out of band and
    /// confidentially.
    pub(crate) fn info<F: Fabric>(&self, fabric: &Adapter<F>, endpoint: EndpointId) -> QpInfo {
        let config = *self.geometry().config();
        QpInfo {
            control: fabric.local_addr(0),
            channels: (0..u16::from(config.channels))
                .map(|port| fabric.local_addr(port))
                .collect(),
            control_qpn: self.resources.control_qpn().0,
            data_qpns: self
                .resources
                .data_qpns()
                .chunks(usize::from(config.channels))
                .map(|channels| channels.iter().map(|qpn| qpn.0).collect())
                .collect(),
            config,
            control_key: self.control.packets.recv_key,
            timing: self.options.timing,
            endpoint,
            grants_credit: self.has_credit(),
            answers_reads: true,
            reads_stale: true,
            seals: self.seals(fabric),
            requires_sealing: self.options.sealing == Sealing::Required,
            has_aes: sealing::has_aes(fabric),
            omits_icrc: self.seals(fabric) && self.options.omit_icrc,
        }
    }

    /// Returns whether this end sends by credit. Then it also grants credit.
    fn has_credit(&self) -> bool {
        matches!(self.options.rate_control, RateControl::Eqds(_))
    }

    pub(crate) fn connect<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        peers: &mut PeerTable,
        peer: &QpInfo,
    ) -> Result<(), Error> {
        // The fabric may refuse an address. Until it has accepted all of them, nothing changes
        // here.
        self.sdr.check_peer(peer)?;
        if self.has_credit() && !peer.grants_credit {
            return Err(Error::NoCredit);
        }
        let sealing = self.agree_on_sealing(fabric, peer)?;
        let choice = &self.options.rate_control;
        peers.check(peer.endpoint, peer.control, choice, sealing.is_some())?;
        self.resources.connect(fabric, peer, sealing)?;
        self.sdr.connect(peer)?;
        self.control.packets.connect(peer.control_key);
        let counters = fabric.counters();
        self.connected = Some(Connected {
            endpoint: peer.endpoint,
            peer: peers.join(
                peer.endpoint,
                peer.control,
                &self.options,
                sealing.is_some(),
                &counters,
            ),
            cipher: sealing.map(|sealing| sealing.cipher),
            answers_reads: peer.answers_reads,
            reads_stale: peer.reads_stale,
        });
        Ok(())
    }

    /// Moves a connected queue pair to other routes, one for each channel.
    pub(crate) fn set_routes<F: Fabric>(
        &self,
        fabric: &mut Adapter<F>,
        routes: &[QpRoute],
    ) -> Result<(), Error> {
        let channels = usize::from(self.options.sdr.channels);
        if routes.len() != channels {
            return Err(FabricError::BadAttribute {
                name: "routes",
                value: routes.len().to_string(),
                want: format!("{channels}, one for each channel"),
            }
            .into());
        }
        Ok(self.resources.set_routes(fabric, routes)?)
    }

    /// Returns everything that [`Pair::create`] took to the fabric, then ends all messages. In this
    /// order, a message with an outcome has memory that no packet changes any more.
    pub(crate) fn destroy<F: Fabric>(mut self, fabric: &mut Adapter<F>) -> Result<(), FabricError> {
        let result = self.resources.give_back(fabric);
        self.recv.fail_all();
        self.wait_closed(fabric, None);
        let result = result.and(self.give_parity_back(fabric));
        self.send.end_all();
        result
    }

    /// Returns the endpoint that the peer belongs to, once the queue pair is connected.
    pub(crate) fn peer_endpoint(&self) -> Option<EndpointId> {
        Some(self.connected.as_ref()?.endpoint)
    }

    /// Returns the number of the peer, once the queue pair is connected.
    pub(crate) fn peer_number(&self) -> Option<usize> {
        Some(self.connected.as_ref()?.peer)
    }

    /// Returns the cipher of data packets, once the queue pair is connected to a peer that seals.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        self.connected.as_ref()?.cipher
    }

    pub(crate) fn place_in_queue(&self) -> peer::PlaceInQueue {
        self.send.place_in_queue
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.sdr.geometry()
    }

    pub(crate) fn stats(&self) -> QpStats {
        let counts = self.receive.counts();
        QpStats {
            rtt_ns: self.round_trip.smoothed_ns,
            reordering_window_ns: self.receiver_view(self.polled_ns).reordering_window_ns,
            sender: self.halves.sender_counters(),
            received_packets: counts.data_packets,
            received_bytes: counts.data_bytes,
            new_bytes: counts.new_bytes,
            duplicate_packets: counts.duplicate_packets,
            late_packets: counts.late_packets,
            invalid_packets: counts.invalid_packets,
            rebuilt_chunks: self.rebuilt_chunks,
            refused_controls: self.control.refused + counts.unvalidated_controls,
            receive_loss: self.recv.losses.sum(),
            send_loss: self.control.peer_loss,
        }
    }

    /// Returns how many packets have left to the peer or through this queue pair, and how many
    /// have arrived here from the peer.
    pub(crate) fn traffic(&self, peer: &PeerState) -> [u64; 2] {
        let sent = peer.sending.sent_packets() + self.control.packets.sent_packets();
        [sent, self.receive.counts().accepted_packets]
    }

    /// What sending halves see of the peer and the time. They do not know how late packets come at the
    /// peer.
    fn sender_view(&self, now_ns: u64) -> PeerView {
        self.peer_view(now_ns, &Lateness::default())
    }

    /// What receiving halves see of the peer and the time.
    fn receiver_view(&self, now_ns: u64) -> PeerView {
        self.peer_view(now_ns, &self.lateness)
    }

    fn peer_view(&self, now_ns: u64, lateness: &Lateness) -> PeerView {
        let rtt_ns = self.round_trip.smoothed_ns;
        let reordering_window_ns = match self.options.reordering_window {
            Some(window) => u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            None => lateness.window_ns(now_ns, rtt_ns),
        };
        PeerView {
            now_ns,
            rtt_ns,
            reordering_window_ns,
            timing: self.options.timing,
        }
    }

    /// Does all work that is due at `now_ns`, except sending data and encoding. `peer` is the state
    /// of the peer, once the queue pair is connected.
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        peer: Option<&mut PeerState>,
        known: &Registry,
        coding: &mut Coding,
        now_ns: u64,
    ) -> Result<(), Error> {
        self.events.set_now(now_ns);
        self.polled_ns = now_ns;
        self.date_messages(now_ns);
        self.settle_closing(fabric);
        let Some(peer) = peer else {
            self.expire_receives(fabric, now_ns)?;
            return Ok(());
        };
        self.round_trip = peer.round_trip();
        self.look_at_arrivals(fabric, known, now_ns)?;
        self.note_arrivals(peer, now_ns);
        self.lateness = peer.lateness;
        self.handle_sdr_events(fabric, known, now_ns)?;
        self.handle_timeouts(now_ns);
        // Rebuild before reporting, so that no report requests a chunk that can be rebuilt.
        self.rebuild(fabric, known, coding, now_ns)?;
        // Settle ended messages first, so that nothing more of them leaves.
        self.settle_sends();
        self.expire_sends(now_ns);
        self.expire_unanswered_sends(now_ns);
        self.expire_writes(now_ns);
        while self.answer_reads(known)? {
            // An answer may be cleared already, or be too late.
            self.handle_sdr_events(fabric, known, now_ns)?;
            self.expire_sends(now_ns);
        }
        self.start_unblocked(now_ns);
        // Control before data: an offer must leave before its message.
        self.send_control(fabric, peer, now_ns)?;
        Ok(self.return_spare_memory(fabric, now_ns)?)
    }

    /// Returns whether the region is in use: by a message that is sent from it or received into it,
    /// by packets that the fabric has taken, or because a part of it is exposed.
    pub(crate) fn uses(&self, lkey: Lkey) -> bool {
        self.send.sends_from(lkey) || self.receives_into(lkey) || self.reads.exposes(lkey)
    }

    fn handle_sdr_events<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
    ) -> Result<(), Error> {
        while let Some(event) = self.sdr.poll_event() {
            match event {
                Event::ClearToSend { message } => self.clear_to_send(fabric, now_ns, message)?,
                Event::SendRefused { message, refusal } => self.handle_refused(message, refusal),
                Event::Closed { message, outcome } => self.handle_closed(now_ns, message, outcome),
                Event::Offered(offer) => self.handle_offered(fabric, known, now_ns, &offer)?,
                Event::LengthKnown { message, length } => self.handle_length(message, length),
                Event::Refused { message, refusal } => {
                    self.refuse_offer(fabric, message, refusal)?;
                }
                Event::Withdrawn {
                    message,
                    withdrawal,
                } => self.handle_withdrawn(fabric, now_ns, message, withdrawal)?,
            }
        }
        Ok(())
    }

    fn check_slice(&self, slice: &MrSlice) -> Result<(), Error> {
        Self::check_bounds(slice)?;
        self.check_length(slice.length)
    }

    fn check_bounds(slice: &MrSlice) -> Result<(), Error> {
        if !slice.is_within_region() {
            let (offset, length) = (slice.offset, slice.length);
            return Err(Error::OutOfBounds {
                offset,
                length,
                region: slice.region.length,
            });
        }
        Ok(())
    }

    fn check_length(&self, length: u64) -> Result<(), Error> {
        let limit = self.geometry().config().max_message_bytes;
        if length > limit {
            Err(Error::TooLong { length, limit })
        } else {
            Ok(())
        }
    }

    fn sdr_error(&self, error: SdrError) -> Error {
        match error {
            SdrError::Retry(awaited) => self.retry(awaited),
            other => Error::Sdr(other),
        }
    }

    /// The error of a call that waits for a free slot.
    fn retry(&self, awaited: Awaited) -> Error {
        Error::Retry {
            slots: self.geometry().slots(),
            awaited,
        }
    }

    fn handle_timeouts(&mut self, now_ns: u64) {
        let (sending, receiving) = (self.sender_view(now_ns), self.receiver_view(now_ns));
        self.halves
            .handle_timeouts(&sending, &receiving, self.sdr.received());
        self.recv
            .losses
            .handle_timeouts(&receiving, &TableArrivals(self.sdr.received()));
    }

    /// Returns how long to wait for events that have no timer: a full fabric has room again, the
    /// fabric has sent the packets it took, or a worker has left its batch.
    pub(crate) fn fabric_retry_ns(&self) -> u64 {
        self.options.timing.fabric_retry_ns
    }

    /// Returns when to poll next, if the queue pair sends nothing now.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let is_connected = self.connected.is_some();
        let waits_for_fabric = !self.recv.closing.is_empty()
            || is_connected && self.control.packets.is_waiting()
            || is_connected && self.send.is_departing();
        let retry_ns = waits_for_fabric.then(|| now_ns.saturating_add(self.fabric_retry_ns()));
        let always = [retry_ns, self.recv.deadlines.next_ns()];
        let connected = [
            self.halves.next_timeout(),
            self.recv.losses.next_timeout(),
            self.sdr.next_timeout(),
            self.control.loss_due_ns,
            self.control.held.until_ns,
            self.ping_due_ns(),
            self.send.next_deadline_ns(),
            self.spare_memory.next_ns(),
        ];
        let connected = connected.into_iter().filter(|_| is_connected);
        always.into_iter().chain(connected).flatten().min()
    }
}
