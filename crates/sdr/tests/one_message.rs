//! One message from end to end.

use farwrite_sdr::*;
use farwrite_wire::control::Outcome;
use std::net::SocketAddr;

fn info(config: QpConfig) -> QpInfo {
    let addr: SocketAddr = "10.0.0.1:4791".parse().unwrap();
    QpInfo {
        config,
        control: addr,
        channels: vec![addr; config.channels.into()],
        control_qpn: 17,
        data_qpns: vec![vec![18; config.channels.into()]; config.generations.into()],
        control_key: [7; 32],
    }
}
#[test]
fn one_message() {
    let config = QpConfig {
        slots: 4,
        max_message_bytes: 1 << 20,
        ..QpConfig::default()
    };
    let mut a = SdrQp::new(config).unwrap();
    let mut b = SdrQp::new(config).unwrap();
    let blob = QpInfo::decode(&info(config).encode().unwrap()).unwrap();
    a.connect(&blob).unwrap();
    b.connect(&blob).unwrap();
    let m = a
        .start_send(SendSpec {
            length: Some(10_000),
            immediate: Some(0xdead_beef),
            ..Default::default()
        })
        .unwrap();
    let place = b.next_recv().unwrap();
    let bits = b
        .post_recv(
            place,
            Target {
                rkey: 5,
                base: 0,
                length: 20_000,
            },
        )
        .unwrap();
    while let Some(c) = a.poll_control(0, 0) {
        b.handle_control(0, &c).unwrap();
    }
    while let Some(c) = b.poll_control(0, 0) {
        a.handle_control(0, &c).unwrap();
    }
    assert_eq!(a.poll_event(), Some(Event::ClearToSend { message: m }));
    for w in a.writes(m, 0..u32::MAX) {
        b.table().handle_packet(w.generation, w.imm, w.bytes);
    }
    assert!(bits.is_complete());
    assert_eq!(bits.bytes(), 10_000);
    assert_eq!(b.recv_immediate(0), Ok(0xdead_beef));
    b.complete_recv(0, Outcome::Whole).unwrap();
    while let Some(c) = b.poll_control(0, 0) {
        a.handle_control(0, &c).unwrap();
    }
    assert_eq!(
        a.poll_event(),
        Some(Event::Closed {
            message: m,
            outcome: Outcome::Whole
        })
    );
}
