//! Small networks.

use std::time::Duration;

use farwrite_experiment::{Recording, RunSetup, Transport, Workload};
use farwrite_net::{CableConfig, LeafSpine, Options, Shape, Topology};

pub(crate) fn cable(gbps: u64, delay_ns: u64) -> CableConfig {
    CableConfig::new(gbps * 1_000_000_000, Duration::from_nanos(delay_ns))
}

pub(crate) fn star(hosts: usize, gbps: u64, delay_ns: u64) -> Topology {
    let cable = cable(gbps, delay_ns);
    Shape::Star { hosts, cable }.build().unwrap()
}

/// 16 hosts at 4 leaves, 2 spines.
pub(crate) fn clos() -> Topology {
    let clos = Shape::LeafSpine(LeafSpine {
        leaves: 4,
        spines: 2,
        hosts_per_leaf: 4,
        host_cable: cable(100, 1000),
        spine_cable: cable(100, 1000),
    });
    clos.build().unwrap()
}

pub(crate) fn setup<'a>(
    topology: &'a Topology,
    options: &'a Options,
    workload: &'a Workload,
    transport: &'a Transport,
) -> RunSetup<'a> {
    RunSetup {
        topology,
        options,
        workload,
        transport,
        boxes: &[],
        changes: &[],
        seed: 1,
        until_ns: None,
        recording: Recording::default(),
    }
}
