//! Messages of a probe (P9.1).

use std::fmt;

use farwrite_keys::{ChannelMessage, Text};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::datagram::KEY_BYTES;

/// Largest number of flows of a probe.
pub const MAX_FLOWS: u16 = 64;
/// Largest number of trials that are open at the same time.
pub const MAX_TRIALS: usize = 1024;
/// Largest number of packets in the open trials.
pub const MAX_PACKETS: u64 = 1 << 24;
/// Largest number of flows in the open trials, added up.
pub const MAX_TRIAL_FLOWS: usize = 1 << 14;

/// The messages of a probe. The order of the variants determines their
/// number on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeMessage {
    /// From the prober, first: the key of the probe's datagrams.
    Start(ProbeKey),
    /// From the responder: the address at which it receives datagrams.
    Ready {
        /// UDP port, at the IP address of the connection.
        port: u16,
        /// The IP address that it bound, as IPv6 or as IPv4 mapped into IPv6.
        ip: [u8; 16],
        /// Receive buffer of its socket in bytes.
        recv_buffer_bytes: u64,
    },
    /// From the prober: trials that it is about to start.
    Trials(Vec<Trial>),
    /// From the responder: the trials are open.
    Open,
    /// From the prober: closes these trials and requests their counts.
    Close(Vec<u32>),
    /// From the responder: the counts, in the order of the request.
    Counts(Vec<TrialCounts>),
    /// From the prober: requests the number of datagrams that the responder's host has dropped so
    /// far. From the responder: the answer.
    Host(HostDrops),
    /// From the prober: the probe is over.
    Done,
    /// From either end: it gives up. Nothing follows.
    Abort {
        /// Category of the reason, for programs.
        cause: Cause,
        /// The reason, for people.
        reason: Text,
    },
}

/// Why an end gives up. The order of the variants determines their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Any other failure.
    Other,
    /// Its user has ended it.
    Interrupted,
    /// The two ends do not fit.
    Mismatch,
    /// Packets do not arrive.
    Network,
    /// The responder serves somebody else.
    Busy,
}

impl ProbeMessage {
    /// The error for a message that arrived when `want` was expected.
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

/// The key for a probe's datagrams.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeKey(pub [u8; KEY_BYTES]);

impl fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProbeKey")
    }
}

/// A trial: a sequence of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Number of the trial, unique in the probe.
    pub id: u32,
    /// Number of packets. They are numbered from 0.
    pub packets: u32,
    /// Number of flows, 1 to [`MAX_FLOWS`]. Packet n belongs to flow n modulo this number.
    pub flows: u16,
}

/// Counts of a trial at the responder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialCounts {
    /// Number of the trial.
    pub id: u32,
    /// Packets that arrived. Duplicates do not count.
    pub received: u32,
    /// Duplicates that arrived.
    pub duplicates: u32,
    /// Bursts: runs of consecutive packets, in sending order, that did not arrive.
    pub bursts: u32,
    /// Length of the longest burst in packets.
    pub longest_burst: u32,
    /// Packets that arrived after a later packet of their flow (RFC 4737, section 3).
    pub reordered: u32,
    /// Largest reordering extent, in packets of the flow (RFC 4737, section 4.2.1).
    pub extent_packets: u32,
    /// Longest time from the first arrival of a later packet of the flow to the arrival of the
    /// packet.
    pub extent_ns: u64,
    /// Arrivals by the two ECN bits: not ECT, ECT(1), ECT(0), CE.
    pub ecn: [u32; 4],
    /// Datagrams that the system dropped during the trial because the socket buffer was full.
    pub socket_drops: u64,
    /// Sequence number and arrival time, in nanoseconds of the responder's clock, of the first
    /// packet that arrived.
    pub first: (u32, u64),
    /// The same for the arrived packet with the highest number. (The last arrival may be a packet
    /// that the path delayed.)
    pub last: (u32, u64),
    /// Arrived packets of each flow.
    pub flows: Vec<u32>,
}

/// Datagrams that a host has dropped since the probe began, over all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDrops {
    /// UDP datagrams that did not fit into a socket's receive buffer; `None` if the host does not
    /// count them.
    pub recv_buffer: Option<u64>,
    /// UDP datagrams that did not fit into a send buffer; `None` if the host does not count them.
    pub send_buffer: Option<u64>,
}
