//! How a responder keeps packets that arrive after a gap (selective repeat; IRN, SIGCOMM 2018).

use farwrite_net::Payload;
use farwrite_wire::opcode::Position;

use crate::opcode::Operation;
use crate::packet::Packet;
use crate::responder::{Inbound, Responder, begin_write, begins};
use crate::{Memory, Recovery, psn};

/// A packet that arrived after a gap. If it belongs to a WRITE, its payload may already be in
/// memory.
#[derive(Debug)]
pub(crate) struct OutOfOrderPacket {
    pub(crate) kind: (Operation, Position),
    pub(crate) packet: Packet,
    pub(crate) placed: bool,
}

impl Responder {
    /// Keeps a packet that arrived after a gap, and names it to the requester in a NAK. Writes the
    /// payload of a WRITE to memory now if its destination is known. All other effects wait until
    /// the gap is closed.
    pub(crate) fn keep_out_of_order(
        &mut self,
        kind: (Operation, Position),
        count: u64,
        packet: &Packet,
        memory: &mut Memory,
    ) {
        if count - self.expected >= u64::from(self.config.window_packets) {
            return;
        }
        if !self.out_of_order.contains_key(&count) {
            let placed = kind.0 == Operation::Write && self.place(count, packet, memory);
            let mut packet = packet.clone();
            if placed {
                packet.payload = Payload::Ghost(packet.payload.carried_bytes());
            }
            let held = OutOfOrderPacket {
                kind,
                packet,
                placed,
            };
            self.out_of_order.insert(count, held);
            if kind.0 == Operation::Write && begins(kind.1) {
                self.out_of_order_writes.insert(count);
            }
        }
        self.replies.gap(self.expected, count);
    }

    /// Writes the payload of a packet after a gap to memory, if the first packet of its WRITE has
    /// arrived. The first packet has the destination of the WRITE, and the PSN gives the offset of
    /// this packet.
    fn place(&self, count: u64, packet: &Packet, memory: &mut Memory) -> bool {
        let begins = packet.header.reth.is_some();
        let before = self.out_of_order_writes.range(..count).next_back();
        let before = before.and_then(|first| Some((*first, &self.out_of_order.get(first)?.packet)));
        let first = if begins {
            Some((count, packet))
        } else {
            before
        };
        let (from, write) = match (first, &self.inbound) {
            (Some((first, packet)), _) => match begin_write(&packet.header, memory) {
                Ok(write) => (first, write),
                Err(_) => return false,
            },
            (None, Some(Inbound::Write(write))) => (self.expected, *write),
            (None, _) => return false,
        };
        let offset = (count - from).checked_mul(u64::from(self.config.mtu_bytes));
        let left = offset.and_then(|offset| u64::from(write.missing_bytes).checked_sub(offset));
        let want = left.map(|left| left.min(u64::from(self.config.mtu_bytes)));
        let fits = want == Some(u64::from(packet.payload.carried_bytes()));
        if let Some(offset) = offset.filter(|_| fits) {
            memory.write(write.rkey, write.addr.wrapping_add(offset), &packet.payload);
        }
        fits
    }

    /// Reports a packet that arrived without its payload to the requester.
    pub(crate) fn handle_trimmed(&mut self, psn: u32) {
        let count = psn::near(psn, self.expected);
        let ahead = count.checked_sub(self.expected);
        let fits = ahead.is_some_and(|ahead| ahead < u64::from(self.config.window_packets));
        if self.config.recovery == Recovery::Trimming
            && fits
            && !self.broken
            && !self.out_of_order.contains_key(&count)
        {
            self.replies.gap(count, count);
        }
    }
}
