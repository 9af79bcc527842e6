//! Why a call on a fabric failed.

use super::Qpn;

/// Why a call on a fabric failed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// No such memory region or window set.
    #[error("no memory is registered under key {0:#010x}")]
    UnknownKey(u32),
    /// The window was closed before.
    #[error("the window at slot {0} is not open")]
    UnknownWindow(u32),
    /// No such queue pair, or none of this port.
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
    /// Something still uses the thing.
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
    /// The packets of one queue pair cannot be sent. Others are not affected.
    #[error("queue pair {:#08x} is broken: {source}", .qpn.0)]
    BrokenQp {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        source: Box<FabricError>,
    },
    /// The operating system refused. From a queue or a worker: its port is broken, others are not.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Its answer.
        source: std::io::Error,
    },
}
