//! How a path begins, what comes out of it, and what it refuses.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::packet::PacketError;
use crate::search::Search;

/// Who begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends to the address that its user named, and to no other.
    Initiator,
    /// Follows the initiator to the address that its packets come from.
    Responder,
}

/// How a path begins. The keys and the peer's own address come over an authenticated channel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end this is.
    pub role: Role,
    /// The number of the channel, the same at both ends.
    pub number: u8,
    /// Key of the tags on packets to the peer, which the peer has chosen.
    pub send_key: [u8; 32],
    /// Key of the tags on packets to this end, which this end has chosen.
    pub recv_key: [u8; 32],
    /// The address of this end's socket.
    pub local: SocketAddr,
    /// Initiator: where the peer is. Responder: where it may be, if nothing changes its address.
    pub peer: SocketAddr,
    /// Which sizes to test toward the peer; `None` tests none.
    pub search: Option<Search>,
}

/// Where the packets of a path go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where packets go to, and come from.
    pub peer: SocketAddr,
    /// Source and destination of this end's packets as the peer's socket sees them, for which they
    /// are sealed. `None` where a relay on the way puts ICRCs right: then this end's own are right.
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

/// Why a packet was not used. Nothing is sent for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not of the peer, or damaged.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// It belongs to another path.
    #[error("a packet of path {0}")]
    OtherPath(u8),
    /// It came before, or is too old to say.
    #[error("a path packet came twice, or very late")]
    Replayed,
    /// A reply to nothing that was asked, or from another address than was asked.
    #[error("a reply that answers no probe")]
    Unasked,
    /// A new address in a packet that is older than another that has come.
    #[error("an old packet from a new address")]
    Overtaken,
    /// An initiator does not follow the peer to another address.
    #[error("the peer's packets come from {0}")]
    Elsewhere(SocketAddr),
}
