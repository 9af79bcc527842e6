//! The messages of the two ends of a transfer (P8.12).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use farwrite_keys::{ChannelMessage, Text};
use serde::{Deserialize, Serialize};

use super::due;
use super::{Compare, Delete, Detail, Entry, ManifestError, Partial, Present, Run};

/// A message between the two ends of a session. The order of the variants determines their numbers
/// on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// In both directions, before all others.
    Hello(Hello),
    /// From the sender of files: the description of the transfer.
    Plan(TransferPlan),
    /// In both directions: the bytes with which the other end can connect to this end's queue pair
    /// (P6).
    QpInfo(QpBlob),
    /// From the sender of files: the next entries of the manifest (P8.3).
    Entries(Vec<Entry>),
    /// From the sender of files: all bytes of a file have been read, and this is their hash.
    FileHash {
        /// Number of the file in the manifest.
        index: u32,
        /// BLAKE3 of its bytes.
        hash: [u8; 32],
    },
    /// From the sender of files: a file could not be read as announced. In the stream, the next
    /// file directly follows its last byte.
    FileAbandoned {
        /// Number of the file in the manifest.
        index: u32,
        /// How many of its bytes are in the stream.
        sent_bytes: u64,
        /// The cause.
        reason: Text,
    },
    /// From the receiver of files: the hash agrees, and the file has its final name.
    FileVerified {
        /// Number of the file in the manifest.
        index: u32,
    },
    /// From the receiver of files: the file did not get its final name.
    FileFailed {
        /// Number of the file in the manifest.
        index: u32,
        /// What went wrong, for programs.
        cause: FileCause,
        /// The cause, for people.
        reason: Text,
    },
    /// In both directions, at least once a second after the hellos: the sign of life of an end, with its
    /// progress.
    Progress(Progress),
    /// In either direction, at any time: the session has ended. No message follows it.
    Abort {
        /// The kind of failure, for programs.
        cause: Cause,
        /// The cause, for people.
        reason: Text,
    },
    /// From the sender of files: it has reported every file, and the stream is complete.
    StreamEnd {
        /// Bytes of the stream. This is less than in the plan if files were abandoned.
        stream_bytes: u64,
    },
    /// From the receiver of files: every file has its verdict, and nothing is left to do.
    Done,
    /// In both directions, after the hellos: the addresses of this end's UDP sockets, and the key
    /// with which route packets of the peer are authenticated (P6.2).
    Route(OfferedSockets),
    /// From the sender of files: the path carries smaller packets than before, and the stream
    /// continues over another queue pair (P8.5).
    Cutover(Cutover),
    /// From the receiver of files: the answer to [`Message::Cutover`].
    CutoverAccepted(CutoverAccepted),
    /// From the sender of files: details of entries (P8.3).
    Details(Vec<Detail>),
    /// From the sender of files: how the receiver finds files that it has already (P8.6).
    Compare(Compare),
    /// From the receiver of files: files that it has already.
    Present(Vec<Present>),
    /// From the sender of files: the file that the receiver has is the same. It has no bytes in the stream.
    FileSame {
        /// Number of the file in the manifest.
        index: u32,
    },
    /// From the receiver of files: the file that it had stays, with the attributes of the manifest.
    FileKept {
        /// Number of the file in the manifest.
        index: u32,
    },
    /// From the sender of files: to remove what is only at the receiver (P8.7).
    Delete(Delete),
    /// From the receiver of files, before it is done: what it has removed.
    Deleted {
        /// Files and directories.
        files: u32,
    },
    /// From the receiver of files: files whose first bytes it has from an interrupted transfer (P8.8).
    Partial(Vec<Partial>),
    /// From the receiver of files: hashes of what it has of such a file.
    BlockHashes {
        /// Number of the file in the manifest.
        index: u32,
        /// The first block.
        first: u32,
        /// The hashes of consecutive blocks.
        hashes: Vec<[u8; 32]>,
    },
    /// From the sender of files: all of these blocks were compared, and those that differ are the next bytes
    /// of the stream.
    BlocksCompared {
        /// Number of the file in the manifest.
        index: u32,
        /// The blocks that differ.
        runs: Vec<Run>,
    },
    /// From the receiver of files, in a dry run: paths of what it would remove. Those of directories end with `/`
    /// (P8.9).
    Extra(Vec<Vec<u8>>),
    /// In both directions: what its user should know of the other end, for people
    /// (P8.10).
    Warnings(Vec<Text>),
    /// In both directions: what did not arrive besides the files with a verdict
    /// (P8.10).
    Missing(Vec<Missing>),
}

/// Something without a verdict that did not arrive (P8.10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Its intended path below the receiver's directory.
    pub path: Text,
    /// Why, for people.
    pub reason: Text,
}

/// The progress of an end. The sender counts what it reads, and the receiver what it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes of the stream that were read from files, or written to files.
    pub stream_bytes: u64,
    /// A count that grows with every step toward the end of the transfer.
    pub moved: u64,
    /// How long the current disk operation has taken so far, in milliseconds; 0 if there is none.
    pub disk_ms: u64,
}

/// Why a file did not arrive. The order of the variants is their number on the wire. Their names in JSON are those of
/// `docs/json.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileCause {
    /// The received bytes differ from the sent bytes.
    Corrupt,
    /// The sender could not read it.
    Unreadable,
    /// The receiver could not store it.
    Unwritable,
}

/// Why an end gave up. The order of the variants determines their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Any other failure.
    Other,
    /// Its user cancelled.
    Interrupted,
    /// The two ends are incompatible.
    Mismatch,
    /// Its files or directories could not be read or written.
    Files,
    /// Packets do not arrive.
    Network,
    /// The receiver is busy with others.
    Busy,
    /// The receiver's disk is full.
    Full,
}

/// How an end introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name and version of the program, for people.
    pub software: Text,
    /// Its capabilities, one bit each. Unknown bits are ignored.
    pub capabilities: u64,
}

impl Hello {
    /// Capability of the receiver of files: a file that it calls verified survives a power failure
    /// (P8.4).
    pub const SYNCS: u64 = 4;
    /// Capability of the sender of files: the session is a dry run (P8.9).
    pub const DRY_RUNS: u64 = 256;
    /// Capability of the sender of files: it goes on with interrupted files (P8.8).
    pub const RESUMES: u64 = 128;
    /// Capability of the receiver of files: it removes what the sender does not have (P8.7).
    pub const DELETES: u64 = 64;
    /// Capability of the receiver of files: it sets owners (P8.3).
    pub const OWNERS: u64 = 32;

    /// Whether the peer has a capability.
    #[must_use]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }
}

/// The bytes of queue-pair information (P6). They hold a key, so they show only their number.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpBlob(pub Vec<u8>);

impl fmt::Debug for QpBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QpBlob({} bytes)", self.0.len())
    }
}

/// How the stream continues over another queue pair, from the sender of files (P8.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cutover {
    /// The first segment, counted from 0, that is not known to have arrived.
    pub first_segment: u64,
    /// How to connect to the sender's new queue pair. Its MTU is the new one.
    pub info: QpBlob,
}

/// The answer of the receiver of files (P8.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutoverAccepted {
    /// The segments from [`Cutover::first_segment`] on that have arrived, ascending.
    pub finished: Vec<u64>,
    /// How to connect to the receiver's new queue pair.
    pub info: QpBlob,
}

/// The addresses of the UDP sockets of an end (P6.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedSockets {
    /// Key of the tags on route packets toward this end. `None`: these addresses belong to an RDMA
    /// NIC, which does not answer route packets.
    pub key: Option<RouteKey>,
    /// The address of each channel's socket, as this end knows it.
    pub addresses: Vec<RouteAddress>,
}

/// A key of route packets. Its debug output does not contain the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteKey(pub [u8; 32]);

impl fmt::Debug for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteKey(..)")
    }
}

/// An IPv6 address, or an IPv4 address mapped into one, and a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAddress {
    /// The address, in network order.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
}

impl From<SocketAddr> for RouteAddress {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self {
            ip: ip.octets(),
            port: address.port(),
        }
    }
}

impl From<RouteAddress> for SocketAddr {
    fn from(address: RouteAddress) -> Self {
        let ip = Ipv6Addr::from(address.ip).to_canonical();
        Self::new(ip, address.port)
    }
}

/// What a sender of files will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferPlan {
    /// Name of the scheme (P5) that repairs losses.
    pub scheme: Text,
    /// Bytes of an SDR message: the stream of files is cut into pieces of this size. The last piece
    /// may be shorter.
    pub segment_bytes: u64,
    /// Entries of the manifest.
    pub entries: u32,
    /// Bytes of all files together.
    pub stream_bytes: u64,
}

impl ChannelMessage for Message {
    const NAME: &'static str = "session message";
    const MAX_BYTES: usize = 256 << 10;
}

impl Message {
    /// What the message is, for errors.
    fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => due::HELLO,
            Self::Plan(_) => due::PLAN,
            Self::QpInfo(_) => due::QP_INFO,
            Self::Entries(_) => due::ENTRIES,
            Self::FileHash { .. } => "a file's hash",
            Self::FileAbandoned { .. } => "the end of a file that cannot be read",
            Self::FileVerified { .. } => "a file's success",
            Self::FileFailed { .. } => "a file's failure",
            Self::Progress(_) => due::LIFE,
            Self::Abort { .. } => "the session's end",
            Self::StreamEnd { .. } => due::STREAM_END,
            Self::Done => due::DONE,
            Self::Route(_) => due::ROUTE,
            Self::Cutover(_) => "a cutover to another queue pair",
            Self::CutoverAccepted(_) => "the answer to a cutover",
            Self::Details(_) => "details of manifest entries",
            Self::Compare(_) => "how to compare files",
            Self::Present(_) => "files that are there already",
            Self::FileSame { .. } => "a file that is there already",
            Self::FileKept { .. } => "a file that stays",
            Self::Delete(_) => "what to remove",
            Self::Deleted { .. } => "what was removed",
            Self::Partial(_) => "files to go on with",
            Self::BlockHashes { .. } => "hashes of blocks",
            Self::BlocksCompared { .. } => "blocks that differ",
            Self::Extra(_) => "paths that only the receiver has",
            Self::Warnings(_) => "warnings",
            Self::Missing(_) => "what did not arrive",
        }
    }

    /// Returns the error for a message that arrived when `want` was expected, such as [`due::HELLO`]: the peer's reason
    /// if it gave up, otherwise a violation of the order (P8.1).
    #[must_use]
    pub fn unexpected(self, want: &'static str) -> MessageError {
        match self {
            Self::Abort { cause, reason } => MessageError::Aborted { cause, reason },
            other => MessageError::Unexpected {
                came: other.name(),
                want,
            },
        }
    }
}

/// Why an end cannot go on after a message of its peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A message that is not allowed at this point of the session (P8.1).
    #[error("the peer sent {came}, want {want}")]
    Unexpected {
        /// The message that arrived.
        came: &'static str,
        /// The message that was expected.
        want: &'static str,
    },
    /// The peer gave up and sent a reason.
    #[error("the peer gave up and says: \"{reason}\"")]
    Aborted {
        /// The kind of failure at the peer.
        cause: Cause,
        /// The text that the peer sent.
        reason: Text,
    },
    /// The peer's manifest breaks a rule (P8.3).
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}
