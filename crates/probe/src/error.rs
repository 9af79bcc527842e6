//! Why a path could not be measured.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite_fabric::udp::SocketError;
use farwrite_session::{Cause, Error as SessionError, Text, shown};
use farwrite_units::show::{Rate, real};

use crate::desk::TrialError;

/// Why a path could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The channel failed.
    #[error(transparent)]
    Channel(#[from] SessionError),
    /// The peer gave up.
    #[error("the peer gave up: {reason}")]
    Aborted {
        /// What kind of trouble it had.
        cause: Cause,
        /// Its words.
        reason: Text,
    },
    /// The peer is an older Farwrite.
    #[error("the peer ({software}) does not answer probes: update it")]
    NotAnswered {
        /// What it calls itself.
        software: Text,
    },
    /// The peer is not one that measures a path.
    #[error(
        "this end only answers probes, and {} wants to send files: start farwrite recv for it",
        shown(.from)
    )]
    NotAProbe {
        /// The peer.
        from: SocketAddr,
    },
    /// A message that has no place at this point (P9.1).
    #[error("the peer's probe message is {came}, want {want}")]
    Unexpected {
        /// What came.
        came: &'static str,
        /// What should have come.
        want: &'static str,
    },
    /// The peer asks for what this end does not concede.
    #[error(transparent)]
    Trials(#[from] TrialError),
    /// A socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system has no randomness.
    #[error("making the key of the probe: {0}")]
    Randomness(#[from] getrandom::Error),
    /// No answer to any datagram.
    #[error(
        "the peer answers on TCP, but no UDP datagram came back from {} within {after:?}: open UDP \
         of this port between the two ends",
        shown(.to)
    )]
    NoUdp {
        /// Where the datagrams went.
        to: SocketAddr,
        /// How long this end tried.
        after: Duration,
    },
    /// A size that the path does not carry.
    #[error(
        "payloads of {payload_bytes} bytes do not fit into the path's MTU of {mtu}, whose largest \
         payload is {largest_bytes}: leave the size out"
    )]
    Size {
        /// The size that was asked for.
        payload_bytes: u32,
        /// Largest IP packet that the path carries.
        mtu: u32,
        /// Its payload.
        largest_bytes: u32,
    },
    /// A rate above what may be used.
    #[error(
        "{} is more than the {} that are {:.0} % of the path: lower the rate or raise the share",
        Rate(real(*.rate_bps)), Rate(real(*.allowed_bps)), .share * 100.0
    )]
    Rate {
        /// The rate that was asked for.
        rate_bps: u64,
        /// The rate that may be used.
        allowed_bps: u64,
        /// The share that makes it.
        share: f64,
    },
    /// The user ended it before anything was measured.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// What to say to the peer as the reason of an abort.
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
