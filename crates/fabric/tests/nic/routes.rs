//! A carrier whose routes change.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, QpAttr, QpRoute, Qpn, RemoteQp};
use farwrite_fabric::nic::{Arrival, Burst, Carrier, CarrierRx, CarrierTx, NicFabric};
use farwrite_wire::icrc::Flow;

/// Sends from the source address of the current route, and delivers nothing.
#[derive(Clone)]
struct Roaming {
    local: Rc<Cell<SocketAddr>>,
    /// Source addresses of sent packets.
    sent_from: Rc<RefCell<Vec<SocketAddr>>>,
}

impl Carrier for Roaming {
    type Tx = Self;
    type Rx = Self;
    const GHOSTS: bool = false;

    fn ports(&self) -> u16 {
        1
    }
    fn max_mtu(&self) -> u32 {
        1024
    }
    fn local_addr(&self, _port: u16) -> SocketAddr {
        self.local.get()
    }
    fn take_tx(&mut self, _port: u16) -> Option<Self> {
        Some(self.clone())
    }
    fn take_rx(&mut self, _port: u16) -> Option<Self> {
        Some(self.clone())
    }
    fn flow(&self, _port: u16, remote: SocketAddr) -> Result<Flow, FabricError> {
        Ok(Flow::new(self.local.get(), remote).unwrap())
    }
    fn socket_drops(&self) -> [u64; 2] {
        [0, 0]
    }
}

impl CarrierTx for Roaming {
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        assert_eq!(burst.sealed_as(), burst.flow());
        self.sent_from.borrow_mut().push(burst.flow().src());
        Ok(burst.len())
    }
}

impl CarrierRx for Roaming {
    fn recv(&mut self, _each: impl FnMut(&Arrival<'_>)) -> Result<bool, FabricError> {
        Ok(false)
    }
}

fn addr(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 5000).into()
}

/// The peer knows this end by the address from which a queue pair first sent. That address stays
/// the source when routes change, for any number of other peers.
#[test]
fn a_queue_pair_keeps_its_source_until_it_gets_a_new_route() {
    let carrier = Roaming {
        local: Rc::new(Cell::new(addr(1))),
        sent_from: Rc::default(),
    };
    let fabric = NicFabric::new(carrier.clone(), [1; 32]);
    let mut fabric = Adapter::new(fabric).unwrap();
    let attr = QpAttr {
        mtu: 1024,
        port: 0,
        context: 0,
        recv_buffers: 1,
    };
    let connected = |fabric: &mut Adapter<NicFabric<Roaming>>, host| {
        let qpn = fabric.create_qp(attr).unwrap();
        let remote = RemoteQp {
            addr: addr(host),
            qpn: Qpn(2),
        };
        fabric.connect_qp(qpn, remote).unwrap();
        qpn
    };
    let first = connected(&mut fabric, 100);
    carrier.local.set(addr(2));
    for host in 0..100 {
        let other = connected(&mut fabric, host);
        fabric.post_send(other, b"x").unwrap();
    }
    carrier.sent_from.borrow_mut().clear();
    fabric.post_send(first, b"x").unwrap();
    fabric.set_route(first, QpRoute::to(addr(100))).unwrap();
    fabric.post_send(first, b"x").unwrap();
    assert_eq!(*carrier.sent_from.borrow(), [addr(1), addr(2)]);
}
