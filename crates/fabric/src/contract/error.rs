//! Errors of calls on a fabric.

use super::Qpn;

/// Why a call on a fabric failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The memory region or window set does not exist.
    #[error("no memory is registered under key {0:#010x}")]
    UnknownKey(u32),
    /// The window is closed already.
    #[error("the window at slot {0} is not open")]
    UnknownWindow(u32),
    /// The queue pair does not exist, or belongs to another port.
    #[error("no queue pair has number {0:#08x}")]
    UnknownQp(u32),
    /// The queue pair is not connected to a peer.
    #[error("queue pair {0:#08x} is not connected")]
    NotConnected(u32),
    /// A range exceeds its region, slot or packet.
    #[error("bytes {offset}..{offset}+{length} do not lie within {limit} bytes")]
    OutOfBounds {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
        /// Bytes available.
        limit: u64,
    },
    /// The memory region may only be read.
    #[error("the memory region is read-only: receive into another one")]
    ReadOnly,
    /// The object is still in use.
    #[error("{0} is still in use")]
    InUse(Object),
    /// The fabric does not accept the value of an attribute.
    #[error("{name} = {value}: {want}")]
    BadAttribute {
        /// The name of the attribute.
        name: &'static str,
        /// The value given.
        value: String,
        /// The accepted values.
        want: String,
    },
    /// The fabric does not have the capability.
    #[error("this fabric has no {0}")]
    Unsupported(Capability),
    /// A table is full.
    #[error("no room for another {0}")]
    OutOfResources(Table),
    /// The packets of this queue pair cannot be sent. Other queue pairs are not affected.
    #[error("queue pair {:#08x} is broken: {source}", .qpn.0)]
    BrokenQp {
        /// The queue pair.
        qpn: Qpn,
        /// The reason.
        source: Box<FabricError>,
    },
    /// A system call failed. If a queue or a worker returns this, its port is broken; other ports
    /// are not affected.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// An object of a fabric that cannot be taken, closed or removed while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Object {
    /// A memory region: a window, or a packet that is not sent yet, refers to it.
    #[error("the memory region")]
    MemoryRegion,
    /// A slot of a window set: its window is open.
    #[error("the slot")]
    Slot,
    /// The transmit queue of a port: a caller has it.
    #[error("the port's transmit queue")]
    TxQueue,
    /// The receive worker of a port: a caller has it.
    #[error("the port's receive worker")]
    RxWorker,
    /// A queue pair: its packets are not sent yet.
    #[error("the queue pair")]
    QueuePair,
}

/// Something that not every fabric can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Capability {
    /// Memory regions without bytes ([`Region::ghost`](super::Region::ghost)).
    #[error("ghost memory")]
    GhostMemory,
    /// Sealed queue pairs ([`Fabric::seal_qp`](super::Fabric::seal_qp)).
    #[error("sealed queue pairs")]
    Sealing,
}

/// What a table of a fabric holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Table {
    /// Memory regions.
    #[error("memory region")]
    MemoryRegion,
    /// Queue pairs.
    #[error("queue pair")]
    QueuePair,
    /// Window sets.
    #[error("window set")]
    WindowSet,
}
