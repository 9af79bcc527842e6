//! The interface between the software NIC and the code that moves its packets.

use std::net::{IpAddr, SocketAddr};

use farwrite_wire::icrc::Flow;

use super::Burst;
use crate::contract::{Ecn, FabricError};

/// Moves UDP datagrams for a [`NicFabric`](super::NicFabric). A carrier does not know their
/// content.
pub trait Carrier {
    /// The sending half of a port.
    type Tx: CarrierTx;
    /// The receiving half of a port.
    type Rx: CarrierRx;
    /// Whether ghosts are allowed. They work only if no other machine receives the packets.
    const GHOSTS: bool;

    /// Number of ports (sockets), at least 1.
    fn ports(&self) -> u16;
    /// Largest payload of a packet that the carrier can send, in bytes; a multiple of 4.
    fn max_mtu(&self) -> u32;
    /// Address of a port below [`Carrier::ports`], as a peer on the same network would write it.
    fn local_addr(&self, port: u16) -> SocketAddr;
    /// The sending half of a port; `None` if it was taken before.
    fn take_tx(&mut self, port: u16) -> Option<Self::Tx>;
    /// The receiving half of a port; `None` if it was taken before.
    fn take_rx(&mut self, port: u16) -> Option<Self::Rx>;
    /// The addresses in the headers of packets from a port to `remote`. A port with several addresses sends from
    /// `local`, if it is given.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`] with the reason why `remote` cannot be reached.
    fn flow(
        &self,
        port: u16,
        local: Option<IpAddr>,
        remote: SocketAddr,
    ) -> Result<Flow, FabricError>;
    /// Announces one more queue pair of the port with these ends.
    fn join(&mut self, _port: u16, _ends: Ends) {}
    /// Announces one queue pair less with these ends.
    fn leave(&mut self, _port: u16, _ends: Ends) {}
    /// Packets dropped since creation because a socket buffer was full: first those of peers, as
    /// far as is known, then those of strangers.
    fn socket_drops(&self) -> [u64; 2];
}

/// The two ends of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The address of the port to which the peer sends.
    pub local: IpAddr,
    /// The only permitted source of packets.
    pub peer: SocketAddr,
}

/// The sending half of a port.
pub trait CarrierTx {
    /// Sends the packets of a burst in order. Returns how many were accepted; fewer than all means
    /// that the carrier is full at the moment.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken. Another error if these packets cannot
    /// be sent, but others can.
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError>;
    /// The same, but the packets may leave together with those of the next [`CarrierTx::send`], before them,
    /// or at [`CarrierTx::flush`]. If they cannot be sent, a later burst to the same address fails.
    ///
    /// # Errors
    /// Those of [`CarrierTx::send`].
    fn hold(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        self.send(burst)
    }
    /// Sends what is held. Returns false if the carrier is full at the moment, so that packets are left.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken.
    fn flush(&mut self) -> Result<bool, FabricError> {
        Ok(true)
    }
}

/// The receiving half of a port.
pub trait CarrierRx {
    /// Passes arrived datagrams to `each`, a bounded number per call. Returns whether more may be
    /// waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken.
    fn recv(&mut self, each: impl FnMut(&mut Arrival<'_>)) -> Result<bool, FabricError>;
}

/// A UDP datagram that has arrived.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The UDP payload. Sealed bytes are opened in their place.
    pub payload: &'a mut [u8],
    /// Its source address, and the local address that it arrived at.
    pub flow: &'a Flow,
    /// The IPv4 identification that it probably had: its index among the segments that the kernel
    /// joined, or 0. A wrong guess only costs time.
    pub ipv4_id: u16,
    /// The congestion marking of the packet.
    pub ecn: Ecn,
    /// Arrival time by the fabric's clock, in nanoseconds; `None` if the carrier has no clock.
    pub arrived_ns: Option<u64>,
}
