//! One queue pair of an endpoint: SDR, schemes, control path and pacing, joined over a fabric.

mod closing;
mod coding;
mod controlling;
mod deadlines;
mod expecting;
mod holdings;
mod outgoing;
mod parity;
mod receiving;
mod resting;
mod sending;
mod transmit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey, QpPath};
use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::scheme::{Path, SenderCounters};
use farwrite_sdr::{EndpointId, Geometry, QpInfo, SdrError, SdrQp};

use farwrite_wire::control::{Outcome, SchemeTag};

use crate::control::ControlPath;
use crate::error::Error;
use crate::events::Events;
use crate::handle::QueuePair;
use crate::intake::{Inlet, InletCounts};
use crate::losses::Losses;
use crate::memory::MrSlice;
use crate::options::QpOptions;
use crate::path::{self, PeerPath, PeerPaths, RoundTrip};
use crate::registry::{Halves, Registry, TableArrivals};
use closing::Closing;
pub(crate) use coding::Coder;
use deadlines::Deadlines;
use holdings::Holdings;
use outgoing::Outgoing;
use parity::Workshop;
use receiving::Recv;
use resting::Rest;
use sending::{Send, StreamRun};
pub(crate) use transmit::{Halt, Turn};

pub(crate) struct Pair {
    name: QueuePair,
    options: QpOptions,
    sdr: SdrQp,
    inlet: Arc<Inlet>,
    holdings: Holdings,
    control: ControlPath,
    /// Of the path to the peer, at the last poll.
    round_trip: RoundTrip,
    /// Where it stands among the queue pairs of its path.
    place: path::Place,
    /// Wire bytes that are left of its turn to send; negative: more than a turn was sent.
    turn_bytes: i64,
    halves: Halves,
    sends: BTreeMap<u64, Send>,
    /// Sends that are over, but of which the fabric still holds packets.
    leaving: BTreeMap<u64, (Send, Outcome)>,
    /// Bounded schemes of which a send was over before it was cleared, so that newer ones may start.
    unblocked: Vec<SchemeTag>,
    streams: VecDeque<StreamRun>,
    recvs: BTreeMap<u64, Recv>,
    /// Receives whose offer is foreseen, and of which nothing has come.
    foreseen: BTreeSet<u64>,
    /// Of open receives.
    recv_deadlines: Deadlines,
    /// Of open sends.
    send_deadlines: Deadlines,
    /// Messages of which packets have arrived; kept for its capacity.
    arrived: Vec<u64>,
    outgoing: Outgoing,
    /// Receives that are over, but of which a worker may still write the memory.
    closing: Vec<Closing>,
    workshop: Workshop,
    /// The scheme with the most parity that the peer is expected to use: receives get memory for
    /// that.
    expected: SchemeTag,
    losses: Losses,
    /// When the peer is to learn of losses.
    loss_due_ns: Option<u64>,
    /// The losses that it was sent last.
    reported_loss: ChunkLoss,
    /// What the path knows to have arrived.
    noted: InletCounts,
    connected: Option<Connected>,
    rest: Rest,
    tally: Tally,
    events: Events,
}

/// What is known once the peer is.
struct Connected {
    /// The endpoint that the peer is of.
    endpoint: EndpointId,
    /// Number of the path to it.
    path: usize,
}

/// The part of [`QpStats`] that nothing else counts.
#[derive(Default)]
struct Tally {
    rebuilt_chunks: u64,
    refused_controls: u64,
    send_loss: ChunkLoss,
}

/// What a queue pair has done and sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpStats {
    /// Smoothed round-trip time of the path in nanoseconds; the configured guess until one was
    /// measured.
    pub rtt_ns: u64,
    /// Chunks sent and sent again, by all schemes together.
    pub sender: SenderCounters,
    /// Packets that arrived, duplicates included.
    pub received_packets: u64,
    /// Their payload bytes.
    pub received_bytes: u64,
    /// Packets that carried nothing new.
    pub duplicate_packets: u64,
    /// Chunks that were lost and computed from others.
    pub rebuilt_chunks: u64,
    /// Packets of messages that were over; none was applied.
    pub late_packets: u64,
    /// Packets whose immediate made no sense.
    pub invalid_packets: u64,
    /// Control packets refused: from an address that is not the peer's, bad tag, replayed, or
    /// malformed.
    pub refused_controls: u64,
    /// What the path lost on the way to here, of messages with a scheme (P5.7).
    pub receive_loss: ChunkLoss,
    /// What it lost on the way to the peer, as the peer last reported.
    pub send_loss: ChunkLoss,
}

impl QpStats {
    /// The sums over this queue pair and `later`, which took its place; the round trip is that of
    /// `later`.
    #[must_use]
    pub fn and(&self, later: &Self) -> Self {
        Self {
            rtt_ns: later.rtt_ns,
            sender: SenderCounters {
                sent_chunks: self.sender.sent_chunks + later.sender.sent_chunks,
                retransmitted_chunks: self.sender.retransmitted_chunks
                    + later.sender.retransmitted_chunks,
                timeouts: self.sender.timeouts + later.sender.timeouts,
            },
            received_packets: self.received_packets + later.received_packets,
            received_bytes: self.received_bytes + later.received_bytes,
            duplicate_packets: self.duplicate_packets + later.duplicate_packets,
            rebuilt_chunks: self.rebuilt_chunks + later.rebuilt_chunks,
            late_packets: self.late_packets + later.late_packets,
            invalid_packets: self.invalid_packets + later.invalid_packets,
            refused_controls: self.refused_controls + later.refused_controls,
            receive_loss: self.receive_loss.and(&later.receive_loss),
            send_loss: self.send_loss.and(&later.send_loss),
        }
    }
}

impl Pair {
    pub(crate) fn create<F: Fabric>(
        fabric: &mut Adapter<F>,
        name: QueuePair,
        options: QpOptions,
        control_key: [u8; 32],
    ) -> Result<Self, Error> {
        let sdr = SdrQp::new(options.sdr, options.timing)?;
        let holdings = Holdings::take(fabric, name, sdr.geometry())?;
        Ok(Self {
            name,
            inlet: Arc::new(Inlet::new(name.serial, Arc::clone(sdr.table()))),
            control: ControlPath::new(control_key),
            round_trip: RoundTrip::guess(options.initial_rtt),
            place: path::Place::default(),
            turn_bytes: 0,
            expected: options.expected_scheme,
            options,
            sdr,
            holdings,
            halves: Halves::default(),
            sends: BTreeMap::new(),
            leaving: BTreeMap::new(),
            unblocked: Vec::new(),
            streams: VecDeque::new(),
            recvs: BTreeMap::new(),
            foreseen: BTreeSet::new(),
            recv_deadlines: Deadlines::default(),
            send_deadlines: Deadlines::default(),
            arrived: Vec::new(),
            outgoing: Outgoing::default(),
            closing: Vec::new(),
            workshop: Workshop::default(),
            losses: Losses::default(),
            loss_due_ns: None,
            reported_loss: ChunkLoss::default(),
            noted: InletCounts::default(),
            connected: None,
            rest: Rest::default(),
            tally: Tally::default(),
            events: Events::new(name.index),
        })
    }

    /// What the peer must be told, out of band and confidentially.
    pub(crate) fn info<F: Fabric>(&self, fabric: &Adapter<F>, endpoint: EndpointId) -> QpInfo {
        let config = *self.geometry().config();
        QpInfo {
            control: fabric.local_addr(0),
            channels: (0..u16::from(config.channels))
                .map(|port| fabric.local_addr(port))
                .collect(),
            control_qpn: self.holdings.control_qpn().0,
            data_qpns: self
                .holdings
                .data_qpns()
                .chunks(usize::from(config.channels))
                .map(|channels| channels.iter().map(|qpn| qpn.0).collect())
                .collect(),
            config,
            control_key: self.control.recv_key(),
            timing: self.options.timing,
            endpoint,
        }
    }

    pub(crate) fn connect<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        paths: &mut PeerPaths,
        peer: &QpInfo,
    ) -> Result<(), Error> {
        // The fabric may refuse an address: until it has taken all of them, nothing changes here.
        self.sdr.check_peer(peer)?;
        paths.check(peer.endpoint, peer.control, &self.options.rate_control)?;
        self.holdings.connect(fabric, peer)?;
        self.sdr.connect(peer)?;
        self.control.connect(peer.control_key);
        let counters = fabric.counters();
        self.connected = Some(Connected {
            endpoint: peer.endpoint,
            path: paths.join(peer.endpoint, peer.control, &self.options, &counters),
        });
        Ok(())
    }

    /// Puts a connected queue pair on other paths, one a channel.
    pub(crate) fn set_paths<F: Fabric>(
        &self,
        fabric: &mut Adapter<F>,
        paths: &[QpPath],
    ) -> Result<(), Error> {
        let channels = usize::from(self.options.sdr.channels);
        if paths.len() != channels {
            return Err(FabricError::BadAttribute {
                name: "paths",
                value: paths.len().to_string(),
                want: format!("{channels}, one for each channel"),
            }
            .into());
        }
        Ok(self.holdings.set_paths(fabric, paths)?)
    }

    /// Gives everything back to the fabric that [`Pair::create`] took, then ends all messages: an
    /// outcome says that no packet changes their memory any more.
    pub(crate) fn destroy<F: Fabric>(mut self, fabric: &mut Adapter<F>) -> Result<(), FabricError> {
        let result = self.holdings.give_back(fabric);
        let recvs = std::mem::take(&mut self.recvs).into_iter();
        let recvs = recvs.map(|(message, recv)| Closing::new(message, recv, Outcome::Failed));
        self.closing.extend(recvs);
        self.wait_closed(fabric, None);
        let result = result.and(self.give_parity_back(fabric));
        self.sends
            .values()
            .for_each(|send| send.finish(Outcome::Failed));
        self.leaving
            .values()
            .for_each(|(send, outcome)| send.finish(*outcome));
        result
    }

    /// The endpoint that the peer is of, once it is connected.
    pub(crate) fn peer_endpoint(&self) -> Option<EndpointId> {
        Some(self.connected.as_ref()?.endpoint)
    }

    /// The path to the peer, once it is connected.
    pub(crate) fn peer_path(&self) -> Option<usize> {
        Some(self.connected.as_ref()?.path)
    }

    /// Where it stands among the queue pairs of that path.
    pub(crate) fn place(&self) -> path::Place {
        self.place
    }

    pub(crate) fn name(&self) -> QueuePair {
        self.name
    }

    pub(crate) fn inlet(&self) -> &Arc<Inlet> {
        &self.inlet
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.sdr.geometry()
    }

    pub(crate) fn stats(&self) -> QpStats {
        let counts = self.inlet.counts();
        QpStats {
            rtt_ns: self.round_trip.smoothed_ns,
            sender: self.halves.sender_counters(),
            received_packets: counts.data_packets,
            received_bytes: counts.data_bytes,
            duplicate_packets: counts.duplicate_packets,
            late_packets: counts.late_packets,
            invalid_packets: counts.invalid_packets,
            rebuilt_chunks: self.tally.rebuilt_chunks,
            refused_controls: self.tally.refused_controls + counts.unvalidated_controls,
            receive_loss: self.losses.sum(),
            send_loss: self.tally.send_loss,
        }
    }

    fn path(&self, now_ns: u64) -> Path {
        let rtt_ns = self.round_trip.smoothed_ns;
        let reordering_window_ns = match self.options.reordering_window {
            Some(window) => u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            None => rtt_ns / 8,
        };
        Path {
            now_ns,
            rtt_ns,
            reordering_window_ns,
            timing: self.options.timing,
        }
    }

    /// Does all there is to do at `now_ns` but send data and encode. `path` is the one to the peer,
    /// once it is connected.
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        path: Option<&mut PeerPath>,
        known: &Registry,
        coder: &mut Coder,
        now_ns: u64,
    ) -> Result<(), Error> {
        self.events.set_now(now_ns);
        self.settle_closing(fabric);
        let Some(path) = path else {
            self.expire_receives(fabric, now_ns)?;
            return Ok(());
        };
        self.round_trip = path.round_trip();
        self.look_at_arrivals(fabric, known, now_ns)?;
        self.note_arrivals(path, now_ns);
        self.handle_sdr_events(fabric, known, now_ns)?;
        self.handle_timeouts(now_ns);
        // Before the reports: what can be rebuilt is not asked for.
        self.rebuild(fabric, coder, now_ns)?;
        // First what is over: nothing more of it may leave.
        self.settle_sends();
        self.expire_sends(now_ns);
        self.start_unblocked(now_ns);
        // Control before data: an offer must be ahead of its message.
        self.send_control(fabric, path, now_ns)?;
        Ok(self.rest(fabric, now_ns)?)
    }

    /// Whether a message is sent from the region or received into it, or packets that the fabric
    /// has taken are sent from it.
    pub(crate) fn uses(&self, lkey: Lkey) -> bool {
        self.sends_from(lkey) || self.receives_into(lkey)
    }

    fn check_slice(&self, slice: &MrSlice) -> Result<(), Error> {
        if !slice.is_within_region() {
            let (offset, length) = (slice.offset, slice.length);
            return Err(Error::OutOfBounds {
                offset,
                length,
                region: slice.region.length,
            });
        }
        self.check_length(slice.length)
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
            SdrError::Retry(_) => Error::Retry {
                slots: self.geometry().slots(),
            },
            other => Error::Sdr(other),
        }
    }

    fn handle_timeouts(&mut self, now_ns: u64) {
        let path = self.path(now_ns);
        self.halves.handle_timeouts(&path, self.sdr.received());
        self.losses
            .handle_timeouts(&path, &TableArrivals(self.sdr.received()));
    }

    /// How long to wait for what no timer knows: a fabric that is full has room again, it has sent
    /// what it took, or a worker has left its batch.
    pub(crate) fn fabric_retry_ns(&self) -> u64 {
        self.options.timing.fabric_retry_ns
    }

    /// When to poll next, if the queue pair sends nothing now.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let is_connected = self.connected.is_some();
        let waits_for_fabric = !self.closing.is_empty()
            || is_connected && self.control.is_waiting()
            || is_connected && self.outgoing.is_departing();
        let retry_ns = waits_for_fabric.then(|| now_ns.saturating_add(self.fabric_retry_ns()));
        let always = [retry_ns, self.recv_deadlines.next_ns()];
        let connected = [
            self.halves.next_timeout(),
            self.losses.next_timeout(),
            self.sdr.next_timeout(),
            self.loss_due_ns,
            self.ping_due_ns(),
            self.send_deadlines.next_ns(),
            self.rest.next_ns(),
        ];
        let connected = connected.into_iter().filter(|_| is_connected);
        always.into_iter().chain(connected).flatten().min()
    }
}
