//! Queue pairs and ports.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Departed, Fabric, FabricError, QpAttr, QpRoute, Qpn, RemotePlace, RemoteQp, Rkey, WriteWr,
};

use super::{
    Got, MTU, Pair, World, arrivals, completions, connect, departures, joined, post, queue_pair,
    send, travel, write,
};

/// The destination of writes without payload. No end checks it.
const NOWHERE: RemotePlace = RemotePlace {
    addr: 0,
    rkey: Rkey(1),
};

fn ping(qpn: Qpn, payload: &[u8]) -> Got {
    let payload = payload.to_vec();
    Got::Send { qpn, payload }
}

pub(crate) fn attributes(world: &mut impl World) {
    let mut end = world.end(2);
    let capabilities = end.capabilities();
    assert_eq!(capabilities.ports, 2);
    assert_eq!(capabilities.max_mtu % 4, 0);
    assert_ne!(end.local_addr(0), end.local_addr(1));
    let attr = QpAttr {
        mtu: capabilities.max_mtu,
        port: 1,
        context: 0,
        recv_buffers: 0,
    };
    let bad = [
        QpAttr { mtu: 0, ..attr },
        QpAttr { mtu: 1023, ..attr },
        QpAttr { mtu: 6, ..attr },
        QpAttr {
            mtu: capabilities.max_mtu + 4,
            ..attr
        },
        QpAttr { port: 2, ..attr },
    ];
    for attr in bad {
        let error = end.create_qp(attr).unwrap_err();
        assert!(
            matches!(error, FabricError::BadAttribute { .. }),
            "{attr:?}: {error}"
        );
    }
    let numbers: BTreeSet<_> = (0..100).map(|_| end.create_qp(attr).unwrap().0).collect();
    assert_eq!(numbers.len(), 100);
    assert!(numbers.iter().all(|number| (2..1 << 24).contains(number)));
}

pub(crate) fn halves_are_handed_out_once(world: &mut impl World) {
    // The adapter has taken all of them.
    let mut end = world.end(2);
    for port in [0, 1] {
        assert!(matches!(end.take_tx(port), Err(FabricError::InUse(_))));
        assert!(matches!(end.take_rx(port), Err(FabricError::InUse(_))));
    }
    let no_port = |error| matches!(error, FabricError::BadAttribute { name: "port", .. });
    assert!(no_port(end.take_tx(2).err().unwrap()));
    assert!(no_port(end.take_rx(2).err().unwrap()));
}

/// Addresses that no machine can have.
fn bad_addresses(good: SocketAddr) -> [SocketAddr; 2] {
    let mut anywhere = good;
    anywhere.set_port(0);
    let mut nowhere = good;
    nowhere.set_ip(match good {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    });
    [anywhere, nowhere]
}

pub(crate) fn connecting(world: &mut impl World) {
    let mut end = world.end(1);
    let qpn = queue_pair(&mut end, 0, MTU);
    let good = RemoteQp {
        addr: world.stranger(),
        qpn: Qpn(2),
    };
    let bad_numbers = [0, 1, 1 << 24, u32::MAX].map(|qpn| RemoteQp {
        qpn: Qpn(qpn),
        ..good
    });
    let bad_addresses = bad_addresses(good.addr).map(|addr| RemoteQp { addr, ..good });
    for remote in bad_numbers.into_iter().chain(bad_addresses) {
        let error = end.connect_qp(qpn, remote).unwrap_err();
        assert!(
            matches!(error, FabricError::BadAttribute { .. }),
            "{remote:?}: {error}"
        );
    }
    end.connect_qp(qpn, good).unwrap();
    assert!(matches!(
        end.connect_qp(qpn, good),
        Err(FabricError::InUse(_))
    ));
    let nobody = Qpn(qpn.0 ^ 1);
    assert!(matches!(
        end.connect_qp(nobody, good),
        Err(FabricError::UnknownQp(_))
    ));
}

pub(crate) fn disconnecting(world: &mut impl World) {
    let mut pair = Pair::new(world);
    pair.b.disconnect_qp(pair.qb).unwrap();
    send(&mut pair.a, pair.qa, b"from nobody");
    pair.nothing_lands();
    assert!(matches!(
        pair.b.post_send(pair.qb, b"to nobody"),
        Err(FabricError::NotConnected(_))
    ));
    assert!(matches!(
        pair.b.disconnect_qp(pair.qb),
        Err(FabricError::NotConnected(_))
    ));
    let nobody = Qpn(pair.qb.0 ^ 1);
    assert!(matches!(
        pair.b.disconnect_qp(nobody),
        Err(FabricError::UnknownQp(_))
    ));
    let addr = pair.a.local_addr(0);
    connect(&mut pair.b, pair.qb, addr, pair.qa);
    send(&mut pair.a, pair.qa, b"from the peer");
    pair.arrivals(1);
}

pub(crate) fn destroying(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let other = joined(&mut pair.a, &mut pair.b, 0);
    send(&mut pair.a, pair.qa, b"late");
    travel(pair.world);
    pair.b.destroy_qp(pair.qb).unwrap();
    pair.nothing_lands();
    assert!(matches!(
        pair.b.destroy_qp(pair.qb),
        Err(FabricError::UnknownQp(_))
    ));
    assert!(matches!(
        pair.b.post_send(pair.qb, b"x"),
        Err(FabricError::UnknownQp(_))
    ));
    send(&mut pair.a, other.0, b"fine");
    pair.arrivals(1);
}

pub(crate) fn completions_wait(world: &mut impl World) {
    let mut pair = Pair::new(world);
    for imm in 0..64 {
        post(&mut pair.a, pair.qa, &write(&[], NOWHERE, imm));
    }
    travel(pair.world);
    assert_eq!(pair.arrivals(64).len(), 64);
}

pub(crate) fn contexts<W: World>(world: &mut W) {
    let mut pair = Pair::new(world);
    let addrs = [pair.a.local_addr(0), pair.b.local_addr(0)];
    let with_context = |end: &mut Adapter<W::Fabric>, context| {
        let attr = QpAttr {
            mtu: MTU,
            port: 0,
            context,
            recv_buffers: 64,
        };
        end.create_qp(attr).unwrap()
    };
    for (at_a, at_b) in [(7, u64::MAX), (1 << 40, 0)] {
        let (qa, qb) = (
            with_context(&mut pair.a, at_a),
            with_context(&mut pair.b, at_b),
        );
        for _ in ["connected", "connected again"] {
            connect(&mut pair.a, qa, addrs[1], qb);
            connect(&mut pair.b, qb, addrs[0], qa);
            let signaled = WriteWr {
                wr_id: 3,
                signaled: true,
                ..write(&[], NOWHERE, 0)
            };
            post(&mut pair.a, qa, &signaled);
            send(&mut pair.a, qa, b"ping");
            for completion in completions(pair.world, &mut pair.b, 2) {
                assert_eq!((completion.qpn(), completion.context()), (qb, at_b));
            }
            let departed = Departed {
                qpn: qa,
                context: at_a,
                wr_id: 3,
            };
            assert_eq!(departures(pair.world, &mut pair.a, 1), [departed]);
            pair.a.disconnect_qp(qa).unwrap();
            pair.b.disconnect_qp(qb).unwrap();
        }
    }
}

pub(crate) fn several_ports(world: &mut impl World) {
    let (mut a, mut b) = (world.end(3), world.end(3));
    // Two queue pairs on every port.
    let joints: Vec<_> = (0..6).map(|i| joined(&mut a, &mut b, i % 3)).collect();
    for (imm, &(qa, _)) in (0..).zip(&joints) {
        post(&mut a, qa, &write(&[], NOWHERE, imm));
    }
    let mut arrived = arrivals(world, &mut b, 6);
    arrived.sort_unstable();
    let landed = |(imm, &(_, qpn)): (u32, &(Qpn, Qpn))| Got::Write { qpn, imm, bytes: 0 };
    let mut want: Vec<_> = (0..).zip(&joints).map(landed).collect();
    want.sort_unstable();
    assert_eq!(arrived, want);
}

pub(crate) fn both_directions(world: &mut impl World) {
    let mut pair = Pair::new(world);
    send(&mut pair.a, pair.qa, b"ping");
    send(&mut pair.b, pair.qb, b"pong");
    assert_eq!(pair.arrivals(1), [ping(pair.qb, b"ping")]);
    let at_a = arrivals(pair.world, &mut pair.a, 1);
    assert_eq!(at_a, [ping(pair.qa, b"pong")]);
}

pub(crate) fn only_control_takes_sends(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let attr = QpAttr {
        mtu: MTU,
        port: 0,
        context: 0,
        recv_buffers: 0,
    };
    let data = pair.b.create_qp(attr).unwrap();
    let addr = pair.a.local_addr(0);
    connect(&mut pair.b, data, addr, pair.qa);
    let to_data = queue_pair(&mut pair.a, 0, MTU);
    let addr = pair.b.local_addr(0);
    connect(&mut pair.a, to_data, addr, data);
    send(&mut pair.a, to_data, b"no buffer");
    pair.nothing_lands();
    // Writes need no receive buffers, for any number of arrivals between two polls.
    for imm in 0..100 {
        post(&mut pair.a, to_data, &write(&[], NOWHERE, imm));
    }
    pair.arrivals(100);
}

pub(crate) fn a_new_route(world: &mut impl World) {
    let (mut a, mut b) = (world.end(2), world.end(2));
    let (qa, qb) = joined(&mut a, &mut b, 0);
    // The peer's queue pair moves to the other port of the peer.
    let moved = queue_pair(&mut b, 1, MTU);
    connect(&mut b, moved, a.local_addr(0), qa);
    let to_moved = queue_pair(&mut a, 0, MTU);
    connect(&mut a, to_moved, b.local_addr(0), moved);
    send(&mut a, to_moved, b"to the old address");
    travel(world);
    let mut lost = Vec::new();
    b.poll(&mut lost).unwrap();
    assert_eq!(lost, []);
    let route = QpRoute::to(b.local_addr(1));
    a.set_route(to_moved, route).unwrap();
    send(&mut a, to_moved, b"to the new one");
    assert_eq!(arrivals(world, &mut b, 1), [ping(moved, b"to the new one")]);
    // The other queue pair has not moved.
    send(&mut a, qa, b"as before");
    assert_eq!(arrivals(world, &mut b, 1), [ping(qb, b"as before")]);
    for addr in bad_addresses(route.source) {
        for route in [
            QpRoute {
                source: addr,
                ..route
            },
            QpRoute {
                destination: addr,
                ..route
            },
            QpRoute {
                sealed_as: Some((route.source, addr)),
                ..route
            },
        ] {
            let error = a.set_route(qa, route).unwrap_err();
            assert!(matches!(error, FabricError::BadAttribute { .. }), "{error}");
        }
    }
    let alone = queue_pair(&mut a, 0, MTU);
    let error = a.set_route(alone, route).unwrap_err();
    assert!(matches!(error, FabricError::NotConnected(qpn) if qpn == alone.0));
    let error = a.set_route(Qpn(0), route).unwrap_err();
    assert!(matches!(error, FabricError::UnknownQp(0)));
}
