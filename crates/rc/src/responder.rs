//! The responding half of a queue pair (IBTA, "Responder: Receiving Inbound Request Packets", and
//! 9.7.5).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use farwrite_net::header::Roce;
use farwrite_wire::opcode::Position;

use crate::opcode::Operation;
use crate::out_of_order::OutOfOrderPacket;
use crate::packet::{Assembly, Packet, packets};
use crate::replies::{ReadReply, Replies};
use crate::{Completion, Memory, Nak, QpConfig, QpCounters, Syndrome, psn};

/// Executes requests in order, and queues the replies.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) config: QpConfig,
    /// Count of the next expected packet.
    pub(crate) expected: u64,
    /// Number of executed requests (IBTA, "Generating MSN Value").
    msn: u32,
    /// The NAK or RNR NAK that was sent for `expected`, and when, in nanoseconds.
    refused: Option<(Syndrome, u64)>,
    pub(crate) inbound: Option<Inbound>,
    receives: VecDeque<ReceiveBuffer>,
    /// Packets that arrived after a gap, by count, within the window (selective repeat).
    pub(crate) out_of_order: BTreeMap<u64, OutOfOrderPacket>,
    /// The packets in `out_of_order` that begin a WRITE.
    pub(crate) out_of_order_writes: BTreeSet<u64>,
    pub(crate) replies: Replies,
    /// Whether this end has refused a request permanently.
    pub(crate) broken: bool,
}

/// A message whose first packet has arrived and whose last packet has not.
#[derive(Debug)]
pub(crate) enum Inbound {
    Send {
        receive: ReceiveBuffer,
        data: Assembly,
    },
    Write(WriteProgress),
}

/// Progress of a WRITE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteProgress {
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
    /// Bytes of the whole WRITE.
    pub(crate) bytes: u32,
    pub(crate) missing_bytes: u32,
}

/// A receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveBuffer {
    id: u64,
    max_bytes: u32,
}

impl Responder {
    pub(crate) fn new(config: QpConfig) -> Self {
        Self {
            config,
            expected: psn::start(config.recv_psn),
            msn: 0,
            refused: None,
            inbound: None,
            receives: VecDeque::new(),
            out_of_order: BTreeMap::new(),
            out_of_order_writes: BTreeSet::new(),
            replies: Replies::new(config),
            broken: false,
        }
    }

    pub(crate) fn post_receive(&mut self, id: u64, max_bytes: u32) {
        self.receives.push_back(ReceiveBuffer { id, max_bytes });
    }

    /// Handles a request packet.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        (operation, position): (Operation, Position),
        packet: &Packet,
        memory: &mut Memory,
        counters: &mut QpCounters,
        completions: &mut VecDeque<Completion>,
    ) {
        if self.broken {
            return;
        }
        let kind = (operation, position);
        let selective = self.config.recovery.is_selective();
        let count = psn::near(packet.header.bth.psn, self.expected);
        if count > self.expected {
            counters.out_of_order += 1;
            if selective {
                self.keep_out_of_order(kind, count, packet, memory);
            } else if self.may_name_gap(now_ns) {
                self.refuse(now_ns, Syndrome::Nak(Nak::Sequence), counters);
            }
            return;
        }
        if count < self.expected {
            counters.duplicates += 1;
            self.repeat_reply(operation, count, &packet.header, memory);
            return;
        }
        self.refused = None;
        let mut acks = packet.header.bth.ack_request || selective;
        let mut done = self.take(kind, packet, false, memory, completions);
        while done.is_ok()
            && let Some(held) = self.out_of_order.remove(&self.expected)
        {
            acks = true;
            self.out_of_order_writes.remove(&self.expected);
            done = self.take(held.kind, &held.packet, held.placed, memory, completions);
        }
        debug_assert!(self.out_of_order_writes.len() <= self.out_of_order.len());
        match done {
            Err(syndrome) => self.refuse(now_ns, syndrome, counters),
            // The response to a READ is its acknowledgement.
            Ok(Operation::ReadRequest) => {}
            Ok(_) if acks => self.replies.ack(self.expected - 1, self.msn, Syndrome::Ack),
            Ok(_) => {}
        }
    }

    /// Executes the expected packet. `placed`: its payload is in memory already.
    fn take(
        &mut self,
        (operation, position): (Operation, Position),
        packet: &Packet,
        placed: bool,
        memory: &mut Memory,
        completions: &mut VecDeque<Completion>,
    ) -> Result<Operation, Syndrome> {
        match operation {
            Operation::Send => self.send(position, packet, completions)?,
            Operation::Write => self.write(position, packet, placed, memory, completions)?,
            _ => {
                self.read(&packet.header, memory)?;
                return Ok(operation);
            }
        }
        self.expected += 1;
        Ok(operation)
    }

    /// Sends credit to the peer: the total of granted packets.
    pub(crate) fn grant(&mut self, granted_packets: u64) {
        self.replies.grant(granted_packets);
        if !self.broken {
            self.replies.ack(self.expected - 1, self.msn, Syndrome::Ack);
        }
    }

    /// Whether packets are missing before a request packet, or between packets that arrived.
    pub(crate) fn is_gap(&self, psn: u32) -> bool {
        !self.out_of_order.is_empty() || self.position(psn) > self.expected
    }

    /// Index of a request packet among all packets that the peer has sent.
    pub(crate) fn position(&self, psn: u32) -> u64 {
        psn::near(psn, self.expected)
    }

    /// Returns all receive buffers.
    pub(crate) fn fail(&mut self, completions: &mut VecDeque<Completion>) {
        self.broken = true;
        self.out_of_order.clear();
        self.out_of_order_writes.clear();
        let inbound = match self.inbound.take() {
            Some(Inbound::Send { receive, .. }) => Some(receive),
            _ => None,
        };
        for ReceiveBuffer { id, .. } in inbound.into_iter().chain(self.receives.drain(..)) {
            completions.push_back(Completion::Unused { id });
        }
    }

    /// Whether a packet after a gap is answered with a NAK. A NAK goes out once for a gap, or again
    /// after [`QpConfig::nak_every_ns`].
    pub(crate) fn may_name_gap(&self, now_ns: u64) -> bool {
        match (self.refused, self.config.nak_every_ns) {
            (None, _) => true,
            (Some((Syndrome::Nak(Nak::Sequence), sent_ns)), Some(every_ns)) => {
                now_ns >= sent_ns.saturating_add(every_ns)
            }
            (Some(_), _) => false,
        }
    }

    fn refuse(&mut self, now_ns: u64, syndrome: Syndrome, counters: &mut QpCounters) {
        counters.refusals += 1;
        self.refused = Some((syndrome, now_ns));
        self.broken = !matches!(
            syndrome,
            Syndrome::NotReady(_) | Syndrome::Nak(Nak::Sequence)
        );
        self.replies.ack(self.expected, self.msn, syndrome);
    }

    /// Answers a duplicate of a packet that was executed already (IBTA 9.7.5.1).
    fn repeat_reply(&mut self, operation: Operation, count: u64, header: &Roce, memory: &Memory) {
        if operation != Operation::ReadRequest {
            let acks = header.bth.ack_request || self.config.recovery.is_selective();
            if acks && self.refused.is_none() {
                self.replies.ack(self.expected - 1, self.msn, Syndrome::Ack);
            }
            return;
        }
        let Ok(read) = self.parse_read(count, header, memory) else {
            return;
        };
        if read.end <= self.expected {
            self.replies.read_again(read);
        }
    }

    fn send(
        &mut self,
        position: Position,
        packet: &Packet,
        completions: &mut VecDeque<Completion>,
    ) -> Result<(), Syndrome> {
        const INVALID: Syndrome = Syndrome::Nak(Nak::InvalidRequest);
        self.check_length(position, packet.payload.carried_bytes())?;
        let begins = begins(position);
        let (receive, mut data) = match (begins, self.inbound.take()) {
            (true, None) => {
                let not_ready = Syndrome::NotReady(self.config.rnr_timer);
                (self.receives.pop_front().ok_or(not_ready)?, Assembly::new())
            }
            (false, Some(Inbound::Send { receive, data })) => (receive, data),
            (_, inbound) => {
                self.inbound = inbound;
                return Err(INVALID);
            }
        };
        let length = data.length().saturating_add(packet.payload.carried_bytes());
        if length > receive.max_bytes {
            self.inbound = Some(Inbound::Send { receive, data });
            return Err(INVALID);
        }
        data.push(&packet.payload);
        if matches!(position, Position::First | Position::Middle) {
            self.inbound = Some(Inbound::Send { receive, data });
            return Ok(());
        }
        self.finish_message();
        completions.push_back(Completion::Received {
            id: receive.id,
            data: data.finish(),
            imm: packet.header.imm,
        });
        Ok(())
    }

    fn write(
        &mut self,
        position: Position,
        packet: &Packet,
        placed: bool,
        memory: &mut Memory,
        completions: &mut VecDeque<Completion>,
    ) -> Result<(), Syndrome> {
        const INVALID: Syndrome = Syndrome::Nak(Nak::InvalidRequest);
        let bytes = packet.payload.carried_bytes();
        self.check_length(position, bytes)?;
        let begins = begins(position);
        let ends = matches!(position, Position::Last | Position::Only);
        let mut write = match (begins, &self.inbound) {
            (true, None) => begin_write(&packet.header, memory)?,
            (false, Some(Inbound::Write(write))) => *write,
            _ => return Err(INVALID),
        };
        let missing_bytes = write.missing_bytes.checked_sub(bytes).ok_or(INVALID)?;
        if ends != (missing_bytes == 0) {
            return Err(INVALID);
        }
        let imm = packet.header.imm.filter(|_| ends);
        if imm.is_some() && self.receives.is_empty() {
            return Err(Syndrome::NotReady(self.config.rnr_timer));
        }
        if !placed {
            memory.write(write.rkey, write.addr, &packet.payload);
        }
        write.addr = write.addr.wrapping_add(u64::from(bytes));
        write.missing_bytes = missing_bytes;
        self.inbound = (!ends).then_some(Inbound::Write(write));
        if ends {
            self.finish_message();
        }
        if let Some(imm) = imm {
            let receive = self.receives.pop_front();
            completions.extend(receive.map(|ReceiveBuffer { id, .. }| Completion::Written {
                id,
                bytes: write.bytes,
                imm,
            }));
        }
        Ok(())
    }

    fn read(&mut self, header: &Roce, memory: &Memory) -> Result<(), Syndrome> {
        const INVALID: Syndrome = Syndrome::Nak(Nak::InvalidRequest);
        if self.inbound.is_some() {
            return Err(INVALID);
        }
        let mut read = self.parse_read(self.expected, header, memory)?;
        read.msn = self.msn.wrapping_add(1);
        let end = read.end;
        self.replies.read(read).map_err(|_| INVALID)?;
        self.expected = end;
        self.finish_message();
        Ok(())
    }

    fn parse_read(
        &self,
        count: u64,
        header: &Roce,
        memory: &Memory,
    ) -> Result<ReadReply, Syndrome> {
        let invalid = Syndrome::Nak(Nak::InvalidRequest);
        let reth = header.reth.ok_or(invalid)?;
        let packets = packets(reth.dma_bytes, self.config.mtu_bytes);
        if packets > crate::MAX_PACKETS {
            return Err(invalid);
        }
        if !memory.allows(reth.rkey, reth.remote_addr, reth.dma_bytes) {
            return Err(Syndrome::Nak(Nak::Access));
        }
        Ok(ReadReply {
            next: count,
            end: count + u64::from(packets),
            first: true,
            rkey: reth.rkey,
            addr: reth.remote_addr,
            bytes: reth.dma_bytes,
            msn: self.msn,
        })
    }

    /// Whether the length of a payload is valid for the packet's position (IBTA, "Inbound Packet
    /// Validation").
    fn check_length(&self, position: Position, bytes: u32) -> Result<(), Syndrome> {
        let mtu_bytes = self.config.mtu_bytes;
        let fits = match position {
            Position::First | Position::Middle => bytes == mtu_bytes,
            Position::Last => (1..=mtu_bytes).contains(&bytes),
            Position::Only => bytes <= mtu_bytes,
        };
        if fits {
            Ok(())
        } else {
            Err(Syndrome::Nak(Nak::InvalidRequest))
        }
    }

    fn finish_message(&mut self) {
        self.msn = self.msn.wrapping_add(1);
    }
}

pub(crate) fn begins(position: Position) -> bool {
    matches!(position, Position::First | Position::Only)
}

pub(crate) fn begin_write(header: &Roce, memory: &Memory) -> Result<WriteProgress, Syndrome> {
    let reth = header.reth.ok_or(Syndrome::Nak(Nak::InvalidRequest))?;
    let (rkey, addr, bytes) = (reth.rkey, reth.remote_addr, reth.dma_bytes);
    if !memory.allows(rkey, addr, bytes) {
        return Err(Syndrome::Nak(Nak::Access));
    }
    Ok(WriteProgress {
        rkey,
        addr,
        bytes,
        missing_bytes: bytes,
    })
}
