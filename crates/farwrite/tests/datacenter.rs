//! Real sockets under the datacenter profile. An operating system that is often late causes only
//! repeats.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use farwrite::schemes::registry::SchemeName;
use farwrite::{Endpoint, Outcome, QpOptions, SendOptions, UdpConfig};

#[test]
fn messages_cross_loopback_with_every_scheme() {
    let config = UdpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let mut a = Endpoint::over_udp(&config).expect("a socket");
    let mut b = Endpoint::over_udp(&config).expect("a socket");
    assert_ne!(a.id(), b.id());
    let qa = a.create_qp(QpOptions::datacenter()).expect("good options");
    let qb = b.create_qp(QpOptions::datacenter()).expect("good options");
    let (info_a, info_b) = (a.qp_info(qa).expect("own"), b.qp_info(qb).expect("own"));
    a.connect_qp(qa, &info_b).expect("equal options");
    b.connect_qp(qb, &info_a).expect("equal options");

    let bytes = 1 << 20;
    let source = a.register(vec![7_u8; bytes]).expect("room");
    let target = b.register(vec![0_u8; bytes]).expect("room");
    for scheme in SchemeName::EXACT {
        b.write_memory(target, 0, &vec![0; bytes])
            .expect("registered");
        let recv = b.post_recv(qb, target.whole()).expect("a free slot");
        let options = SendOptions {
            scheme: scheme.tag(),
            ..SendOptions::default()
        };
        let send = a.post_send(qa, source.whole(), options).expect("a slot");
        let start = Instant::now();
        while send.outcome().is_none() && start.elapsed() < Duration::from_secs(60) {
            a.poll_now().expect("works");
            b.poll_now().expect("works");
        }
        assert_eq!(send.outcome(), Some(Outcome::Whole), "{scheme}");
        assert_eq!(recv.outcome(), Some(Outcome::Whole), "{scheme}");
        let memory = b.memory(target).expect("registered");
        assert!(memory.iter().all(|&byte| byte == 7), "{scheme}");
    }
}
