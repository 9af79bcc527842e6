//! RoCEv2 through ordinary UDP sockets (Linux).

mod aside;
mod bell;
mod carrier;
mod config;
mod control;
mod datagram;
mod error;
mod name;
mod options;
mod path;
mod peers;
mod real_time;
mod receiver;
mod runs;
mod rx;
mod sender;
mod socket;
mod sys;

use std::net::SocketAddr;

pub use aside::PathDatagram;
pub use carrier::{UdpCarrier, UdpTx};
pub use config::{Granted, SocketConfig};
pub use datagram::{MAX_BATCH_BYTES, MAX_SEGMENTS, Outgoing, Received};
pub use error::SocketError;
pub use path::{path_mtu, source_for};
pub use receiver::UdpReceiver;
pub use rx::UdpRx;
pub use sender::UdpSender;
pub use socket::{UdpSocket, wait};

use crate::contract::FabricError;
use crate::nic::NicFabric;

/// How a UDP fabric is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Its first socket. The others differ in the port number: each is one more than the last, or
    /// a free one if the first is 0.
    pub socket: SocketConfig,
    /// Number of sockets, which are the fabric's ports; at least 1. A queue pair uses one of them,
    /// so that its packets take a way through the network of their own.
    pub ports: u16,
}

impl UdpConfig {
    /// One socket at `bind`, with all that the system offers.
    #[must_use]
    pub const fn new(bind: SocketAddr) -> Self {
        Self {
            socket: SocketConfig::new(bind),
            ports: 1,
        }
    }
}

/// RoCEv2 through ordinary UDP sockets.
pub type UdpFabric = NicFabric<UdpCarrier>;

impl UdpFabric {
    /// Binds the sockets. Keys and numbers come from the system's randomness.
    ///
    /// # Errors
    /// [`FabricError::Io`] where an address cannot be had or the system lacks what is needed,
    /// [`FabricError::BadAttribute`] for ports that do not exist.
    pub fn bind(config: &UdpConfig) -> Result<Self, FabricError> {
        let carrier = UdpCarrier::bind(config)?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| FabricError::Io {
            what: "asking the system for randomness".into(),
            source: e.into(),
        })?;
        Ok(Self::new(carrier, seed))
    }
}
