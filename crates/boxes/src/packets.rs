//! Which packets belong to messages, and which packet follows which (IBTA 9.2.1 and 9.7.1).

use farwrite_wire::opcode::{Class, Position};
use farwrite_wire::packet::Packet;

use crate::psn;

/// Payload bytes that full packets of a queue pair can have.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
const ACKNOWLEDGE: u8 = 0x11;

/// The PSN space of a packet. Packets of different spaces to one queue pair have PSNs that do not
/// follow from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// SEND, WRITE, atomics and READ requests of a reliable connection.
    Request,
    /// READ responses and atomic acknowledgements. They have the PSNs of their requests, so numbers
    /// of other requests are absent between two messages.
    Response,
    /// Messages of one packet of an unreliable connection, such as those of SDR (P2).
    Singles,
}

/// A packet that the box protects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) space: Space,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    position: Position,
    /// Bytes of the response, of a READ request.
    read_bytes: Option<u32>,
    payload_bytes: u32,
}

/// What a RoCEv2 packet is to the box.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// It is protected.
    Data(Data),
    /// An acknowledgement to a queue pair: not protected, and never ahead of READ responses.
    Ack {
        /// The queue pair.
        qpn: u32,
    },
    /// All else: UD, longer UC messages, congestion notifications.
    Other,
}

impl Kind {
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
        Self::Data(Data {
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

impl Data {
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
    /// Payload bytes of full packets, once one was seen.
    mtu_bytes: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Unknown,
    At(u32),
    /// At this PSN or later: a response comes next, or the packet after a READ request.
    From(u32),
    /// After a READ request whose response has this many bytes, in packets of unknown length.
    AfterRead(u32, u32),
}

impl Sequence {
    pub(crate) fn new() -> Self {
        Self {
            next: Next::Unknown,
            mtu_bytes: None,
        }
    }

    /// Takes in the packet that was sent last.
    pub(crate) fn follow(&mut self, data: &Data) {
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

    /// Says which PSN comes next.
    pub(crate) fn set(&mut self, psn: u32) {
        self.next = Next::At(psn);
    }

    /// How many packets are missing before this PSN: negative if it was there before, `None` if
    /// nothing is known.
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

    /// The PSN that comes next, or the least that can.
    pub(crate) fn least(&self) -> Option<u32> {
        match self.next {
            Next::Unknown => None,
            Next::At(next) | Next::From(next) => Some(next),
            Next::AfterRead(read, _) => Some(psn::add(read, 1)),
        }
    }
}

/// Packets of a response: one if it is empty (IBTA 9.7.1).
fn packets(bytes: u32, mtu_bytes: u32) -> u32 {
    bytes.div_ceil(mtu_bytes).max(1)
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;

    /// A packet in the middle of a WRITE to queue pair 2.
    pub(crate) fn data(psn: u32) -> Data {
        Data {
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

    fn data(space: Space, psn: u32, position: Position) -> Data {
        Data {
            space,
            position,
            ..test::data(psn)
        }
    }

    #[test]
    fn a_read_request_takes_the_psns_of_its_response() {
        let mut sequence = Sequence::new();
        let read = Data {
            read_bytes: Some(4096),
            payload_bytes: 0,
            ..data(Space::Request, 10, Position::Only)
        };
        assert_eq!(sequence.gap(10), None);
        sequence.follow(&read);
        // Before the MTU is known, each length of packets is possible.
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
        sequence.follow(&Data { psn: 16, ..read });
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
