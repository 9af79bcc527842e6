//! A host with a NIC that reports the completion of its flows.

use std::collections::BTreeMap;

use farwrite_net::header::Header;
use farwrite_net::{Device, Frame, Network, NodeId, Output, Payload, Ports};
use farwrite_rc::{
    Completion, Connection, FIRST_QPN, NOTIFICATION, Nic, QpCounters, Remote, Request,
};

use super::nic_xp::XpFlows;
use super::{FlowCounters, FlowProgress, FlowReport, FlowReports, FlowSetup, HostOrBox};
use crate::outcome::FlowError;
use crate::transport::NicTransport;

/// The key of the memory that each host registers for its peers.
pub(super) const RKEY: u32 = 1;
/// Longer messages are sent as several WRITEs, one after the other.
pub(crate) const MAX_WRITE_BYTES: u64 = 1 << 30;
/// In place of a number of WRITEs: an endless flow.
const ENDLESS_WRITES: u64 = u64::MAX;

/// A NIC whose completions become reports.
#[derive(Debug)]
pub(crate) struct NicHost {
    pub(super) nic: Nic,
    board: FlowReports,
    /// Whether it reports congestion notifications.
    notes: bool,
    /// Index of the first flow of each queue pair, in the order of their numbers from [`FIRST_QPN`] on. Only flows of
    /// XP share a queue pair.
    flows: Vec<usize>,
    sent: BTreeMap<usize, SentFlow>,
    pub(super) xp: XpFlows,
}

/// A flow that the host sends.
#[derive(Debug)]
enum SentFlow {
    /// Its queue pair, and the number of WRITEs that are not complete.
    Open { qpn: u32, writes: u64 },
    /// The flow is done, and the memory of its queue pair is free.
    Over(FlowCounters),
}

impl NicHost {
    pub(super) fn new(node: NodeId, board: FlowReports, notes: bool) -> Self {
        let mut nic = Nic::new(node);
        let registered = nic.memory.register_ghost(RKEY, 0, u64::MAX >> 1);
        debug_assert!(registered.is_ok(), "the key is new");
        Self {
            nic,
            board,
            notes,
            flows: Vec::new(),
            sent: BTreeMap::new(),
            xp: XpFlows::default(),
        }
    }

    pub(super) fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        let headers = match &frame.header {
            Header::Roce(header) => Some((header.bth, header.reth)),
            Header::Other(_) => None,
        };
        let bytes = u64::from(frame.payload.carried_bytes());
        let placed = headers.and_then(|(bth, _)| self.placed(bth.dest_qp));
        self.nic.handle(now_ns, port, frame);
        if let Some((bth, reth)) = headers {
            let qpn = bth.dest_qp;
            if let Some(reth) = reth.filter(|_| self.placed(qpn) > placed) {
                let start = reth.remote_addr;
                self.xp.place(qpn, bth.psn, start..start + bytes);
            }
            if bth.opcode == NOTIFICATION {
                self.note(now_ns, qpn);
            }
            self.report(now_ns, qpn);
        }
    }

    /// Fragments that a queue pair of XP has placed; `None` for other queue pairs.
    fn placed(&self, qpn: u32) -> Option<u64> {
        self.nic.xp_counters(qpn).map(|all| all.placed)
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
        if let Some(&SentFlow::Open { qpn, .. }) = self.sent.get(&flow) {
            self.report(now_ns, qpn);
        }
        self.counters(flow)
    }

    pub(super) fn counters(&self, flow: usize) -> FlowCounters {
        match self.sent.get(&flow) {
            None => self.xp.counters(&self.nic, flow),
            Some(SentFlow::Over(counters)) => *counters,
            Some(&SentFlow::Open { qpn, .. }) => {
                counters_of(&self.nic.qp_counters(qpn).unwrap_or_default())
            }
        }
    }

    /// Records the completion of a WRITE. Returns whether it was the last one of its flow. An
    /// endless flow gets another WRITE instead.
    fn note_written(&mut self, flow: usize) -> bool {
        let Some(SentFlow::Open { qpn, writes }) = self.sent.get_mut(&flow) else {
            return false;
        };
        if *writes == ENDLESS_WRITES {
            let posted = self.nic.post(*qpn, 0, write(MAX_WRITE_BYTES, None));
            debug_assert!(
                posted.is_ok(),
                "a WRITE of this queue pair was just acknowledged"
            );
            return false;
        }
        *writes -= 1;
        *writes == 0
    }

    /// Frees the memory of the queue pair of a flow that is done. Acknowledgements that still come
    /// change nothing. The queue pair of the receiver stays, because it answers repeated packets.
    fn release(&mut self, flow: usize, qpn: u32) {
        if let Some(counters) = self.nic.release(qpn) {
            self.sent
                .insert(flow, SentFlow::Over(counters_of(&counters)));
        }
    }

    /// The flow of a queue pair.
    fn flow_of(&self, qpn: u32) -> Option<usize> {
        let index = qpn.checked_sub(FIRST_QPN)?;
        self.flows.get(index as usize).copied()
    }

    /// Notes a congestion notification, and reports it if that is wanted.
    fn note(&mut self, at_ns: u64, qpn: u32) {
        let flow = self.xp.note(qpn).or_else(|| self.flow_of(qpn));
        let noted = flow.filter(|_| self.notes).map(|flow| FlowReport {
            flow,
            at_ns,
            what: FlowProgress::Notified,
        });
        self.board.borrow_mut().extend(noted);
    }

    fn report(&mut self, at_ns: u64, qpn: u32) {
        let Some(flow) = self.flow_of(qpn) else {
            return;
        };
        while let Some(completion) = self.nic.poll_xp_completion(qpn) {
            let ended = self.xp.complete(qpn, completion);
            let ended = ended.map(|(flow, what)| FlowReport { flow, at_ns, what });
            self.board.borrow_mut().extend(ended);
        }
        while let Some(completion) = self.nic.poll_completion(qpn) {
            let what = match completion {
                Completion::Acknowledged { .. } => {
                    self.note_written(flow).then_some(FlowProgress::Sent)
                }
                Completion::Written { .. } => Some(FlowProgress::Received),
                Completion::Failed { error, .. } => {
                    Some(FlowProgress::Failed(FlowError::Nic(error)))
                }
                Completion::Read { .. }
                | Completion::Received { .. }
                | Completion::Unused { .. } => None,
            };
            let is_sent = matches!(what, Some(FlowProgress::Sent));
            let done = what.map(|what| FlowReport { flow, at_ns, what });
            self.board.borrow_mut().extend(done);
            if is_sent {
                self.release(flow, qpn);
            }
        }
    }
}

/// Adds a queue pair at both ends, and posts the WRITEs of the flow.
pub(super) fn start(
    network: &mut Network<HostOrBox>,
    transport: &NicTransport,
    starting: &FlowSetup,
) -> Result<(), String> {
    let flow = starting.flow;
    let [src, dst] = starting.ends;
    let qpns = connect(
        network,
        starting,
        transport.priority,
        |nic, to, peer_qpn| {
            let connected = transport.connect(nic, to, peer_qpn, &starting.path);
            connected.map_err(|why| why.to_string())
        },
    )?;
    let is_reported = flow.when_received.is_some();
    if is_reported {
        let posted = nic(network, dst)?.nic.post_receive(qpns[1], 0, 0);
        posted.map_err(|why| why.to_string())?;
    }
    let sender = nic(network, src)?;
    let (writes, posted) = match flow.is_endless() {
        // The second one is there when the first one is complete.
        true => (ENDLESS_WRITES, 2),
        false => {
            let writes = flow.bytes.div_ceil(MAX_WRITE_BYTES);
            (writes, writes)
        }
    };
    let qpn = qpns[0];
    sender
        .sent
        .insert(starting.number, SentFlow::Open { qpn, writes });
    for number in 0..posted {
        let rest = flow.bytes - number * MAX_WRITE_BYTES;
        let imm = (number + 1 == writes && is_reported).then_some(0);
        let posted = sender.nic.post(qpn, number, write(rest, imm));
        posted.map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// Adds a queue pair for a flow at both ends. Returns their numbers.
pub(super) fn connect(
    network: &mut Network<HostOrBox>,
    starting: &FlowSetup,
    priority: u8,
    add: impl Fn(&mut Nic, Connection, u32) -> Result<u32, String>,
) -> Result<[u32; 2], String> {
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
            priority: starting.flow.priority.unwrap_or(priority),
            rate_bps: None,
        };
        add(&mut nic(network, node)?.nic, to, peer_qpn)?;
    }
    Ok(qpns)
}

/// A WRITE of the next part of a flow, of which `rest` bytes are left.
fn write(rest: u64, imm: Option<u32>) -> Request {
    let bytes = u32::try_from(rest.min(MAX_WRITE_BYTES)).unwrap_or(u32::MAX);
    Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote {
            rkey: RKEY,
            addr: 0,
        },
        imm,
    }
}

fn counters_of(counters: &QpCounters) -> FlowCounters {
    FlowCounters {
        packets: counters.sent,
        repeated: counters.repeated,
        timeouts: counters.timeouts,
        acknowledged: counters.acknowledged,
        notifications: counters.notifications,
    }
}

pub(super) fn nic(network: &mut Network<HostOrBox>, node: NodeId) -> Result<&mut NicHost, String> {
    match network.device_mut(node).map(HostOrBox::uncaptured) {
        Some(HostOrBox::Nic(host)) => Ok(host),
        _ => Err(format!("node {} has no NIC", node.0)),
    }
}
