//! Posted requests and their packets (IBTA, "Requester: Generating Request Packets").

use farwrite_wire::header::Reth;

use crate::opcode::{self, position};
use crate::packet::{Assembly, Packet, header, piece};
use crate::{Completion, QpConfig, Remote, Request};
use farwrite_net::Payload;

/// A request in the send queue. Its packets have the counts from `first` to before `end`. The
/// counts of a READ are those of its response packets.
#[derive(Debug)]
pub(crate) struct WorkRequest {
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// The part of a READ's response that has arrived in order.
    pub(crate) read: Assembly,
}

impl WorkRequest {
    /// Builds the packet with a count. For a READ, the packet requests the response from that count
    /// to before `end`.
    pub(crate) fn packet(
        &self,
        count: u64,
        end: u64,
        config: &QpConfig,
        ack_request: bool,
    ) -> Packet {
        let (mtu_bytes, peer_qpn) = (config.mtu_bytes, config.peer_qpn);
        let offset = self.offset(count, mtu_bytes);
        let position = position(count == self.first, count + 1 == self.end);
        let last = count + 1 == self.end;
        let bytes = self.piece_bytes(count, mtu_bytes);
        match &self.request {
            Request::Send { data, imm } => {
                let imm = imm.filter(|_| last);
                let opcode = opcode::send(position, imm.is_some());
                let mut header = header(opcode, peer_qpn, count, ack_request);
                header.imm = imm;
                let payload = piece(data, offset, bytes);
                Packet { header, payload }
            }
            Request::Write { data, to, imm } => {
                let imm = imm.filter(|_| last);
                let opcode = opcode::write(position, imm.is_some());
                let mut header = header(opcode, peer_qpn, count, ack_request);
                header.imm = imm;
                header.reth = (count == self.first).then(|| reth(*to, 0, self.request.bytes()));
                let payload = piece(data, offset, bytes);
                Packet { header, payload }
            }
            Request::Read { from, bytes } => {
                let mut header = header(opcode::READ_REQUEST, peer_qpn, count, ack_request);
                let to = if end < self.end {
                    self.offset(end, mtu_bytes)
                } else {
                    *bytes
                };
                header.reth = Some(reth(*from, offset, to.saturating_sub(offset)));
                let payload = Payload::Bytes([].into());
                Packet { header, payload }
            }
        }
    }

    /// The count of the packet to send after `count`.
    pub(crate) fn after(&self, count: u64) -> u64 {
        if self.request.is_read() {
            self.end
        } else {
            count + 1
        }
    }

    /// Payload bytes of the packet with a count; for a READ, of the response packet.
    pub(crate) fn piece_bytes(&self, count: u64, mtu_bytes: u32) -> u32 {
        let offset = self.offset(count, mtu_bytes);
        mtu_bytes.min(self.request.bytes() - offset)
    }

    pub(crate) fn complete(self) -> Completion {
        let id = self.id;
        if self.request.is_read() {
            let data = self.read.finish();
            Completion::Read { id, data }
        } else {
            Completion::Acknowledged { id }
        }
    }

    fn offset(&self, count: u64, mtu_bytes: u32) -> u32 {
        let offset = (count - self.first) * u64::from(mtu_bytes);
        // Every packet of the message begins within the message.
        u32::try_from(offset).map_or(0, |offset| offset.min(self.request.bytes()))
    }
}

/// The RDMA header of a request that starts at an offset.
fn reth(remote: Remote, offset: u32, bytes: u32) -> Reth {
    Reth {
        remote_addr: remote.addr.wrapping_add(u64::from(offset)),
        rkey: remote.rkey,
        dma_bytes: bytes,
    }
}
