//! Hosts of a run: NICs, or endpoints of the kind that ships. They report what is done, and when.

mod endpoint;
mod nic;

use std::cell::RefCell;
use std::rc::Rc;

use farwrite_net::{Device, Frame, Network, NodeId, Output, Ports};
use farwrite_rc::Path;

use crate::outcome::FlowError;
use crate::transport::{Protocol, TransportError};
use crate::{Flow, RunError, Transport};
use endpoint::EndpointHost;
use nic::NicHost;

/// Where the hosts of a run put what is done, until the run takes it.
pub(crate) type Board = Rc<RefCell<Vec<Done>>>;

/// What a host reports about a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The place of the flow in the workload.
    pub(crate) flow: usize,
    /// When it happened, in nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The sender knows that all of it has arrived.
    Sent,
    /// The receiver has all of it.
    Received,
    Failed(FlowError),
}

/// What the sender of a flow has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) packets: u64,
    pub(crate) repeated: u64,
    pub(crate) timeouts: u64,
}

/// A flow that starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starting {
    pub(crate) number: usize,
    pub(crate) flow: Flow,
    /// Where it starts and ends.
    pub(crate) ends: [NodeId; 2],
    /// What its path is like when it is empty.
    pub(crate) path: Path,
    /// Nanoseconds that it takes then, if it has a path.
    pub(crate) ideal_ns: Option<f64>,
    /// Where a NIC sends from; it spreads flows over equal paths.
    pub(crate) src_port: u16,
}

/// A host of a run. Either kind is large.
pub(crate) enum Host {
    Nic(Box<NicHost>),
    Endpoint(Box<EndpointHost>),
}

impl Host {
    /// A host that runs `transport`. All its draws follow from `seed`.
    pub(crate) fn new(
        node: NodeId,
        transport: &Transport,
        seed: u64,
        board: &Board,
    ) -> Result<Self, RunError> {
        Ok(match transport.protocol()? {
            Protocol::Nic(_) => Self::Nic(Box::new(NicHost::new(node, Rc::clone(board)))),
            Protocol::Endpoint(_) => {
                let host = endpoint::host(node, transport.priority, seed, Rc::clone(board));
                let host = host.map_err(|why| RunError::Host {
                    node: node.0,
                    why: why.to_string(),
                })?;
                Self::Endpoint(Box::new(host))
            }
        })
    }

    /// Sets up a host that receives flows. `path` has the rate of its cable and the longest round
    /// trip of the flows.
    pub(crate) fn prepare(
        &mut self,
        transport: &Transport,
        path: &Path,
    ) -> Result<(), TransportError> {
        match self {
            Self::Nic(host) => transport.prepare(&mut host.nic, path),
            Self::Endpoint(_) => Ok(()),
        }
    }

    /// What the host has counted of a flow that it sends. Reports what nothing has reported yet.
    pub(crate) fn finish(&mut self, now_ns: u64, flow: usize) -> Counted {
        match self {
            Self::Nic(host) => host.finish(now_ns, flow),
            Self::Endpoint(host) => host.program().counted(flow),
        }
    }
}

/// Starts a flow at both its ends, or says why it cannot start.
pub(crate) fn start(
    network: &mut Network<Host>,
    transport: &Transport,
    starting: &Starting,
) -> Result<(), String> {
    match transport.protocol().map_err(|why| why.to_string())? {
        Protocol::Nic(_) => nic::start(network, transport, starting),
        Protocol::Endpoint(scheme) => endpoint::start(network, transport, scheme, starting),
    }
}

impl Device for Host {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Nic(host) => host.handle(now_ns, port, frame),
            Self::Endpoint(host) => host.handle(now_ns, port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Nic(host) => host.nic.poll(now_ns, ports),
            Self::Endpoint(host) => host.poll(now_ns, ports),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Nic(host) => host.nic.next_ns(),
            Self::Endpoint(host) => host.next_ns(),
        }
    }
}
