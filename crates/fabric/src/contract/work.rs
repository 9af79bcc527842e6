//! Identifiers, work requests and completions.

use std::net::{IpAddr, SocketAddr};

pub use farwrite_wire::sealing::{Cipher, DirectionSecret};

/// The local key of a registered memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lkey(pub u32);

/// The remote key under which a peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rkey(pub u32);

/// The number of a queue pair of the fabric (24 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u32);

/// A set of slots, at each of which one window can be open. See [`Fabric::create_windows`].
///
/// [`Fabric::create_windows`]: super::Fabric::create_windows
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowSet(pub(crate) u32);

impl WindowSet {
    /// The set with a number that its fabric chose.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of the set.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// An opened window. Two windows that are opened at the same slot one after the other are
/// different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    pub(crate) set: WindowSet,
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

impl Window {
    /// The window at a slot, with a serial number that its fabric uses once.
    #[must_use]
    pub const fn new(set: WindowSet, slot: u32, serial: u64) -> Self {
        Self { set, slot, serial }
    }

    /// The set of the window.
    #[must_use]
    pub const fn set(self) -> WindowSet {
        self.set
    }

    /// The slot of the window.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// The remote address of a window: where a peer writes to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePlace {
    /// Address of the window's first byte.
    pub addr: u64,
    /// Key for the write.
    pub rkey: Rkey,
}

/// Bytes `offset..offset + length` of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region.
    pub lkey: Lkey,
    /// First byte, relative to the start of the region.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// A work request: one single-packet RDMA Write with immediate.
#[derive(Clone, Copy, Debug)]
pub struct WriteWr<'a> {
    /// Identifier that [`Departed::wr_id`] returns.
    pub wr_id: u64,
    /// Whether the write completes with its own [`Departed`]. In a batch, only the last write needs
    /// this.
    pub signaled: bool,
    /// The bytes to send, gathered in order; at most the queue pair's MTU in total. May be empty.
    pub local: &'a [Sge],
    /// Destination address under `rkey` at the peer.
    pub remote_addr: u64,
    /// The peer's key. Ignored if `local` is empty (IBTA 9.7.4.1.5: zero-length writes are not
    /// checked).
    pub rkey: Rkey,
    /// The immediate value, which the peer receives with its completion.
    pub imm: u32,
}

/// A signalled write, and all writes posted before it on its queue pair, have left this end. This
/// does not mean that they have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The queue pair.
    pub qpn: Qpn,
    /// The [`QpAttr::context`] of the queue pair.
    pub context: u64,
    /// The [`WriteWr::wr_id`] of the write.
    pub wr_id: u64,
}

/// A completion of a receive worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A peer's write arrived.
    Write {
        /// The receiving queue pair.
        qpn: Qpn,
        /// The [`QpAttr::context`] of the queue pair.
        context: u64,
        /// The immediate value.
        imm: u32,
        /// Payload bytes.
        bytes: u32,
        /// The congestion marking of the packet.
        ecn: Ecn,
        /// Arrival time by the fabric's clock, in nanoseconds; `None` if the fabric does not know
        /// it.
        arrived_ns: Option<u64>,
    },
    /// A peer's SEND arrived.
    Send(Box<SendArrival>),
}

impl Completion {
    /// The receiving queue pair.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        match self {
            Self::Write { qpn, .. } => *qpn,
            Self::Send(send) => send.qpn,
        }
    }

    /// The [`QpAttr::context`] of the receiving queue pair.
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
    /// The receiving queue pair.
    pub qpn: Qpn,
    /// The [`QpAttr::context`] of the queue pair.
    pub context: u64,
    /// The payload without padding.
    pub payload: Vec<u8>,
    /// Whether the sender's address is the permitted one.
    pub from: Sender,
    /// The congestion marking of the packet.
    pub ecn: Ecn,
    /// Arrival time by the fabric's clock, in nanoseconds; `None` if the fabric does not know it.
    pub arrived_ns: Option<u64>,
}

/// Whether a SEND came from the address that its queue pair permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The SEND came from [`QpRoute::source`].
    Validated,
    /// The SEND came from this other address. The sender may be the peer at a new address, or a
    /// stranger. The owner decides by what the payload proves, and calls [`Fabric::set_route`] to
    /// accept the address.
    ///
    /// [`Fabric::set_route`]: super::Fabric::set_route
    Unvalidated(SocketAddr),
}

/// Explicit congestion notification: the two low bits of the IPv4 TOS or IPv6 traffic class (RFC
/// 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not support ECN, or the fabric cannot read the bits.
    #[default]
    NotEct,
    /// ECN-capable and not marked: ECT(1).
    Ect1,
    /// ECN-capable and not marked: ECT(0).
    Ect0,
    /// A queue on the path was congested.
    CongestionExperienced,
}

impl Ecn {
    /// Parses the two ECN bits of an IPv4 TOS or IPv6 traffic class.
    #[must_use]
    pub fn of_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::CongestionExperienced,
        }
    }

    /// The two ECN bits of an IPv4 TOS or IPv6 traffic class.
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

/// Attributes of a new queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttr {
    /// Largest payload of a packet in bytes; a multiple of 4, at most [`Capabilities::max_mtu`].
    pub mtu: u32,
    /// The port of the fabric that the queue pair uses: `0..Capabilities::ports`.
    pub port: u16,
    /// A value chosen by the caller. Completions of the queue pair carry it, so that the caller
    /// finds its own record of the queue pair without a lookup by number.
    pub context: u64,
    /// Number of SENDs that may arrive between two polls. The fabric allocates a buffer for each.
    /// With 0, the queue pair receives writes only; writes need no buffers.
    pub recv_buffers: u32,
}

/// How the writes of a queue pair are sealed (P2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSealing {
    /// The cipher of both directions.
    pub cipher: Cipher,
    /// The secret of writes to the peer.
    pub send: DirectionSecret,
    /// The secret of writes from the peer.
    pub receive: DirectionSecret,
    /// Whether writes have no ICRC in both directions.
    pub omits_icrc: bool,
}

/// The remote end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteQp {
    /// Destination of packets, and their only permitted source.
    pub addr: SocketAddr,
    /// The peer's queue pair.
    pub qpn: Qpn,
}

/// The addresses of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpRoute {
    /// Destination of packets.
    pub destination: SocketAddr,
    /// Permitted source of writes. Writes from other addresses are counted and dropped; SENDs from
    /// other addresses arrive as [`Sender::Unvalidated`]. A peer on port 4791 may be an RNIC, which
    /// sends from many ports; for such a peer only the IP address must match.
    pub source: SocketAddr,
    /// Local address of packets, if the port is bound to a wildcard address. `None`: the one that the routing table
    /// says.
    pub local: Option<IpAddr>,
    /// Source and destination that the ICRC of outgoing packets covers, if address translation
    /// rewrites the addresses on the path: the addresses that the peer sees. `None`: the port's
    /// address and `destination`.
    pub sealed_as: Option<(SocketAddr, SocketAddr)>,
}

impl QpRoute {
    /// A route to and from one address, without address translation.
    #[must_use]
    pub fn to(addr: SocketAddr) -> Self {
        Self {
            destination: addr,
            source: addr,
            local: None,
            sealed_as: None,
        }
    }
}

/// What the key of an open window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKeys {
    /// An entry of a table of software.
    Table,
    /// A registration of the window's bytes with a device.
    Registrations,
    /// A memory window of type 1 of a device (IBTA 10.6.7). Opening it costs the same for any number of bytes.
    MemoryWindows,
}

impl std::fmt::Display for WindowKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Registrations => "registrations",
            Self::MemoryWindows => "memory windows",
        })
    }
}

/// Capabilities of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest [`QpAttr::mtu`].
    pub max_mtu: u32,
    /// Number of ports.
    pub ports: u16,
    /// Whether a write to a slot without an open window still completes (a null key) with its
    /// payload dropped. Higher layers must not rely on either behaviour.
    pub null_key_completes: bool,
    /// Whether a device places packets when they arrive, and not when a worker polls. Then a packet
    /// that arrived before its window was closed is in memory, and its completion may be polled after
    /// the window was reported as closed.
    pub places_on_arrival: bool,
    /// Whether packets reach a window only through the queue pairs of its set. Otherwise they reach it
    /// through every queue pair of the fabric, from a peer that knows the key.
    pub binds_windows: bool,
    /// What the key of an open window is.
    pub window_keys: WindowKeys,
    /// Whether [`Region::ghost`](super::Region::ghost) can be registered.
    pub ghosts: bool,
    /// Largest number of entries of [`WriteWr::local`].
    pub max_sge: usize,
    /// Whether queue pairs can seal their writes, and the cipher that is the fastest one here.
    pub sealing: Option<Cipher>,
}
