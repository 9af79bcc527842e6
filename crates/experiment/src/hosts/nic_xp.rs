//! Flows of XP: one message each, which ends at its deadline at the latest.

use std::collections::BTreeMap;

use farwrite_net::{Network, Payload};
use farwrite_rc::{Nic, Remote, xp};

use super::nic::{RKEY, connect, nic};
use super::{FlowCounters, FlowProgress, FlowReport, FlowSetup, HostOrBox};
use crate::transport::XpTransport;
use crate::units::nanoseconds;

/// The flows of a host.
#[derive(Debug, Default)]
pub(super) struct XpFlows {
    /// Bytes of each flow that the host receives.
    received: BTreeMap<usize, u64>,
    /// Queue pair of each flow that it sends.
    sent: BTreeMap<usize, u32>,
}

impl XpFlows {
    /// Counters of a flow that the host sends; zero if it has none with XP.
    pub(super) fn counters(&self, nic: &Nic, flow: usize) -> FlowCounters {
        let sent = self.sent.get(&flow).and_then(|qpn| nic.xp_counters(*qpn));
        FlowCounters {
            packets: sent.map_or(0, |counters| counters.sent),
            notifications: sent.map_or(0, |counters| counters.notifications),
            ..FlowCounters::default()
        }
    }

    /// The report about the end of a flow that the host receives, if a completion says that it has ended.
    pub(super) fn ended(
        &mut self,
        nic: &mut Nic,
        qpn: u32,
        flow: usize,
        at_ns: u64,
    ) -> Option<FlowReport> {
        let mut ended = None;
        while let Some(completion) = nic.poll_xp_completion(qpn) {
            if let xp::Completion::Received { bytes, .. } = completion {
                let whole = self.received.remove(&flow).unwrap_or(0);
                let missing_bytes = whole.saturating_sub(bytes.into());
                let what = FlowProgress::Ended { missing_bytes };
                ended = Some(FlowReport { flow, at_ns, what });
            }
        }
        ended
    }
}

/// Adds a queue pair at both ends, posts the receive and sends the message.
pub(super) fn start(
    network: &mut Network<HostOrBox>,
    transport: &XpTransport,
    starting: &FlowSetup,
) -> Result<(), String> {
    let now_ns = network.now_ns();
    let deadline_ns = Some(now_ns.saturating_add(nanoseconds(transport.deadline)));
    let qpns = connect(
        network,
        starting,
        transport.priority,
        |nic, to, peer_qpn| {
            let config = transport.queue_pair(peer_qpn, &starting.path);
            nic.connect_xp(to, &config).map_err(|why| why.to_string())
        },
    )?;
    let [src, dst] = starting.ends;
    let (number, bytes) = (starting.number, starting.flow.bytes);
    let receiver = nic(network, dst)?;
    receiver.xp.received.insert(number, bytes);
    let receive = xp::Receive { id: 0, deadline_ns };
    let posted = receiver.nic.post_xp_receive(qpns[1], receive);
    posted.map_err(|why| why.to_string())?;
    let sender = nic(network, src)?;
    sender.xp.sent.insert(number, qpns[0]);
    let write = xp::Write {
        id: 0,
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
