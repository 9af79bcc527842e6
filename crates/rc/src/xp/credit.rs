//! Credit of EQDS in place of DCQCN. Host software keeps it, beside the context.

use farwrite_rate::{Eqds, EqdsOptions, Loss, RateControl, Sent};

use super::context::distance;
use crate::packet::{self, Packet};
use crate::psn;

/// The two halves of a queue pair's credit, in packets: each one costs the credit of a full packet.
///
/// The sender needs no grant for the first window of a message. Each packet says how long its message is, also if a
/// switch has cut the payload, so the receiver learns this from the first one that arrives. It then grants the rest.
/// When the receive has ended, the receiver grants no more.
#[derive(Debug)]
pub(super) struct Credit {
    /// The sender.
    eqds: Eqds,
    packet_bytes: u64,
    first_window_packets: u64,
    /// Total of packets that the peer has granted.
    granted_packets: u64,
    /// The receiver: the message after the newest one that it knows.
    unknown: u32,
    /// Packets that the receiver is to grant from now on, if that has changed.
    wanted: Option<u64>,
    /// Total of packets granted to the peer, if the peer has not been told.
    grant: Option<u64>,
}

impl Credit {
    /// `packet_bytes`: bytes of the IP datagram of a full packet.
    pub(super) fn new(options: EqdsOptions, packet_bytes: u64) -> Self {
        let mut credit = Self {
            eqds: Eqds::new(options),
            packet_bytes,
            first_window_packets: options.first_window_bytes.max(1).div_ceil(packet_bytes),
            granted_packets: 0,
            unknown: 0,
            wanted: None,
            grant: None,
        };
        credit.begin(0);
        credit
    }

    /// Sender: whether a packet may leave.
    pub(super) fn allows(&self) -> bool {
        self.eqds.credit_bytes() > 0
    }

    /// Sender: the next message begins. Of the message before, packets and grants may be lost, so this is what EQDS
    /// does after a timeout: there is credit for a first window at least.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.eqds.on_loss(now_ns, Loss::TimedOut);
    }

    /// Sender: a packet leaves.
    pub(super) fn on_sent(&mut self, now_ns: u64) {
        self.eqds.on_sent(&Sent {
            now_ns,
            bytes: self.packet_bytes,
            ..Sent::default()
        });
    }

    /// Sender: a grant has arrived, with the low 24 bits of the total.
    pub(super) fn on_grant(&mut self, now_ns: u64, total: u32) {
        let granted = psn::near(total, self.granted_packets);
        self.granted_packets = self.granted_packets.max(granted);
        let bytes = self.granted_packets.saturating_mul(self.packet_bytes);
        self.eqds.on_grant(now_ns, bytes);
    }

    /// Receiver: a packet of a message of `packets` packets has arrived.
    pub(super) fn on_arrival(&mut self, seq: u32, packets: u64) {
        if distance(seq, self.unknown).is_some() {
            self.unknown = seq.wrapping_add(1);
            self.wanted = Some(packets.saturating_sub(self.first_window_packets));
        }
    }

    /// Receiver: the receive of a message has ended.
    pub(super) fn on_end(&mut self, seq: u32) {
        if distance(seq.wrapping_add(1), self.unknown) == Some(0) {
            self.wanted = Some(0);
        }
    }

    /// Receiver: the number of packets to grant from now on in place of those before, if it has changed since the last
    /// call.
    pub(super) fn take_wanted(&mut self) -> Option<u64> {
        self.wanted.take()
    }

    /// Receiver: queues a grant, with the total so far.
    pub(super) fn grant(&mut self, granted_packets: u64) {
        self.grant = Some(granted_packets);
    }

    pub(super) fn has_grant(&self) -> bool {
        self.grant.is_some()
    }

    /// Receiver: the grant that waits to be sent.
    pub(super) fn poll_grant(&mut self, peer_qpn: u32) -> Option<Packet> {
        let granted = self.grant.take()?;
        Some(packet::grant(peer_qpn, granted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes, and a first window of 2.5 packets.
    fn credit() -> Credit {
        let options = EqdsOptions {
            line_rate_bps: 1_000_000_000,
            first_window_bytes: 2_500,
        };
        Credit::new(options, 1_000)
    }

    fn send_all(credit: &mut Credit) -> u32 {
        let allowed = |_: &u32| {
            let allowed = credit.allows();
            if allowed {
                credit.on_sent(0);
            }
            allowed
        };
        (0..100).take_while(allowed).map(|_| 1).sum()
    }

    #[test]
    fn a_message_has_a_first_window_and_a_packet_for_each_grant() {
        let mut credit = credit();
        assert_eq!(send_all(&mut credit), 3);
        credit.on_grant(0, 2);
        assert_eq!(send_all(&mut credit), 2);
        // The grant of the third packet is lost, and the next one stands for both.
        credit.on_grant(0, 4);
        credit.on_grant(0, 3);
        assert_eq!(send_all(&mut credit), 2);
        credit.begin(0);
        assert_eq!(send_all(&mut credit), 3);
        // Credit that a message did not use is part of the first window of the next one.
        credit.on_grant(0, 6);
        credit.begin(0);
        assert_eq!(send_all(&mut credit), 3);
    }

    #[test]
    fn the_first_packet_of_a_message_asks_for_the_rest_and_its_end_for_nothing() {
        let mut credit = credit();
        credit.on_arrival(0, 10);
        assert_eq!(credit.take_wanted(), Some(7));
        credit.on_arrival(0, 10);
        assert_eq!(credit.take_wanted(), None);
        // A message ends of which no packet has arrived. The next message is still under way.
        credit.on_arrival(2, 2);
        credit.on_end(0);
        credit.on_end(1);
        credit.on_arrival(1, 50);
        assert_eq!(credit.take_wanted(), Some(0));
        credit.on_arrival(0xFF_FFFF, 20);
        assert_eq!(credit.take_wanted(), None);
        credit.on_arrival(3, 20);
        assert_eq!(credit.take_wanted(), Some(17));
        credit.on_end(3);
        assert_eq!(credit.take_wanted(), Some(0));
    }
}
