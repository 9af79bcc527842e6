//! Why there is no route to a peer.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Why there is no route to a peer, or none of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The route was removed, or belongs to another keeper.
    #[error("route {0} does not exist")]
    NoSuchRoute(u32),
    /// The route has no peer yet, or its addresses are not known yet.
    #[error("route {0} is not found yet: call join, then poll until found returns a value")]
    NotFound(u32),
    /// The route has a peer already.
    #[error("route {0} has a peer already: make one offer for each peer")]
    Joined(u32),
    /// The keeper has as many routes as packets can name.
    #[error(
        "the socket has {most} routes, the most that one socket can have: use another endpoint"
    )]
    TooMany {
        /// The highest number of routes.
        most: usize,
    },
    /// The bytes are no offer.
    #[error("an offer of a route has {want} bytes; got {have}")]
    Offer {
        /// The number of bytes.
        have: usize,
        /// The length of an offer.
        want: usize,
    },
    /// The offer names no address to which packets can be sent.
    #[error("the peer calls its UDP socket {address}, which is no address to send to")]
    NoAddress {
        /// The address in the offer.
        address: SocketAddr,
    },
    /// Address translation at the responder changes its port.
    #[error(
        "the peer's port is {named} to itself and {seen} to this end: address translation at the \
         peer must keep ports; forward UDP port {} to the same port number there, or have the peer \
         bind port {}", .seen.port(), .seen.port()
    )]
    PortRewritten {
        /// The address in the peer's offer.
        named: SocketAddr,
        /// The address from which the peer's packets come.
        seen: SocketAddr,
    },
    /// No route packet of the peer came.
    #[error(
        "no UDP packet of the peer came within {} s: UDP seems to be blocked between {local} and \
         {peer} (a firewall, or address translation)", .waited.as_secs()
    )]
    Blocked {
        /// The address of this end's socket.
        local: SocketAddr,
        /// The address in the peer's offer.
        peer: SocketAddr,
        /// How long this end has waited.
        waited: Duration,
    },
    /// The path does not carry packets of the MTU that is needed.
    #[error("the path to {peer} does not carry packets with {mtu} bytes of payload")]
    TooLarge {
        /// The address in the peer's offer.
        peer: SocketAddr,
        /// The MTU.
        mtu: u32,
    },
    /// The path carries only smaller packets than before.
    #[error(transparent)]
    Shrunk(#[from] RouteShrunk),
}

/// A route that has begun to drop packets of a size that it carried before (a black hole, RFC 8899
/// section 4.4). The MTU of a queue pair does not change, so its queue pairs must be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteShrunk {
    /// The address that this end sends to.
    pub peer: SocketAddr,
    /// Payload bytes of the packets that the path carried.
    pub mtu: u32,
    /// Payload bytes of the packets that the path carries now.
    pub carries: u32,
}

impl fmt::Display for RouteShrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, mtu, carries } = self;
        write!(
            f,
            "the path between this end and {peer} does not carry packets of {mtu} bytes any more, \
             but of {carries}"
        )
    }
}

impl std::error::Error for RouteShrunk {}
