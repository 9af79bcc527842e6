//! Classifies RoCEv2 packets, and predicts the next PSN of a stream (IBTA 9.2.1 and 9.7.1).

use farwrite_wire::opcode::{Class, Position};
use farwrite_wire::packet::Packet;

use crate::psn;

/// Possible payload lengths of full packets.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
const ACKNOWLEDGE: u8 = 0x11;

/// The PSN space of a packet. A queue pair receives packets of several spaces, and each space has
/// its own sequence of PSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// SEND, WRITE, atomics and READ requests of a reliable connection.
    Request,
    /// READ responses and atomic acknowledgements. They have the PSNs of their requests. The PSNs
    /// of other requests are skipped, so there are gaps between messages.
    Response,
    /// One-packet messages of an unreliable connection, for instance those of SDR (P2).
    Singles,
}

/// A packet that the box protects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPacket {
    pub(crate) space: Space,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    position: Position,
    /// Length of the response, if this is a READ request.
    read_bytes: Option<u32>,
    payload_bytes: u32,
}

/// How the box treats a RoCEv2 packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketKind {
    /// The box protects it.
    Data(DataPacket),
    /// An acknowledgement to a queue pair. It is not protected, and must not overtake READ
    /// responses.
    Ack { qpn: u32 },
    /// All other packets: UD, UC messages of several packets, congestion notifications.
    Other,
}

impl PacketKind {
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        let (bth, opcode) = (packet.bth(), packet.opcode());
        let qpn = bth.dest_qp;
        let space = match (opcode.class, opcode.value) {
            (Class::Rc, ACKNOWLEDGE) => return Self::Ack { qpn },
            (Class::Rc, 0x0D..=0x12) => Space::Response,
            (Class::Rc, _) => Space::Request,
            (Class::Uc, _) if opcode.position == Position::Only => Space::Singles,
            _ => return Self::Other,
        };
        const READ_REQUEST: u8 = 0x0C;
        let reads = opcode.value == READ_REQUEST;
        Self::Data(DataPacket {
            space,
            qpn,
            psn: bth.psn,
            position: opcode.position,
            read_bytes: packet.reth().filter(|_| reads).map(|reth| reth.dma_bytes),
            // A UDP payload has less than 2^16 bytes.
            payload_bytes: u32::try_from(packet.payload().len()).unwrap_or(u32::MAX),
        })
    }
}

impl DataPacket {
    pub(crate) fn starts_message(&self) -> bool {
        matches!(self.position, Position::First | Position::Only)
    }

    pub(crate) fn ends_message(&self) -> bool {
        matches!(self.position, Position::Last | Position::Only)
    }
}

/// Which PSN comes next in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    next: Next,
    /// Payload length of full packets, known after the first one.
    mtu_bytes: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Unknown,
    At(u32),
    /// This PSN or a later one: the next packet is a response, or follows a READ request.
    From(u32),
    /// After a READ request with this PSN, for this number of bytes. The MTU is not known yet.
    AfterRead(u32, u32),
}

impl Sequence {
    pub(crate) fn new() -> Self {
        Self {
            next: Next::Unknown,
            mtu_bytes: None,
        }
    }

    /// Updates the prediction with the packet that was sent last.
    pub(crate) fn follow(&mut self, data: &DataPacket) {
        let full = matches!(data.position, Position::First | Position::Middle);
        if full && MTUS.contains(&data.payload_bytes) {
            self.mtu_bytes = Some(data.payload_bytes);
        }
        let next = psn::add(data.psn, 1);
        self.next = match (data.space, data.read_bytes) {
            (Space::Response, _) if data.ends_message() => Next::From(next),
            (_, Some(bytes)) => match self.mtu_bytes {
                Some(mtu_bytes) => Next::At(psn::add(data.psn, packets(bytes, mtu_bytes))),
                None => Next::AfterRead(data.psn, bytes),
            },
            _ => Next::At(next),
        };
    }

    pub(crate) fn set(&mut self, psn: u32) {
        self.next = Next::At(psn);
    }

    /// How many packets are missing before this PSN. Negative for a PSN that came before; `None` if
    /// no PSN is expected yet.
    pub(crate) fn gap(&self, psn: u32) -> Option<i32> {
        match self.next {
            Next::Unknown => None,
            Next::At(next) => Some(psn::distance(next, psn)),
            Next::From(next) => Some(psn::distance(next, psn).min(0)),
            Next::AfterRead(read, bytes) => {
                let after = |mtu| psn::add(read, packets(bytes, mtu));
                if MTUS.into_iter().any(|mtu| after(mtu) == psn) {
                    Some(0)
                } else {
                    Some(psn::distance(psn::add(read, 1), psn))
                }
            }
        }
    }

    /// The PSN that comes next, or the lowest that is possible.
    pub(crate) fn least(&self) -> Option<u32> {
        match self.next {
            Next::Unknown => None,
            Next::At(next) | Next::From(next) => Some(next),
            Next::AfterRead(read, _) => Some(psn::add(read, 1)),
        }
    }
}

/// Number of packets in a response. An empty response has one packet (IBTA 9.7.1).
fn packets(bytes: u32, mtu_bytes: u32) -> u32 {
    bytes.div_ceil(mtu_bytes).max(1)
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;

    /// A packet in the middle of a WRITE to queue pair 2.
    pub(crate) fn data(psn: u32) -> DataPacket {
        DataPacket {
            space: Space::Request,
            qpn: 2,
            psn,
            position: Position::Middle,
            read_bytes: None,
            payload_bytes: 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(space: Space, psn: u32, position: Position) -> DataPacket {
        DataPacket {
            space,
            position,
            ..test::data(psn)
        }
    }

    #[test]
    fn a_read_request_takes_the_psns_of_its_response() {
        let mut sequence = Sequence::new();
        let read = DataPacket {
            read_bytes: Some(4096),
            payload_bytes: 0,
            ..data(Space::Request, 10, Position::Only)
        };
        assert_eq!(sequence.gap(10), None);
        sequence.follow(&read);
        // Before the MTU is known, each MTU is possible.
        for (psn, gap) in [
            (11, 0),
            (12, 0),
            (14, 0),
            (18, 0),
            (26, 0),
            (13, 2),
            (9, -2),
        ] {
            assert_eq!(sequence.gap(psn), Some(gap), "{psn}");
        }
        sequence.follow(&data(Space::Request, 14, Position::First));
        sequence.follow(&DataPacket { psn: 16, ..read });
        assert_eq!((sequence.gap(20), sequence.gap(18)), (Some(0), Some(-2)));
    }

    #[test]
    fn responses_leave_numbers_out_between_messages_only() {
        let mut sequence = Sequence::new();
        sequence.follow(&data(Space::Response, 5, Position::First));
        assert_eq!(sequence.gap(7), Some(1));
        sequence.follow(&data(Space::Response, 6, Position::Last));
        assert_eq!((sequence.gap(90), sequence.gap(6)), (Some(0), Some(-1)));
    }
}
