//! How an emulator is made.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite_link::{ConfigError, LinkConfig};
use farwrite_wire::icrc::MixedFamilies;

use crate::udp::SocketError;

/// How an emulator is made. The default is a perfect path without channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmulatorConfig {
    /// The path from end A to end B.
    pub forward: LinkConfig,
    /// The path from end B to end A.
    pub backward: LinkConfig,
    /// Determines every fault of both directions, given what arrives when.
    pub seed: u64,
    /// The pairs of ports that packets travel between; at least one.
    pub channels: Vec<Channel>,
    /// Whether to relay every datagram byte by byte, whatever it is. Then no ICRC is checked or made,
    /// and an end is wherever the first datagram comes from.
    pub verbatim: bool,
}

/// A pair of ports, one of either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Toward end A.
    pub a: Side,
    /// Toward end B.
    pub b: Side,
}

/// Where the emulator meets an end. All addresses are loopback addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Where the end sends to, and receives from; port 0 for a free one.
    pub listen: SocketAddr,
    /// The end's own address. `None`: wherever the first packet with a right ICRC comes from.
    pub end: Option<SocketAddr>,
}

impl Side {
    /// A side for an end of known address, on a free port of the same IP version.
    #[must_use]
    pub fn facing(end: SocketAddr) -> Self {
        let loopback = match end {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        Self {
            listen: SocketAddr::new(loopback, 0),
            end: Some(end),
        }
    }

    /// A side that learns where its end is.
    #[must_use]
    pub fn learning(listen: SocketAddr) -> Self {
        Self { listen, end: None }
    }

    /// Whether both addresses are such as the emulator serves.
    pub(super) fn validate(&self) -> Result<(), EmulatorError> {
        let mut addresses = [Some(self.listen), self.end].into_iter().flatten();
        match addresses.find(|addr| !addr.ip().to_canonical().is_loopback()) {
            Some(addr) => Err(EmulatorError::NotLoopback { addr }),
            None => Ok(()),
        }
    }
}

/// Why an emulator could not start, or gave up.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A link that cannot be.
    #[error("{direction} {source}")]
    Link {
        /// `forward` or `backward`.
        direction: &'static str,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// Nothing to relay between.
    #[error("an emulator needs at least one channel")]
    NoChannel,
    /// An address that is not on this machine's loopback.
    #[error("{addr} is no loopback address, and the emulator relays on loopback only")]
    NotLoopback {
        /// Which.
        addr: SocketAddr,
    },
    /// A side listens at an address of the other IP version than its end's.
    #[error(transparent)]
    MixedFamilies(#[from] MixedFamilies),
    /// A socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system said no.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl EmulatorError {
    pub(super) fn system(what: &'static str, source: io::Error) -> Self {
        Self::System { what, source }
    }
}
