//! Connecting queue pairs of the device, and resetting them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farwrite_fabric::contract::{FabricError, QpAttr, Qpn, RemoteQp};

use super::{Connected, ROCE_PORT, VerbsFabric};
use crate::device::{Peer, Receives};
use crate::port::{Port, QueuePair};
use crate::receiving::{Change, Connection, Requests};

impl VerbsFabric {
    pub(super) fn connect(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        let id = self.next_connection;
        let queue_pair = self.queue_pair(qpn)?;
        let port = Arc::clone(self.port_of(queue_pair));
        check_addr(remote.addr, port.address.ip)?;
        let (qp, attr) = (Arc::clone(&queue_pair.qp), queue_pair.attr);
        self.next_connection += 1;
        let has_buffers = attr.recv_buffers > 0;
        let wanted = if has_buffers {
            attr.recv_buffers
        } else {
            self.config.receive_depth.min(self.limits.queue_depth)
        };
        let depth = port.receiving.reserve(wanted, has_buffers)?;
        let started = self.start(&port, &qp, &attr, remote, id, depth);
        let send_depth = self.config.send_depth.min(self.limits.queue_depth);
        let started =
            started.and_then(|(peer, resets)| port.sending.connect(qpn, peer, send_depth, resets));
        if let Err(error) = started {
            let _ = qp.device.reset();
            port.receiving.push(Change::Disconnect(id));
            return Err(error);
        }
        if let Some(queue_pair) = self.queue_pairs.get_mut(&qpn.0) {
            queue_pair.connected = Some(Connected { id, remote });
        }
        Ok(())
    }

    /// Makes a queue pair receive and send. Also returns how often it was reset before.
    fn start(
        &self,
        port: &Port,
        qp: &Arc<QueuePair>,
        attr: &QpAttr,
        remote: RemoteQp,
        id: u64,
        depth: u32,
    ) -> Result<(Peer, u64), FabricError> {
        let prepared = qp.device.prepare(self.config.device_port);
        let mut connection = Connection {
            id,
            qpn: Qpn(qp.device.number()),
            context: attr.context,
            qp: Arc::clone(qp),
            resets: *prepared.as_ref().unwrap_or(&u64::MAX),
            depth,
            spare: Vec::new(),
            requests: Requests::Gone,
        };
        let filled = prepared.and_then(|resets| {
            connection.fill(&mut Receives::default())?;
            Ok(resets)
        });
        // The worker knows the connection before its first completion. It also gives the room back.
        port.receiving.push(Change::Connect(Box::new(connection)));
        let resets = filled?;
        let peer = Peer {
            ip: remote.addr.ip().to_canonical(),
            qpn: remote.qpn.0,
            port: self.config.device_port,
            address_index: port.address.index,
            path_mtu: path_mtu(attr.mtu),
            first_psn: random_psn()?,
        };
        qp.device.connect(&peer)?;
        Ok((peer, resets))
    }

    /// Connects queue pairs again that events of the device have named, if they are broken.
    pub(crate) fn mend(&self, named: &[u32]) -> Result<(), FabricError> {
        for queue_pair in named.iter().filter_map(|qpn| self.queue_pairs.get(qpn)) {
            let (qp, port) = (&queue_pair.qp.device, self.port_of(queue_pair));
            let resets = qp.resets();
            // A failed request may have reported the same break before.
            if queue_pair.connected.is_some() && qp.is_broken() {
                port.sending.fail(port, Qpn(qp.number()), resets)?;
            }
        }
        Ok(())
    }

    /// Resets a connected queue pair. With `report`, its requests count as departed.
    pub(super) fn disconnect(&mut self, qpn: Qpn, report: bool) -> Result<RemoteQp, FabricError> {
        let unknown = FabricError::UnknownQp(qpn.0);
        let queue_pair = self.queue_pairs.get_mut(&qpn.0).ok_or(unknown)?;
        let connected = queue_pair.connected.take();
        let connected = connected.ok_or(FabricError::NotConnected(qpn.0))?;
        let port = self.port_of(self.queue_pair(qpn)?);
        port.sending.disconnect(qpn, report);
        port.receiving.push(Change::Disconnect(connected.id));
        Ok(connected.remote)
    }
}

/// The smallest path MTU (IBTA 9.4) of packets with this payload.
pub(super) fn path_mtu(mtu: u32) -> u32 {
    mtu.next_power_of_two().max(256)
}

/// Checks that a port with the address `own` can reach another address.
pub(super) fn check_addr(addr: SocketAddr, own: IpAddr) -> Result<(), FabricError> {
    let ip = addr.ip().to_canonical();
    let want = if addr.port() != ROCE_PORT {
        format!("port {ROCE_PORT}, the only one of RDMA devices")
    } else if ip.is_unspecified() {
        "the address of one machine".into()
    } else if ip.is_ipv4() != own.is_ipv4() {
        format!("an address of the same family as {own}")
    } else {
        return Ok(());
    };
    Err(FabricError::BadAttribute {
        name: "remote address",
        value: addr.to_string(),
        want,
    })
}

fn random_psn() -> Result<u32, FabricError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|e| FabricError::Io {
        what: "asking the system for randomness".into(),
        source: e.into(),
    })?;
    Ok(u32::from_ne_bytes(bytes) >> 8)
}
