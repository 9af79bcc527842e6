//! Errors of a probe.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite_connection::Error as ConnectionError;
use farwrite_fabric::udp::SocketError;
use farwrite_keys::{Error as SessionError, Text, shown};
use farwrite_units::show::{Rate, real};

use crate::message::Cause;
use crate::open_trials::TrialError;

/// Why a path could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The peer has sent bytes that are no message of a probe.
    #[error(transparent)]
    Message(#[from] SessionError),
    /// The peer has sent nothing for too long.
    #[error("the peer has not sent {want} within {after:?}")]
    Silence {
        /// The message expected.
        want: &'static str,
        /// How long this end waited.
        after: Duration,
    },
    /// The peer gave up.
    #[error("the peer gave up and says: \"{reason}\"")]
    Aborted {
        /// The category of the reason.
        cause: Cause,
        /// The reason in the peer's words.
        reason: Text,
    },
    /// A message that is not valid at this point of the probe (P9.1).
    #[error("the peer sent an unexpected probe message: {came}; expected {want}")]
    Unexpected {
        /// The message received.
        came: &'static str,
        /// The message expected.
        want: &'static str,
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
        "the connection works, but no datagram of the probe came back from {} within {after:?}: open UDP of this port \
         to all ports of the other end",
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
            Self::Socket(_) | Self::NoUdp { .. } | Self::Silence { .. } => Cause::Network,
            _ => Cause::Other,
        }
    }
}
