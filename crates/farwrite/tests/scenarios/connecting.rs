//! Queue pairs that cannot be connected at first.

use farwrite::fabric::contract::FabricError;
use farwrite::fabric::sim::SimNetwork;
use farwrite::{Endpoint, Error, Outcome, QpConfig, QpOptions, SendOptions, Timing};

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

    // The simulated host speaks IPv4 only. The queue pairs of channel 0 are connected before the
    // first of channel 1 is refused, and the control queue pair comes last.
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
