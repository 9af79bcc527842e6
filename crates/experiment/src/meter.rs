//! Queue lengths over time.

use farwrite_net::{Device, Network, NodeId, Role, Topology};

/// Adjacent samples are merged when this number is reached.
pub(crate) const MAX_SAMPLES: usize = 2048;
const FIRST_INTERVAL_NS: u64 = 100;

/// Bytes in the queues of a network at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// At the switch port with the longest queues.
    pub deepest: u64,
    /// The sum over all switch ports.
    pub total: u64,
}

/// Queue lengths at the ports of switches, sampled at equal intervals. A sample that was merged
/// from several has the largest value of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Start of the first flow, in nanoseconds.
    pub start_ns: u64,
    /// Nanoseconds from one sample to the next. The first sample is one interval after the start.
    pub interval_ns: u64,
    /// The samples.
    pub samples: Vec<Depth>,
    /// Samples of each switch port, if the run keeps them.
    pub ports: Vec<PortDepths>,
}

/// Queue lengths of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDepths {
    /// The switch.
    pub node: NodeId,
    /// Index of the port at the switch.
    pub port: usize,
    /// Bytes, sample by sample; empty if the run does not keep ports.
    pub bytes: Vec<u64>,
}

/// Takes the samples of a run.
#[derive(Debug)]
pub(crate) struct Meter {
    depths: Depths,
    keeps_ports: bool,
    next_ns: u64,
}

impl Meter {
    pub(crate) fn new<D: Device>(
        topology: &Topology,
        network: &Network<D>,
        start_ns: u64,
        keeps_ports: bool,
    ) -> Self {
        let ports = topology.with_role(Role::Switch).flat_map(|node| {
            let ports = 0..network.counters(node).count();
            ports.map(move |port| PortDepths {
                node,
                port,
                bytes: Vec::new(),
            })
        });
        Self {
            depths: Depths {
                start_ns,
                interval_ns: FIRST_INTERVAL_NS,
                samples: Vec::new(),
                ports: ports.collect(),
            },
            keeps_ports,
            next_ns: start_ns.saturating_add(FIRST_INTERVAL_NS),
        }
    }

    /// Time of the next sample.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Index of the next sample.
    pub(crate) fn next_sample(&self) -> usize {
        self.depths.samples.len()
    }

    /// Takes a sample. Returns whether adjacent samples were merged then.
    pub(crate) fn sample<D: Device>(&mut self, network: &Network<D>) -> bool {
        let mut depth = Depth::default();
        for at in &mut self.depths.ports {
            let bytes = network.port_bytes(at.node, at.port);
            depth.deepest = depth.deepest.max(bytes);
            depth.total += bytes;
            if self.keeps_ports {
                at.bytes.push(bytes);
            }
        }
        self.depths.samples.push(depth);
        let is_full = self.depths.samples.len() == MAX_SAMPLES;
        if is_full {
            self.depths.halve();
        }
        let taken = self.depths.samples.len() as u64;
        let after_ns = (taken + 1) * self.depths.interval_ns;
        self.next_ns = self.depths.start_ns.saturating_add(after_ns);
        is_full
    }

    pub(crate) fn finish(mut self) -> Depths {
        if !self.keeps_ports {
            self.depths.ports.clear();
        }
        self.depths
    }
}

impl Depths {
    /// The samples with their times, in nanoseconds since the run began.
    pub fn by_time(&self) -> impl Iterator<Item = (u64, Depth)> + '_ {
        let times = (1_u64..).map(|sample| self.start_ns + sample * self.interval_ns);
        times.zip(self.samples.iter().copied())
    }

    /// Mean over time of the deepest queue, in bytes.
    #[must_use]
    pub fn mean_deepest(&self) -> f64 {
        let sum: u64 = self.samples.iter().map(|depth| depth.deepest).sum();
        let count = self.samples.len().max(1) as u64;
        farwrite_units::show::real(sum) / farwrite_units::show::real(count)
    }

    /// Merges each two adjacent samples.
    fn halve(&mut self) {
        self.interval_ns *= 2;
        let pairs = self.samples.chunks(2).map(|pair| Depth {
            deepest: pair.iter().map(|depth| depth.deepest).max().unwrap_or(0),
            total: pair.iter().map(|depth| depth.total).max().unwrap_or(0),
        });
        self.samples = pairs.collect();
        for port in &mut self.ports {
            let pairs = port.bytes.chunks(2);
            port.bytes = pairs
                .filter_map(|pair| pair.iter().copied().max())
                .collect();
        }
    }
}
