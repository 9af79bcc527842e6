//! The control side: what the two ends exchange besides data (P4).

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, SendArrival};
use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::scheme::{Report, Sender};
use farwrite_wire::control::{Control, ParseError, PeerFeedback, StaleCounts};

use super::Pair;
use super::held_control::HeldControl;
use super::recv::RecvState;
use crate::completions::ReceiveCounts;
use crate::control_packets::ControlPackets;
use crate::error::Error;
use crate::options::RateControl;
use crate::peer::{NewestPacket, PeerState, ReportedPacket};
use crate::registry::TableArrivals;

pub(super) struct ControlState {
    pub(super) packets: ControlPackets,
    /// Whether the packet under construction waits for data.
    pub(super) held: HeldControl,
    /// The arrivals that the peer's state has already counted.
    noted: ReceiveCounts,
    /// When to report losses to the peer.
    pub(super) loss_due_ns: Option<u64>,
    reported_loss: ChunkLoss,
    /// What was lost on the way to the peer, according to its last report.
    pub(super) peer_loss: ChunkLoss,
    /// Number of control packets and messages that were refused, except peer feedback: the peer's state
    /// counts it.
    pub(super) refused: u64,
}

impl ControlState {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self {
            packets: ControlPackets::new(key),
            held: HeldControl::default(),
            noted: ReceiveCounts::default(),
            loss_due_ns: None,
            reported_loss: ChunkLoss::default(),
            peer_loss: ChunkLoss::default(),
            refused: 0,
        }
    }

    /// Adds a message to the packet under construction.
    fn push(&mut self, message: &Control) {
        self.held.note(message);
        self.packets.push(message);
    }
}

/// A message that waited at this end. This wait is part of the time for which the ends held a
/// report, because the path did not cause it.
fn held(message: Control, waited_ns: u64) -> Control {
    match message {
        Control::PeerFeedback(report) => Control::PeerFeedback(PeerFeedback {
            hold_ns: report.hold_ns.saturating_add(waited_ns),
            ..report
        }),
        message => message,
    }
}

impl Pair {
    pub(crate) fn handle_control_packet(
        &mut self,
        now_ns: u64,
        packet: &SendArrival,
        peer: &mut PeerState,
    ) {
        let bytes = &packet.payload[..];
        let waited_ns = now_ns.saturating_sub(packet.arrived_ns.unwrap_or(now_ns));
        let Some(opened) = self.control.packets.open(now_ns, bytes) else {
            self.control.refused += 1;
            return;
        };
        peer.note_control(bytes.len());
        if let Some(echo) = opened.echo {
            peer.handle_echo(now_ns, &echo);
        }
        self.round_trip = peer.round_trip();
        self.events.set_now(now_ns);
        for message in opened.messages {
            match message {
                Ok(message) => self.handle_control(now_ns, held(message, waited_ns), peer),
                Err(ParseError::Counts { .. }) => peer.sending.refuse_feedback(),
                Err(_) => self.control.refused += 1,
            }
        }
    }

    fn handle_control(&mut self, now_ns: u64, message: Control, peer: &mut PeerState) {
        let is_read = matches!(message, Control::Read(_));
        let may_come = !is_read || self.may_answer();
        if !may_come || self.sdr.handle_control(now_ns, &message).is_err() {
            self.control.refused += 1;
            return;
        }
        match message {
            Control::Ack(ack) => self.handle_report(now_ns, ack.message, &Report::Ack(ack)),
            Control::Nack(nack) => self.handle_report(now_ns, nack.message, &Report::Nack(nack)),
            Control::Loss(counts) => {
                let loss = ChunkLoss::from_counts(counts);
                // A message that was overtaken counts fewer judged chunks.
                if loss.judged_chunks() >= self.control.peer_loss.judged_chunks() {
                    self.control.peer_loss = loss;
                }
            }
            Control::PeerFeedback(feedback) => {
                let named = self.named(&feedback);
                peer.handle_feedback(now_ns, self.name.serial, named, &feedback);
                self.events.path_feedback(|| peer.stats());
            }
            Control::CreditRequest(request) => {
                if !peer.handle_credit_request(now_ns, self.name.index, &request) {
                    self.control.refused += 1;
                }
            }
            Control::Credit(credit) => peer.handle_credit(now_ns, &credit),
            Control::ReceiveComplete { .. } => self.handle_contact(),
            Control::Offer(_) | Control::ClearToSend(_) | Control::Read(_) => {}
        }
    }

    /// Returns what is known here of the packet that a report names.
    fn named(&self, feedback: &PeerFeedback) -> ReportedPacket {
        let PeerFeedback {
            message, packet, ..
        } = *feedback;
        let chunk = self.geometry().chunk_of(packet);
        let is_possible = match self.send.open.get(&message.data()) {
            Some(send) => send.may_have_sent(message, chunk),
            // The message has ended, or it never began.
            None => message.data() < self.sdr.next_send(),
        };
        if is_possible {
            ReportedPacket::Sent { message, packet }
        } else {
            ReportedPacket::Never
        }
    }

    /// Passes the new arrivals to the peer's state.
    pub(super) fn note_arrivals(&mut self, peer: &mut PeerState, now_ns: u64) {
        let late = self.recv.losses.take_late();
        if let Some(longest_ns) = late.iter().map(|late| late.late_ns).max() {
            peer.note_lateness(now_ns, longest_ns);
        }
        let latest = self.receive.take_latest();
        let counts = self.receive.counts();
        let gained = counts.since(&self.control.noted);
        self.control.noted = counts;
        let geometry = self.geometry();
        let latest = latest.map(|newest| {
            let parts = geometry.decode_immediate(newest.imm);
            let is_parity = parts.slot >= geometry.slots();
            NewestPacket {
                message: match is_parity {
                    true => newest.message.parity(),
                    false => newest.message,
                },
                is_late: newest.is_late,
                packet: parts.packet,
                arrived_ns: newest.arrived_ns.unwrap_or(now_ns).min(now_ns),
            }
        });
        // The sender takes the packet that a report names for the newest that arrived.
        let latest = latest.filter(|newest| {
            let chunk = (newest.message, geometry.chunk_of(newest.packet));
            late.iter().all(|late| late.chunk != chunk)
        });
        peer.note_arrivals(now_ns, self.name.index, &gained, latest);
    }

    fn handle_report(&mut self, now_ns: u64, message: u64, report: &Report) {
        let view = self.sender_view(now_ns);
        let Some(send) = self.send.open.get_mut(&message) else {
            self.handle_contact();
            return;
        };
        if let Report::Ack(ack) = report {
            send.note_ack(now_ns, ack);
        }
        self.events.send_reported(report);
        if let Some(sender) = self.halves.senders.get(send.scheme) {
            sender.handle_report(&view, report);
        }
    }

    /// The peer has answered packets from here. Messages with short deadlines may all have ended
    /// before their answers come. Without these answers, a scheme that has fallen silent would stay
    /// silent.
    fn handle_contact(&mut self) {
        self.halves.senders.all().for_each(Sender::handle_contact);
    }

    pub(super) fn send_control<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        peer: &mut PeerState,
        now_ns: u64,
    ) -> Result<(), Error> {
        loop {
            self.push_reports(now_ns);
            // The remaining reports wait until the fabric has room.
            if !self.control.packets.is_crowded() || !self.send_waiting(fabric, now_ns)? {
                break;
            }
        }
        // The packet with a scheme's last report also carries the end of the receive.
        let settled = self.settle_receives(fabric)?;
        // A message that was whole at its deadline has already ended as whole here.
        let expired = self.expire_receives(fabric, now_ns)?;
        if (settled || expired) && !self.expects_data() {
            // The losses go out with it: after the end of the message, its sender may have nothing
            // more to wait for.
            self.control.loss_due_ns = Some(now_ns);
        }
        self.push_sdr(now_ns);
        self.push_loss(now_ns);
        let ping_due = self.ping_due_ns().is_some_and(|due| due <= now_ns);
        if !ping_due && let Some(until_ns) = self.waits_for_data(now_ns) {
            peer.reports.postpone(self.name.index, until_ns);
            return Ok(());
        }
        if !self.control.packets.is_empty() {
            self.sdr.hasten_repeats(now_ns);
            self.push_sdr(now_ns);
        }
        let leaves_anyway = !self.control.packets.is_empty() || self.control.packets.is_waiting();
        let report = peer.take_report(now_ns, self.name.index, leaves_anyway, &fabric.counters());
        if let Some(report) = report {
            let report = self.readable(report);
            self.control.packets.push(&Control::PeerFeedback(report));
        }
        for message in peer.take_credit(now_ns, self.name.index).iter().flatten() {
            self.control.push(message);
        }
        if !self.control.packets.is_empty() || ping_due {
            self.control.packets.finish();
            self.control.held.left(now_ns);
        } else {
            self.control.held.clear();
        }
        self.send_waiting(fabric, now_ns)?;
        Ok(())
    }

    /// Adds the messages of the SDR core that are due.
    fn push_sdr(&mut self, now_ns: u64) {
        let rtt_ns = self.round_trip.smoothed_ns;
        while let Some(message) = self.sdr.poll_control(now_ns, rtt_ns) {
            self.events.control_leaves(&message);
            self.control.push(&message);
        }
    }

    /// Returns until when the control messages wait for data of this end, if they do (P5.0.5). Those of a
    /// sender by credit do not: its requests have times of their own.
    fn waits_for_data(&mut self, now_ns: u64) -> Option<u64> {
        let wait_ns = self.options.timing.min_repeat_ns / 8;
        let sends = self.sdr.next_send();
        let ControlState { held, packets, .. } = &mut self.control;
        held.note_sends(now_ns, wait_ns, sends);
        let has_credit = matches!(self.options.rate_control, RateControl::Eqds(_));
        let may_wait = !packets.is_empty() && !packets.is_waiting() && !has_credit;
        may_wait.then(|| held.wait(now_ns, wait_ns))?
    }

    /// Returns a report that the peer's version reads.
    fn readable(&self, report: PeerFeedback) -> PeerFeedback {
        let reads_stale = self.connected.as_ref().is_some_and(|peer| peer.reads_stale);
        PeerFeedback {
            stale: match reads_stale {
                true => report.stale,
                false => StaleCounts::default(),
            },
            ..report
        }
    }

    /// Returns whether the fabric took all packets.
    fn send_waiting<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
    ) -> Result<bool, Error> {
        while let Some(packet) = self.control.packets.seal_next(now_ns) {
            // They leave together with data of this poll, in one system call.
            if !fabric.hold_send(self.resources.control_qpn(), packet)? {
                return Ok(false);
            }
            self.control.packets.sent(now_ns);
        }
        Ok(true)
    }

    /// Collects as many reports as there is room for.
    fn push_reports(&mut self, now_ns: u64) {
        let view = self.receiver_view(now_ns);
        let Self {
            sdr,
            halves,
            recv: RecvState { losses, .. },
            control: ControlState { packets, held, .. },
            events,
            ..
        } = self;
        let arrivals = TableArrivals(sdr.received());
        for receiver in halves.receivers.all() {
            while !packets.is_crowded() {
                let max_bytes = packets.report_room();
                let Some(report) = receiver.poll_report(&view, &arrivals, max_bytes) else {
                    break;
                };
                let message = match report {
                    Report::Ack(ack) => Control::Ack(ack),
                    Report::Nack(nack) => {
                        events.recv_nacked(&nack);
                        losses.handle_request(&view, &nack);
                        Control::Nack(nack)
                    }
                };
                held.note(&message);
                packets.push(&message);
            }
        }
    }

    /// Reports losses, if they have changed.
    fn push_loss(&mut self, now_ns: u64) {
        let loss = self.recv.losses.sum();
        let is_news = loss != self.control.reported_loss;
        if self.control.loss_due_ns.is_none() && is_news {
            self.control.loss_due_ns = Some(now_ns + self.period_ns());
        }
        if self.control.loss_due_ns.is_none_or(|due| due > now_ns) {
            return;
        }
        // The last change is sent twice, because a packet may be lost.
        self.control.loss_due_ns = is_news.then(|| now_ns + self.period_ns());
        self.control.reported_loss = loss;
        self.control.push(&Control::Loss(loss.counts()));
    }

    /// Returns the time between two pings, and between two messages about losses (P4.9).
    fn period_ns(&self) -> u64 {
        let timing = &self.options.timing;
        (self.round_trip.smoothed_ns / 4).clamp(timing.min_ping_ns, timing.max_repeat_ns)
    }

    /// Returns when the last control packet left that the peer is likely to echo. An echo is likely
    /// if the peer has sent something within the time that an answer takes.
    pub(crate) fn probed_ns(&self) -> Option<u64> {
        let answer_ns = self.round_trip.smoothed_ns + self.period_ns();
        let is_answered = self.control.packets.silence_ns() <= answer_ns;
        is_answered.then(|| self.control.packets.last_sent_ns())
    }

    /// Returns when to send the next ping. To get a fresh echo, the sender must hear from the peer
    /// regularly: without pings, the round trip of a long message would be measured only once.
    /// Queue pairs to the same peer share the measured round trip. The intervals between pings to a
    /// silent peer grow. Pings stop when no message is open, because then the peer has nothing to
    /// answer.
    pub(super) fn ping_due_ns(&self) -> Option<u64> {
        self.connected.as_ref()?;
        // A waiting packet has the effect of a ping as well.
        if self.control.packets.is_waiting() {
            return None;
        }
        let max_probe_ns = self.options.timing.max_probe_ns;
        let silence_ns = self.control.packets.silence_ns();
        let unmeasured = !self.round_trip.is_measured() && silence_ns / 2 < max_probe_ns;
        let wanted = unmeasured || !self.send.open.is_empty();
        let silent_ns = (silence_ns / 2).min(max_probe_ns);
        // On a slow path, pings leave room for data.
        let spacing_ns = self.round_trip.ping_spacing_ns.min(max_probe_ns);
        let period_ns = self.period_ns().max(silent_ns).max(spacing_ns);
        let since_ns = self
            .control
            .packets
            .last_sent_ns()
            .max(self.round_trip.probed_ns);
        wanted.then(|| since_ns + period_ns)
    }
}
