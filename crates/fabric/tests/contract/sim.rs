//! The contract suite in virtual time.

use std::net::SocketAddr;

use farwrite_fabric::Adapter;
use farwrite_fabric::sim::{Datagram, LinkConfig, SimFabric, SimNetwork};

use crate::software::SoftwareWorld;
use crate::suite::World;

/// Hosts on one network of perfect links.
struct SimWorld {
    network: SimNetwork,
    hosts: Vec<SocketAddr>,
    stranger: SocketAddr,
}

impl SimWorld {
    fn new(stranger: &str) -> Self {
        Self {
            network: SimNetwork::new(1),
            hosts: Vec::new(),
            stranger: stranger.parse().unwrap(),
        }
    }

    fn v4() -> Self {
        Self::new("10.0.0.1:6000")
    }

    fn v6() -> Self {
        Self::new("[fd00::1]:6000")
    }
}

impl World for SimWorld {
    type Fabric = SimFabric;

    fn end(&mut self, ports: u16) -> Adapter<SimFabric> {
        let mut addr = self.stranger;
        let host = self.hosts.len() + 2;
        addr.set_ip(match addr {
            SocketAddr::V4(_) => format!("10.0.0.{host}").parse().unwrap(),
            SocketAddr::V6(_) => format!("fd00::{host}").parse().unwrap(),
        });
        let perfect = LinkConfig::default();
        for other in &self.hosts {
            self.network
                .connect(addr.ip(), other.ip(), perfect, perfect)
                .unwrap();
        }
        self.hosts.push(addr);
        Adapter::new(self.network.endpoint(addr, ports).unwrap()).unwrap()
    }

    fn step(&mut self) {
        if let Some(next_ns) = self.network.next_ns() {
            self.network.advance_to(next_ns);
        }
    }

    fn stranger(&self) -> SocketAddr {
        self.stranger
    }
}

impl SoftwareWorld for SimWorld {
    fn forge(&mut self, to: SocketAddr, payload: &[u8], tos: u8) {
        self.network.inject(Datagram {
            src: self.stranger,
            dst: to,
            tos,
            id: 0,
            payload: payload.to_vec(),
        });
    }
}

mod v4 {
    crate::suite::contract_tests!(crate::sim::SimWorld::v4());
    crate::software::software_tests!(crate::sim::SimWorld::v4());
}

mod v6 {
    crate::suite::contract_tests!(crate::sim::SimWorld::v6());
    crate::software::software_tests!(crate::sim::SimWorld::v6());
}
