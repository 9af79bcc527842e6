//! The control path: what the two ends tell each other beside the data (P4).

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::Fabric;
use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::scheme::Report;
use farwrite_wire::control::{Control, Credit};

use super::Pair;
use crate::error::Error;
use crate::peer_paths::PeerPath;
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
        for message in opened.messages {
            match message {
                Ok(message) => self.handle_control(now_ns, message),
                Err(_) => self.tally.refused_controls += 1,
            }
        }
    }

    fn handle_control(&mut self, now_ns: u64, message: Control) {
        if self.sdr.handle_control(now_ns, &message).is_err() {
            self.tally.refused_controls += 1;
            return;
        }
        match message {
            Control::Ack(ack) => self.handle_report(now_ns, ack.message, &Report::Ack(ack)),
            Control::Nack(nack) => self.handle_report(now_ns, nack.message, &Report::Nack(nack)),
            Control::Credit(credit) => {
                self.tally.peer_socket_drops = credit.dropped_packets;
                let loss = ChunkLoss::from_counts(credit.loss);
                // Fewer were judged when an overtaken credit left.
                if loss.judged_chunks() >= self.tally.send_loss.judged_chunks() {
                    self.tally.send_loss = loss;
                }
                self.pacer.handle_credit(now_ns, &credit);
            }
            Control::Offer(_) | Control::ClearToSend(_) | Control::ReceiveComplete { .. } => {}
        }
    }

    fn handle_report(&mut self, now_ns: u64, message: u64, report: &Report) {
        let path = self.path(now_ns);
        let Some(send) = self.sends.get(&message) else {
            return;
        };
        if let Some(sender) = self.halves.existing_sender(send.scheme()) {
            sender.handle_report(&path, report);
        }
    }

    /// Sends what there is to tell.
    pub(super) fn send_control<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
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
            self.credit_due_ns = Some(now_ns);
        }
        let rtt_ns = self.round_trip.smoothed_ns;
        while let Some(message) = self.sdr.poll_control(now_ns, rtt_ns) {
            self.control.push(&message);
        }
        self.push_credit(fabric, now_ns);
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
                    Report::Nack(nack) => Control::Nack(nack),
                };
                control.push(&message);
            }
        }
    }

    /// Tells how fast bytes are taken in, while any arrive, and what was lost.
    fn push_credit<F: Fabric>(&mut self, fabric: &Adapter<F>, now_ns: u64) {
        let counts = self.inlet.counts();
        let received_packets = counts.data_packets;
        let loss = self.losses.sum();
        let is_news = received_packets > self.credited_packets || loss != self.credited_loss;
        if self.credit_due_ns.is_none() && is_news {
            self.credit_due_ns = Some(now_ns + self.period_ns());
        }
        if self.credit_due_ns.is_none_or(|due| due > now_ns) {
            return;
        }
        // The last of them is told twice, since one may be lost.
        self.credit_due_ns = is_news.then(|| now_ns + self.period_ns());
        self.credited_packets = received_packets;
        self.credited_loss = loss;
        let (counters, accepted) = (fabric.counters(), counts.accepted_packets);
        let connected = self.connected.as_mut();
        let dropped_packets = connected.map_or(0, |c| c.drops.update(&counters, accepted));
        let credit = Credit {
            received_packets,
            received_bytes: counts.data_bytes,
            drain_bps: self.drain.rate_bps(now_ns, counts.data_bytes),
            dropped_packets,
            loss: loss.counts(),
        };
        self.control.push(&Control::Credit(credit));
    }

    /// Time between two pings, and between two credits (P4.9).
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
