//! Names, work requests and completions.

use std::net::SocketAddr;

/// A registered memory region, named by its local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lkey(pub u32);

/// A key under which a peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rkey(pub u32);

/// A queue pair of the fabric, named by its number (24 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u32);

/// A set of slots at which windows are opened. See [`Fabric::create_windows`].
///
/// [`Fabric::create_windows`]: super::Fabric::create_windows
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowSet(pub(crate) u32);

/// A window that was opened. Two windows at one slot, one after the other, are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    pub(crate) set: WindowSet,
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// Where a peer writes to reach a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePlace {
    /// Address of the window's first byte.
    pub addr: u64,
    /// The key.
    pub rkey: Rkey,
}

/// Bytes `offset..offset + length` of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region.
    pub lkey: Lkey,
    /// First byte, counted from the region's start.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// One single-packet RDMA Write with immediate.
#[derive(Clone, Copy, Debug)]
pub struct WriteWr<'a> {
    /// Comes back in [`Departed::wr_id`].
    pub wr_id: u64,
    /// Whether to complete with [`Departed`]: a batch needs only its last write signalled.
    pub signaled: bool,
    /// The bytes to send, gathered in order; at most the queue pair's MTU together. May be empty.
    pub local: &'a [Sge],
    /// Address under `rkey` at the peer.
    pub remote_addr: u64,
    /// The peer's key. Not looked at where `local` is empty (IBTA 9.7.4.1.5: zero-length writes
    /// are not checked).
    pub rkey: Rkey,
    /// Handed to the peer with its completion.
    pub imm: u32,
}

/// A signalled write, and all posted before it on its queue pair, left this end. It says nothing
/// about arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The queue pair.
    pub qpn: Qpn,
    /// Its [`QpAttr::context`].
    pub context: u64,
    /// [`WriteWr::wr_id`].
    pub wr_id: u64,
}

/// What a worker received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A peer's write landed.
    Write {
        /// The queue pair that it came through.
        qpn: Qpn,
        /// Its [`QpAttr::context`].
        context: u64,
        /// The immediate.
        imm: u32,
        /// Payload bytes.
        bytes: u32,
        /// What the path marked.
        ecn: Ecn,
        /// When it arrived, by the fabric's clock, in nanoseconds; `None` where it does not know.
        arrived_ns: Option<u64>,
    },
    /// A peer's SEND arrived.
    Send(Box<SendArrival>),
}

impl Completion {
    /// The queue pair that it came through.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        match self {
            Self::Write { qpn, .. } => *qpn,
            Self::Send(send) => send.qpn,
        }
    }

    /// The [`QpAttr::context`] of that queue pair.
    #[must_use]
    pub fn context(&self) -> u64 {
        match self {
            Self::Write { context, .. } => *context,
            Self::Send(send) => send.context,
        }
    }
}

/// A SEND that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendArrival {
    /// The queue pair that it came through.
    pub qpn: Qpn,
    /// Its [`QpAttr::context`].
    pub context: u64,
    /// The payload without padding.
    pub payload: Vec<u8>,
    /// Who sent it.
    pub from: Sender,
    /// What the path marked.
    pub ecn: Ecn,
    /// When it arrived, by the fabric's clock, in nanoseconds; `None` where it does not know.
    pub arrived_ns: Option<u64>,
}

/// Whether a SEND came from the address that its queue pair permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// From [`QpPath::source`].
    Validated,
    /// From this address instead. It may be the peer behind a new address, or anyone. The owner
    /// decides by what the payload proves, and calls [`Fabric::set_path`].
    ///
    /// [`Fabric::set_path`]: super::Fabric::set_path
    Unvalidated(SocketAddr),
}

/// Explicit congestion notification: the two low bits of the IPv4 TOS or IPv6 traffic class (RFC
/// 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not take part, or the fabric does not see the bits.
    #[default]
    NotEct,
    /// ECN-capable, not marked: ECT(1).
    Ect1,
    /// ECN-capable, not marked: ECT(0).
    Ect0,
    /// A queue on the path was congested.
    CongestionExperienced,
}

impl Ecn {
    /// The bits of an IPv4 TOS or IPv6 traffic class.
    #[must_use]
    pub fn of_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::CongestionExperienced,
        }
    }

    /// The two bits, as they are in an IPv4 TOS or IPv6 traffic class.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::CongestionExperienced => 3,
        }
    }
}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttr {
    /// Largest payload of a packet in bytes; a multiple of 4, at most [`Capabilities::max_mtu`].
    pub mtu: u32,
    /// Which of the fabric's ports the queue pair uses: `0..Capabilities::ports`.
    pub port: u16,
    /// A value of the caller's own. Completions of the queue pair carry it, so that the caller
    /// finds its own record of the queue pair without a look-up by number.
    pub context: u64,
    /// How many SENDs may arrive between two polls. The fabric keeps buffers for them. With 0, the
    /// queue pair takes writes only; writes need no buffers.
    pub recv_buffers: u32,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteQp {
    /// Where packets go, and where they must come from.
    pub addr: SocketAddr,
    /// The peer's queue pair.
    pub qpn: Qpn,
}

/// The addresses of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpPath {
    /// Where packets go.
    pub destination: SocketAddr,
    /// Where writes must come from. Writes from elsewhere are counted and dropped; SENDs from
    /// elsewhere arrive as [`Sender::Unvalidated`]. A peer on port 4791 may be an RNIC, which sends
    /// from many ports: then only the IP address has to match.
    pub source: SocketAddr,
    /// Source and destination that the ICRC of outgoing packets covers, where address translation
    /// changes them on the way: as they arrive at the peer. `None`: the port's address and
    /// `destination`.
    pub sealed_as: Option<(SocketAddr, SocketAddr)>,
}

impl QpPath {
    /// To and from one address, which nothing on the way changes.
    #[must_use]
    pub fn to(addr: SocketAddr) -> Self {
        Self {
            destination: addr,
            source: addr,
            sealed_as: None,
        }
    }
}

/// What a fabric can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest [`QpAttr::mtu`].
    pub max_mtu: u32,
    /// Number of ports.
    pub ports: u16,
    /// Whether a write to a slot without an open window still completes (a null key), its payload
    /// dropped. Nothing above may rely on either answer.
    pub null_key_completes: bool,
    /// Whether [`Region::ghost`](super::Region::ghost) can be registered.
    pub ghosts: bool,
    /// Most entries of [`WriteWr::local`].
    pub max_sge: usize,
}
