//! A carrier whose routes change.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, QpAttr, QpRoute, Qpn, RemoteQp};
use farwrite_fabric::nic::NicFabric;

use crate::closure_carrier::ClosureCarrier;

fn addr(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 5000).into()
}

/// The peer knows this end by the address from which a queue pair first sent. That address stays
/// the source when routes change, for any number of other peers.
#[test]
fn a_queue_pair_keeps_its_source_until_it_gets_a_new_route() {
    let sent_from = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&sent_from);
    let carrier = ClosureCarrier::new(move |burst| {
        assert_eq!(burst.sealed_as(), burst.flow());
        log.borrow_mut().push(burst.flow().src());
        burst.len()
    });
    let fabric = NicFabric::new(carrier.clone(), [1; 32]);
    let mut fabric = Adapter::new(fabric).unwrap();
    let attr = QpAttr {
        mtu: 1024,
        port: 0,
        context: 0,
        recv_buffers: 1,
    };
    let connected = |fabric: &mut Adapter<NicFabric<ClosureCarrier>>, host| {
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
    sent_from.borrow_mut().clear();
    fabric.post_send(first, b"x").unwrap();
    fabric.set_route(first, QpRoute::to(addr(100))).unwrap();
    fabric.post_send(first, b"x").unwrap();
    assert_eq!(*sent_from.borrow(), [addr(1), addr(2)]);
}
