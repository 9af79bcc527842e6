//! What a responder has to send, in order (IBTA 9.7.5).

use alloc::collections::VecDeque;

use farwrite_net::Payload;
use farwrite_wire::header::Aeth;
use farwrite_wire::opcode::Position;

use crate::opcode::{self, position};
use crate::packet::{Packet, header};
use crate::{Memory, Nak, QpConfig, Recovery, Syndrome, psn};

const GAP: Syndrome = Syndrome::Nak(Nak::Sequence);

/// Replies that wait to be sent. There are at most `2 * max_reads` READs, new and repeated, and one
/// ACK before, between and after them; in selective repeat also a window of NAKs.
#[derive(Debug)]
pub(crate) struct Replies {
    config: QpConfig,
    queue: VecDeque<Reply>,
    /// Packets of credit granted to the peer so far, 24 bits. Where switches trim, ACKs carry it
    /// in place of the MSN.
    granted_packets: u32,
}

#[derive(Debug)]
enum Reply {
    /// An ACK, RNR NAK or NAK.
    Ack {
        count: u64,
        msn: u32,
        syndrome: Syndrome,
    },
    Read(Read),
}

/// A READ, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Count of the next packet of the response.
    pub(crate) next: u64,
    pub(crate) end: u64,
    /// Whether that packet is the first.
    pub(crate) first: bool,
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
    /// Bytes left.
    pub(crate) bytes: u32,
    pub(crate) msn: u32,
}

/// More READs wait than a requester that keeps to `max_reads` can have sent.
#[derive(Debug)]
pub(crate) struct TooManyReads;

impl Replies {
    pub(crate) fn new(config: QpConfig) -> Self {
        Self {
            config,
            queue: VecDeque::new(),
            granted_packets: 0,
        }
    }

    /// Queues an ACK of all packets up to `count`, or a NAK of that packet, which acknowledges those
    /// before it. It covers an older one that nothing separates from it.
    pub(crate) fn ack(&mut self, count: u64, msn: u32, syndrome: Syndrome) {
        let selective = self.config.recovery.is_selective();
        let covered = |reply: &Reply| reply.is_ack() && !(selective && reply.is_gap());
        if self.queue.back().is_some_and(covered) {
            self.queue.pop_back();
        }
        self.queue.push_back(Reply::Ack {
            count,
            msn,
            syndrome,
        });
    }

    /// Queues a NAK of selective repeat: `named` has come after a gap at `expected`, or, if both
    /// are the same, without its payload. It stands in place of the MSN, which nobody needs there.
    /// One that finds no room is left out: the timeout of the peer makes up for it.
    pub(crate) fn gap(&mut self, expected: u64, named: u64) {
        let window = self.config.window_packets as usize;
        if self.queue.len() < window + 4 * usize::from(self.config.max_reads) {
            self.queue.push_back(Reply::Ack {
                count: expected,
                msn: psn::of(named),
                syndrome: GAP,
            });
        }
    }

    /// Sets the credit that ACKs carry.
    pub(crate) fn grant(&mut self, granted_packets: u64) {
        self.granted_packets = psn::of(granted_packets);
    }

    /// Queues the response to a new READ.
    pub(crate) fn read(&mut self, read: Read) -> Result<(), TooManyReads> {
        if self.reads() >= 2 * usize::from(self.config.max_reads) {
            return Err(TooManyReads);
        }
        self.queue.push_back(Reply::Read(read));
        Ok(())
    }

    /// Queues the response to a repeated READ, if it is not queued and takes no room that new ones
    /// may need.
    pub(crate) fn read_again(&mut self, read: Read) {
        let room = self.reads() < usize::from(self.config.max_reads);
        if room && !self.will_send(&read) {
            self.queue.push_back(Reply::Read(read));
        }
    }

    /// Whether the next reply is an ACK, RNR NAK or NAK.
    pub(crate) fn has_ack(&self) -> bool {
        self.queue.front().is_some_and(Reply::is_ack)
    }

    /// Whether the next reply is a packet of a response to a READ.
    pub(crate) fn has_read(&self) -> bool {
        self.queue.front().is_some_and(|reply| !reply.is_ack())
    }

    pub(crate) fn poll_ack(&mut self) -> Option<Packet> {
        let Some(&Reply::Ack {
            count,
            msn,
            syndrome,
        }) = self.queue.front()
        else {
            return None;
        };
        self.queue.pop_front();
        let credit = self.config.recovery == Recovery::Trimming && syndrome == Syndrome::Ack;
        let msn = if credit { self.granted_packets } else { msn };
        let mut header = header(opcode::ACKNOWLEDGE, self.config.peer_qpn, count, false);
        header.aeth = Some(aeth(syndrome, msn));
        let payload = Payload::Bytes([].into());
        Some(Packet { header, payload })
    }

    pub(crate) fn poll_read(&mut self, memory: &Memory) -> Option<Packet> {
        let Some(Reply::Read(read)) = self.queue.front_mut() else {
            return None;
        };
        let bytes = read.bytes.min(self.config.mtu_bytes);
        let payload = memory.read(read.rkey, read.addr, bytes);
        let position = position(read.first, read.next + 1 == read.end);
        let opcode = opcode::read_response(position);
        let mut header = header(opcode, self.config.peer_qpn, read.next, false);
        header.aeth = (position != Position::Middle).then(|| aeth(Syndrome::Ack, read.msn));
        read.addr = read.addr.wrapping_add(u64::from(bytes));
        read.bytes -= bytes;
        read.next += 1;
        read.first = false;
        if read.next == read.end {
            self.queue.pop_front();
        }
        Some(Packet { header, payload })
    }

    /// Whether a response that waits covers a repeated READ.
    fn will_send(&self, again: &Read) -> bool {
        self.queue.iter().any(|reply| match reply {
            Reply::Read(read) => read.next <= again.next && again.end <= read.end,
            Reply::Ack { .. } => false,
        })
    }

    fn reads(&self) -> usize {
        self.queue.iter().filter(|reply| !reply.is_ack()).count()
    }
}

impl Reply {
    fn is_ack(&self) -> bool {
        matches!(self, Self::Ack { .. })
    }

    fn is_gap(&self) -> bool {
        matches!(self, Self::Ack { syndrome, .. } if *syndrome == GAP)
    }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth {
        syndrome: syndrome.to_byte(),
        msn,
    }
}
