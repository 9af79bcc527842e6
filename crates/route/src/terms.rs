//! The configuration of a route, its outputs, and its errors.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use farwrite_wire::Secret;

use crate::packet::PacketError;
use crate::size_search::SizeSearch;

/// The role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends only to the address that its user configured.
    Initiator,
    /// Follows the initiator to the source address of its packets.
    Responder,
}

/// The configuration of a route. The keys and the peer's own address come from an authenticated
/// channel.
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// The number of the channel, the same at both ends.
    pub number: u8,
    /// Key of the tags on packets to the peer. The peer has chosen it.
    pub send_key: Secret,
    /// Index of the route in packets to the peer. The peer has chosen it.
    pub send_index: u16,
    /// Key of the tags on packets to this end. This end has chosen it.
    pub recv_key: Secret,
    /// Index of the route in packets to this end. This end has chosen it, and no other route of its
    /// socket has it.
    pub recv_index: u16,
    /// The address of this end's socket.
    pub local: SocketAddr,
    /// Initiator: the address of the peer. Responder: the peer's address if no translator changes
    /// it.
    pub peer: SocketAddr,
    /// The size search toward the peer; `None` tests no sizes.
    pub search: Option<SizeSearch>,
}

/// The addresses of a route's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The address to which packets are sent, and from which they come.
    pub peer: SocketAddr,
    /// Source and destination of this end's packets as the peer's socket sees them. Seal packets
    /// for these addresses. `None` if a relay on the path recomputes ICRCs: then use this end's own
    /// addresses.
    pub sealed_as: Option<(SocketAddr, SocketAddr)>,
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The local address to send from.
    pub from: IpAddr,
    /// The destination.
    pub to: SocketAddr,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// Why a packet was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The packet is not from the peer, or is damaged.
    #[error(transparent)]
    RoutePacket(#[from] PacketError),
    /// The packet belongs to another route.
    #[error("a packet of channel {number} with index {index}")]
    OtherRoute {
        /// The number of its channel.
        number: u8,
        /// The index that it states.
        index: u16,
    },
    /// The packet was received before, or is too old to know.
    #[error("a route packet is a duplicate, or very late")]
    Replayed,
    /// A reply without an outstanding probe, or from another address than the probe's destination.
    #[error("a reply without an outstanding probe")]
    Unasked,
    /// A reply that states addresses that no packet can have.
    #[error("a reply to a packet from {from} to {to}")]
    NoFlow {
        /// Where the packet came from, according to the peer.
        from: SocketAddr,
        /// The address of the peer that it came to.
        to: SocketAddr,
    },
    /// A packet from a new address that is older than a packet received before.
    #[error("an old packet from a new address")]
    Overtaken,
    /// An initiator does not follow the peer to another address.
    #[error("the peer's packets come from {0}")]
    Elsewhere(SocketAddr),
}
