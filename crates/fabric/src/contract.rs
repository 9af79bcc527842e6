//! The border between the carriers of packets and everything above them.

use std::net::SocketAddr;
use std::time::Duration;

/// Memory that a fabric may read and write while it is registered.
///
/// Owned by the fabric between [`Fabric::register`] and [`Fabric::deregister`], so that no
/// reference to it can be alive while packets are placed. Anything that can show itself as bytes
/// will do: `Vec<u8>`, a boxed slice, a memory map.
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> + Send {}
impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Memory for T {}

/// An owned piece of memory on its way into or out of a fabric.
pub type Buffer = Box<dyn Memory>;

/// A registered memory region, named by its local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lkey(pub u32);

/// A key under which a peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rkey(pub u32);

/// A queue pair of the fabric, named by its number (24 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u32);

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
    /// Comes back in [`Completion::Departed`].
    pub wr_id: u64,
    /// Whether to complete with [`Completion::Departed`]: a batch needs only its last write
    /// signalled.
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

/// What a fabric tells when polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A peer's write landed; it used up one posted receive.
    Write {
        /// The queue pair that it came through.
        qpn: Qpn,
        /// The immediate.
        imm: u32,
        /// Payload bytes.
        bytes: u32,
    },
    /// A peer's SEND arrived; it used up one posted receive.
    Send {
        /// The queue pair that it came through.
        qpn: Qpn,
        /// The payload without padding.
        payload: Vec<u8>,
    },
    /// A signalled write, and all posted before it on its queue pair, left this end. It says
    /// nothing about arrival.
    Departed {
        /// The queue pair.
        qpn: Qpn,
        /// [`WriteWr::wr_id`].
        wr_id: u64,
    },
}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttr {
    /// Largest payload of a packet in bytes; a multiple of 4, at most [`Capabilities::max_mtu`].
    pub mtu: u32,
    /// Which of the fabric's ports (sockets) the queue pair uses: `0..Capabilities::ports`.
    pub port: u16,
    /// Most receives that may be posted at a time.
    pub recv_depth: u32,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteQp {
    /// Where packets go, and where they must come from.
    pub addr: SocketAddr,
    /// The peer's queue pair.
    pub qpn: Qpn,
}

/// What a fabric can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest [`QpAttr::mtu`].
    pub max_mtu: u32,
    /// Number of ports.
    pub ports: u16,
    /// Whether [`Fabric::create_root_key`] works. Without it every buffer has a key of its own.
    pub root_keys: bool,
    /// Whether a write to an unbound slot of a root key still completes (a null key), its payload
    /// dropped. Nothing above may rely on either answer.
    pub null_key_completes: bool,
    /// Most entries of [`WriteWr::local`].
    pub max_sge: usize,
}

/// A UC NIC.
///
/// All calls return at once. Time passes between calls only: a fabric that needs a clock reads it
/// itself, or is advanced by whoever owns the virtual one. A call that fails has changed nothing.
///
/// A packet is applied whole or not at all, and what is not applied is counted under the first
/// [`DropReason`] that holds, in the order of that enum. There are always at least as many
/// completions to spare as receives are posted: none is ever lost for want of room.
pub trait Fabric {
    /// What this fabric can do.
    fn capabilities(&self) -> Capabilities;
    /// Address of a port, as a peer on the same network would write it.
    fn local_addr(&self, port: u16) -> SocketAddr;

    /// Takes `buffer` in and gives it a local key; no peer can reach it yet.
    ///
    /// # Errors
    /// [`FabricError::OutOfResources`].
    fn register(&mut self, buffer: Buffer) -> Result<Lkey, FabricError>;
    /// Gives a region back. Every remote key of it must have been revoked or unbound, and every
    /// posted write from it must have departed; after this returns no byte of it is read or written
    /// by the fabric.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::InUse`] while a remote key or a write that has
    /// not departed still names it.
    fn deregister(&mut self, lkey: Lkey) -> Result<Buffer, FabricError>;
    /// The bytes of a region, as they are now.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError>;
    /// The bytes of a region, to change them.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn memory_mut(&mut self, lkey: Lkey) -> Result<&mut [u8], FabricError>;

    /// The bytes of two regions, the first to read and the second to change.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::InUse`] if they are the same region.
    fn memory_pair(&mut self, read: Lkey, write: Lkey) -> Result<(&[u8], &mut [u8]), FabricError>;

    /// Makes `length` bytes of a region, from `offset` on, writable by whoever a queue pair is
    /// connected to, at addresses `0..length` of a fresh key. Regions may be exposed many times.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`], [`FabricError::OutOfResources`].
    fn expose(&mut self, lkey: Lkey, offset: u64, length: u64) -> Result<Rkey, FabricError>;
    /// Makes a zero-based root key (paper Fig. 5): `slots` windows of `slot_bytes` each, slot `i` at
    /// addresses `i * slot_bytes..`, all unbound. A write has to lie within one slot, whatever is
    /// behind the next.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`], [`FabricError::OutOfResources`], [`FabricError::BadAttribute`]
    /// for no or too many slots, or slots beyond 64 bits of address.
    fn create_root_key(&mut self, slots: u32, slot_bytes: u64) -> Result<Rkey, FabricError>;
    /// Puts `length` bytes of a region, from `offset` on, behind a slot. Addresses of the slot past
    /// `length` are out of bounds for peers.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`] for a slot that is not there, more
    /// than it holds, or bytes that the region has not, [`FabricError::InUse`] if bound.
    fn bind(
        &mut self,
        root: Rkey,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError>;
    /// Puts the null key behind a slot, if it is not there yet; synchronous, like
    /// [`Fabric::revoke`].
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`].
    fn unbind(&mut self, root: Rkey, slot: u32) -> Result<(), FabricError>;
    /// Ends a remote key, a root key with all its slots. After this returns no byte is written
    /// through it.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], also for a key revoked before.
    fn revoke(&mut self, rkey: Rkey) -> Result<(), FabricError>;

    /// Makes a queue pair; it receives nothing until connected.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`], [`FabricError::OutOfResources`].
    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError>;
    /// Joins a queue pair to its peer. Packets from any other address and port are counted and
    /// dropped, except that a peer on port 4791 may be an RNIC, and those send from many ports.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::InUse`] if connected,
    /// [`FabricError::BadAttribute`] for an address or number it cannot reach.
    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError>;
    /// Parts a queue pair from its peer. It is then as it was before [`Fabric::connect_qp`] and can
    /// be connected again. Receives stay posted. Its completions not yet polled, and writes that
    /// have not departed, are gone.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`].
    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError>;
    /// Ends a queue pair. Its completions not yet polled, and writes that have not departed, are
    /// gone.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`].
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError>;

    /// Posts `count` receives. A write with immediate or a SEND uses one; with none posted it is
    /// dropped and counted.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::OutOfResources`] beyond [`QpAttr::recv_depth`].
    fn post_recv(&mut self, qpn: Qpn, count: u32) -> Result<(), FabricError>;
    /// Posts writes in order; returns how many were taken. Fewer than all means that the carrier is
    /// full for the moment: post the rest later. The last one taken then completes as if it were
    /// signalled, so every call of which the last write is signalled has a completion.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`], [`FabricError::UnknownKey`],
    /// [`FabricError::OutOfBounds`] of a region or the MTU, [`FabricError::BadAttribute`] for more
    /// than [`Capabilities::max_sge`] entries: nothing is posted then. [`FabricError::Io`] when the
    /// carrier is broken for good.
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError>;
    /// Posts one SEND of at most the MTU; false where the carrier is full for the moment.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`], [`FabricError::OutOfBounds`];
    /// [`FabricError::Io`] when the carrier is broken for good.
    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError>;

    /// Takes in what has arrived, places it, and appends completions to `out`. Takes a bounded
    /// amount a call; returns whether more may be waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the carrier is broken for good.
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError>;
    /// What was carried and what was dropped, by reason.
    fn counters(&self) -> Counters;
}

/// A fabric that lives in real time.
pub trait RealTime: Fabric {
    /// Nanoseconds since a fixed moment, by a clock that never runs backward.
    fn now_ns(&self) -> u64;
    /// Sleeps until something arrives, but at most for `at_most`.
    ///
    /// # Errors
    /// [`FabricError::Io`].
    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError>;
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// No such local or remote key.
    #[error("no memory is registered under key {0:#010x}")]
    UnknownKey(u32),
    /// No such queue pair.
    #[error("no queue pair has number {0:#08x}")]
    UnknownQp(u32),
    /// The queue pair has no peer yet.
    #[error("queue pair {0:#08x} is not connected")]
    NotConnected(u32),
    /// A range leaves its region, slot or packet.
    #[error("bytes {offset}..{offset}+{length} do not lie within {limit} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        length: u64,
        /// Bytes there are.
        limit: u64,
    },
    /// The thing is still named by a key.
    #[error("{0} is still in use")]
    InUse(&'static str),
    /// An attribute that this fabric cannot take.
    #[error("{name} = {value}: {want}")]
    BadAttribute {
        /// Which.
        name: &'static str,
        /// What came.
        value: String,
        /// What would do.
        want: String,
    },
    /// The fabric lacks the capability.
    #[error("this fabric has no {0}")]
    Unsupported(&'static str),
    /// A table is full.
    #[error("no room for another {0}")]
    OutOfResources(&'static str),
    /// The operating system said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Its answer.
        source: std::io::Error,
    },
}

/// Why an arriving packet was not applied, in the order in which packets are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// Too short, or lengths within it disagree.
    Malformed,
    /// The ICRC does not match.
    BadIcrc,
    /// No queue pair of the port that it came in by has the destination number.
    UnknownQp,
    /// It came from an address that the queue pair is not connected to.
    Stranger,
    /// An opcode that this fabric does not serve. (A byte that is no opcode at all is found before
    /// anything else, for the rest cannot be read.)
    UnsupportedOpcode,
    /// The payload exceeds the queue pair's MTU.
    TooLong,
    /// No receive was posted.
    NoReceive,
    /// The key was never given out, or was revoked too long ago to be remembered.
    UnknownKey,
    /// The key was revoked.
    RevokedKey,
    /// The bytes would land outside the key's window, or not within one slot.
    OutOfBounds,
    /// The slot has the null key; the write completed, its payload went nowhere.
    NullKey,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::BadIcrc,
        Self::UnknownQp,
        Self::Stranger,
        Self::UnsupportedOpcode,
        Self::TooLong,
        Self::NoReceive,
        Self::UnknownKey,
        Self::RevokedKey,
        Self::OutOfBounds,
        Self::NullKey,
    ];
}

/// What a fabric has carried since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP datagrams sent.
    pub sent_bytes: u64,
    /// Packets received and applied.
    pub received_packets: u64,
    /// Bytes of IP datagrams received and applied.
    pub received_bytes: u64,
    /// Packets that the operating system dropped for want of room in a socket.
    pub socket_drops: u64,
    /// Packets not applied, by [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Packets taken from the sockets, applied or not.
    #[must_use]
    pub fn taken_packets(&self) -> u64 {
        self.dropped.iter().sum::<u64>() + self.received_packets
    }

    /// Packets that used up a receive of a queue pair, whatever became of their payload.
    #[must_use]
    pub fn accepted_packets(&self) -> u64 {
        self.received_packets + self.dropped(DropReason::NullKey)
    }

    /// Packets not applied for one reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}
