//! Decides when the queue pairs to a peer may send.

use farwrite_rate::{Loss, Pacer, Sent};
use farwrite_wire::control::{Credit, CreditRequest, PeerFeedback};
use farwrite_wire::timing::Timing;

use super::controller::{Controller, batch_limits};
use super::credit_requests::{CreditEffect, CreditRequests, RequestTimes};
use super::flight::{Flight, ReportEffect, ReportedPacket};
use super::packet_log::Run;
use super::send_queue::{PlaceInQueue, SendQueue, TurnEnd};
use super::stats::{EcnField, PeerStats, SendLimit};
use crate::options::RateControl;

/// The sending half of a peer's state.
#[derive(Debug)]
pub(crate) struct PeerSending {
    pub(super) choice: RateControl,
    pub(super) packet_bytes: u64,
    controller: Controller,
    /// Requests for credit; `None` with a controller without credit.
    credit_requests: Option<CreditRequests>,
    /// The backlogs of all queue pairs.
    backlog_bytes: u64,
    pacer: Pacer,
    flight: Flight,
    /// Bytes of the current turn that the controller does not know yet.
    turn_bytes: u64,
    send_queue: SendQueue,
    refused_feedback: u64,
}

impl PeerSending {
    pub(super) fn new(
        number: u64,
        choice: RateControl,
        most_burst_bytes: u64,
        packet_bytes: u64,
        timing: Timing,
    ) -> Self {
        let controller = Controller::new(&choice, packet_bytes, &timing);
        let credit_requests = controller.credit_state();
        let credit_requests = credit_requests.map(|_| CreditRequests::new(number, packet_bytes));
        let pace_bps = controller.get().limits().pace_bps;
        let limits = batch_limits(&choice, packet_bytes, most_burst_bytes, &timing);
        Self {
            pacer: Pacer::new(limits, pace_bps),
            choice,
            packet_bytes,
            controller,
            credit_requests,
            backlog_bytes: 0,
            flight: Flight::default(),
            turn_bytes: 0,
            send_queue: SendQueue::default(),
            refused_feedback: 0,
        }
    }

    /// Returns whether the controller needs to know how much is left to send.
    pub(crate) fn needs_backlog(&self) -> bool {
        self.credit_requests.is_some()
    }

    /// A queue pair has packets of up to `packet_bytes` on the wire.
    pub(super) fn carry(&mut self, packet_bytes: u64) {
        self.pacer.carry(packet_bytes);
    }

    pub(crate) fn set_max_rate(&mut self, max_rate_bps: u64) {
        self.choice = self.choice.at_most(max_rate_bps);
        self.controller.get_mut().set_max_rate(max_rate_bps);
    }

    pub(super) fn pace_bps(&self) -> u64 {
        self.controller.get().limits().pace_bps
    }

    /// Bytes that may be sent before the window is full or the credit is used.
    fn room_bytes(&self) -> u64 {
        let controller = self.controller.get();
        let window_bytes = controller.limits().window_bytes;
        let credit_bytes = controller.credit_bytes();
        // The controller learns at the end of a turn how many bytes it sent.
        let credit_bytes = credit_bytes.saturating_sub(self.turn_bytes);
        credit_bytes.min(window_bytes.saturating_sub(self.flight.bytes()))
    }

    /// Bytes that queue pair `index` may send now. More may leave, up to a whole packet.
    pub(crate) fn allowance(&mut self, now_ns: u64, index: u32) -> u64 {
        if self.send_queue.first().is_some_and(|first| first != index) {
            return 0;
        }
        let room_bytes = self.room_bytes();
        if room_bytes == 0 {
            self.pacer.pause();
            return 0;
        }
        let pace_bps = self.controller.get().limits().pace_bps;
        let base_rtt_ns = self.controller.base_rtt_ns();
        let is_highest = self.controller.limit(&self.choice) == SendLimit::Configured;
        self.pacer
            .set_pace(now_ns, pace_bps, base_rtt_ns, is_highest);
        self.pacer.allowance(now_ns).min(room_bytes)
    }

    pub(crate) fn note_departure(&mut self, now_ns: u64, run: &Run) {
        self.flight.push(now_ns, run);
        self.pacer.consume(now_ns, run.bytes);
        self.turn_bytes += run.bytes;
        if run.replaces_lost {
            self.controller.get_mut().on_loss(now_ns, Loss::Reported);
        }
    }

    /// Returns how many packets have left, repeats included.
    pub(crate) fn sent_packets(&self) -> u64 {
        self.flight.sent.packets
    }

    pub(super) fn end_turn(
        &mut self,
        now_ns: u64,
        index: u32,
        place: &mut PlaceInQueue,
        end: &TurnEnd,
        waits: &RequestTimes,
    ) {
        let bytes = std::mem::take(&mut self.turn_bytes);
        self.send_queue.end_turn(index, place, end, bytes > 0);
        if !self.send_queue.is_wanting() {
            self.pacer.pause();
        }
        if bytes > 0 {
            let in_flight_bytes = self.flight.bytes();
            self.controller.get_mut().on_sent(&Sent {
                now_ns,
                bytes,
                in_flight_bytes,
                app_limited: !self.send_queue.is_wanting(),
            });
        }
        self.ask(now_ns, index, place, end, waits);
    }

    /// Prepares a request for credit after a turn.
    fn ask(
        &mut self,
        now_ns: u64,
        index: u32,
        place: &mut PlaceInQueue,
        end: &TurnEnd,
        waits: &RequestTimes,
    ) {
        let Some((used_bytes, unasked_bytes)) = self.controller.credit_state() else {
            return;
        };
        let least_bytes = match self.choice {
            RateControl::Eqds(options) if end.repeats => options.first_window_bytes,
            _ if end.wants => self.packet_bytes,
            _ => 0,
        };
        let backlog_bytes = end.backlog_bytes.max(least_bytes);
        let before_bytes = std::mem::replace(&mut place.backlog_bytes, backlog_bytes);
        self.backlog_bytes = self.backlog_bytes - before_bytes + backlog_bytes;
        if let Some(requests) = &mut self.credit_requests {
            let left_bytes = self.backlog_bytes.saturating_sub(unasked_bytes);
            requests.note(now_ns, index, (used_bytes, left_bytes), waits);
        }
    }

    /// Returns the queue pair that carries the next request for credit, and when it is due.
    pub(super) fn request_due(&self) -> Option<(u32, u64)> {
        self.credit_requests.as_ref()?.due()
    }

    /// Returns a request for credit for a control packet of queue pair `index` that leaves now, if
    /// one is due.
    pub(super) fn take_request(
        &mut self,
        now_ns: u64,
        index: u32,
        waits: &RequestTimes,
    ) -> Option<CreditRequest> {
        self.credit_requests.as_mut()?.take(now_ns, index, waits)
    }

    /// Handles credit of the receiver, or refuses it.
    pub(super) fn handle_credit(&mut self, now_ns: u64, credit: &Credit, waits: &RequestTimes) {
        let heard = match &mut self.credit_requests {
            Some(requests) => requests.hear(now_ns, credit, waits),
            None => CreditEffect::Refused,
        };
        match heard {
            CreditEffect::Granted(bytes) => self.controller.get_mut().on_grant(now_ns, bytes),
            CreditEffect::Overtaken => {}
            CreditEffect::Refused => self.refused_feedback += 1,
        }
    }

    /// Removes a queue pair that has ended.
    pub(super) fn leave(&mut self, index: u32, place: PlaceInQueue) {
        self.send_queue.leave(index, place);
        self.backlog_bytes -= place.backlog_bytes;
        if let Some(requests) = &mut self.credit_requests {
            requests.leave(index, self.send_queue.first());
        }
    }

    /// Does the work that is due at `now_ns`. Returns the queue pair that may send now, if one
    /// waits.
    pub(crate) fn release(&mut self, now_ns: u64) -> Option<u32> {
        let timeout = self.controller.get().next_timeout();
        if timeout.is_some_and(|at_ns| at_ns <= now_ns)
            && self.controller.get_mut().on_timeout(now_ns)
        {
            self.flight.give_up();
        }
        let first = self.send_queue.first()?;
        (self.allowance(now_ns, first) > 0).then_some(first)
    }

    /// Returns when to call [`PeerSending::release`] next.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let is_open = self.send_queue.first().is_some() && self.room_bytes() > 0;
        let paced_ns = is_open.then(|| self.pacer.next_ns(now_ns));
        let timeout_ns = self.controller.get().next_timeout();
        [paced_ns, timeout_ns].into_iter().flatten().min()
    }

    /// Counts a report that was refused because its counts contradict each other (P4.10).
    pub(crate) fn refuse_feedback(&mut self) {
        self.refused_feedback += 1;
    }

    /// Handles a report that arrived through the queue pair with serial number `serial`, or refuses
    /// it.
    pub(super) fn handle_feedback(
        &mut self,
        now_ns: u64,
        serial: u32,
        named: ReportedPacket,
        report: &PeerFeedback,
        least_rtt_ns: u64,
    ) {
        let base_rtt_ns = self.controller.base_rtt_ns();
        let flight = &mut self.flight;
        match flight.handle_report(now_ns, serial, named, report, base_rtt_ns, least_rtt_ns) {
            ReportEffect::New(feedback) => self.controller.get_mut().on_feedback(&feedback),
            ReportEffect::Nothing => {}
            ReportEffect::Contradictory => self.refuse_feedback(),
        }
    }

    /// Returns the statistics of the peer. `rtt_ns` is the round trip, `overhead_bytes` is what data packets
    /// have beside their payload, and `ecn_from_peer` is the state of the ECN field in packets from the peer.
    pub(super) fn stats(
        &self,
        rtt_ns: u64,
        overhead_bytes: u32,
        ecn_from_peer: EcnField,
    ) -> PeerStats {
        let limits = self.controller.get().limits();
        let (sent, reported_bytes) = (self.flight.sent, self.flight.reported_bytes);
        let received = &self.flight.received;
        let delivered = received.delivered;
        PeerStats {
            rtt_ns,
            base_rtt_ns: self.controller.base_rtt_ns(),
            pace_bps: limits.pace_bps,
            overhead_bytes,
            window_bytes: (limits.window_bytes < u64::MAX).then_some(limits.window_bytes),
            in_flight_bytes: self.flight.bytes(),
            limit: match self.send_queue.is_wanting() {
                false => SendLimit::Nothing,
                true => self.controller.limit(&self.choice),
            },
            phase: self.controller.phase(),
            learned: self.controller.learned(),
            sent_packets: sent.packets,
            sent_bytes: sent.bytes,
            reported_bytes,
            delivered_bytes: delivered.bytes.min(reported_bytes),
            marked_packets: received.own_marked_packets,
            stale_packets: received.stale_packets,
            peer_socket_drops: received.dropped_packets,
            ecn_to_peer: EcnField::of(delivered.packets, received.ect_packets),
            ecn_from_peer,
            refused_feedback: self.refused_feedback,
            excess_feedback: self.flight.excess_reports,
        }
    }
}

#[cfg(test)]
mod tests {
    use farwrite_rate::Start;
    use farwrite_wire::control::MessageId;

    use super::*;

    const MS: u64 = 1_000_000;
    const PACKET: u64 = 1_000;

    const WAITS: RequestTimes = RequestTimes {
        period_ns: MS,
        answer_ns: MS,
        longest_ns: MS,
    };

    /// Records that a packet leaves through queue pair 1.
    fn depart(sending: &mut PeerSending, now_ns: u64, packet: u32) {
        let run = Run::of(0, packet..packet + 1, PACKET, false);
        sending.note_departure(now_ns, &run);
    }

    /// Sends a packet through queue pair 1, and leaves nothing else to send.
    fn send(sending: &mut PeerSending, now_ns: u64, packet: u32) {
        depart(sending, now_ns, packet);
        let end = TurnEnd::default();
        sending.end_turn(now_ns, 0, &mut PlaceInQueue::default(), &end, &WAITS);
    }

    /// Delivers a report of the first `packets` packets.
    fn hear(sending: &mut PeerSending, now_ns: u64, packets: u32) {
        let report = PeerFeedback {
            epoch: 1,
            packet: packets - 1,
            received_packets: packets.into(),
            received_bytes: u64::from(packets) * PACKET,
            ..PeerFeedback::default()
        };
        let named = ReportedPacket::Sent {
            message: MessageId::new(0),
            packet: report.packet,
        };
        sending.handle_feedback(now_ns, 1, named, &report, 0);
    }

    /// Sends two packets, the first of them before a timeout and the second just before it.
    fn time_out() -> PeerSending {
        let choice = RateControl::default();
        let mut sending = PeerSending::new(1, choice, 1 << 20, PACKET, Timing::wide_area());
        send(&mut sending, 0, 0);
        send(&mut sending, 990 * MS, 1);
        sending.release(1_000 * MS);
        assert_eq!(sending.flight.bytes(), 0);
        sending
    }

    fn base_rtt_ns(sending: &PeerSending) -> Option<u64> {
        sending.stats(0, 0, EcnField::of(0, 0)).base_rtt_ns
    }

    #[test]
    fn a_report_after_a_timeout_gives_a_round_trip() {
        let mut sending = time_out();
        hear(&mut sending, 1_500 * MS, 1);
        assert_eq!(base_rtt_ns(&sending), Some(1_500 * MS));
        assert_eq!(sending.flight.reported_bytes, PACKET);
        hear(&mut sending, 1_510 * MS, 2);
        assert_eq!(base_rtt_ns(&sending), Some(520 * MS));
        assert_eq!(
            (sending.flight.reported_bytes, sending.flight.bytes()),
            (2 * PACKET, 0)
        );
    }

    #[test]
    fn departures_are_forgotten_with_the_second_timeout() {
        let mut sending = time_out();
        send(&mut sending, 1_100 * MS, 2);
        let timeout_ns = sending.controller.get().next_timeout();
        sending.release(timeout_ns.expect("a packet is in flight"));
        hear(&mut sending, 9_000 * MS, 2);
        assert_eq!(
            (base_rtt_ns(&sending), sending.flight.reported_bytes),
            (None, 0)
        );
        hear(&mut sending, 9_010 * MS, 3);
        assert_eq!(sending.flight.reported_bytes, 3 * PACKET);
    }

    /// Bytes that leave within 10 ms at 100 Mbit/s, if the thread sleeps for 4 ms after the first batch.
    fn bytes_with_a_long_sleep(max_bps: Option<u64>) -> u64 {
        let start = Start {
            rate_bps: 100_000_000,
            rtt_ns: 400 * MS,
        };
        let choice = RateControl::Adaptive {
            max_bps,
            start: Some(start),
        };
        let mut sending = PeerSending::new(1, choice, 1 << 20, PACKET, Timing::wide_area());
        let mut place = PlaceInQueue::default();
        let end = TurnEnd {
            wants: true,
            ..TurnEnd::default()
        };
        let mut packet = 0;
        for now_ns in std::iter::once(0).chain((40..=100).map(|tenths| tenths * MS / 10)) {
            while sending.allowance(now_ns, 0) > 0 {
                depart(&mut sending, now_ns, packet);
                packet += 1;
                sending.end_turn(now_ns, 0, &mut place, &end, &WAITS);
            }
        }
        u64::from(packet) * PACKET
    }

    #[test]
    fn a_sender_at_its_maximum_rate_makes_up_for_a_long_sleep() {
        let all_bytes = 10 * 12_500;
        let capped_bytes = bytes_with_a_long_sleep(Some(100_000_000));
        assert!(capped_bytes > all_bytes / 100 * 98, "{capped_bytes}");
        let free_bytes = bytes_with_a_long_sleep(None);
        assert!(free_bytes < all_bytes / 100 * 90, "{free_bytes}");
    }
}
