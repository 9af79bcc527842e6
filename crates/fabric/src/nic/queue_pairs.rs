//! Queue pairs at the control object: which exist, and to whom each is connected.

use super::Ends;
use super::numbers::{ByNumber, Numbers};
use crate::contract::{
    Capabilities, FabricError, MAX_OBJECTS, QpAttr, QpRoute, Qpn, RemoteQp, Table,
};

#[derive(Default)]
pub(super) struct QueuePairs {
    table: ByNumber<QueuePair>,
    next_serial: u64,
}

pub(super) struct QueuePair {
    /// No other queue pair of the NIC ever has it, unlike the number.
    pub(super) serial: u64,
    pub(super) port: u16,
    pub(super) mtu: u32,
    /// The peer's queue pair; `None` if not connected.
    pub(super) remote: Option<Qpn>,
    /// Where packets leave from, and their permitted source, while it is connected.
    pub(super) ends: Option<Ends>,
}

impl QueuePairs {
    /// Returns the number and the serial of the new queue pair.
    pub(super) fn create(
        &mut self,
        numbers: &mut Numbers,
        capabilities: &Capabilities,
        attr: QpAttr,
    ) -> Result<(Qpn, u64), FabricError> {
        attr.check_mtu(capabilities.max_mtu)?;
        if attr.port >= capabilities.ports {
            return Err(FabricError::BadAttribute {
                name: "port",
                value: attr.port.to_string(),
                want: format!("less than {}", capabilities.ports),
            });
        }
        if self.table.len() >= MAX_OBJECTS {
            return Err(FabricError::OutOfResources(Table::QueuePair));
        }
        let qpn = numbers.qpn(&self.table);
        let serial = self.next_serial;
        self.next_serial += 1;
        let queue_pair = QueuePair {
            serial,
            port: attr.port,
            mtu: attr.mtu,
            remote: None,
            ends: None,
        };
        self.table.insert(qpn, queue_pair);
        Ok((Qpn(qpn), serial))
    }

    pub(super) fn destroy(&mut self, qpn: Qpn) -> Result<QueuePair, FabricError> {
        let gone = self.table.remove(&qpn.0);
        gone.ok_or(FabricError::UnknownQp(qpn.0))
    }

    pub(super) fn get_mut(&mut self, qpn: Qpn) -> Result<&mut QueuePair, FabricError> {
        let queue_pair = self.table.get_mut(&qpn.0);
        queue_pair.ok_or(FabricError::UnknownQp(qpn.0))
    }
}

/// Checks that a queue pair can be connected to a peer with this number.
pub(super) fn check_remote(remote: &RemoteQp) -> Result<(), FabricError> {
    remote.check_number()?;
    check_route(&QpRoute::to(remote.addr))
}

/// Checks that each address names one machine and port: no wildcard address, no port 0.
pub(super) fn check_route(route: &QpRoute) -> Result<(), FabricError> {
    let sealed_as = route.sealed_as.into_iter();
    let sealed_as =
        sealed_as.flat_map(|(src, dst)| [("sealed source", src), ("sealed destination", dst)]);
    let addrs = [
        ("remote address", route.destination),
        ("permitted source", route.source),
    ];
    for (name, addr) in addrs.into_iter().chain(sealed_as) {
        if addr.port() == 0 || addr.ip().is_unspecified() {
            return Err(FabricError::BadAttribute {
                name,
                value: addr.to_string(),
                want: "an address and port of one machine".into(),
            });
        }
    }
    Ok(())
}
