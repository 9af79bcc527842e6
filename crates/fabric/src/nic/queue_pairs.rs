//! Queue pairs: who is joined to whom, and what each may still receive.

use std::net::SocketAddr;

use super::numbers::{ByNumber, Numbers};
use crate::contract::{Capabilities, FabricError, QpAttr, Qpn, RemoteQp};

/// Most queue pairs: 2^-8 of all numbers, so that a guessed one is seldom right.
const MOST: usize = 1 << 16;

/// UDP port of RoCEv2 (IBTA annex A17.9.2). RNICs know no other.
pub(super) const ROCE_PORT: u16 = 4791;

/// All queue pairs of a NIC.
#[derive(Default)]
pub(super) struct QueuePairs {
    table: ByNumber<QueuePair>,
}

/// One queue pair.
pub(super) struct QueuePair {
    pub(super) attr: QpAttr,
    pub(super) remote: Option<RemoteQp>,
    /// PSN of the next packet out, in the low 24 bits.
    pub(super) psn: u32,
    /// Receives posted and not used up.
    pub(super) receives: u32,
}

impl QueuePairs {
    pub(super) fn create(
        &mut self,
        numbers: &mut Numbers,
        capabilities: &Capabilities,
        attr: QpAttr,
    ) -> Result<Qpn, FabricError> {
        let most = capabilities.max_mtu;
        if attr.mtu == 0 || !attr.mtu.is_multiple_of(4) || attr.mtu > most {
            return Err(FabricError::BadAttribute {
                name: "mtu",
                value: attr.mtu.to_string(),
                want: format!("a multiple of 4, from 4 to {most}"),
            });
        }
        if attr.port >= capabilities.ports {
            return Err(FabricError::BadAttribute {
                name: "port",
                value: attr.port.to_string(),
                want: format!("less than {}", capabilities.ports),
            });
        }
        if self.table.len() >= MOST {
            return Err(FabricError::OutOfResources("queue pair"));
        }
        let qpn = numbers.qpn(&self.table);
        self.table.insert(
            qpn,
            QueuePair {
                attr,
                remote: None,
                psn: numbers.draw_24(),
                receives: 0,
            },
        );
        Ok(Qpn(qpn))
    }

    pub(super) fn destroy(&mut self, qpn: Qpn) -> Result<QueuePair, FabricError> {
        let gone = self.table.remove(&qpn.0);
        gone.ok_or(FabricError::UnknownQp(qpn.0))
    }

    pub(super) fn connect(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        let queue_pair = self.get_mut(qpn)?;
        if queue_pair.remote.is_some() {
            return Err(FabricError::InUse("the queue pair"));
        }
        if remote.qpn.0 < 2 || remote.qpn.0 >= 1 << 24 {
            return Err(FabricError::BadAttribute {
                name: "remote qpn",
                value: format!("{:#x}", remote.qpn.0),
                want: "a number of 24 bits, neither 0 nor 1".into(),
            });
        }
        if remote.addr.port() == 0 || remote.addr.ip().is_unspecified() {
            return Err(FabricError::BadAttribute {
                name: "remote address",
                value: remote.addr.to_string(),
                want: "an address and port of one machine".into(),
            });
        }
        queue_pair.remote = Some(remote);
        Ok(())
    }

    pub(super) fn post_recv(&mut self, qpn: Qpn, count: u32) -> Result<(), FabricError> {
        let queue_pair = self.get_mut(qpn)?;
        let receives = queue_pair.receives.checked_add(count);
        queue_pair.receives = receives
            .filter(|&receives| receives <= queue_pair.attr.recv_depth)
            .ok_or(FabricError::OutOfResources("posted receive"))?;
        Ok(())
    }

    pub(super) fn get(&self, qpn: Qpn) -> Result<&QueuePair, FabricError> {
        self.table.get(&qpn.0).ok_or(FabricError::UnknownQp(qpn.0))
    }

    pub(super) fn get_mut(&mut self, qpn: Qpn) -> Result<&mut QueuePair, FabricError> {
        let queue_pair = self.table.get_mut(&qpn.0);
        queue_pair.ok_or(FabricError::UnknownQp(qpn.0))
    }

    /// The queue pair that a packet names, as the receive path wants it.
    pub(super) fn find(&mut self, qpn: u32) -> Option<&mut QueuePair> {
        self.table.get_mut(&qpn)
    }
}

impl QueuePair {
    /// Whether a packet from `from` comes from this queue pair's peer. An IPv4 address in IPv6
    /// notation is the IPv4 address.
    ///
    /// The port has to match too, unless the peer is a hardware or kernel RNIC, which is known by
    /// its port: RNICs receive on 4791 and spread their flows over many source ports (IBTA annex
    /// A17.9.2).
    pub(super) fn is_peer(&self, from: SocketAddr) -> bool {
        self.remote.is_some_and(|remote| {
            let (ip, port) = (remote.addr.ip().to_canonical(), remote.addr.port());
            ip == from.ip().to_canonical() && (port == from.port() || port == ROCE_PORT)
        })
    }

    /// Passes the PSNs of `packets` packets sent.
    pub(super) fn advance(&mut self, packets: usize) {
        // What the cast cuts off are multiples of 2^24.
        #[allow(clippy::cast_possible_truncation)]
        let packets = packets as u32;
        self.psn = self.psn.wrapping_add(packets);
    }
}
