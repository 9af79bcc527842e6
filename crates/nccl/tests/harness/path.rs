//! A path that is long and loses packets.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_link::{LinkConfig, Loss};

use crate::{NEWEST, case, row};

/// Messages of half a mebibyte, eight at a time, over 200 Mbit/s with a round trip of 25 ms and a loss of 1e-3.
pub(crate) fn crosses_a_lossy_path(messages: u32) -> bool {
    // The port of the rank that receives. Nobody takes it in the moment in which it is free.
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let listener = free.local_addr().expect("an address");
    drop(free);
    let link = LinkConfig {
        rate_bps: Some(200_000_000),
        delay: Duration::from_micros(12_500),
        loss: Loss::Iid { loss_packet: 1e-3 },
        ..LinkConfig::default()
    };
    let ends = PortPair {
        a: Side::learning(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        b: Side::facing(listener),
    };
    let config = UdpEmulatorConfig {
        forward: link,
        backward: link,
        seed: 7,
        channels: vec![ends],
        verbatim: true,
    };
    let emulator = UdpEmulator::start(&config).expect("an emulator");
    let mut command = case(NEWEST, "channel", messages);
    command
        .env("FARWRITE_NCCL_PORT", listener.port().to_string())
        .env(
            "FARWRITE_NCCL_ADDRESS",
            emulator.addresses()[0][0].to_string(),
        );
    let passes = row(NEWEST, "path", messages, &mut command);
    let counters = emulator.stop().expect("the emulator has worked");
    assert!(
        counters.forward.link.lost > 0,
        "nothing was lost: {counters:?}"
    );
    passes
}
