//! Replies of a responder, in the order of sending (IBTA 9.7.5).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use farwrite_net::Payload;
use farwrite_net::Telemetry;
use farwrite_wire::header::Aeth;
use farwrite_wire::opcode::Position;

use crate::echo::{Echo, PathNote};
use crate::opcode::{self, position};
use crate::packet::{Packet, header};
use crate::{Memory, Nak, QpConfig, Recovery, Syndrome, psn};

const GAP: Syndrome = Syndrome::Nak(Nak::Sequence);

/// Replies that wait to be sent. The queue holds at most `2 * max_reads` READs, new and repeated,
/// with one ACK before, between and after them, and in selective repeat also one window of NAKs.
#[derive(Debug)]
pub(crate) struct Replies {
    config: QpConfig,
    queue: VecDeque<Reply>,
    /// Total of packets of credit granted to the peer, modulo 2^24. With trimming, ACKs carry it
    /// instead of the MSN.
    granted_packets: u32,
    /// What packets have brought since the last reply; `None`: nobody reads it.
    echo: Option<Echo>,
    /// The telemetry of the acknowledgement that was polled last.
    polled: Option<Box<Telemetry>>,
}

#[derive(Debug)]
enum Reply {
    /// An ACK, RNR NAK or NAK.
    Ack {
        count: u64,
        msn: u32,
        syndrome: Syndrome,
        echo: Echo,
    },
    Read(ReadReply),
}

/// The response to a READ, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadReply {
    /// Count of the next response packet.
    pub(crate) next: u64,
    pub(crate) end: u64,
    /// Whether the next response packet is the first one.
    pub(crate) first: bool,
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
    /// Bytes of the response that are not sent yet.
    pub(crate) bytes: u32,
    pub(crate) msn: u32,
}

/// The peer has sent more READs than `max_reads` allows.
#[derive(Debug)]
pub(crate) struct TooManyReads;

impl Replies {
    pub(crate) fn new(config: QpConfig) -> Self {
        Self {
            config,
            queue: VecDeque::new(),
            granted_packets: 0,
            echo: None,
            polled: None,
        }
    }

    /// Whether replies return marks and telemetry.
    pub(crate) fn set_echo(&mut self, echoes: bool) {
        self.echo = echoes.then(Echo::default);
    }

    /// Notes what an arriving packet brought, for the next reply.
    pub(crate) fn note(&mut self, note: PathNote) {
        if let Some(echo) = &mut self.echo {
            echo.note(note);
        }
    }

    /// What the next reply returns.
    fn take_echo(&mut self) -> Echo {
        self.echo.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// The telemetry that the acknowledgement polled last returns.
    pub(crate) fn take_polled(&mut self) -> Option<Box<Telemetry>> {
        self.polled.take()
    }

    /// Queues an ACK of all packets up to `count`, or a NAK of that packet, which acknowledges all
    /// packets before it. It replaces an older ACK directly before it in the queue, unless that one returns another mark
    /// (RFC 8257, section 3.2).
    pub(crate) fn ack(&mut self, count: u64, msn: u32, syndrome: Syndrome) {
        let selective = self.config.recovery.is_selective();
        let echo = self.take_echo();
        let covered = |reply: &Reply| match reply {
            Reply::Ack {
                syndrome,
                echo: older,
                ..
            } => !(selective && *syndrome == GAP) && older.marked == echo.marked,
            Reply::Read(_) => false,
        };
        if self.queue.back().is_some_and(covered) {
            self.queue.pop_back();
        }
        self.queue.push_back(Reply::Ack {
            count,
            msn,
            syndrome,
            echo,
        });
    }

    /// Queues a NAK of selective repeat: `named` has arrived after a gap at `expected`, or, if both
    /// are equal, without its payload. The MSN field carries `named`, because requesters here do
    /// not use the MSN. If the queue is full, the NAK is dropped: the peer's timeout repairs that.
    pub(crate) fn gap(&mut self, expected: u64, named: u64) {
        let window = self.config.window_packets as usize;
        let echo = self.take_echo();
        if self.queue.len() < window + 4 * usize::from(self.config.max_reads) {
            self.queue.push_back(Reply::Ack {
                count: expected,
                msn: psn::of(named),
                syndrome: GAP,
                echo,
            });
        }
    }

    /// Sets the credit total that ACKs carry.
    pub(crate) fn grant(&mut self, granted_packets: u64) {
        self.granted_packets = psn::of(granted_packets);
    }

    /// Queues the response to a new READ.
    pub(crate) fn read(&mut self, read: ReadReply) -> Result<(), TooManyReads> {
        if self.reads() >= 2 * usize::from(self.config.max_reads) {
            return Err(TooManyReads);
        }
        self.queue.push_back(Reply::Read(read));
        Ok(())
    }

    /// Queues the response to a repeated READ, unless the response is queued already or would take
    /// the room of new READs.
    pub(crate) fn read_again(&mut self, read: ReadReply) {
        let room = self.reads() < usize::from(self.config.max_reads);
        if room && !self.will_send(&read) {
            self.queue.push_back(Reply::Read(read));
        }
    }

    /// Whether the next reply is an ACK, an RNR NAK or a NAK.
    pub(crate) fn has_ack(&self) -> bool {
        self.queue.front().is_some_and(Reply::is_ack)
    }

    /// Whether the next reply is a packet of a READ response.
    pub(crate) fn has_read(&self) -> bool {
        self.queue.front().is_some_and(|reply| !reply.is_ack())
    }

    pub(crate) fn poll_ack(&mut self) -> Option<Packet> {
        if !self.has_ack() {
            return None;
        }
        let Some(Reply::Ack {
            count,
            msn,
            syndrome,
            echo,
        }) = self.queue.pop_front()
        else {
            return None;
        };
        self.polled = echo.telemetry;
        let credit = self.config.recovery == Recovery::Trimming && syndrome == Syndrome::Ack;
        let msn = if credit { self.granted_packets } else { msn };
        let mut header = header(opcode::ACKNOWLEDGE, self.config.peer_qpn, count, false);
        header.aeth = Some(aeth(syndrome, msn));
        header.bth.becn = echo.marked;
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

    /// Whether a queued response covers a repeated READ.
    fn will_send(&self, again: &ReadReply) -> bool {
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
}

pub(crate) fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth {
        syndrome: syndrome.to_byte(),
        msn,
    }
}
