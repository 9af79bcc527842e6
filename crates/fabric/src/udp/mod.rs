//! RoCEv2 over ordinary UDP sockets (Linux).

mod carrier;
mod config;
mod control;
mod datagram;
mod error;
mod held_datagrams;
mod kernel_address;
mod options;
mod owners_packets;
mod peers;
mod readable;
mod ready_event;
mod real_time;
mod receiver;
mod reserved_port;
mod routing_table;
mod runs;
mod rx;
mod sender;
mod shared_open;
mod socket;
mod sys;
mod wake_event;

use std::net::SocketAddr;

pub use carrier::{UdpCarrier, UdpTx};
pub use config::{Granted, SocketConfig};
pub use datagram::{MAX_BATCH_BYTES, MAX_SEGMENTS, OutgoingBatch, ReceivedBatch};
pub use error::SocketError;
pub use owners_packets::{HasSockets, OwnersDatagram};
pub use ready_event::ReadyEvent;
pub use real_time::now_ns;
pub use receiver::UdpReceiver;
pub use reserved_port::ReservedPort;
pub use routing_table::{path_mtu, source_for};
pub use rx::UdpRx;
pub use sender::UdpSender;
pub use socket::{UdpSocket, wait};
pub use wake_event::WakeEvent;

use crate::contract::FabricError;
use crate::nic::NicFabric;
pub use farwrite_wire::opcode::HANDSHAKE_PACKET;

/// Configuration of a UDP fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The first socket. Further sockets have the port numbers after it, or free ports if its port
    /// is 0.
    pub socket: SocketConfig,
    /// Number of sockets, which are the ports of the fabric; at least 1. A queue pair uses one of
    /// them, so its packets take one path through the network.
    pub ports: u16,
}

impl UdpConfig {
    /// One socket at `bind`, with all features that the system offers.
    #[must_use]
    pub const fn new(bind: SocketAddr) -> Self {
        Self {
            socket: SocketConfig::new(bind),
            ports: 1,
        }
    }
}

/// RoCEv2 over ordinary UDP sockets.
pub type UdpFabric = NicFabric<UdpCarrier>;

impl UdpFabric {
    /// Binds the sockets. Keys and queue pair numbers come from the system's random generator.
    ///
    /// # Errors
    /// [`FabricError::Io`] if an address cannot be bound or the system does not support a required
    /// option. [`FabricError::BadAttribute`] for an invalid number of ports.
    pub fn bind(config: &UdpConfig) -> Result<Self, FabricError> {
        Self::over(UdpCarrier::bind(config, None)?)
    }

    /// Same as [`UdpFabric::bind`], at a port that this process holds. The address of the socket may be
    /// more exact than that of the port.
    ///
    /// # Errors
    /// As [`UdpFabric::bind`].
    pub fn bind_beside(config: &UdpConfig, held: &ReservedPort) -> Result<Self, FabricError> {
        Self::over(UdpCarrier::bind(config, Some(held))?)
    }

    fn over(carrier: UdpCarrier) -> Result<Self, FabricError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| FabricError::Io {
            what: "asking the system for randomness".into(),
            source: e.into(),
        })?;
        Ok(Self::new(carrier, seed))
    }
}
