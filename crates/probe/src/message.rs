//! What the two ends of a probe session say over the channel (P9.1).

use std::fmt;

use farwrite_session::{Cause, ChannelMessage, Text};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::datagram::KEY_BYTES;

/// Most flows of a session.
pub const MAX_FLOWS: u16 = 64;
/// Most trials that are open at a time.
pub const MAX_TRIALS: usize = 1024;
/// Most packets of the trials that are open at a time.
pub const MAX_PACKETS: u64 = 1 << 24;
/// Most flows of the trials that are open at a time, added up.
pub const MAX_TRIAL_FLOWS: usize = 1 << 14;

/// What the ends of a probe session say to each other after the hellos. The order of the variants
/// is their number on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeMessage {
    /// From the prober, first: the key of the session's datagrams.
    Start(ProbeKey),
    /// From the responder: where it takes datagrams.
    Ready {
        /// UDP port, at the address of the channel.
        port: u16,
        /// The address that it bound, as IPv6 or as IPv4 mapped into IPv6.
        ip: [u8; 16],
        /// Receive buffer of its socket.
        recv_buffer_bytes: u64,
    },
    /// From the prober: trials that it is about to send.
    Trials(Vec<Trial>),
    /// From the responder: the trials are open.
    Open,
    /// From the prober: these trials are over, and their counts are wanted.
    Close(Vec<u32>),
    /// From the responder: the counts, in the order of the question.
    Counts(Vec<Counts>),
    /// From the prober: how many datagrams this end's host dropped so far is wanted; from the
    /// responder: the answer.
    Host(HostDrops),
    /// From the prober: the session is over.
    Done,
    /// From the responder: it gives up. Nothing follows.
    Abort {
        /// What kind of trouble, for programs.
        cause: Cause,
        /// Why, for people.
        reason: Text,
    },
}

impl ProbeMessage {
    /// The error for a message that came where `want` was due.
    pub(crate) fn unexpected(self, want: &'static str) -> Error {
        let came = match self {
            Self::Abort { cause, reason } => return Error::Aborted { cause, reason },
            Self::Start(_) => "the start of a probe",
            Self::Ready { .. } => "readiness",
            Self::Trials(_) => "trials",
            Self::Open => "the opening of trials",
            Self::Close(_) => "the end of trials",
            Self::Counts(_) => "counts",
            Self::Host(_) => "the drops of a host",
            Self::Done => "the end of the probe",
        };
        Error::Unexpected { came, want }
    }
}

impl ChannelMessage for ProbeMessage {
    const NAME: &'static str = "probe message";
    const MAX_BYTES: usize = 256 << 10;
}

/// The key of a session's datagrams.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeKey(pub [u8; KEY_BYTES]);

impl fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProbeKey")
    }
}

/// A trial: packets that are sent in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Its number, which no other trial of the session has.
    pub id: u32,
    /// Packets, which are numbered from 0.
    pub packets: u32,
    /// Flows, 1 to [`MAX_FLOWS`], that the packets are spread over: packet n belongs to flow n
    /// modulo this.
    pub flows: u16,
}

/// What arrived of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of the trial.
    pub id: u32,
    /// Packets that arrived, each counted once.
    pub received: u32,
    /// Packets that arrived again.
    pub duplicates: u32,
    /// Runs of packets that did not arrive, in the order of sending.
    pub bursts: u32,
    /// Packets of the longest run.
    pub longest_burst: u32,
    /// Packets that arrived behind a later one of their flow (RFC 4737, section 3).
    pub reordered: u32,
    /// Largest extent of reordering, in packets of the flow (RFC 4737, section 4.2.1).
    pub extent_packets: u32,
    /// Longest time between the first arrival of a later packet of the flow and the packet itself.
    pub extent_ns: u64,
    /// Arrivals by the two ECN bits: not ECT, ECT(1), ECT(0), CE.
    pub ecn: [u32; 4],
    /// Datagrams that the socket had no room for meanwhile.
    pub socket_drops: u64,
    /// Sequence number and arrival, in nanoseconds of the responder's clock, of the first packet
    /// that arrived.
    pub first: (u32, u64),
    /// The same of the packet with the highest number. (The last to arrive may be one that the path
    /// held back.)
    pub last: (u32, u64),
    /// Packets that arrived of each flow.
    pub flows: Vec<u32>,
}

/// Datagrams that the host of an end dropped, of all its programs, since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDrops {
    /// UDP datagrams that found no room in a socket, where the host counts them.
    pub recv_buffer: Option<u64>,
    /// UDP datagrams that could not be sent for want of room, where the host counts them.
    pub send_buffer: Option<u64>,
}
