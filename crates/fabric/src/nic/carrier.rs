//! What a software NIC needs of whoever moves its packets.

use std::net::SocketAddr;

use super::{Burst, Nic};
use crate::contract::{Completion, FabricError};

/// Moves UDP datagrams for a [`NicFabric`](super::NicFabric), and knows nothing of what is in them.
pub trait Carrier {
    /// Number of ports (sockets), at least 1.
    fn ports(&self) -> u16;
    /// Largest payload of a packet in bytes that fits the carrier; a multiple of 4.
    fn max_mtu(&self) -> u32;
    /// Address of a port below [`Carrier::ports`], as a peer on the same network would write it.
    fn local_addr(&self, port: u16) -> SocketAddr;
    /// A queue pair of a port is about to be connected to `remote`.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`] that says why it cannot be reached.
    fn join(&mut self, port: u16, remote: SocketAddr) -> Result<(), FabricError>;
    /// A queue pair of a port, for which [`Carrier::join`] succeeded, is not connected to `remote`
    /// any more.
    fn part(&mut self, port: u16, remote: SocketAddr);
    /// Sends the packets of a burst in order; returns how many were taken, fewer than all where the
    /// carrier is full for the moment.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the carrier is broken for good.
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError>;
    /// Hands what has arrived to [`Nic::receive`], a bounded amount a call; returns whether more
    /// may be waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the carrier is broken for good.
    fn poll(&mut self, nic: &mut Nic, out: &mut Vec<Completion>) -> Result<bool, FabricError>;
    /// Packets dropped for want of room in a socket, since it was made.
    fn socket_drops(&self) -> u64;
}
