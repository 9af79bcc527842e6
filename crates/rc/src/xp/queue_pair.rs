//! One end of a connection.

use alloc::collections::VecDeque;

use farwrite_net::Payload;
use farwrite_rate::DcqcnOptions;

use super::context::Context;
use super::credit::Credit;
use super::dcqcn::DcqcnContext;
use super::fragment::Fragment;
use super::work::{CompleteBy, Completion, Config, ConfigError, End, PostError, Receive, Write};
use crate::packet::{self, Packet, piece};
use crate::{Memory, earliest, opcode};

/// Longest message (IBTA 9.7).
const MAX_MESSAGE_BYTES: u32 = 1 << 31;

/// A queue pair of XP. It consumes packets and times, and produces packets and completions.
#[derive(Debug)]
pub struct QueuePair {
    /// In the memory of the NIC.
    context: Context,
    /// Registers that all queue pairs of a NIC share.
    dcqcn: DcqcnOptions,
    complete_by: CompleteBy,
    /// In the memory of the host. The first send is the message `sending` of the context, and the first receive
    /// is the message `expected`.
    sends: VecDeque<Write>,
    receives: VecDeque<Receive>,
    /// The immediate of the message `expected`, if its last packet has arrived and bytes complete it.
    imm: Option<u32>,
    credit: Option<Credit>,
    completions: VecDeque<Completion>,
    max_requests: usize,
    /// For measurements. A NIC has no counters of a queue pair.
    counters: Counters,
}

/// Counters of a queue pair, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Fragments sent.
    pub sent: u64,
    /// Fragments whose payload was placed.
    pub placed: u64,
    /// Fragments of messages that had ended.
    pub late: u64,
    /// Fragments of messages for which no receive was posted.
    pub not_posted: u64,
    /// Fragments that are too long or without access to the memory that they name.
    pub refused: u64,
    /// Congestion notifications received.
    pub notifications: u64,
}

impl QueuePair {
    /// A queue pair that is ready to send and to receive.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let line_rate_bps = config.line_rate_bps;
        Ok(Self {
            context: Context::new(
                config.peer_qpn,
                config.mtu_bytes,
                DcqcnContext::new(line_rate_bps),
            ),
            dcqcn: DcqcnOptions::paper(line_rate_bps),
            complete_by: config.complete_by,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            imm: None,
            credit: config.credit.map(|options| {
                let bytes = Fragment::full_bytes(config.mtu_bytes);
                Credit::new(options, bytes)
            }),
            completions: VecDeque::new(),
            max_requests: config.max_requests,
            counters: Counters::default(),
        })
    }

    /// Posts a message.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_write(&mut self, write: Write) -> Result<(), PostError> {
        if let Payload::Trimmed(bytes) = write.data {
            return Err(PostError::Trimmed(bytes));
        }
        let bytes = write.data.carried_bytes();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(PostError::TooLong(bytes));
        }
        self.check_room(self.sends.len())?;
        self.sends.push_back(write);
        Ok(())
    }

    /// Posts a receive for the peer's next message.
    ///
    /// # Errors
    /// [`PostError::Full`].
    pub fn post_receive(&mut self, receive: Receive) -> Result<(), PostError> {
        self.check_room(self.receives.len())?;
        self.receives.push_back(receive);
        Ok(())
    }

    /// Each request becomes one completion, so this bounds all queues.
    fn check_room(&self, posted: usize) -> Result<(), PostError> {
        let open = posted + self.completions.len();
        if open < self.max_requests {
            Ok(())
        } else {
            Err(PostError::Full(open))
        }
    }

    /// Removes and returns the oldest completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Whether there is a completion to poll.
    #[must_use]
    pub fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the NIC keeps of this queue pair.
    #[must_use]
    pub fn context(&self) -> Context {
        self.context
    }

    /// The rate that DCQCN allows now, in bits per second.
    #[must_use]
    pub fn rate_bps(&self) -> u64 {
        self.context.dcqcn.rate_bps()
    }

    /// Receives a packet for this queue pair. A packet that is not valid, and one without its payload, changes
    /// no memory and ends no receive. With credit, it still says how long its message is.
    pub fn handle_packet(&mut self, now_ns: u64, packet: &Packet, memory: &mut Memory) {
        if packet.header.bth.opcode == opcode::NOTIFICATION {
            self.counters.notifications += 1;
            self.context.dcqcn.on_notification(now_ns, &self.dcqcn);
            return;
        }
        // A packet that comes at the deadline is late, whichever the caller handles first.
        self.end_receives(now_ns);
        let is_whole = !matches!(packet.payload, Payload::Trimmed(_));
        if let Some(fragment) = Fragment::of(packet) {
            self.note_length(&fragment);
            if is_whole {
                self.place(&fragment, memory);
            }
        } else if let (Some(credit), Some(total)) = (&mut self.credit, packet::granted(packet)) {
            credit.on_grant(now_ns, total);
        }
    }

    /// Notes how long the message of a packet is, for the credit that it needs.
    fn note_length(&mut self, fragment: &Fragment) {
        let ahead = self.context.ahead(fragment.seq);
        let is_posted = ahead.is_some_and(|ahead| (ahead as usize) < self.receives.len());
        if let Some(credit) = self.credit.as_mut().filter(|_| is_posted) {
            let packets = packet::packets(fragment.message_bytes, self.context.mtu_bytes());
            credit.on_arrival(fragment.seq, packets.into());
        }
    }

    fn place(&mut self, fragment: &Fragment, memory: &mut Memory) {
        let Some(ahead) = self.context.ahead(fragment.seq) else {
            self.counters.late += 1;
            return;
        };
        if ahead as usize >= self.receives.len() {
            self.counters.not_posted += 1;
            return;
        }
        let bytes = fragment.payload.carried_bytes();
        let fits = bytes <= self.context.mtu_bytes().min(fragment.message_bytes);
        if !fits || !memory.allows(fragment.rkey, fragment.addr, bytes) {
            self.counters.refused += 1;
            return;
        }
        for _ in 0..ahead {
            self.end_receive(End::Preempted);
        }
        self.counters.placed += 1;
        memory.write(fragment.rkey, fragment.addr, &fragment.payload);
        let placed = &mut self.context.placed_bytes;
        *placed = placed.saturating_add(bytes);
        let placed_bytes = *placed;
        match (self.complete_by, fragment.imm) {
            (CompleteBy::LastPacket, Some(imm)) => self.end_receive(End::Last { imm }),
            (CompleteBy::LastPacket, None) => {}
            (CompleteBy::Bytes, imm) => {
                self.imm = imm.or(self.imm);
                if placed_bytes >= fragment.message_bytes {
                    self.end_receive(End::Bytes { imm: self.imm });
                }
            }
        }
    }

    /// Ends the active receive.
    fn end_receive(&mut self, end: End) {
        if let Some(Receive { id, .. }) = self.receives.pop_front() {
            let bytes = self.context.placed_bytes;
            let completion = Completion::Received { id, bytes, end };
            self.completions.push_back(completion);
            if let Some(credit) = &mut self.credit {
                credit.on_end(self.context.expected());
            }
            self.context.end_receive();
            self.imm = None;
        }
    }

    /// Ends the active send.
    fn end_send(&mut self, now_ns: u64) {
        if let Some(Write { id, .. }) = self.sends.pop_front() {
            let bytes = self.context.sent_bytes;
            self.completions.push_back(Completion::Sent { id, bytes });
            self.context.end_send();
            if let Some(credit) = &mut self.credit {
                credit.begin(now_ns);
            }
        }
    }

    fn end_receives(&mut self, now_ns: u64) {
        while is_over(self.receives.front().and_then(|r| r.deadline_ns), now_ns) {
            self.end_receive(End::TimedOut);
        }
    }

    fn end_sends(&mut self, now_ns: u64) {
        while is_over(self.sends.front().and_then(|s| s.deadline_ns), now_ns) {
            self.end_send(now_ns);
        }
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout); `None` for never.
    #[must_use]
    pub fn next_timeout(&self, now_ns: u64) -> Option<u64> {
        earliest([
            self.receives.front().and_then(|r| r.deadline_ns),
            self.sends.front().and_then(|s| s.deadline_ns),
            self.context.dcqcn.next_timeout(now_ns),
        ])
    }

    /// Handles all timers that have expired at `now_ns`.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.context.dcqcn.run_timer(now_ns, &self.dcqcn);
        self.end_receives(now_ns);
        self.end_sends(now_ns);
    }

    /// Queues a congestion notification for the peer.
    pub fn notify_congestion(&mut self) {
        self.context.notify();
    }

    /// Whether a congestion notification waits to be sent.
    #[must_use]
    pub fn has_notification(&self) -> bool {
        self.context.notifies()
    }

    /// The congestion notification that waits. Pacing does not delay it.
    pub fn poll_notification(&mut self) -> Option<Packet> {
        let notifies = self.context.take_notification();
        notifies.then(|| packet::notification(self.context.peer_qpn()))
    }

    /// Whether credit of EQDS limits the sender, in place of DCQCN.
    pub(crate) fn has_credit_control(&self) -> bool {
        self.credit.is_some()
    }

    /// The number of packets to grant to the peer from now on, in place of those before; `None`: the number stays.
    pub(crate) fn take_wanted(&mut self) -> Option<u64> {
        self.credit.as_mut()?.take_wanted()
    }

    /// Queues a credit grant for the peer: the total of granted packets so far. It has no effect without credit.
    pub(crate) fn grant(&mut self, granted_packets: u64) {
        if let Some(credit) = &mut self.credit {
            credit.grant(granted_packets);
        }
    }

    pub(crate) fn has_grant(&self) -> bool {
        self.credit.as_ref().is_some_and(Credit::has_grant)
    }

    /// The grant that waits. Pacing does not delay it.
    pub(crate) fn poll_grant(&mut self) -> Option<Packet> {
        let peer_qpn = self.context.peer_qpn();
        self.credit.as_mut()?.poll_grant(peer_qpn)
    }

    /// Time at which [`poll_transmit`](Self::poll_transmit) returns a packet, if no deadline comes before; `None`
    /// if no message is posted, or credit is missing. A time in the past means now.
    #[must_use]
    pub fn next_send_ns(&self) -> Option<u64> {
        let has_credit = self.credit.as_ref().is_none_or(Credit::allows);
        let has_data = !self.sends.is_empty() && has_credit;
        has_data.then(|| self.context.dcqcn.next_send_ns())
    }

    /// The next packet of the active message, if the pace allows it now.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        self.end_sends(now_ns);
        let write = self.sends.front()?;
        if self.next_send_ns()? > now_ns {
            return None;
        }
        let (offset, message_bytes) = (self.context.sent_bytes, write.data.carried_bytes());
        let left = message_bytes - offset;
        let bytes = left.min(self.context.mtu_bytes());
        let fragment = Fragment {
            seq: self.context.sending(),
            rkey: write.to.rkey,
            addr: write.to.addr.wrapping_add(offset.into()),
            message_bytes,
            imm: (bytes == left).then_some(write.imm),
            payload: piece(&write.data, offset, bytes),
        };
        let is_last = fragment.imm.is_some();
        let packet = fragment.packet(self.context.peer_qpn());
        self.context.sent_bytes += bytes;
        let wire_bytes = u32::try_from(packet.ip_bytes()).unwrap_or(u32::MAX);
        self.context.dcqcn.on_sent(now_ns, wire_bytes, &self.dcqcn);
        if let Some(credit) = &mut self.credit {
            credit.on_sent(now_ns);
        }
        self.counters.sent += 1;
        if is_last {
            self.end_send(now_ns);
        }
        Some(packet)
    }
}

fn is_over(deadline_ns: Option<u64>, now_ns: u64) -> bool {
    deadline_ns.is_some_and(|at_ns| at_ns <= now_ns)
}
