//! Queue pairs, ports and receives.

use std::collections::BTreeSet;

use farwrite_fabric::contract::{
    Completion, DropReason, Fabric, FabricError, QpAttr, Qpn, RemoteQp, Rkey,
};

use super::{MTU, Pair, World, arrivals, connect, joined, post, queue_pair, send, travel, write};

pub(crate) fn attributes(world: &mut impl World) {
    let mut end = world.end(2);
    let capabilities = end.capabilities();
    assert_eq!(capabilities.ports, 2);
    assert_eq!(capabilities.max_mtu % 4, 0);
    assert_ne!(end.local_addr(0), end.local_addr(1));
    let attr = QpAttr {
        mtu: capabilities.max_mtu,
        port: 1,
        recv_depth: 0,
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

pub(crate) fn connecting(world: &mut impl World) {
    let mut end = world.end(1);
    let qpn = queue_pair(&mut end, 0, MTU);
    let good = RemoteQp {
        addr: world.stranger(),
        qpn: Qpn(2),
    };
    let mut anywhere = good;
    anywhere.addr.set_port(0);
    let mut nowhere = good;
    nowhere.addr.set_ip(match good.addr.ip() {
        std::net::IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    });
    let bad_numbers = [0, 1, 1 << 24, u32::MAX].map(|qpn| RemoteQp {
        qpn: Qpn(qpn),
        ..good
    });
    for remote in bad_numbers.into_iter().chain([anywhere, nowhere]) {
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
    pair.b.post_recv(pair.qb, 1).unwrap();
    let before = pair.before();
    pair.b.disconnect_qp(pair.qb).unwrap();
    send(&mut pair.a, pair.qa, b"from nobody");
    pair.all_dropped(&before, DropReason::Stranger, 1);
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
    // The receive is still posted.
    connect(&mut pair.b, pair.qb, pair.a.local_addr(0), pair.qa);
    send(&mut pair.a, pair.qa, b"from the peer");
    pair.arrivals(1);
}

pub(crate) fn destroying(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let other = joined(&mut pair.a, &mut pair.b, 0);
    pair.b.post_recv(pair.qb, 1).unwrap();
    pair.b.post_recv(other.1, 1).unwrap();
    let before = pair.before();
    send(&mut pair.a, pair.qa, b"late");
    travel(pair.world);
    pair.b.destroy_qp(pair.qb).unwrap();
    pair.all_dropped(&before, DropReason::UnknownQp, 1);
    assert!(matches!(
        pair.b.destroy_qp(pair.qb),
        Err(FabricError::UnknownQp(_))
    ));
    assert!(matches!(
        pair.b.post_recv(pair.qb, 1),
        Err(FabricError::UnknownQp(_))
    ));
    send(&mut pair.a, other.0, b"fine");
    pair.arrivals(1);
}

pub(crate) fn receives(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let full = pair.b.post_recv(pair.qb, 65);
    assert!(matches!(full, Err(FabricError::OutOfResources(_))));
    pair.b.post_recv(pair.qb, 63).unwrap();
    for count in [2, u32::MAX] {
        let full = pair.b.post_recv(pair.qb, count);
        assert!(matches!(full, Err(FabricError::OutOfResources(_))));
    }
    pair.b.post_recv(pair.qb, 1).unwrap();
    send(&mut pair.a, pair.qa, &[]);
    pair.arrivals(1);
    // Room for the one that was used up, and no more.
    assert!(pair.b.post_recv(pair.qb, 2).is_err());
    pair.b.post_recv(pair.qb, 1).unwrap();
}

pub(crate) fn completions_wait(world: &mut impl World) {
    let mut pair = Pair::new(world);
    pair.b.post_recv(pair.qb, 64).unwrap();
    for imm in 0..64 {
        post(&mut pair.a, pair.qa, &write(&[], 0, Rkey(1), imm));
    }
    travel(pair.world);
    assert_eq!(pair.arrivals(64).len(), 64);
    assert!(
        pair.b
            .counters()
            .dropped
            .iter()
            .all(|&dropped| dropped == 0)
    );
}

pub(crate) fn several_ports(world: &mut impl World) {
    let (mut a, mut b) = (world.end(3), world.end(3));
    // Two queue pairs on every port.
    let joints: Vec<_> = (0..6).map(|i| joined(&mut a, &mut b, i % 3)).collect();
    for (imm, &(qa, qb)) in (0..).zip(&joints) {
        b.post_recv(qb, 1).unwrap();
        post(&mut a, qa, &write(&[], 0, Rkey(1), imm));
    }
    let mut arrived: Vec<_> = arrivals(world, &mut b, 6)
        .into_iter()
        .map(|completion| match completion {
            Completion::Write { qpn, imm, .. } => (imm, qpn),
            other => panic!("{other:?}"),
        })
        .collect();
    arrived.sort_unstable();
    let want = (0..).zip(joints.iter().map(|joint| joint.1));
    assert_eq!(arrived, want.collect::<Vec<_>>());
}

pub(crate) fn both_directions(world: &mut impl World) {
    let mut pair = Pair::new(world);
    pair.a.post_recv(pair.qa, 1).unwrap();
    pair.b.post_recv(pair.qb, 1).unwrap();
    send(&mut pair.a, pair.qa, b"ping");
    send(&mut pair.b, pair.qb, b"pong");
    let (qpn, payload) = (pair.qb, b"ping".to_vec());
    assert_eq!(pair.arrivals(1), [Completion::Send { qpn, payload }]);
    let (qpn, payload) = (pair.qa, b"pong".to_vec());
    let at_a = arrivals(pair.world, &mut pair.a, 1);
    assert_eq!(at_a, [Completion::Send { qpn, payload }]);
}
