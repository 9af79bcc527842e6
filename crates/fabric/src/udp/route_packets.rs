//! Route packets: datagrams for the owner of the fabric that arrive at the same sockets as RoCE.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite_wire::opcode::ROUTE_PACKET;

use super::UdpFabric;
use super::error::SocketError;
use crate::contract::FabricError;

/// Largest number of route packets that wait for the owner. Further ones are dropped; the network
/// could drop them as well.
const MOST: usize = 256;

/// A route packet (P6.2) that arrived at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteDatagram {
    /// The port of the fabric that received the packet.
    pub port: u16,
    /// Source address.
    pub src: SocketAddr,
    /// Destination address: one of this machine's addresses.
    pub dst: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Route packets on the way from the workers to the owner.
#[derive(Debug, Default)]
pub(super) struct RoutePackets(Mutex<Vec<RouteDatagram>>);

impl RoutePackets {
    /// Whether a datagram is a route packet and not for the NIC.
    pub(super) fn takes(payload: &[u8]) -> bool {
        payload.first() == Some(&ROUTE_PACKET)
    }

    pub(super) fn push(&self, datagram: RouteDatagram) {
        let mut waiting = self.lock();
        if waiting.len() < MOST {
            waiting.push(datagram);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RouteDatagram>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UdpFabric {
    /// Removes and returns the route packets that workers have received. Only their first byte was
    /// checked.
    #[must_use]
    pub fn take_route_packets(&self) -> Vec<RouteDatagram> {
        std::mem::take(&mut *self.carrier().route_packets().lock())
    }

    /// From now on, packets of queue pairs that are too large for the interface count as lost, as
    /// if a router had dropped them. Without this call, they break their queue pair with an error
    /// that names the path MTU. The owner finds out with route packets which sizes pass.
    pub fn lose_too_large(&self) {
        self.carrier().lose_too_large();
    }

    /// Sends a route packet from a port and from one of its addresses (an unspecified address
    /// selects any). Returns whether it fits: a packet that is larger than this machine can send to
    /// `to` is not sent. If there is no room at the moment, the packet is lost.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken, [`FabricError::BadAttribute`] for a
    /// port that does not exist.
    pub fn send_route_packet(
        &self,
        port: u16,
        from: IpAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<bool, FabricError> {
        match self.carrier().send_route_datagram(port, from, to, bytes)? {
            Ok(_) => Ok(true),
            Err(SocketError::TooLarge { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Shared by the carrier and all its workers.
pub(super) type SharedRoutePackets = Arc<RoutePackets>;
