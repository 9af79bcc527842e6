//! Packets on their way in.

use farwrite_wire::header::{DEFAULT_PKEY, Reth};
use farwrite_wire::icrc::{self, Flow, IdRange};
use farwrite_wire::opcode::{UC_SEND_ONLY, UC_WRITE_ONLY_WITH_IMM};
use farwrite_wire::packet::{Packet, ParseError};

use super::keys::Placed;
use super::queue_pairs::ROCE_PORT;
use super::{Nic, header_bytes};
use crate::contract::{Completion, DropReason, Qpn};

/// One UDP datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The UDP payload.
    pub payload: &'a [u8],
    /// From whom, and to which of our addresses.
    pub flow: &'a Flow,
    /// The port (socket) that it came in by.
    pub port: u16,
    /// The IPv4 identification that it probably had: its index among the segments that the kernel
    /// joined, or 0. A wrong guess costs time only.
    pub ipv4_id: u16,
}

impl Nic {
    /// Applies a packet, or drops it and counts why.
    ///
    /// The checks run in this order, and the first that fails gives the reason: the form, the ICRC,
    /// the queue pair, its peer, the opcode, the MTU, a posted receive, the key, the bounds. (Bytes
    /// whose opcode no table has cannot be read any further, so that comes with the form.) Only a
    /// packet that passes all of them changes anything; in particular a bad key uses up no receive.
    pub fn receive(&mut self, arrival: &Arrival<'_>, out: &mut Vec<Completion>) {
        match self.apply(arrival, out) {
            Ok(()) => {
                let bytes = arrival.payload.len() as u64;
                self.counters.received_packets += 1;
                self.counters.received_bytes += bytes + header_bytes(arrival.flow.src());
            }
            Err(reason) => self.counters.dropped[reason as usize] += 1,
        }
    }

    fn apply(
        &mut self,
        arrival: &Arrival<'_>,
        out: &mut Vec<Completion>,
    ) -> Result<(), DropReason> {
        let packet = Packet::parse(arrival.payload).map_err(form)?;
        let bth = packet.bth();
        if bth.pkey != DEFAULT_PKEY {
            return Err(DropReason::Malformed);
        }
        check_icrc(arrival)?;
        let queue_pair = self.queue_pairs.find(bth.dest_qp);
        let queue_pair = queue_pair.filter(|queue_pair| queue_pair.attr.port == arrival.port);
        let queue_pair = queue_pair.ok_or(DropReason::UnknownQp)?;
        if !queue_pair.is_peer(arrival.flow.src()) {
            return Err(DropReason::Stranger);
        }
        let qpn = Qpn(bth.dest_qp);
        let request = Request::of(&packet).ok_or(DropReason::UnsupportedOpcode)?;
        let bytes = u32::try_from(packet.payload().len()).map_err(|_| DropReason::TooLong)?;
        if bytes > queue_pair.attr.mtu {
            return Err(DropReason::TooLong);
        }
        let receives = queue_pair.receives.checked_sub(1);
        let receives = receives.ok_or(DropReason::NoReceive)?;
        match request {
            Request::Send => {
                let payload = packet.payload().to_vec();
                queue_pair.receives = receives;
                out.push(Completion::Send { qpn, payload });
            }
            Request::Write { reth, imm } => {
                let placed = self.keys.place(reth, packet.payload())?;
                queue_pair.receives = receives;
                out.push(Completion::Write { qpn, imm, bytes });
                if placed == Placed::Nowhere {
                    return Err(DropReason::NullKey);
                }
            }
        }
        Ok(())
    }
}

/// What a packet asks for.
enum Request {
    Write { reth: Reth, imm: u32 },
    Send,
}

impl Request {
    /// `None` for opcodes that are not served.
    fn of(packet: &Packet<'_>) -> Option<Self> {
        match packet.opcode().value {
            UC_WRITE_ONLY_WITH_IMM => Some(Self::Write {
                reth: packet.reth()?,
                imm: packet.imm()?,
            }),
            UC_SEND_ONLY => Some(Self::Send),
            _ => None,
        }
    }
}

/// The reason to count for bytes that are no packet.
fn form(error: ParseError) -> DropReason {
    match error {
        ParseError::UnknownOpcode(_) | ParseError::RepairHeader => DropReason::UnsupportedOpcode,
        _ => DropReason::Malformed,
    }
}

/// Software ends use few IPv4 identifications. RNICs use all, and send to [`ROCE_PORT`] only, so a
/// port of our own choice keeps the ICRC at its full strength.
fn check_icrc(arrival: &Arrival<'_>) -> Result<(), DropReason> {
    let Arrival {
        payload,
        flow,
        ipv4_id,
        ..
    } = *arrival;
    let accept = if flow.dst().port() == ROCE_PORT {
        IdRange::ANY
    } else {
        IdRange::SOFTWARE
    };
    let sealed_with = icrc::verify(flow, payload, ipv4_id, accept);
    sealed_with.map(drop).map_err(|_| DropReason::BadIcrc)
}
