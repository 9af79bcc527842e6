//! Path packets: what arrives beside RoCE, for the owner of the fabric.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite_wire::opcode::PATH_PACKET;

use super::UdpFabric;
use super::error::SocketError;
use crate::contract::FabricError;

/// Path packets that wait for the owner; more are dropped, as the network could.
const MOST: usize = 256;

/// A path packet (P6.2) that arrived at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathDatagram {
    /// The port of the fabric.
    pub port: u16,
    /// Where it came from.
    pub src: SocketAddr,
    /// Which of this machine's addresses it came to.
    pub dst: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Path packets on their way from the workers to the owner.
#[derive(Debug, Default)]
pub(super) struct Aside(Mutex<Vec<PathDatagram>>);

impl Aside {
    /// Whether a datagram belongs here and not to the NIC.
    pub(super) fn takes(payload: &[u8]) -> bool {
        payload.first() == Some(&PATH_PACKET)
    }

    pub(super) fn push(&self, datagram: PathDatagram) {
        let mut waiting = self.lock();
        if waiting.len() < MOST {
            waiting.push(datagram);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathDatagram>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UdpFabric {
    /// The path packets that workers have received since the last call. They are whatever came with
    /// the first byte of one: nothing has been checked.
    #[must_use]
    pub fn take_path_packets(&self) -> Vec<PathDatagram> {
        std::mem::take(&mut *self.carrier().aside().lock())
    }

    /// Sends a path packet from a port, and from one of its addresses (any, where it is
    /// unspecified). Returns whether it fits: a larger one than this machine sends to `to` is not
    /// sent. One for which there is no room now is lost.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the port is broken for good, [`FabricError::BadAttribute`] for a
    /// port that does not exist.
    pub fn send_path_packet(
        &self,
        port: u16,
        from: IpAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<bool, FabricError> {
        match self.carrier().send_aside(port, from, to, bytes)? {
            Ok(_) => Ok(true),
            Err(SocketError::TooLarge { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Shared by the carrier and all its workers.
pub(super) type SharedAside = Arc<Aside>;
