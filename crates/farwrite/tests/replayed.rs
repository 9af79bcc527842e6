//! Real sockets where every packet arrives twice, like under a replay attack.

use std::time::{Duration, Instant};

use farwrite::{Endpoint, Outcome, QpOptions, SendOptions, UdpConfig};
use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_link::LinkConfig;

#[test]
fn replayed_packets_change_nothing() {
    for loopback in ["127.0.0.1:0", "[::1]:0"] {
        let config = UdpConfig::new(loopback.parse().expect("an address"));
        let mut a = Endpoint::over_udp(&config).expect("a socket");
        let mut b = Endpoint::over_udp(&config).expect("a socket");
        let qa = a.create_qp(QpOptions::default()).expect("good options");
        let qb = b.create_qp(QpOptions::default()).expect("good options");
        let mut info_a = a.qp_info(qa).expect("own queue pair");
        let mut info_b = b.qp_info(qb).expect("own queue pair");
        let link = LinkConfig {
            delay: Duration::from_millis(2),
            duplicate: 1.0,
            ..LinkConfig::default()
        };
        let emulator = UdpEmulator::start(&UdpEmulatorConfig {
            forward: link,
            backward: link,
            seed: 1,
            channels: vec![PortPair {
                a: Side::facing(info_a.control),
                b: Side::facing(info_b.control),
            }],
            ..UdpEmulatorConfig::default()
        });
        let emulator = emulator.expect("loopback");
        let [to_b, to_a] = emulator.addresses()[0];
        (info_a.control, info_b.control) = (to_a, to_b);
        info_a.channels.fill(to_a);
        info_b.channels.fill(to_b);
        a.connect_qp(qa, &info_b).expect("equal options");
        b.connect_qp(qb, &info_a).expect("equal options");

        let source = a.register(vec![7_u8; 1 << 20]).expect("room");
        let target = b.register(vec![0_u8; 1 << 20]).expect("room");
        let recv = b.post_recv(qb, target.whole()).expect("a free slot");
        let send = a.post_send(qa, source.whole(), SendOptions::default());
        let send = send.expect("a free slot");
        let start = Instant::now();
        while send.outcome().is_none() && start.elapsed() < Duration::from_secs(60) {
            a.poll_now().expect("works");
            b.poll_now().expect("works");
        }
        assert_eq!(recv.outcome(), Some(Outcome::Whole), "{loopback}");
        assert_eq!(send.outcome(), Some(Outcome::Whole), "{loopback}");
        assert!(
            b.memory(target)
                .expect("registered")
                .iter()
                .all(|&byte| byte == 7)
        );
        // Each control packet is accepted only once. The second copy of a data packet arrives, but
        // has no effect.
        let (stats_a, stats_b) = (a.qp_stats(qa).expect("own"), b.qp_stats(qb).expect("own"));
        assert!(stats_a.refused_controls > 0, "{stats_a:?}");
        assert!(stats_b.refused_controls > 0, "{stats_b:?}");
        assert!(
            stats_b.duplicate_packets + stats_b.late_packets > 0,
            "{stats_b:?}"
        );
    }
}
