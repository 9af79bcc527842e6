//! The control path: what the two ends tell each other beside the data (P4).

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::Fabric;
use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::scheme::Report;
use farwrite_wire::control::{Control, PathFeedback, data_of, parity_of};

use super::Pair;
use crate::error::Error;
use crate::path::{Named, NewestPacket, PeerPath};
use crate::registry::TableArrivals;

impl Pair {
    /// A control packet arrived from the peer, at the end of `path`.
    pub(crate) fn handle_control_packet(&mut self, now_ns: u64, bytes: &[u8], path: &mut PeerPath) {
        let Some(opened) = self.control.open(now_ns, bytes) else {
            self.tally.refused_controls += 1;
            return;
        };
        if let Some(echo) = opened.echo {
            path.handle_echo(now_ns, &echo);
        }
        self.round_trip = path.round_trip();
        self.events.set_now(now_ns);
        for message in opened.messages {
            match message {
                Ok(message) => self.handle_control(now_ns, message, path),
                Err(_) => self.tally.refused_controls += 1,
            }
        }
    }

    fn handle_control(&mut self, now_ns: u64, message: Control, path: &mut PeerPath) {
        if self.sdr.handle_control(now_ns, &message).is_err() {
            self.tally.refused_controls += 1;
            return;
        }
        match message {
            Control::Ack(ack) => self.handle_report(now_ns, ack.message, &Report::Ack(ack)),
            Control::Nack(nack) => self.handle_report(now_ns, nack.message, &Report::Nack(nack)),
            Control::Loss(counts) => {
                let loss = ChunkLoss::from_counts(counts);
                // Fewer were judged when an overtaken message left.
                if loss.judged_chunks() >= self.tally.send_loss.judged_chunks() {
                    self.tally.send_loss = loss;
                }
            }
            Control::PathFeedback(feedback) => {
                let named = self.named(&feedback);
                path.handle_feedback(now_ns, self.name.serial, named, &feedback);
                self.events.path_feedback(|| path.stats());
            }
            Control::Offer(_) | Control::ClearToSend(_) | Control::ReceiveComplete { .. } => {}
        }
    }

    /// What is known here of the packet that a report names.
    fn named(&self, feedback: &PathFeedback) -> Named {
        let PathFeedback {
            message, packet, ..
        } = *feedback;
        let chunk = self.geometry().chunk_of(packet);
        let is_possible = match self.sends.get(&data_of(message)) {
            Some(send) => send.may_have_sent(message, chunk),
            // It is over, or it never began.
            None => data_of(message) < self.sdr.next_send(),
        };
        if is_possible {
            Named::Sent { message, packet }
        } else {
            Named::Never
        }
    }

    /// Tells the path what has arrived.
    pub(super) fn note_arrivals(&mut self, path: &mut PeerPath, now_ns: u64) {
        let counts = self.inlet.counts();
        let gained = counts.since(&self.noted);
        self.noted = counts;
        let geometry = self.geometry();
        let newest = self.inlet.take_newest().map(|newest| {
            let parts = geometry.decode_immediate(newest.imm);
            let message = data_of(newest.message);
            let is_of_parity = parts.slot >= geometry.slots();
            NewestPacket {
                message: if is_of_parity {
                    parity_of(message)
                } else {
                    message
                },
                packet: parts.packet,
                arrived_ns: newest.arrived_ns.unwrap_or(now_ns).min(now_ns),
            }
        });
        path.note_arrivals(now_ns, self.name.index, &gained, newest);
    }

    fn handle_report(&mut self, now_ns: u64, message: u64, report: &Report) {
        let path = self.path(now_ns);
        let Some(send) = self.sends.get(&message) else {
            return;
        };
        self.events.send_reported(report);
        if let Some(sender) = self.halves.existing_sender(send.scheme()) {
            sender.handle_report(&path, report);
        }
    }

    /// Sends what there is to tell.
    pub(super) fn send_control<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        path: &mut PeerPath,
        now_ns: u64,
    ) -> Result<(), Error> {
        loop {
            self.push_reports(now_ns);
            // What is left to report waits until the fabric has room.
            if !self.control.is_crowded() || !self.send_waiting(fabric, now_ns)? {
                break;
            }
        }
        // A receive that its scheme closed with the last report is told closed in the same packet.
        let settled = self.settle_receives(fabric)?;
        // What was whole at its deadline has ended as whole by now.
        let expired = self.expire_receives(fabric, now_ns)?;
        if (settled || expired) && !self.expects_data() {
            // So is what was lost: its sender may have nothing more to wait for.
            self.loss_due_ns = Some(now_ns);
        }
        let rtt_ns = self.round_trip.smoothed_ns;
        while let Some(message) = self.sdr.poll_control(now_ns, rtt_ns) {
            self.events.control_leaves(&message);
            self.control.push(&message);
        }
        self.push_loss(now_ns);
        let leaves_anyway = !self.control.is_empty() || self.control.is_waiting();
        let report = path.take_report(now_ns, self.name.index, leaves_anyway, &fabric.counters());
        if let Some(report) = report {
            self.control.push(&Control::PathFeedback(report));
        }
        let ping_due = self.ping_due_ns().is_some_and(|due| due <= now_ns);
        if !self.control.is_empty() || ping_due {
            self.control.finish();
        }
        self.send_waiting(fabric, now_ns)?;
        Ok(())
    }

    /// Hands control packets to the fabric; answers whether it took all.
    fn send_waiting<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
    ) -> Result<bool, Error> {
        while let Some(packet) = self.control.seal_next(now_ns) {
            if !fabric.post_send(self.holdings.control_qpn(), packet)? {
                return Ok(false);
            }
            self.control.sent(now_ns);
        }
        Ok(true)
    }

    /// Collects reports, as many as there is room for.
    fn push_reports(&mut self, now_ns: u64) {
        let path = self.path(now_ns);
        let Self {
            sdr,
            halves,
            control,
            events,
            ..
        } = self;
        let arrivals = TableArrivals(sdr.received());
        for receiver in halves.receivers() {
            while !control.is_crowded() {
                let max_bytes = control.report_room();
                let Some(report) = receiver.poll_report(&path, &arrivals, max_bytes) else {
                    break;
                };
                let message = match report {
                    Report::Ack(ack) => Control::Ack(ack),
                    Report::Nack(nack) => {
                        events.recv_nacked(&nack);
                        Control::Nack(nack)
                    }
                };
                control.push(&message);
            }
        }
    }

    /// Tells what was lost, if there is news of it.
    fn push_loss(&mut self, now_ns: u64) {
        let loss = self.losses.sum();
        let is_news = loss != self.reported_loss;
        if self.loss_due_ns.is_none() && is_news {
            self.loss_due_ns = Some(now_ns + self.period_ns());
        }
        if self.loss_due_ns.is_none_or(|due| due > now_ns) {
            return;
        }
        // The last news are sent twice, since a packet may be lost.
        self.loss_due_ns = is_news.then(|| now_ns + self.period_ns());
        self.reported_loss = loss;
        self.control.push(&Control::Loss(loss.counts()));
    }

    /// Time between two pings, and between two messages about losses (P4.9).
    fn period_ns(&self) -> u64 {
        let timing = &self.options.timing;
        (self.round_trip.smoothed_ns / 4).clamp(timing.min_ping_ns, timing.max_repeat_ns)
    }

    /// When a control packet left last, if the peer is likely to echo it: it has sent something in
    /// the time that an answer takes.
    pub(crate) fn probed_ns(&self) -> Option<u64> {
        let answer_ns = self.round_trip.smoothed_ns + self.period_ns();
        let is_answered = self.control.silence_ns() <= answer_ns;
        is_answered.then(|| self.control.last_sent_ns())
    }

    /// A sender must be heard to be answered with a fresh echo: without pings the round trip of a
    /// long message would be measured once. Queue pairs to the same peer measure it for each other.
    /// A peer that stays silent is asked ever more rarely. It is left alone in the end if nothing
    /// is sent to it: then it has nothing to say.
    pub(super) fn ping_due_ns(&self) -> Option<u64> {
        self.connected.as_ref()?;
        // What waits to be sent asks as well.
        if self.control.is_waiting() {
            return None;
        }
        let max_probe_ns = self.options.timing.max_probe_ns;
        let silence_ns = self.control.silence_ns();
        let unmeasured = !self.round_trip.is_measured && silence_ns / 2 < max_probe_ns;
        let wanted = unmeasured || !self.sends.is_empty();
        let silent_ns = (silence_ns / 2).min(max_probe_ns);
        let period_ns = self.period_ns().max(silent_ns);
        let since_ns = self.control.last_sent_ns().max(self.round_trip.probed_ns);
        wanted.then(|| since_ns + period_ns)
    }
}
