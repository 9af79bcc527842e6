//! Endpoints over loopback sockets.

use std::net::{Ipv4Addr, SocketAddr};

use farwrite::{Endpoint, QpConfig, QpOptions, RateControl, UdpConfig, UdpFabric};

/// Returns an endpoint with `ports` sockets.
pub(crate) fn endpoint(ports: u16) -> Endpoint<UdpFabric> {
    let config = UdpConfig {
        ports,
        ..UdpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    };
    Endpoint::over_udp(&config).expect("free ports")
}

/// Returns options for a queue pair that sends through `channels` ports, faster than the sockets
/// take packets, so that packets are lost.
pub(crate) fn options(channels: u8) -> QpOptions {
    QpOptions {
        sdr: QpConfig {
            channels,
            ..QpConfig::default()
        },
        rate_control: RateControl::Fixed {
            rate_bps: 20_000_000_000,
        },
        ..QpOptions::default()
    }
}

/// Returns bytes that differ from packet to packet.
pub(crate) fn payload(seed: u8, bytes: usize) -> Vec<u8> {
    let pattern = (0..=250_u8).cycle().skip(seed.into());
    pattern.take(bytes).collect()
}
