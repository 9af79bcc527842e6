//! Hosts and boxes of a run. A host is a NIC or an endpoint, and reports the completion of its
//! flows.

mod box_node;
mod captured;
mod endpoint;
mod nic;
mod nic_xp;

use std::cell::RefCell;
use std::iter::once;
use std::ops::Range;
use std::rc::Rc;

use farwrite_net::{Device, Frame, Network, NodeId, Output, Ports};
use farwrite_rc::PathProfile;

use crate::boxes::{BoxKind, BoxLink, BoxTotals};
use crate::outcome::{EndedBy, FlowError};
use crate::{Capture, Flow, RunError, Transport};
use box_node::BoxNode;
use captured::CapturedHost;
use endpoint::EndpointHost;
pub(crate) use nic::MAX_WRITE_BYTES;
use nic::NicHost;

/// Reports of the hosts that the run has not processed yet.
pub(crate) type FlowReports = Rc<RefCell<Vec<FlowReport>>>;

/// A report of a host about a flow.
#[derive(Debug)]
pub(crate) struct FlowReport {
    /// Index of the flow in the workload.
    pub(crate) flow: usize,
    /// Time of the event, in nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) what: FlowProgress,
}

#[derive(Debug)]
pub(crate) enum FlowProgress {
    /// The sender has the acknowledgement of the whole message.
    Sent,
    /// The receiver has the whole message.
    Received,
    /// The receive ended, with this number of bytes missing, which are those of `missing`. `by` is what ended a flow of
    /// XP.
    Ended {
        missing_bytes: u64,
        missing: Vec<Range<u64>>,
        by: Option<EndedBy>,
    },
    Failed(FlowError),
    /// The NIC of the sender has received a congestion notification.
    Notified,
}

/// Counters of a flow at its sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowCounters {
    pub(crate) packets: u64,
    pub(crate) repeated: u64,
    pub(crate) timeouts: u64,
    /// Packets of a NIC that the receiver has acknowledged, each once.
    pub(crate) acknowledged: u64,
    /// Congestion notifications that the NIC has received.
    pub(crate) notifications: u64,
}

/// A flow that is about to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowSetup {
    pub(crate) number: usize,
    pub(crate) flow: Flow,
    /// The nodes of the sender and the receiver.
    pub(crate) ends: [NodeId; 2],
    /// Rates of the cables of these two nodes, in bits per second.
    pub(crate) port_bps: [u64; 2],
    /// The path of the flow with empty queues.
    pub(crate) path: PathProfile,
    /// Ideal completion time in nanoseconds, if there is a path.
    pub(crate) ideal_ns: Option<f64>,
    /// UDP source port of a NIC's packets. It spreads flows over equal paths.
    pub(crate) src_port: u16,
}

/// A host or a box of a run.
pub(crate) enum HostOrBox {
    Nic(Box<NicHost>),
    Endpoint(Box<EndpointHost>),
    BoxNode(BoxNode),
    Captured(Box<CapturedHost>),
}

impl HostOrBox {
    /// Makes a host for a transport. All random draws of the host follow from `seed`. `notes`: whether NICs report
    /// congestion notifications.
    pub(crate) fn host(
        node: NodeId,
        transport: &Transport,
        seed: u64,
        board: &FlowReports,
        notes: bool,
    ) -> Result<Self, RunError> {
        Ok(match transport {
            Transport::Nic(_) | Transport::Xp(_) => {
                Self::Nic(Box::new(NicHost::new(node, Rc::clone(board), notes)))
            }
            Transport::Endpoint(transport) => {
                let host = endpoint::host(node, transport, seed, Rc::clone(board));
                let host = host.map_err(|why| RunError::Host {
                    node: node.0,
                    why: why.to_string(),
                })?;
                Self::Endpoint(Box::new(host))
            }
        })
    }

    /// The same host, whose packets are captured from now on.
    pub(crate) fn captured(self) -> Self {
        Self::Captured(Box::new(CapturedHost {
            host: self,
            capture: Capture::default(),
        }))
    }

    /// The host behind a capture, or this host or box.
    fn uncaptured(&mut self) -> &mut Self {
        match self {
            Self::Captured(captured) => &mut captured.host,
            host_or_box => host_or_box,
        }
    }

    /// Removes and returns what was captured.
    pub(crate) fn take_capture(&mut self) -> Option<Capture> {
        match self {
            Self::Captured(captured) => Some(std::mem::take(&mut captured.capture)),
            _ => None,
        }
    }

    /// Makes a box.
    pub(crate) fn box_node(kind: BoxKind, at: &BoxLink) -> Self {
        Self::BoxNode(BoxNode::new(kind, at))
    }

    /// Sets up a host that receives flows. `path` has the rate of the host's cable and the longest
    /// round trip of the flows.
    pub(crate) fn prepare(&mut self, transport: &Transport, path: &PathProfile) {
        match (self, transport) {
            (Self::Nic(host), Transport::Nic(nic)) => nic.prepare(&mut host.nic, path),
            (Self::Nic(host), Transport::Xp(xp)) => xp.prepare(&mut host.nic, path),
            (Self::Captured(captured), _) => captured.host.prepare(transport, path),
            _ => {}
        }
    }

    /// Counters of a box; zero for a host.
    pub(crate) fn box_totals(&self) -> BoxTotals {
        match self {
            Self::BoxNode(box_node) => box_node.totals(),
            Self::Nic(_) | Self::Endpoint(_) | Self::Captured(_) => BoxTotals::default(),
        }
    }

    /// Counters of a flow that the host sends, so far.
    pub(crate) fn counters(&self, flow: usize) -> FlowCounters {
        match self {
            Self::Nic(host) => host.counters(flow),
            Self::Endpoint(host) => host.program().counted(flow),
            Self::Captured(captured) => captured.host.counters(flow),
            Self::BoxNode(_) => FlowCounters::default(),
        }
    }

    /// Counters of a flow that the host sends. Also reports completions that were not reported yet.
    pub(crate) fn finish(&mut self, now_ns: u64, flow: usize) -> FlowCounters {
        match self {
            Self::Nic(host) => host.finish(now_ns, flow),
            Self::Captured(captured) => captured.host.finish(now_ns, flow),
            host_or_box => host_or_box.counters(flow),
        }
    }
}

/// What is missing of a message, if these ranges of its bytes have arrived, in order.
fn gaps(bytes: u64, arrived: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let (mut missing, mut end) = (Vec::new(), 0);
    for next in arrived.chain(once(bytes..bytes)) {
        if next.start > end {
            missing.push(end..next.start);
        }
        end = end.max(next.end);
    }
    missing
}

/// Starts a flow at both ends, or says why it cannot start.
pub(crate) fn start(
    network: &mut Network<HostOrBox>,
    transport: &Transport,
    starting: &FlowSetup,
) -> Result<u64, String> {
    let now_ns = network.now_ns();
    match transport {
        Transport::Nic(transport) => nic::start(network, transport, starting).map(|()| now_ns),
        Transport::Xp(transport) => nic_xp::start(network, transport, starting).map(|()| now_ns),
        Transport::Endpoint(transport) => endpoint::start(network, transport, starting),
    }
}

impl Device for HostOrBox {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Nic(host) => host.handle(now_ns, port, frame),
            Self::Endpoint(host) => host.handle(now_ns, port, frame),
            Self::BoxNode(box_node) => box_node.handle(now_ns, port, frame),
            Self::Captured(captured) => captured.handle(now_ns, port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Nic(host) => host.poll(now_ns, ports),
            Self::Endpoint(host) => host.poll(now_ns, ports),
            Self::BoxNode(box_node) => box_node.poll(now_ns, ports),
            Self::Captured(captured) => captured.poll(now_ns, ports),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Nic(host) => host.nic.next_ns(),
            Self::Endpoint(host) => host.next_ns(),
            Self::BoxNode(box_node) => box_node.next_ns(),
            Self::Captured(captured) => captured.next_ns(),
        }
    }
}
