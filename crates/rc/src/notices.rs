//! Packets that a NIC sends for the congestion controllers of its peers: notifications and grants.

use farwrite_net::{Ecn, Payload};
use farwrite_rate::{Arrival, Notice, ReceiverControl};

use crate::end::End;
use crate::opcode::{self, Operation};
use crate::{Nic, Packet, Recovery, xp};

impl Nic {
    /// Gives due notifications and grants to the queue pairs, which send them.
    pub(crate) fn handle_notices(&mut self) {
        while let Some((flow, _)) = self.notifications.poll(self.now_ns) {
            self.notice(flow, End::notify_congestion);
        }
        while let Some((flow, notice)) = self.pulls.as_mut().and_then(|p| p.poll(self.now_ns)) {
            if let Notice::Grant { granted_packets } = notice {
                self.notice(flow, |pair| pair.grant(granted_packets));
            }
        }
    }

    fn notice(&mut self, flow: u32, send: impl FnOnce(&mut End)) {
        let at = flow as usize;
        if let Some(Some(end)) = self.ends.get_mut(at) {
            send(&mut end.pair);
            self.reschedule(at);
        }
    }

    /// Passes an arriving packet to the receiving halves of the controllers.
    pub(crate) fn note_arrival(&mut self, at: usize, ecn: Ecn, packet: &Packet) {
        let bth = packet.header.bth;
        let Ok(flow) = u32::try_from(at) else {
            return;
        };
        let Some(end) = &self.ends[at] else {
            return;
        };
        let pair = match &end.pair {
            End::Reliable(pair) => pair,
            End::Xp(pair) => {
                let has_dcqcn = !pair.has_credit_control();
                let marked = has_dcqcn && ecn == Ecn::Experienced && xp::is_data(packet);
                self.notifications.on_arrival(&Arrival {
                    now_ns: self.now_ns,
                    flow,
                    marked,
                    ..Arrival::default()
                });
                return;
            }
        };
        let Some((operation, _)) = opcode::parse(bth.opcode) else {
            return;
        };
        let request = matches!(operation, Operation::Send | Operation::Write);
        let gap = pair.gap_notifies(self.now_ns, bth.psn).filter(|_| request);
        let arrival = Arrival {
            now_ns: self.now_ns,
            flow,
            position: pair.position(bth.psn),
            marked: gap.unwrap_or(ecn == Ecn::Experienced),
            trimmed: matches!(packet.payload, Payload::Trimmed(_)),
            more: bth.ack_request,
        };
        if pair.recovery() != Recovery::Trimming {
            let data = request || operation == Operation::ReadResponse;
            if data && arrival.marked {
                self.notifications.on_arrival(&arrival);
            }
        } else if let Some(pulls) = self.pulls.as_mut().filter(|_| request) {
            pulls.on_arrival(&arrival);
        }
    }
}
