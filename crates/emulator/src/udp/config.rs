//! Configuration of an emulator.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite_fabric::udp::SocketError;
use farwrite_link::{ConfigError, LinkConfig, LinkDirection};
use farwrite_wire::icrc::MixedFamilies;

use crate::Task;

/// Configuration of an emulator. The default is a perfect path without channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UdpEmulatorConfig {
    /// The path from end A to end B.
    pub forward: LinkConfig,
    /// The path from end B to end A.
    pub backward: LinkConfig,
    /// Seed of all faults in both directions. The faults also depend on the arrival times of
    /// packets.
    pub seed: u64,
    /// The pairs of ports between which packets travel; at least one.
    pub channels: Vec<PortPair>,
    /// Whether to relay every datagram unchanged, RoCEv2 or not. In this mode, the emulator neither
    /// checks nor computes ICRCs, and the source of the first datagram becomes the end.
    pub verbatim: bool,
}

/// A pair of ports, one for each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPair {
    /// The port toward end A.
    pub a: Side,
    /// The port toward end B.
    pub b: Side,
}

/// One port of the emulator and the end behind it. All addresses are loopback addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Address of the port, from which the end receives and to which it sends. Port 0 selects a
    /// free port.
    pub listen: SocketAddr,
    /// Address of the end. `None`: the source of the first packet with a valid ICRC becomes the
    /// end.
    pub end: Option<SocketAddr>,
}

impl Side {
    /// A side for an end with a known address, on a free port of the same IP version.
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

    /// A side that learns the address of its end.
    #[must_use]
    pub fn learning(listen: SocketAddr) -> Self {
        Self { listen, end: None }
    }

    /// Checks that both addresses are loopback addresses.
    pub(super) fn validate(&self) -> Result<(), UdpEmulatorError> {
        let mut addresses = [Some(self.listen), self.end].into_iter().flatten();
        match addresses.find(|addr| !addr.ip().to_canonical().is_loopback()) {
            Some(addr) => Err(UdpEmulatorError::NotLoopback { addr }),
            None => Ok(()),
        }
    }
}

/// Why an emulator could not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpEmulatorError {
    /// The configuration of a link is invalid.
    #[error("{direction} {source}")]
    Link {
        /// The direction of the link.
        direction: LinkDirection,
        /// The reason.
        source: ConfigError,
    },
    /// There are no channels.
    #[error("an emulator needs at least one channel")]
    NoChannel,
    /// An address that is not on this machine's loopback.
    #[error("{addr} is no loopback address, and the emulator relays on loopback only")]
    NotLoopback {
        /// The address.
        addr: SocketAddr,
    },
    /// A side has a listening address of another IP version than the address of its end.
    #[error(transparent)]
    MixedFamilies(#[from] MixedFamilies),
    /// A socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: Task,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl UdpEmulatorError {
    pub(super) fn system(what: Task, source: io::Error) -> Self {
        Self::System { what, source }
    }
}
