//! Links and flows of a run over time.

use farwrite_net::{Device, Network, NodeId, Topology};

use crate::hosts::FlowCounters;

/// Counters of links and flows, at the times of the samples of [`Depths`](crate::Depths).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Every port of the network.
    pub links: Vec<LinkSeries>,
    /// Every flow of the workload.
    pub flows: Vec<Vec<FlowSample>>,
    /// Flows that have started, and had not ended at the latest sample.
    open: Vec<usize>,
}

/// The outgoing direction of a cable over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSeries {
    /// The node that sends.
    pub node: NodeId,
    /// Index of the port at the node.
    pub port: usize,
    /// One for each sample.
    pub samples: Vec<LinkSample>,
}

/// A port at the time of a sample. All but the first are sums since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// Bytes in the queues of the port; the most, if samples were merged.
    pub queued_bytes: u64,
    /// Bytes of the frames sent, framing included.
    pub sent_bytes: u64,
    /// PFC frames received.
    pub pfc_frames: u64,
    /// Nanoseconds for which PFC has stopped the port.
    pub stopped_ns: u64,
}

/// A flow at the time of a sample. There is none before it starts and after it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample {
    /// Index of the sample.
    pub at: usize,
    /// Packets sent since the flow started.
    pub packets: u64,
    /// Retransmissions among them.
    pub repeated: u64,
    /// Congestion notifications received; 0 for endpoints.
    pub notifications: u64,
}

impl Series {
    pub(crate) fn new<D: Device>(topology: &Topology, network: &Network<D>, flows: usize) -> Self {
        let nodes = (0..).map(NodeId).take(topology.nodes().len());
        let links = nodes.flat_map(|node| {
            let ports = 0..network.counters(node).count();
            ports.map(move |port| LinkSeries {
                node,
                port,
                samples: Vec::new(),
            })
        });
        Self {
            links: links.collect(),
            flows: vec![Vec::new(); flows],
            open: Vec::new(),
        }
    }

    /// Takes samples of a flow from now on.
    pub(crate) fn start(&mut self, flow: usize) {
        self.open.push(flow);
    }

    /// Takes a sample of all ports.
    pub(crate) fn sample_links<D: Device>(&mut self, network: &Network<D>) {
        for of_node in self.links.chunk_by_mut(|one, other| one.node == other.node) {
            let node = of_node[0].node;
            for (link, counters) in of_node.iter_mut().zip(network.counters(node)) {
                link.samples.push(LinkSample {
                    queued_bytes: network.port_bytes(node, link.port),
                    sent_bytes: counters.transmitted_bytes,
                    pfc_frames: counters.pauses_received,
                    stopped_ns: counters.stopped_ns,
                });
            }
        }
    }

    /// Takes sample `at` of the flows under way. `counted` returns the counters of a flow, and whether it is still
    /// under way.
    pub(crate) fn sample_flows(
        &mut self,
        at: usize,
        counted: impl Fn(usize) -> (FlowCounters, bool),
    ) {
        let flows = &mut self.flows;
        self.open.retain(|&flow| {
            let (counters, is_open) = counted(flow);
            flows[flow].push(FlowSample {
                at,
                packets: counters.packets,
                repeated: counters.repeated,
                notifications: counters.notifications,
            });
            is_open
        });
    }

    /// Merges each two adjacent samples.
    pub(crate) fn halve(&mut self) {
        for link in &mut self.links {
            let pairs = link.samples.chunks(2);
            let merged = pairs.filter_map(|pair| {
                let queued_bytes = pair.iter().map(|sample| sample.queued_bytes).max()?;
                Some(LinkSample {
                    queued_bytes,
                    ..*pair.last()?
                })
            });
            link.samples = merged.collect();
        }
        for flow in &mut self.flows {
            let pairs = flow.chunk_by(|one, other| one.at / 2 == other.at / 2);
            let merged = pairs.filter_map(|pair| {
                let last = *pair.last()?;
                Some(FlowSample {
                    at: last.at / 2,
                    ..last
                })
            });
            *flow = merged.collect();
        }
    }
}
