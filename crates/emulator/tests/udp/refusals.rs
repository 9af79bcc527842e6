//! Configurations that an emulator refuses, and how an emulator stops.

use std::net::UdpSocket;

use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_link::{LinkConfig, Loss};

use crate::end::{End, Setup, set_up};

fn refusal(config: &UdpEmulatorConfig) -> String {
    UdpEmulator::start(config)
        .expect_err("a refusal")
        .to_string()
}

#[test]
fn errors_say_what_is_wrong() {
    let near = Side::learning("127.0.0.1:0".parse().unwrap());
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 2.0 },
        ..LinkConfig::default()
    };
    let good = UdpEmulatorConfig {
        channels: vec![PortPair { a: near, b: near }],
        ..UdpEmulatorConfig::default()
    };
    let b = |b| UdpEmulatorConfig {
        channels: vec![PortPair { a: near, b }],
        ..UdpEmulatorConfig::default()
    };
    let taken = End::new("127.0.0.1:0");
    let cases = [
        (
            UdpEmulatorConfig {
                backward: lossy,
                ..good.clone()
            },
            "backward link loss.loss_packet = 2".into(),
        ),
        (
            UdpEmulatorConfig {
                channels: Vec::new(),
                ..good
            },
            "at least one channel".into(),
        ),
        (
            b(Side::learning("0.0.0.0:0".parse().unwrap())),
            "0.0.0.0:0 is no loopback address".into(),
        ),
        (
            b(Side {
                end: Some("192.0.2.1:4791".parse().unwrap()),
                ..near
            }),
            "192.0.2.1:4791 is no loopback address".into(),
        ),
        (
            b(Side {
                end: Some("[::1]:4791".parse().unwrap()),
                ..near
            }),
            "not of one IP version".into(),
        ),
        (
            b(Side::learning(taken.addr())),
            format!("binding UDP {}", taken.addr()),
        ),
    ];
    for (config, want) in cases {
        let text = refusal(&config);
        assert!(text.contains(&want), "{text:?} lacks {want:?}");
    }
}

#[test]
fn dropping_stops_the_thread_and_frees_the_ports() {
    let Setup {
        a,
        b,
        a_side,
        b_side,
        emulator,
    } = set_up("127.0.0.1:0", UdpEmulatorConfig::default());
    a.send(a_side, 1, 64);
    b.receive();
    assert!(UdpSocket::bind(a_side).is_err());
    drop(emulator);
    assert!(UdpSocket::bind(a_side).is_ok() && UdpSocket::bind(b_side).is_ok());
}
