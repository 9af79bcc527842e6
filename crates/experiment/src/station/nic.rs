//! A host with a NIC that reports the completion of its flows.

use std::collections::BTreeMap;

use farwrite_net::header::Header;
use farwrite_net::{Device, Frame, Network, NodeId, Output, Payload, Ports};
use farwrite_rc::{Completion, Connection, FIRST_QPN, Nic, Remote, Request};

use super::{FlowCounters, FlowProgress, FlowReport, FlowReports, FlowSetup, Station};
use crate::Transport;
use crate::outcome::FlowError;

/// The key of the memory that each host registers for its peers.
const RKEY: u32 = 1;
/// Longer messages are sent as several WRITEs, one after the other.
pub(crate) const MAX_WRITE_BYTES: u64 = 1 << 30;

/// A NIC whose completions become reports.
#[derive(Debug)]
pub(crate) struct NicHost {
    pub(super) nic: Nic,
    board: FlowReports,
    /// Index of the flow of each queue pair, in the order of their numbers from [`FIRST_QPN`] on.
    flows: Vec<usize>,
    /// For each flow that the host sends: the queue pair, and the number of open WRITEs.
    sent: BTreeMap<usize, (u32, u64)>,
}

impl NicHost {
    pub(super) fn new(node: NodeId, board: FlowReports) -> Self {
        let mut nic = Nic::new(node);
        let registered = nic.memory.register_ghost(RKEY, 0, u64::MAX >> 1);
        debug_assert!(registered.is_ok(), "the key is new");
        Self {
            nic,
            board,
            flows: Vec::new(),
            sent: BTreeMap::new(),
        }
    }

    pub(super) fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        let qpn = match &frame.header {
            Header::Roce(header) => Some(header.bth.dest_qp),
            Header::Other(_) => None,
        };
        self.nic.handle(now_ns, port, frame);
        if let Some(qpn) = qpn {
            self.report(now_ns, qpn);
        }
    }

    /// Same as for [`Nic`]. Also reports completions that need no frame: those of host software.
    pub(super) fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        let output = self.nic.poll(now_ns, ports);
        while let Some(qpn) = self.nic.poll_finished() {
            self.report(now_ns, qpn);
        }
        output
    }

    /// Completions of the last moment may not have been reported yet.
    pub(super) fn finish(&mut self, now_ns: u64, flow: usize) -> FlowCounters {
        let Some(&(qpn, _)) = self.sent.get(&flow) else {
            return FlowCounters::default();
        };
        self.report(now_ns, qpn);
        let counters = self.nic.qp_counters(qpn).unwrap_or_default();
        FlowCounters {
            packets: counters.sent,
            repeated: counters.repeated,
            timeouts: counters.timeouts,
        }
    }

    fn report(&mut self, at_ns: u64, qpn: u32) {
        let index = qpn.checked_sub(FIRST_QPN).map(|index| index as usize);
        let Some(&flow) = index.and_then(|index| self.flows.get(index)) else {
            return;
        };
        while let Some(completion) = self.nic.poll_completion(qpn) {
            let what = match completion {
                Completion::Acknowledged { .. } => {
                    let open = self.sent.get_mut(&flow).map(|(_, open)| open);
                    let is_last = open.is_some_and(|open| {
                        *open -= 1;
                        *open == 0
                    });
                    is_last.then_some(FlowProgress::Sent)
                }
                Completion::Written { .. } => Some(FlowProgress::Received),
                Completion::Failed { error, .. } => {
                    Some(FlowProgress::Failed(FlowError::Nic(error)))
                }
                Completion::Read { .. }
                | Completion::Received { .. }
                | Completion::Unused { .. } => None,
            };
            let done = what.map(|what| FlowReport { flow, at_ns, what });
            self.board.borrow_mut().extend(done);
        }
    }
}

/// Adds a queue pair at both ends, and posts the WRITEs of the flow.
pub(super) fn start(
    network: &mut Network<Station>,
    transport: &Transport,
    starting: &FlowSetup,
) -> Result<(), String> {
    let flow = starting.flow;
    let mut qpns = [0; 2];
    for (qpn, node) in qpns.iter_mut().zip(starting.ends) {
        let host = nic(network, node)?;
        let next = u32::try_from(host.flows.len()).map_err(|why| why.to_string())?;
        *qpn = FIRST_QPN + next;
        host.flows.push(starting.number);
    }
    let [src, dst] = starting.ends;
    for (node, peer, peer_qpn) in [(src, dst, qpns[1]), (dst, src, qpns[0])] {
        let to = Connection {
            peer,
            src_port: starting.src_port,
            priority: flow.priority.unwrap_or(transport.priority),
            rate_bps: None,
        };
        let nic = &mut nic(network, node)?.nic;
        let connected = transport.connect(nic, to, peer_qpn, &starting.path);
        connected.map_err(|why| why.to_string())?;
    }
    let is_reported = flow.when_received.is_some();
    if is_reported {
        let posted = nic(network, dst)?.nic.post_receive(qpns[1], 0, 0);
        posted.map_err(|why| why.to_string())?;
    }
    let writes = flow.bytes.div_ceil(MAX_WRITE_BYTES);
    let sender = nic(network, src)?;
    sender.sent.insert(starting.number, (qpns[0], writes));
    for write in 0..writes {
        let rest = flow.bytes - write * MAX_WRITE_BYTES;
        let bytes = u32::try_from(rest.min(MAX_WRITE_BYTES)).unwrap_or(u32::MAX);
        let request = Request::Write {
            data: Payload::Ghost(bytes),
            to: Remote {
                rkey: RKEY,
                addr: 0,
            },
            imm: (write + 1 == writes && is_reported).then_some(0),
        };
        let posted = sender.nic.post(qpns[0], write, request);
        posted.map_err(|why| why.to_string())?;
    }
    Ok(())
}

fn nic(network: &mut Network<Station>, node: NodeId) -> Result<&mut NicHost, String> {
    match network.device_mut(node).map(Station::uncaptured) {
        Some(Station::Nic(host)) => Ok(host),
        _ => Err(format!("node {} has no NIC", node.0)),
    }
}
