//! Links and flows of a run over time.

use farwrite_net::{Device, Network, NodeId, PauseEvent, Topology};

use crate::hosts::FlowCounters;

/// Most events that a run records.
pub(crate) const MAX_EVENTS: usize = 1 << 18;

/// Counters of links and flows, at the times of the samples of [`Depths`](crate::Depths).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Every port of the network.
    pub links: Vec<LinkSeries>,
    /// Every flow of the workload.
    pub flows: Vec<Vec<FlowSample>>,
    /// The first events in the order of time; at most 2^18.
    pub events: Vec<SeriesEvent>,
    /// Number of later events.
    pub more_events: u64,
    /// Flows that have started, and had not ended at the latest sample.
    open: Vec<usize>,
}

/// A single event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesEvent {
    /// A PFC frame stops or resumes a priority at a port.
    Pause(PauseEvent),
    /// A NIC receives a congestion notification.
    Notification {
        /// The time in nanoseconds.
        at_ns: u64,
        /// The flow that it concerns.
        flow: usize,
    },
}

impl SeriesEvent {
    /// When it happens, in nanoseconds.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        match self {
            Self::Pause(pause) => pause.at_ns,
            Self::Notification { at_ns, .. } => *at_ns,
        }
    }
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
            events: Vec::new(),
            more_events: 0,
            open: Vec::new(),
        }
    }

    /// Adds a congestion notification.
    pub(crate) fn note(&mut self, at_ns: u64, flow: usize) {
        match self.events.len() < MAX_EVENTS {
            true => self.events.push(SeriesEvent::Notification { at_ns, flow }),
            false => self.more_events += 1,
        }
    }

    /// Adds what PFC did, at the end of the run.
    pub(crate) fn add_pauses(&mut self, (pauses, more): (Vec<PauseEvent>, u64)) {
        self.events
            .extend(pauses.into_iter().map(SeriesEvent::Pause));
        self.events.sort_by_key(SeriesEvent::at_ns);
        let beyond = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.truncate(MAX_EVENTS);
        self.more_events += more + beyond as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_bounded_and_in_the_order_of_time() {
        let mut series = Series::default();
        for at_ns in 0..MAX_EVENTS as u64 + 3 {
            series.note(10 * at_ns, 0);
        }
        let pause = PauseEvent {
            at_ns: 15,
            node: NodeId(0),
            port: 0,
            priority: 3,
            stops: true,
        };
        series.add_pauses((vec![pause], 5));
        assert_eq!(series.events.len(), MAX_EVENTS);
        assert_eq!(series.events[2], SeriesEvent::Pause(pause));
        assert!(series.events.is_sorted_by_key(SeriesEvent::at_ns));
        assert_eq!(series.more_events, 3 + 5 + 1);
    }
}
