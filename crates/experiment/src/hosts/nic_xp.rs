//! Flows of XP: one message each, which ends at its deadline at the latest.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use farwrite_net::{Network, NodeId, Payload};
use farwrite_rc::xp::{Completion, End};
use farwrite_rc::{Nic, Remote, xp};

use super::nic::{RKEY, connect, nic};
use super::{FlowCounters, FlowProgress, FlowSetup, HostOrBox, gaps};
use crate::outcome::EndedBy;
use crate::transport::{QueuePairOf, XpTransport};
use crate::units::nanoseconds;

/// The flows of a host. The number of a request is that of its flow.
#[derive(Debug, Default)]
pub(super) struct XpFlows {
    /// Queue pairs that flows share, by the peer and the priority.
    shared: BTreeMap<(NodeId, u8), u32>,
    /// Flows that the host receives, until the receive ends.
    received: BTreeMap<usize, ReceivedFlow>,
    /// All flows that each queue pair receives, in the order of the numbers of their messages.
    posted: BTreeMap<u32, Vec<usize>>,
    /// Flows that the host sends.
    sent: BTreeMap<usize, SentFlow>,
    /// What each queue pair sends.
    sends: BTreeMap<u32, Sends>,
}

#[derive(Debug)]
struct ReceivedFlow {
    bytes: u64,
    /// What the NIC has placed, in the order of arrival.
    placed: Vec<Range<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct SentFlow {
    qpn: u32,
    /// Packets of the message, after it has left.
    packets: Option<u64>,
    notifications: u64,
}

/// The messages of a queue pair, which leave one after the other.
#[derive(Debug)]
struct Sends {
    mtu: u32,
    /// Flows whose messages have not left, in the order of posting.
    waiting: VecDeque<usize>,
    /// The flow whose message leaves now, or has left last.
    latest: usize,
    /// Packets of all messages that have left.
    packets: u64,
}

impl XpFlows {
    /// Counters of a flow that the host sends; zero if it has none with XP.
    pub(super) fn counters(&self, nic: &Nic, flow: usize) -> FlowCounters {
        let Some(sent) = self.sent.get(&flow) else {
            return FlowCounters::default();
        };
        FlowCounters {
            packets: sent
                .packets
                .unwrap_or_else(|| self.leaving(nic, sent.qpn, flow)),
            notifications: sent.notifications,
            ..FlowCounters::default()
        }
    }

    /// Packets that have left of a message that has not left as a whole.
    fn leaving(&self, nic: &Nic, qpn: u32, flow: usize) -> u64 {
        let sends = self.sends.get(&qpn);
        let sends = sends.filter(|sends| sends.waiting.front() == Some(&flow));
        let (Some(sends), Some(all)) = (sends, nic.xp_counters(qpn)) else {
            return 0;
        };
        all.sent - sends.packets
    }

    /// Notes a congestion notification. Returns the flow that it is about; `None` if the queue pair sends none with
    /// XP.
    pub(super) fn note(&mut self, qpn: u32) -> Option<usize> {
        let flow = self.sends.get(&qpn)?.latest;
        self.sent.get_mut(&flow)?.notifications += 1;
        Some(flow)
    }

    /// Notes a receive that is about to be posted.
    fn post_receive(&mut self, qpn: u32, flow: usize, bytes: u64) {
        self.posted.entry(qpn).or_default().push(flow);
        let placed = Vec::new();
        self.received.insert(flow, ReceivedFlow { bytes, placed });
    }

    /// Notes bytes that the NIC has placed, of the message `seq` of a queue pair.
    pub(super) fn place(&mut self, qpn: u32, seq: u32, bytes: Range<u64>) {
        let posted = self.posted.get(&qpn);
        let flow = posted.and_then(|flows| flows.get(seq as usize));
        let Some(flow) = flow.and_then(|flow| self.received.get_mut(flow)) else {
            return;
        };
        match flow.placed.last_mut() {
            Some(last) if last.end == bytes.start => last.end = bytes.end,
            _ => flow.placed.push(bytes),
        }
    }

    /// Notes the completion of a request. Returns the flow and its end, if the request was a receive.
    pub(super) fn complete(
        &mut self,
        qpn: u32,
        completion: Completion,
    ) -> Option<(usize, FlowProgress)> {
        match completion {
            Completion::Sent { id, bytes } => {
                self.leave(qpn, number(id), bytes);
                None
            }
            Completion::Received { id, bytes, end } => {
                let flow = number(id);
                let mut received = self.received.remove(&flow)?;
                received.placed.sort_by_key(|range| range.start);
                let whole = received.bytes;
                let what = FlowProgress::Ended {
                    missing_bytes: whole.saturating_sub(bytes.into()),
                    missing: gaps(whole, received.placed.into_iter()),
                    by: Some(match end {
                        End::Last { .. } => EndedBy::LastPacket,
                        End::Bytes { .. } => EndedBy::Bytes,
                        End::TimedOut => EndedBy::Deadline,
                        End::Preempted => EndedBy::LaterFlow,
                    }),
                };
                Some((flow, what))
            }
        }
    }

    /// Notes that no more packets of a flow leave. Of its message, `bytes` bytes have left.
    fn leave(&mut self, qpn: u32, flow: usize, bytes: u32) {
        let sends = self.sends.get_mut(&qpn);
        let (Some(sends), Some(sent)) = (sends, self.sent.get_mut(&flow)) else {
            return;
        };
        // All packets but the last one of a message are full.
        let packets = u64::from(bytes.div_ceil(sends.mtu));
        sent.packets = Some(packets);
        sends.packets += packets;
        sends.waiting.pop_front();
        sends.latest = sends.waiting.front().copied().unwrap_or(flow);
    }

    /// Notes a message that is about to be posted.
    fn post(&mut self, qpn: u32, flow: usize, mtu: u32) {
        let sends = self.sends.entry(qpn).or_insert(Sends {
            mtu,
            waiting: VecDeque::new(),
            latest: flow,
            packets: 0,
        });
        if sends.waiting.is_empty() {
            sends.latest = flow;
        }
        sends.waiting.push_back(flow);
        let sent = SentFlow {
            qpn,
            packets: None,
            notifications: 0,
        };
        self.sent.insert(flow, sent);
    }
}

/// The flow of a request.
fn number(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// Posts the receive and the message of a flow to its queue pairs.
pub(super) fn start(
    network: &mut Network<HostOrBox>,
    transport: &XpTransport,
    starting: &FlowSetup,
) -> Result<(), String> {
    let now_ns = network.now_ns();
    let deadline_ns = Some(now_ns.saturating_add(nanoseconds(transport.deadline)));
    let qpns = queue_pairs(network, transport, starting)?;
    let [src, dst] = starting.ends;
    let (number, bytes) = (starting.number, starting.flow.bytes);
    let id = number as u64;
    let receiver = nic(network, dst)?;
    receiver.xp.post_receive(qpns[1], number, bytes);
    let receive = xp::Receive { id, deadline_ns };
    let posted = receiver.nic.post_xp_receive(qpns[1], receive);
    posted.map_err(|why| why.to_string())?;
    let sender = nic(network, src)?;
    sender.xp.post(qpns[0], number, transport.mtu);
    let write = xp::Write {
        id,
        data: Payload::Ghost(u32::try_from(bytes).map_err(|why| why.to_string())?),
        to: Remote {
            rkey: RKEY,
            addr: 0,
        },
        imm: 0,
        deadline_ns,
    };
    let posted = sender.nic.post_xp_write(qpns[0], write);
    posted.map_err(|why| why.to_string())
}

/// The queue pairs of a flow at both ends: new ones, or those of an earlier flow between the two hosts.
fn queue_pairs(
    network: &mut Network<HostOrBox>,
    transport: &XpTransport,
    starting: &FlowSetup,
) -> Result<[u32; 2], String> {
    let [src, dst] = starting.ends;
    let priority = starting.flow.priority.unwrap_or(transport.priority);
    let keys = [(src, (dst, priority)), (dst, (src, priority))];
    let mut found = [None; 2];
    for (qpn, (node, key)) in found.iter_mut().zip(keys) {
        *qpn = nic(network, node)?.xp.shared.get(&key).copied();
    }
    if let [Some(of_sender), Some(of_receiver)] = found {
        return Ok([of_sender, of_receiver]);
    }
    let qpns = connect(
        network,
        starting,
        transport.priority,
        |nic, to, peer_qpn| {
            let config = transport.queue_pair(peer_qpn, &starting.path);
            nic.connect_xp(to, &config).map_err(|why| why.to_string())
        },
    )?;
    if transport.queue_pair == QueuePairOf::Hosts {
        for (qpn, (node, key)) in qpns.into_iter().zip(keys) {
            nic(network, node)?.xp.shared.insert(key, qpn);
        }
    }
    Ok(qpns)
}
