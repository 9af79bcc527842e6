//! A path that carries only smaller packets than before.

use std::fmt;
use std::net::SocketAddr;

use crate::{Error, ErrorKind};

/// A path that has begun to drop packets of a size that it carried before (a black hole, RFC 8899
/// section 4.4). It ends the queue pair.
///
/// Usually the transfer continues over another queue pair with smaller packets, and the program sees
/// this as [`Event::PathShrunk`](crate::Event::PathShrunk). If that is not possible, the transfer
/// ends with [`ErrorKind::PathShrunk`]:
///
/// ```
/// use farwrite_transfer::{Error, ErrorKind};
///
/// /// Returns the MTU to send again with, if a smaller one helps.
/// fn smaller_mtu(error: &Error) -> Option<u32> {
///     match error.kind() {
///         ErrorKind::PathShrunk(shrunk) => Some(shrunk.carries),
///         _ => None,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathShrunk {
    /// The address that this end sends to.
    pub peer: SocketAddr,
    /// Payload bytes of the packets that the path carried.
    pub mtu: u32,
    /// Payload bytes of the packets that the path carries now.
    pub carries: u32,
}

/// The text for people at either end when the transfer continues.
impl fmt::Display for PathShrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, mtu, carries } = self;
        write!(
            f,
            "the path between this end and {peer} does not carry packets of {mtu} bytes any more; \
             the transfer goes on with {carries}"
        )
    }
}

impl From<PathShrunk> for Error {
    fn from(shrunk: PathShrunk) -> Self {
        let PathShrunk { peer, mtu, carries } = shrunk;
        Self::new(
            ErrorKind::PathShrunk(shrunk),
            format!(
                "the path to {peer} does not carry packets of {mtu} bytes any more, but of \
                 {carries}: send again, and the smaller size is used"
            ),
        )
    }
}
