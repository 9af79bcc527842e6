//! The software NIC over UDP sockets.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farwrite_wire::icrc::Flow;
use rustix::event::{PollFd, PollFlags};

use super::UdpConfig;
use super::config::Granted;
use super::datagram::OutgoingBatch;
use super::error::SocketError;
use super::held_datagrams::HeldDatagrams;
use super::owners_packets::{OwnersPackets, SharedOwnersPackets};
use super::peers::Peers;
use super::reserved_port::ReservedPort;
use super::routing_table::{self, source_for};
use super::runs::Runs;
use super::rx::UdpRx;
use super::sender::UdpSender;
use super::socket::SharedSocket;
use super::wake_event::WakeEvent;
use crate::contract::FabricError;
use crate::nic::{Burst, Carrier, CarrierTx, Ends, Packet, Seal};

/// Largest payload of a packet: the 65,507 bytes of the largest UDP datagram over IPv4 minus 32 of
/// headers and 4 of ICRC, rounded down to a multiple of 4. The path may carry less.
const MAX_MTU: u32 = (65_507 - 32 - 4) / 4 * 4;
/// Number of batches (or packets, if batches do not work) that are sealed before each send call.
/// Large enough to amortize the system call, and small enough (256 KiB) that the payload is still
/// in the cache when the kernel copies it.
const BATCHES_AHEAD: usize = 4;
const SINGLES_AHEAD: usize = 64;

/// Moves packets through UDP sockets.
#[derive(Debug)]
pub struct UdpCarrier {
    ports: Vec<UdpPort>,
    wake_event: Arc<WakeEvent>,
    owners_packets: SharedOwnersPackets,
}

#[derive(Debug)]
struct UdpPort {
    socket: Arc<SharedSocket>,
    peers: Arc<Peers>,
    /// Wakes the worker of the port.
    worker: Arc<WakeEvent>,
    /// The sending half, until it is handed out.
    sender: Option<UdpSender>,
    receiver: Option<UdpRx>,
}

/// The sending half of a port.
#[derive(Debug)]
pub struct UdpTx {
    sender: UdpSender,
    held: HeldDatagrams,
    /// Whether the system had no room for all packets of the last send.
    is_full: bool,
}

impl UdpCarrier {
    pub(super) fn bind(
        config: &UdpConfig,
        held: Option<&ReservedPort>,
    ) -> Result<Self, FabricError> {
        let first = config.socket.bind.port();
        if config.ports == 0 || (first != 0 && first.checked_add(config.ports - 1).is_none()) {
            return Err(FabricError::BadAttribute {
                name: "ports",
                value: config.ports.to_string(),
                want: format!("at least 1, and port numbers from {first} to 65535 at most"),
            });
        }
        let owners_packets = SharedOwnersPackets::default();
        let wake_event = WakeEvent::new()?;
        let bind = |index| {
            let mut socket = config.socket;
            if first != 0 {
                socket.bind.set_port(first + index);
            }
            let shared = held.map(|held| held.open(&socket)).transpose()?;
            let open = match &shared {
                Some(shared) => Arc::clone(shared.socket()),
                None => Arc::new(SharedSocket::bind(&socket, None)?),
            };
            let peers = Arc::new(Peers::new(Arc::clone(&open), socket, held.cloned()));
            let worker = WakeEvent::new()?;
            let reader = shared.map(|shared| shared.reader(&peers, [&wake_event, &worker]));
            let owners_packets = Arc::clone(&owners_packets);
            let receiver = UdpRx::new(index, &open, &peers, reader, &worker, owners_packets);
            let sender = UdpSender::new(Arc::clone(&open));
            Ok(UdpPort {
                socket: open,
                peers,
                worker,
                sender: Some(sender),
                receiver: Some(receiver),
            })
        };
        Ok(Self {
            ports: (0..config.ports)
                .map(bind)
                .collect::<Result<_, FabricError>>()?,
            wake_event,
            owners_packets,
        })
    }

    /// Wakes the control object.
    pub(super) fn wake_event(&self) -> &Arc<WakeEvent> {
        &self.wake_event
    }

    pub(super) fn owners_packets(&self) -> &OwnersPackets {
        &self.owners_packets
    }

    /// See [`UdpFabric::is_wildcard`](super::UdpFabric::is_wildcard).
    pub(super) fn is_wildcard(&self, port: u16) -> bool {
        let port = self.ports.get(usize::from(port));
        port.is_some_and(|port| port.socket.local.ip().is_unspecified())
    }

    /// Sends one datagram that is not a packet of a queue pair. The inner result is that of the
    /// socket.
    pub(super) fn send_owners_datagram(
        &self,
        port: u16,
        from: IpAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<Result<usize, SocketError>, FabricError> {
        let Some(port) = self.ports.get(usize::from(port)) else {
            return Err(FabricError::BadAttribute {
                name: "port",
                value: port.to_string(),
                want: format!("less than {}", self.ports.len()),
            });
        };
        let message = OutgoingBatch {
            src: Some(from).filter(|from| !from.is_unspecified()),
            dst: routing_table::canonical(to),
            segment_bytes: bytes.len(),
            parts: &[IoSlice::new(bytes)],
        };
        Ok(UdpSender::new(Arc::clone(&port.socket)).send(&[message]))
    }

    /// See [`UdpFabric::lose_too_large`](super::UdpFabric::lose_too_large).
    pub(super) fn lose_too_large(&self) {
        for port in &self.ports {
            port.socket.loses_too_large.store(true, Ordering::Relaxed);
        }
    }

    /// See [`UdpFabric::await_strangers`](super::UdpFabric::await_strangers).
    pub(super) fn await_strangers(&self) {
        for port in &self.ports {
            port.peers.await_strangers();
        }
    }

    /// See [`UdpFabric::expect_peer`](super::UdpFabric::expect_peer).
    pub(super) fn expect_peer(&self, port: u16, ends: Ends) {
        if let Some(port) = self.ports.get(usize::from(port)) {
            port.peers.join(ends);
            port.worker.waker().wake();
        }
    }

    /// See [`UdpFabric::refusals`](super::UdpFabric::refusals).
    pub(super) fn refusals(&self, port: u16, peer: SocketAddr) -> u64 {
        let port = self.ports.get(usize::from(port));
        port.map_or(0, |port| port.peers.refusals(peer))
    }

    /// The sockets that were full at the last send, until they have room.
    pub(super) fn when_not_full(&self) -> impl Iterator<Item = PollFd<'_>> {
        let sockets = self.ports.iter().map(|port| &*port.socket);
        let full = sockets.filter(|socket| socket.full.load(Ordering::Relaxed));
        full.map(|socket| PollFd::new(socket, PollFlags::OUT))
    }

    /// The options that the system granted to the socket of a port below [`Carrier::ports`].
    #[must_use]
    pub fn granted(&self, port: u16) -> Granted {
        self.ports[usize::from(port)].socket.granted()
    }
}

impl Carrier for UdpCarrier {
    type Tx = UdpTx;
    type Rx = UdpRx;
    const GHOSTS: bool = false;

    fn ports(&self) -> u16 {
        // The number of ports was given as a `u16`.
        u16::try_from(self.ports.len()).unwrap_or(u16::MAX)
    }

    fn max_mtu(&self) -> u32 {
        MAX_MTU
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        let mut local = self.ports[usize::from(port)].socket.local;
        if local.ip().is_unspecified() {
            local.set_ip(routing_table::outward(local.is_ipv6()));
        }
        local
    }

    fn take_tx(&mut self, port: u16) -> Option<UdpTx> {
        let port = self.ports.get_mut(usize::from(port))?;
        port.sender.take().map(|sender| UdpTx {
            sender,
            held: HeldDatagrams::default(),
            is_full: false,
        })
    }

    fn take_rx(&mut self, port: u16) -> Option<UdpRx> {
        let port = self.ports.get_mut(usize::from(port))?;
        port.receiver.take()
    }

    /// Called once for each path of a queue pair. A wildcard socket then always sends from the
    /// address found here, because the peer knows this end by that address.
    fn flow(
        &self,
        port: u16,
        from: Option<IpAddr>,
        remote: SocketAddr,
    ) -> Result<Flow, FabricError> {
        let bound = self.ports[usize::from(port)].socket.local;
        let remote = routing_table::canonical(remote);
        let unreachable = |why: &dyn std::fmt::Display| FabricError::BadAttribute {
            name: "remote address",
            value: remote.to_string(),
            want: format!("an address that UDP {bound} can reach ({why})"),
        };
        let mut local = bound;
        // An IPv6 wildcard socket also sends IPv4.
        if bound.ip().is_unspecified() && (bound.is_ipv6() || remote.is_ipv4()) {
            let from = from.filter(|from| from.is_ipv4() == remote.is_ipv4());
            let found = from.map_or_else(|| source_for(remote), Ok);
            local.set_ip(found.map_err(|e| unreachable(&e))?);
        }
        Flow::new(local, remote).map_err(|e| unreachable(&e))
    }

    fn join(&mut self, port: u16, ends: Ends) {
        let port = &self.ports[usize::from(port)];
        port.peers.join(ends);
        port.worker.waker().wake();
    }

    fn leave(&mut self, port: u16, ends: Ends) {
        let port = &self.ports[usize::from(port)];
        port.peers.leave(ends);
        port.worker.waker().wake();
    }

    fn socket_drops(&self) -> [u64; 2] {
        let ports = self.ports.iter().map(|port| port.peers.drops());
        ports.fold([0, 0], |[a, b], [c, d]| [a + c, b + d])
    }
}

impl UdpTx {
    /// Tells the owner of the fabric whether packets wait for room in the socket. If so, the owner waits for it too.
    fn tell_owner(&self) {
        let waits = self.is_full || !self.held.is_empty();
        self.sender.shared.full.store(waits, Ordering::Relaxed);
    }
}

impl CarrierTx for UdpTx {
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        self.held.check(burst)?;
        let packets: Vec<_> = burst.packets().collect();
        let mut rest = &packets[..];
        let mut full = false;
        while !rest.is_empty() && !full {
            let (joined, ahead) = if self.sender.gso() {
                (true, BATCHES_AHEAD)
            } else {
                (false, SINGLES_AHEAD)
            };
            let runs: Vec<_> = Runs::new(rest, joined).take(ahead).collect();
            match send_runs(&mut self.sender, &mut self.held, burst, &runs) {
                Ok(sent) => {
                    full = sent < runs.iter().map(|run| run.len()).sum();
                    rest = &rest[sent..];
                }
                Err(ref e @ SocketError::TooLarge { bytes, .. }) if self.sender.loses(e) => {
                    let is_lost = |packet: &&Packet<'_>| packet.udp_bytes() >= bytes;
                    let lost = rest.iter().take_while(is_lost).count().max(1);
                    self.sender.give_up(lost);
                    rest = &rest[lost..];
                }
                // The error comes again with the next send.
                Err(_) if rest.len() < packets.len() => break,
                Err(e) => return Err(e.into()),
            }
        }
        self.is_full = full;
        self.tell_owner();
        Ok(packets.len() - rest.len())
    }

    fn hold(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        self.held.check(burst)?;
        if self.held.is_full() && !self.flush()? && self.held.is_full() {
            return Ok(0);
        }
        let sealed_as = burst.sealed_as();
        for packet in burst.packets() {
            self.held
                .add(burst, |bytes| packet.append_to(sealed_as, 0, bytes));
        }
        Ok(burst.len())
    }

    fn flush(&mut self) -> Result<bool, FabricError> {
        if self.held.is_empty() {
            return Ok(true);
        }
        self.held.send(&mut self.sender, &[])?;
        self.tell_owner();
        Ok(self.held.is_empty())
    }
}

/// Seals batches of packets and passes them to the system, behind what is held. Returns the number of packets
/// that it accepted.
fn send_runs(
    socket: &mut UdpSender,
    held: &mut HeldDatagrams,
    burst: &Burst<'_>,
    runs: &[&[Packet<'_>]],
) -> Result<usize, SocketError> {
    let sealed_as = burst.sealed_as();
    // The kernel gives the packets of a batch the identifications 0, 1, 2, ...
    let numbered = runs.iter().flat_map(|run| run.iter().zip(0..));
    let mut later = runs.iter().copied().flatten().skip(1);
    let seals: Vec<Seal> = numbered
        .map(|(packet, id)| {
            if let Some(next) = later.next() {
                next.prefetch();
            }
            packet.seal(sealed_as, id)
        })
        .collect();
    let mut parts = Vec::with_capacity(3 * seals.len());
    let mut ends = Vec::with_capacity(runs.len());
    let mut sealed = seals.iter();
    for run in runs {
        for (packet, seal) in run.iter().zip(&mut sealed) {
            parts.push(IoSlice::new(seal.head()));
            parts.extend(packet.payload().map(IoSlice::new));
            parts.push(IoSlice::new(seal.tail()));
        }
        ends.push(parts.len());
    }
    let starts = std::iter::once(&0).chain(&ends);
    let messages: Vec<_> = runs
        .iter()
        .zip(starts.zip(&ends))
        .map(|(run, (&start, &end))| OutgoingBatch {
            src: Some(burst.flow().src().ip()),
            dst: routing_table::canonical(burst.destination()),
            segment_bytes: run[0].udp_bytes(),
            parts: &parts[start..end],
        })
        .collect();
    held.send(socket, &messages)
}
