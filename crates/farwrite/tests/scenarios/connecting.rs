//! Queue pairs whose first connection attempt fails.

use farwrite::fabric::contract::FabricError;
use farwrite::fabric::sim::SimNetwork;
use farwrite::{Endpoint, Error, Outcome, QpConfig, QpInfo, QpOptions, SendOptions, Timing};

use crate::world::{SECOND, World, addr, long_haul, options};

#[test]
fn a_queue_pair_whose_peer_is_out_of_reach_can_be_connected_later() {
    let network = SimNetwork::new(1);
    let link = long_haul();
    network
        .connect(addr(1).ip(), addr(2).ip(), link, link)
        .expect("a good link");
    let sdr = QpConfig {
        channels: 2,
        ..QpConfig::default()
    };
    let options = QpOptions { sdr, ..options() };
    let [(mut a, qa), (mut b, qb)] = [1, 2].map(|host| {
        let fabric = network.endpoint(addr(host), 2).expect("a free address");
        let mut endpoint = Endpoint::new(fabric, [host; 32]);
        let qp = endpoint.create_qp(options.clone()).expect("good options");
        (endpoint, qp)
    });
    let (info_a, info_b) = (
        a.qp_info(qa).expect("its own"),
        b.qp_info(qb).expect("its own"),
    );
    let source = a.register(vec![7; 100_000]).expect("room");

    // The simulated host has only IPv4. The queue pairs of channel 0 are connected before the first
    // one of channel 1 is refused. The control queue pair is connected last.
    let ipv6 = "[fd00::2]:4791".parse().expect("an address");
    let mut far_channel = info_b.clone();
    far_channel.channels[1] = ipv6;
    let mut far_control = info_b.clone();
    far_control.control = ipv6;
    for far in [far_channel, far_control] {
        let refused = a.connect_qp(qa, &far);
        assert!(
            matches!(
                refused,
                Err(Error::Fabric(FabricError::BadAttribute { .. }))
            ),
            "{refused:?}"
        );
        let early = a.post_send(qa, source.whole(), SendOptions::default());
        assert!(matches!(early, Err(Error::NotConnected(_))), "{early:?}");
    }

    a.connect_qp(qa, &info_b).expect("within reach");
    b.connect_qp(qb, &info_a).expect("within reach");
    let target = b.register(vec![0; 100_000]).expect("room");
    let recv = b.post_recv(qb, target.whole()).expect("a free slot");
    let send = a
        .post_send(qa, source.whole(), SendOptions::default())
        .expect("connected");
    while send.outcome().is_none() && network.now_ns() < SECOND {
        let now_ns = network.now_ns();
        let wanted = [
            a.poll(now_ns).expect("works"),
            b.poll(now_ns).expect("works"),
            network.next_ns(),
        ];
        let next_ns = wanted.into_iter().flatten().min().expect("more to do");
        network.advance_to(next_ns.max(now_ns + 1));
    }
    assert_eq!(send.outcome(), Some(Outcome::Whole));
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
}

#[test]
fn queue_pairs_know_which_endpoint_they_are_connected_to() {
    let mut world = World::new(1, long_haul(), &options());
    let [a, b] = [&world.a, &world.b].map(|end| end.endpoint.id());
    assert_ne!(a, b);
    let peer_of_a = world.a.endpoint.peer_id(world.a.qp).expect("its own");
    let peer_of_b = world.b.endpoint.peer_id(world.b.qp).expect("its own");
    assert_eq!((peer_of_a, peer_of_b), (Some(b), Some(a)));

    // A second queue pair between them, over the bytes of P6.
    let [second_a, second_b] = [&mut world.a, &mut world.b].map(|end| {
        let qp = end.endpoint.create_qp(options()).expect("good options");
        assert_eq!(end.endpoint.peer_id(qp).expect("its own"), None);
        qp
    });
    let info = world.b.endpoint.qp_info(second_b).expect("its own");
    let bytes = info.encode().expect("good information");
    let info = QpInfo::decode(&bytes).expect("good bytes");
    world.a.endpoint.connect_qp(second_a, &info).expect("fits");
    let peer = world.a.endpoint.peer_id(second_a).expect("its own");
    assert_eq!(peer, peer_of_a);
}

#[test]
fn ends_with_different_timing_do_not_connect() {
    let mut world = World::new(1, long_haul(), &options());
    let options = QpOptions {
        timing: Timing::datacenter(),
        ..options()
    };
    let qp = world.a.endpoint.create_qp(options).expect("good options");
    let info = world.b.endpoint.qp_info(world.b.qp).expect("its own");
    let error = world.a.endpoint.connect_qp(qp, &info).expect_err("another");
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("wide_area at the peer and datacenter here"),
        "{text}"
    );
}

#[test]
fn a_timing_that_cannot_work_is_refused_with_its_field() {
    let mut world = World::new(1, long_haul(), &options());
    let options = QpOptions {
        timing: Timing {
            min_ping_ns: 0,
            ..Timing::wide_area()
        },
        ..options()
    };
    let error = world
        .a
        .endpoint
        .create_qp(options)
        .expect_err("no such time");
    assert!(
        error.to_string().contains("timing.min_ping_ns = 0"),
        "{error}"
    );
}
