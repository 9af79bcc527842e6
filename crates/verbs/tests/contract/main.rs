//! The contract suite of all fabrics, on an RDMA device.
//!
//! `FARWRITE_VERBS_DEVICE` is the name of the device. `FARWRITE_VERBS_ADDRESSES` are its addresses, three
//! of each family, separated by commas. `FARWRITE_VERBS_STRANGERS` are an IPv4 and an IPv6 address of
//! another machine in its network. With `FARWRITE_VERBS_MEMORY_WINDOWS`, keys are memory windows, whatever was
//! found out about the device. `make test-verbs` makes such a device.

#[path = "../../../fabric/tests/contract/suite/mod.rs"]
mod suite;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use farwrite_fabric::Adapter;
use farwrite_verbs::{VerbsConfig, VerbsFabric};

use crate::suite::World;

/// Fabrics on one device.
struct VerbsWorld {
    device: String,
    addresses: Vec<IpAddr>,
    stranger: SocketAddr,
    memory_windows: Option<bool>,
}

impl VerbsWorld {
    /// `family` is the index of the family among the strangers.
    fn new(family: usize) -> Self {
        let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let strangers = variable("FARWRITE_VERBS_STRANGERS");
        let stranger: IpAddr = strangers.split(',').nth(family).unwrap().parse().unwrap();
        let addresses = variable("FARWRITE_VERBS_ADDRESSES");
        let addresses = addresses.split(',').map(|ip| ip.parse().unwrap());
        Self {
            device: variable("FARWRITE_VERBS_DEVICE"),
            addresses: addresses
                .filter(|ip: &IpAddr| ip.is_ipv4() == stranger.is_ipv4())
                .collect(),
            stranger: SocketAddr::new(stranger, 4791),
            memory_windows: std::env::var_os("FARWRITE_VERBS_MEMORY_WINDOWS").map(|_| true),
        }
    }
}

impl World for VerbsWorld {
    type Fabric = VerbsFabric;

    fn end(&mut self, ports: u16) -> Adapter<VerbsFabric> {
        let config = VerbsConfig {
            addresses: self.addresses[..usize::from(ports)].to_vec(),
            memory_windows: self.memory_windows,
            ..VerbsConfig::new(&self.device)
        };
        Adapter::new(VerbsFabric::open(&config).unwrap()).unwrap()
    }

    fn step(&mut self) {
        std::thread::sleep(Duration::from_micros(50));
    }

    fn stranger(&self) -> SocketAddr {
        self.stranger
    }
}

mod v4 {
    crate::suite::contract_tests!(crate::VerbsWorld::new(0));
}

mod v6 {
    crate::suite::contract_tests!(crate::VerbsWorld::new(1));
}
