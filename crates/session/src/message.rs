//! The messages of a session (P7.6).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::files::Entry;
use crate::{ChannelMessage, Error, Reader, Text};

/// What the two ends of a session tell each other. The order of the variants is their number on
/// the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Both ways, first of all.
    Hello(Hello),
    /// From the end that sends files: what is about to come.
    Plan(TransferPlan),
    /// Both ways: the bytes that tell the other end how to reach this end's queue pair (P6).
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
    /// From the sender of files: a file could not be read as announced. The next file follows its
    /// last byte in the stream directly.
    FileAbandoned {
        /// Number of the file in the manifest.
        index: u32,
        /// How many of its bytes are in the stream.
        sent_bytes: u64,
        /// Why.
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
        /// Why, for people.
        reason: Text,
    },
    /// Both ways, once a second from the hellos on: the sign of life of an end, and how far it is.
    Progress(Progress),
    /// Either way, at any time: the session is over. Nothing follows it.
    Abort {
        /// What kind of trouble, for programs.
        cause: Cause,
        /// Why, for people.
        reason: Text,
    },
    /// From the sender of files: it has spoken of every file, and the stream is complete.
    StreamEnd {
        /// Bytes of the stream. Fewer than the plan has where files were abandoned.
        stream_bytes: u64,
    },
    /// From the receiver of files: every file has its verdict, and nothing is left to do.
    Done,
    /// Both ways, after the hellos: where this end's UDP sockets are, and how to prove to them that
    /// a path packet is the peer's (P6.2).
    Path(PathOffer),
    /// From the sender of files: the path carries smaller packets than before, and the stream goes
    /// on over another queue pair (P8.5).
    Resume(Resume),
    /// From the receiver of files: the answer to [`Message::Resume`].
    Resumed(Resumed),
}

/// How far an end is. The sender counts what it reads, the receiver what it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes of the stream that were read from files, or written to files.
    pub stream_bytes: u64,
    /// A count that grows with everything that brings the transfer nearer to its end.
    pub moved: u64,
    /// How long the disk operation in progress has taken so far, in milliseconds; 0: none is in
    /// progress.
    pub disk_ms: u64,
}

/// Why a file did not arrive. The order of the variants is their number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileCause {
    /// The bytes that came are not those that were sent.
    Corrupt,
    /// The sender could not read it.
    Unreadable,
    /// The receiver could not store it.
    Unwritable,
}

/// What made an end give up. The order of the variants is their number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// None of the others.
    Other,
    /// Its user ended it.
    Interrupted,
    /// The two ends do not fit together.
    Mismatch,
    /// Its files or directories could not be read or written.
    Files,
    /// Packets do not come through.
    Network,
    /// The receiver serves another sender.
    Busy,
    /// The receiver's disk is full.
    Full,
}

/// How an end introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name and version of the program, for people.
    pub software: Text,
    /// What it can do beyond version 3 of the protocol, one bit each; unknown bits are ignored.
    pub capabilities: u64,
}

impl Hello {
    /// Capability: of the initiator, that the session is a probe and no transfer; of the responder,
    /// that it answers probes (P9).
    pub const PROBES: u64 = 1;
    /// Capability: the end knows [`Message::Resume`] and [`Message::Resumed`].
    pub const RESUMES: u64 = 2;

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

/// How the stream goes on over another queue pair, from the sender of files (P8.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The first segment, counted from 0, that is not known to have arrived.
    pub first_segment: u64,
    /// How to reach the sender's new queue pair. Its MTU is the new one.
    pub info: QpBlob,
}

/// The answer of the receiver of files (P8.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The segments from [`Resume::first_segment`] on that have arrived, ascending.
    pub finished: Vec<u64>,
    /// How to reach the receiver's new queue pair.
    pub info: QpBlob,
}

/// Where the UDP sockets of an end are (P6.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOffer {
    /// Key of the tags on path packets toward this end. `None`: an RDMA NIC receives at these
    /// addresses, which answers no path packets.
    pub key: Option<PathKey>,
    /// The address of each channel's socket, as this end has it.
    pub addresses: Vec<PathAddress>,
}

/// A key of path packets. It does not show itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathKey(pub [u8; 32]);

impl fmt::Debug for PathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathKey(..)")
    }
}

/// An IPv6 address, or an IPv4 address mapped into one, and a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathAddress {
    /// The address, in network order.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
}

impl From<SocketAddr> for PathAddress {
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

impl From<PathAddress> for SocketAddr {
    fn from(address: PathAddress) -> Self {
        let ip = Ipv6Addr::from(address.ip).to_canonical();
        Self::new(ip, address.port)
    }
}

/// What a sender of files is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferPlan {
    /// Name of the scheme (P5) that repairs losses.
    pub scheme: Text,
    /// Bytes of an SDR message: the stream of files is cut into pieces of this size, the last one
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
    /// What errors call the message.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a hello",
            Self::Plan(_) => "a transfer plan",
            Self::QpInfo(_) => "queue-pair information",
            Self::Entries(_) => "manifest entries",
            Self::FileHash { .. } => "a file's hash",
            Self::FileAbandoned { .. } => "the end of a file that cannot be read",
            Self::FileVerified { .. } => "a file's success",
            Self::FileFailed { .. } => "a file's failure",
            Self::Progress(_) => "a sign of life",
            Self::Abort { .. } => "the session's end",
            Self::StreamEnd { .. } => "the end of the stream",
            Self::Done => "the end of the transfer",
            Self::Path(_) => "the addresses of UDP sockets",
            Self::Resume(_) => "a change to another queue pair",
            Self::Resumed(_) => "the answer to a change to another queue pair",
        }
    }

    /// The error for a message that came where `want` was due: what the peer says if it gave up,
    /// else that it broke the order (P8.1).
    #[must_use]
    pub fn unexpected(self, want: &'static str) -> Error {
        match self {
            Self::Abort { cause, reason } => Error::Aborted { cause, reason },
            other => Error::Unexpected {
                came: other.kind(),
                want,
            },
        }
    }
}

impl Reader {
    /// Waits for the one message that is due: `pick` takes it out of a [`Message`], or gives back
    /// what it does not know. `want` says in errors what is due.
    ///
    /// # Errors
    /// [`Error::Aborted`], [`Error::Unexpected`], and those of [`Reader::recv`].
    pub fn recv_expected<T>(
        &mut self,
        want: &'static str,
        pick: impl FnOnce(Message) -> Result<T, Message>,
    ) -> Result<T, Error> {
        pick(self.recv()?).map_err(|other| other.unexpected(want))
    }
}
