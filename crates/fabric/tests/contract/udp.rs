//! The contract suite over loopback sockets.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::Fabric;
use farwrite_fabric::udp::{SocketConfig, UdpConfig, UdpFabric};
use rustix::net::sockopt;

use crate::software::SoftwareWorld;
use crate::suite::World;

/// Fabrics bound to free ports of one address.
struct UdpWorld {
    socket: SocketConfig,
    stranger: UdpSocket,
}

impl UdpWorld {
    fn new(bind: &str, offload: bool) -> Self {
        let socket = SocketConfig {
            offload,
            ..SocketConfig::new(bind.parse().unwrap())
        };
        let ports = 1;
        let any = UdpFabric::bind(&UdpConfig { socket, ports }).unwrap();
        let stranger = UdpSocket::bind((any.local_addr(0).ip(), 0)).unwrap();
        Self { socket, stranger }
    }
}

impl World for UdpWorld {
    type Fabric = UdpFabric;

    fn end(&mut self, ports: u16) -> Adapter<UdpFabric> {
        let socket = self.socket;
        let fabric = UdpFabric::bind(&UdpConfig { socket, ports }).unwrap();
        Adapter::new(fabric).unwrap()
    }

    fn step(&mut self) {
        std::thread::sleep(Duration::from_micros(50));
    }

    fn stranger(&self) -> SocketAddr {
        self.stranger.local_addr().unwrap()
    }
}

impl SoftwareWorld for UdpWorld {
    fn forge(&mut self, to: SocketAddr, payload: &[u8], tos: u8) {
        match to {
            SocketAddr::V4(_) => sockopt::set_ip_tos(&self.stranger, tos),
            SocketAddr::V6(_) => sockopt::set_ipv6_tclass(&self.stranger, tos.into()),
        }
        .unwrap();
        let sent = self.stranger.send_to(payload, to).unwrap();
        assert_eq!(sent, payload.len());
    }
}

mod v4 {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", true));
}

mod v6 {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("[::1]:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("[::1]:0", true));
}

mod wildcard {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("0.0.0.0:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("0.0.0.0:0", true));
}

mod dual_stack_wildcard {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("[::]:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("[::]:0", true));
}

mod without_offloads {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", false));
    crate::software::software_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", false));
}
