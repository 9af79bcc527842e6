//! Route packets and packets of handshakes: datagrams for the owner of the fabric that arrive at the same
//! sockets as RoCE.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite_wire::opcode::{HANDSHAKE_PACKET, ROUTE_PACKET};

use super::UdpFabric;
use super::error::SocketError;
use crate::contract::{FabricError, RealTime};
use crate::nic::Ends;

/// Largest number of packets of each kind that wait for the owner. Further ones are dropped; the network
/// could drop them as well.
const MOST: usize = 256;
/// The longest packet of a handshake (P12.3). Longer ones are dropped: strangers can send them to any
/// end, and few owners take them.
const MAX_HANDSHAKE_BYTES: usize = 1200;

/// A route packet (P6.2) or a packet of a handshake (P12.3) that arrived at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnersDatagram {
    /// The port of the fabric that received the packet.
    pub port: u16,
    /// Source address.
    pub src: SocketAddr,
    /// Destination address: one of this machine's addresses.
    pub dst: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// The kinds of datagrams that are not for the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnersPacket {
    Route,
    Handshake,
}

impl OwnersPacket {
    /// The kind of a datagram; `None` if it is for the NIC.
    pub(super) fn of(payload: &[u8]) -> Option<Self> {
        match *payload.first()? {
            ROUTE_PACKET => Some(Self::Route),
            HANDSHAKE_PACKET => Some(Self::Handshake),
            _ => None,
        }
    }
}

/// Datagrams on the way from the workers to the owner. A flood of one kind leaves the other alone.
#[derive(Debug, Default)]
pub(super) struct OwnersPackets {
    route: Mutex<Vec<OwnersDatagram>>,
    handshake: Mutex<Vec<OwnersDatagram>>,
}

impl OwnersPackets {
    pub(super) fn push(&self, kind: OwnersPacket, datagram: OwnersDatagram) {
        if kind == OwnersPacket::Handshake && datagram.bytes.len() > MAX_HANDSHAKE_BYTES {
            return;
        }
        let mut waiting = self.lock(kind);
        if waiting.len() < MOST {
            waiting.push(datagram);
        }
    }

    fn take(&self, kind: OwnersPacket) -> Vec<OwnersDatagram> {
        std::mem::take(&mut *self.lock(kind))
    }

    fn lock(&self, kind: OwnersPacket) -> MutexGuard<'_, Vec<OwnersDatagram>> {
        let list = match kind {
            OwnersPacket::Route => &self.route,
            OwnersPacket::Handshake => &self.handshake,
        };
        list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fabric that can have UDP sockets. Its owner finds and keeps routes to peers with them.
pub trait HasSockets: RealTime {
    /// The fabric of the sockets; `None` for an RDMA device, which only talks to the addresses that it is
    /// told.
    fn sockets(&self) -> Option<&UdpFabric>;
}

impl HasSockets for UdpFabric {
    fn sockets(&self) -> Option<&UdpFabric> {
        Some(self)
    }
}

impl UdpFabric {
    /// Removes and returns the route packets that workers have received. Only their first byte was
    /// checked.
    #[must_use]
    pub fn take_route_packets(&self) -> Vec<OwnersDatagram> {
        self.carrier().owners_packets().take(OwnersPacket::Route)
    }

    /// Removes and returns the packets of handshakes that workers have received. Only their first byte
    /// and their length were checked.
    #[must_use]
    pub fn take_handshake_packets(&self) -> Vec<OwnersDatagram> {
        self.carrier()
            .owners_packets()
            .take(OwnersPacket::Handshake)
    }

    /// Whether a port is bound to a wildcard address, so that each packet has the source address that
    /// the routing table says.
    #[must_use]
    pub fn is_wildcard(&self, port: u16) -> bool {
        self.carrier().is_wildcard(port)
    }

    /// From now on, packets of queue pairs that are too large for the interface count as lost, as
    /// if a router had dropped them. Without this call, they break their queue pair with an error
    /// that names the path MTU. The owner finds out with route packets which sizes pass.
    pub fn lose_too_large(&self) {
        self.carrier().lose_too_large();
    }

    /// From now on, packets of strangers are awaited, as by a listener: their sockets are read as often as those of
    /// peers. Without this call, an end that has peers reads them now and then, and no stranger wakes it at a port
    /// that it shares with others.
    pub fn await_strangers(&self) {
        self.carrier().await_strangers();
    }

    /// From now on, packets of a peer come to this port from `peer`, before there is a queue pair with it. They have a
    /// socket of their own, as after a queue pair has connected, and wake no other fabric at this port. `local` is the
    /// address of this end to which the peer sends. A port that does not exist expects nothing.
    pub fn expect_peer(&self, port: u16, local: IpAddr, peer: SocketAddr) {
        self.carrier().expect_peer(port, Ends { local, peer });
    }

    /// How often ICMP has said that nobody is at the port of `peer`, which a queue pair of this port talks to. Anyone
    /// can forge that, so it is only a hint. It is not known of peers without a socket of their own.
    #[must_use]
    pub fn refusals(&self, port: u16, peer: SocketAddr) -> u64 {
        self.carrier().refusals(port, peer)
    }

    /// Sends a route packet, or a packet of a handshake, from a port and from one of its addresses (an unspecified address
    /// selects any). Returns whether it fits: a packet that is larger than this machine can send to
    /// `to` is not sent. If there is no room at the moment, the packet is lost.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken, [`FabricError::BadAttribute`] for a
    /// port that does not exist.
    pub fn send_owners_packet(
        &self,
        port: u16,
        from: IpAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<bool, FabricError> {
        match self.carrier().send_owners_datagram(port, from, to, bytes)? {
            Ok(_) => Ok(true),
            Err(SocketError::TooLarge { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Shared by the carrier and all its workers.
pub(super) type SharedOwnersPackets = Arc<OwnersPackets>;
