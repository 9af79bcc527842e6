//! Errors of a probe.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite_fabric::udp::SocketError;
use farwrite_files::{Cause, MessageError};
use farwrite_session::{Error as SessionError, Text, shown};
use farwrite_units::show::{Rate, real};

use crate::message::{ExpectedMessage, ProbeMessageKind};
use crate::open_trials::TrialError;

/// Why a path could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The channel failed.
    #[error(transparent)]
    Channel(#[from] SessionError),
    /// Another message than a hello.
    #[error(transparent)]
    Meeting(MessageError),
    /// The peer aborted the session.
    #[error("the peer gave up and says: \"{reason}\"")]
    Aborted {
        /// The category of the reason.
        cause: Cause,
        /// The reason in the peer's words.
        reason: Text,
    },
    /// The peer runs an older version of Farwrite.
    #[error("the peer ({software}) does not answer probes: update it")]
    NotAnswered {
        /// The name and version of the peer's software.
        software: Text,
    },
    /// The peer wants something other than a probe.
    #[error(
        "this end only answers probes, and {} wants to send files: start farwrite recv for it",
        shown(.from)
    )]
    NotAProbe {
        /// Address of the peer.
        from: SocketAddr,
    },
    /// A message that is not valid at this point of the session (P9.1).
    #[error("the peer sent an unexpected probe message: {came}; expected {want}")]
    Unexpected {
        /// The message received.
        came: ProbeMessageKind,
        /// The message expected.
        want: ExpectedMessage,
    },
    /// The peer requests trials that this end does not allow.
    #[error(transparent)]
    Trials(#[from] TrialError),
    /// A socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system has no random numbers.
    #[error("generating the key of the probe: {0}")]
    Randomness(#[from] getrandom::Error),
    /// No datagram was answered.
    #[error(
        "the peer answers on TCP, but no UDP datagram came back from {} within {after:?}: open UDP \
         of this port between the two ends",
        shown(.to)
    )]
    NoUdp {
        /// Destination of the datagrams.
        to: SocketAddr,
        /// How long this end tried.
        after: Duration,
    },
    /// The requested size does not fit the path.
    #[error(
        "payloads of {payload_bytes} bytes do not fit into the path's MTU of {mtu}, whose largest \
         payload is {largest_bytes}: leave the size out"
    )]
    Size {
        /// The requested size.
        payload_bytes: u32,
        /// Largest IP packet that the path carries.
        mtu: u32,
        /// Its payload size.
        largest_bytes: u32,
    },
    /// The requested rate exceeds the allowed rate.
    #[error(
        "{} is more than the {} that are {:.0} % of the path: lower the rate or raise the share",
        Rate(real(*.rate_bps)), Rate(real(*.allowed_bps)), .share * 100.0
    )]
    Rate {
        /// The requested rate.
        rate_bps: u64,
        /// The allowed rate.
        allowed_bps: u64,
        /// The allowed share of the path's rate.
        share: f64,
    },
    /// The user ended the probe before anything was measured.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The reason to send to the peer with an abort message.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Interrupted => Cause::Interrupted,
            Self::NotAProbe { .. } | Self::NotAnswered { .. } => Cause::Mismatch,
            Self::Socket(_) | Self::NoUdp { .. } => Cause::Network,
            _ => Cause::Other,
        }
    }
}
