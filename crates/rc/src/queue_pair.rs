//! One end of a reliable connection.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use farwrite_net::{Payload, Telemetry};
use farwrite_rate::{Detail, RateControl};
use farwrite_wire::opcode::Position;

use crate::control::CongestionControl;
use crate::echo::PathNote;
use crate::opcode::{self, Operation};
use crate::own_repair::OwnRepair;
use crate::packet::{self, Packet};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::software::{SlowPath, Software, SoftwareScope, is_request};
use crate::{
    Completion, ConfigError, Memory, Nak, PostError, QpConfig, Recovery, Repair, Request,
    RequestError, Syndrome, earliest,
};

/// A queue pair: a requester and a responder. It consumes packets and times, and produces packets
/// and completions. Users of a [`Nic`](crate::Nic) do not need this type.
#[derive(Debug)]
pub struct QueuePair {
    requester: Requester,
    responder: Responder,
    completions: VecDeque<Completion>,
    counters: QpCounters,
    broken: bool,
    /// Whether the last data packet was a READ response. Requests and responses take turns.
    responded: bool,
    peer_qpn: u32,
    recovery: Recovery,
    /// Whether a congestion notification waits to be sent.
    notifies: bool,
    software: Option<Software>,
    slow_path: SlowPath,
    /// What the packet that comes next brought.
    arriving: PathNote,
    /// Largest number of packets that wait for software.
    slow_path_packets: usize,
}

/// Counters of a queue pair, in packets unless a line says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCounters {
    /// Request packets sent, retransmissions included.
    pub sent: u64,
    /// Request packets retransmitted.
    pub repeated: u64,
    /// Request packets acknowledged, each once. READs count the packets of their responses.
    pub acknowledged: u64,
    /// Timeouts of the requester.
    pub timeouts: u64,
    /// Request packets that arrived after a gap. Go-Back-N drops them.
    pub out_of_order: u64,
    /// Duplicate request packets received.
    pub duplicates: u64,
    /// NAKs and RNR NAKs that this end decided to send. NAKs of selective repeat that only name a
    /// packet do not count.
    pub refusals: u64,
    /// Congestion notifications received.
    pub notifications: u64,
}

impl QueuePair {
    /// A queue pair that is ready to send and to receive.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: QpConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            requester: Requester::new(config),
            responder: Responder::new(config),
            completions: VecDeque::new(),
            counters: QpCounters::default(),
            broken: false,
            responded: false,
            peer_qpn: config.peer_qpn,
            recovery: config.recovery,
            notifies: false,
            software: config.software,
            slow_path: SlowPath::default(),
            arriving: PathNote::default(),
            slow_path_packets: 2 * config.window_packets as usize,
        })
    }

    /// Attaches a congestion controller for the packets that this end sends, from `now_ns` on. It
    /// replaces an earlier controller. Packets that are in flight at that time are not reported to
    /// the new one.
    pub fn set_control(&mut self, now_ns: u64, rate: Box<dyn RateControl + Send>) {
        self.responder
            .replies
            .set_echo(rate.detail() > Detail::Reports);
        self.requester.control = Some(CongestionControl::new(now_ns, rate));
    }

    /// Sets the rules by which this end repairs losses, with [`Recovery::Own`](crate::Recovery::Own).
    pub fn set_repair(&mut self, repair: Box<dyn Repair>) {
        self.requester.own_repair = Some(OwnRepair(repair));
    }

    /// Pace that the controller allows now, in bits per second; `None` without a controller.
    #[must_use]
    pub fn pace_bps(&self) -> Option<u64> {
        self.requester
            .control
            .as_ref()
            .map(CongestionControl::pace_bps)
    }

    /// Time at which the controller's pace allows the next packet of a request or response. A time
    /// of at most `now_ns` means now.
    pub fn next_send_ns(&mut self, now_ns: u64) -> u64 {
        let control = self.requester.control.as_mut();
        control.map_or(0, |control| control.next_send_ns(now_ns))
    }

    /// Whether a packet to be sent collects telemetry: one of a request, if the controller reads it.
    pub(crate) fn collects_telemetry(&self, packet: &Packet) -> bool {
        let control = self.requester.control.as_ref();
        control.is_some_and(|control| control.telemetry_bytes() > 0) && is_of_request(packet)
    }

    /// The telemetry that the acknowledgement polled last returns to the peer.
    pub(crate) fn take_telemetry(&mut self) -> Option<Box<Telemetry>> {
        self.responder.replies.take_polled()
    }

    /// Notes what the next packet of [`handle_packet`](Self::handle_packet) brought.
    pub(crate) fn note_path(&mut self, note: PathNote) {
        self.arriving = note;
    }

    fn take_note(&mut self, packet: &Packet, note: PathNote) {
        if packet.header.bth.opcode == opcode::ACKNOWLEDGE {
            self.requester.telemetry = note.telemetry;
        } else if is_of_request(packet) {
            self.responder.replies.note(note);
        }
    }

    /// Queues a congestion notification packet for the peer.
    pub fn notify_congestion(&mut self) {
        self.notifies = !self.broken;
    }

    /// Queues a credit grant for the peer: the total of granted packets so far. ACKs carry it.
    pub fn grant(&mut self, granted_packets: u64) {
        self.responder.grant(granted_packets);
    }

    /// The retransmission scheme.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Index of a request packet among all packets that the peer has sent, from its PSN.
    #[must_use]
    pub fn position(&self, psn: u32) -> u64 {
        self.responder.position(psn)
    }

    /// With [`QpConfig::gap_is_cnp`], whether a request packet after a gap counts as a congestion
    /// notification. `None`: its mark decides.
    #[must_use]
    pub(crate) fn gap_notifies(&self, now_ns: u64, psn: u32) -> Option<bool> {
        let responder = &self.responder;
        let rules = responder.config.gap_is_cnp && responder.position(psn) > responder.expected;
        rules.then(|| self.recovery.is_selective() || responder.may_name_gap(now_ns))
    }

    /// Posts a request.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post(&mut self, id: u64, request: Request) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        self.requester.post(id, request)
    }

    /// Posts a receive buffer of `max_bytes`.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    pub fn post_receive(&mut self, id: u64, max_bytes: u32) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        self.responder.post_receive(id, max_bytes);
        Ok(())
    }

    /// Removes and returns the oldest completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The counters of the queue pair.
    #[must_use]
    pub fn counters(&self) -> QpCounters {
        match self.broken {
            true => self.counters,
            false => QpCounters {
                acknowledged: self.requester.acknowledged(),
                ..self.counters
            },
        }
    }

    /// Whether the queue pair has failed: the error state of IBTA, "QP States".
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether there is a completion to poll.
    #[must_use]
    pub fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether there is nothing to do until a packet arrives or a request is posted.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        let waits = self.has_completion() || self.next_timeout().is_some();
        !waits && !self.requester.is_busy() && !self.has_ack() && !self.has_data()
    }

    /// Receives a packet for this queue pair. A packet that is not valid in the current state
    /// changes nothing. The same holds for a trimmed packet, unless the queue pair uses
    /// [`Recovery::Trimming`]. Packets for host software are handled by a later call of
    /// [`handle_timeout`](Self::handle_timeout).
    pub fn handle_packet(&mut self, now_ns: u64, packet: &Packet, memory: &mut Memory) {
        let note = core::mem::take(&mut self.arriving);
        let kind = opcode::parse(packet.header.bth.opcode);
        let Some(kind) = kind.filter(|_| !self.broken) else {
            return;
        };
        if matches!(packet.payload, Payload::Trimmed(_)) {
            self.handle_trimmed(now_ns, kind.0, packet.header.bth.psn);
            return;
        }
        if let Some(software) = self.software.filter(|at| self.is_slow(*at, kind.0, packet)) {
            let limit = self.slow_path_packets;
            self.slow_path
                .push(now_ns, kind.0, (packet, note), software, limit);
            return;
        }
        self.take_note(packet, note);
        self.execute(now_ns, kind, packet, memory);
    }

    /// Whether host software handles a packet.
    fn is_slow(&self, software: Software, operation: Operation, packet: &Packet) -> bool {
        if software.scope == SoftwareScope::All {
            return operation != Operation::Notification;
        }
        match operation {
            Operation::Acknowledge => {
                let syndrome = packet.header.aeth.map(|aeth| aeth.syndrome);
                let syndrome = syndrome.and_then(Syndrome::from_byte);
                syndrome == Some(Syndrome::Nak(Nak::Sequence))
            }
            // Software closes the gap too: until then, it gets every request packet.
            _ if is_request(operation) => {
                self.slow_path.has_requests() || self.responder.is_gap(packet.header.bth.psn)
            }
            _ => false,
        }
    }

    /// Handles a packet, in the NIC or in software.
    fn execute(
        &mut self,
        now_ns: u64,
        kind: (Operation, Position),
        packet: &Packet,
        memory: &mut Memory,
    ) {
        let completions = &mut self.completions;
        match kind.0 {
            Operation::Acknowledge => {
                self.requester
                    .handle_ack(now_ns, &packet.header, completions);
            }
            Operation::ReadResponse => {
                self.requester
                    .handle_read_response(now_ns, packet, completions);
            }
            Operation::Send | Operation::Write | Operation::ReadRequest => {
                let counters = &mut self.counters;
                self.responder
                    .handle(now_ns, kind, packet, memory, counters, completions);
            }
            Operation::Notification => {
                self.counters.notifications += 1;
                if let Some(control) = &mut self.requester.control {
                    control.on_notification(now_ns);
                }
            }
        }
        self.settle();
    }

    fn handle_trimmed(&mut self, now_ns: u64, operation: Operation, psn: u32) {
        match operation {
            Operation::ReadResponse => self.requester.handle_trimmed_response(now_ns, psn),
            Operation::Send | Operation::Write => self.responder.handle_trimmed(psn),
            Operation::ReadRequest | Operation::Acknowledge | Operation::Notification => {}
        }
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout); `None` for never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let control = self.requester.control.as_ref();
        let control = control.filter(|_| self.requester.is_busy());
        let limits_ns = control.and_then(CongestionControl::next_timeout);
        earliest([
            limits_ns,
            self.requester.next_timeout(),
            self.slow_path.next_ns(),
        ])
    }

    /// Handles all timers that have expired at `now_ns`, and the packets that host software has
    /// finished by then.
    pub fn handle_timeout(&mut self, now_ns: u64, memory: &mut Memory) {
        while let Some((packet, note)) = self.slow_path.pop(now_ns) {
            let kind = opcode::parse(packet.header.bth.opcode);
            if let Some(kind) = kind.filter(|_| !self.broken) {
                self.take_note(&packet, note);
                self.execute(now_ns, kind, &packet, memory);
            }
        }
        // Brings the limits of the controller up to date.
        self.next_send_ns(now_ns);
        self.requester.handle_timeout(now_ns, &mut self.counters);
        self.settle();
    }

    /// Whether an ACK, a NAK or a congestion notification waits to be sent.
    #[must_use]
    pub fn has_ack(&self) -> bool {
        self.notifies || self.responder.replies.has_ack()
    }

    /// Whether a request packet or a READ response packet can be sent.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.responder.replies.has_read() || self.requester.wants_to_send()
    }

    /// The next ACK, NAK or congestion notification. Pacing does not delay these packets.
    pub fn poll_ack(&mut self) -> Option<Packet> {
        if core::mem::take(&mut self.notifies) {
            return Some(packet::notification(self.peer_qpn));
        }
        self.responder.replies.poll_ack()
    }

    /// The next packet of a request or of a READ response. The two take turns.
    pub fn poll_data(&mut self, now_ns: u64, memory: &Memory) -> Option<Packet> {
        let responds = self.responder.replies.has_read();
        if responds && !(self.responded && self.requester.wants_to_send()) {
            self.responded = true;
            let packet = self.responder.replies.poll_read(memory)?;
            if let Some(control) = &mut self.requester.control {
                control.on_response(now_ns, packet.ip_bytes());
            }
            return Some(packet);
        }
        self.responded = false;
        self.requester.poll_transmit(now_ns, &mut self.counters)
    }

    /// Breaks the queue pair if one of its halves has failed.
    fn settle(&mut self) {
        let failure = self.requester.failure.take();
        if self.broken || (failure.is_none() && !self.responder.broken) {
            return;
        }
        self.broken = true;
        self.slow_path.clear();
        // A failure completes all requests, and with them the packets that nobody has acknowledged.
        self.counters.acknowledged = self.requester.acknowledged();
        let error = failure.unwrap_or(RequestError::Flushed);
        self.requester.fail(error, &mut self.completions);
        self.responder.fail(&mut self.completions);
    }
}

/// Whether a packet belongs to a request of its sender.
fn is_of_request(packet: &Packet) -> bool {
    opcode::parse(packet.header.bth.opcode).is_some_and(|(operation, _)| is_request(operation))
}
