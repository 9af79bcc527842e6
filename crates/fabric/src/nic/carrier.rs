//! What a software NIC needs of whoever moves its packets.

use std::net::SocketAddr;

use farwrite_wire::icrc::Flow;

use super::Burst;
use crate::contract::{Ecn, FabricError};

/// Moves UDP datagrams for a [`NicFabric`](super::NicFabric), and knows nothing of what is in them.
pub trait Carrier {
    /// Sends through one port.
    type Tx: CarrierTx;
    /// Receives through one port.
    type Rx: CarrierRx;
    /// Whether memory that does not exist makes sense: only where no other machine sees the
    /// packets.
    const GHOSTS: bool;

    /// Number of ports (sockets), at least 1.
    fn ports(&self) -> u16;
    /// Largest payload of a packet in bytes that fits the carrier; a multiple of 4.
    fn max_mtu(&self) -> u32;
    /// Address of a port below [`Carrier::ports`], as a peer on the same network would write it.
    fn local_addr(&self, port: u16) -> SocketAddr;
    /// The sending half of a port; `None` if it was taken.
    fn take_tx(&mut self, port: u16) -> Option<Self::Tx>;
    /// The receiving half of a port; `None` if it was taken.
    fn take_rx(&mut self, port: u16) -> Option<Self::Rx>;
    /// The addresses that packets from a port to `remote` have as they leave.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`] that says why `remote` cannot be reached.
    fn flow(&self, port: u16, remote: SocketAddr) -> Result<Flow, FabricError>;
    /// From now on one more queue pair of a port takes packets from `peer`.
    fn join(&mut self, _port: u16, _peer: SocketAddr) {}
    /// One queue pair less takes packets from `peer`.
    fn leave(&mut self, _port: u16, _peer: SocketAddr) {}
    /// Packets dropped for want of room in a socket since it was made: of peers, as far as is
    /// known, and of strangers.
    fn socket_drops(&self) -> [u64; 2];
}

/// The sending half of a port.
pub trait CarrierTx {
    /// Sends the packets of a burst in order; returns how many were taken, fewer than all where the
    /// carrier is full for the moment.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the port is broken for good; another error where these packets
    /// cannot be sent and others can.
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError>;
}

/// The receiving half of a port.
pub trait CarrierRx {
    /// Hands what has arrived to `each`, a bounded amount a call; returns whether more may be
    /// waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the port is broken for good.
    fn recv(&mut self, each: impl FnMut(&Arrival<'_>)) -> Result<bool, FabricError>;
}

/// One UDP datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The UDP payload.
    pub payload: &'a [u8],
    /// From whom, and to which of our addresses.
    pub flow: &'a Flow,
    /// The IPv4 identification that it probably had: its index among the segments that the kernel
    /// joined, or 0. A wrong guess costs time only.
    pub ipv4_id: u16,
    /// What the path marked.
    pub ecn: Ecn,
    /// When it arrived, in nanoseconds by the fabric's clock; `None` where the carrier has none.
    pub arrived_ns: Option<u64>,
}
