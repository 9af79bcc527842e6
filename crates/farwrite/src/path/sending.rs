//! Decides when the queue pairs of a path may send, and processes the receiver's reports.

use std::collections::VecDeque;

use farwrite_rate::{Feedback, Loss, Newest, Sent, TokenBucket};
use farwrite_wire::control::{Credit, CreditRequest, MessageId, PathFeedback};
use farwrite_wire::timing::Timing;

use super::asking::{Asking, Heard, Waits};
use super::controller::{Controller, burst_bytes};
use super::departures::{Departures, Run};
use super::received::{Amount, Received, Taken};
use super::stats::{EcnField, PathLimit, PathStats};
use crate::options::RateControl;

/// Maximum sleep of a paced sender, in nanoseconds. Packets that leave together share one system
/// call.
const MAX_GRAIN_NS: u64 = 100_000;

/// What a queue pair knows of a packet that a report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The packet was never sent.
    Never,
    /// The packet may have been sent.
    Sent { message: MessageId, packet: u32 },
}

/// The state of a queue pair among the queue pairs of its path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Whether the queue pair has something to send.
    wants: bool,
    /// Whether the queue pair waits in line for the pace or the window.
    is_in_line: bool,
    /// What the queue pair has left to send, in bytes on the wire.
    backlog_bytes: u64,
}

/// How the turn of a queue pair ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnEnd {
    /// Whether the queue pair has more to send.
    pub(crate) wants: bool,
    /// Whether it waits for the pace, the window or credit.
    pub(crate) waits: bool,
    /// What is known to be left to send, in bytes on the wire. 0 unless the path
    /// [needs it](super::PeerPath::needs_backlog).
    pub(crate) backlog_bytes: u64,
    /// Whether the next packet has left before. Then the scheme may have more repeats than are known
    /// here.
    pub(crate) repeats: bool,
}

/// The sending half of a path.
#[derive(Debug)]
pub(super) struct Sending {
    choice: RateControl,
    most_burst_bytes: u64,
    packet_bytes: u64,
    timing: Timing,
    controller: Controller,
    /// Requests for credit; `None` with a controller without credit.
    asking: Option<Asking>,
    /// The backlogs of all queue pairs.
    backlog_bytes: u64,
    bucket: TokenBucket,
    departures: Departures,
    sent_packets: u64,
    sent_bytes: u64,
    /// Bytes that are no longer in flight: up to the newest packet reported, or given up.
    settled_bytes: u64,
    /// Bytes sent at the time of the latest timeout. Their departures are known until the next
    /// timeout.
    timed_out_bytes: u64,
    /// Bytes up to the newest packet reported.
    reported_bytes: u64,
    received: Received,
    /// Bytes of the current turn that the controller does not know yet.
    turn_bytes: u64,
    /// Number of queue pairs that have something to send.
    wanting: usize,
    /// Queue pairs that wait for the pace or the window, by index. The first is the next to send.
    line: VecDeque<u32>,
    /// The earliest time at which the pace allows the next departure.
    paced_until_ns: u64,
    refused_feedback: u64,
    excess_feedback: u64,
}

impl Sending {
    pub(super) fn new(
        number: u64,
        choice: RateControl,
        most_burst_bytes: u64,
        packet_bytes: u64,
        timing: Timing,
    ) -> Self {
        let controller = Controller::new(&choice, packet_bytes, &timing);
        let asking = controller.credit_state();
        let asking = asking.map(|_| Asking::new(number, packet_bytes));
        let pace_bps = controller.get().limits().pace_bps;
        let mut sending = Self {
            bucket: TokenBucket::new(pace_bps, packet_bytes),
            choice,
            most_burst_bytes,
            packet_bytes,
            timing,
            controller,
            asking,
            backlog_bytes: 0,
            departures: Departures::default(),
            sent_packets: 0,
            sent_bytes: 0,
            settled_bytes: 0,
            timed_out_bytes: 0,
            reported_bytes: 0,
            received: Received::default(),
            turn_bytes: 0,
            wanting: 0,
            line: VecDeque::new(),
            paced_until_ns: 0,
            refused_feedback: 0,
            excess_feedback: 0,
        };
        sending.bucket = TokenBucket::new(pace_bps, sending.burst_bytes(pace_bps));
        sending
    }

    pub(super) fn choice(&self) -> &RateControl {
        &self.choice
    }

    pub(super) fn packet_bytes(&self) -> u64 {
        self.packet_bytes
    }

    pub(super) fn needs_backlog(&self) -> bool {
        self.asking.is_some()
    }

    fn in_flight_bytes(&self) -> u64 {
        self.sent_bytes - self.settled_bytes
    }

    /// Bytes that may be sent before the window is full or the credit is used.
    fn room_bytes(&self) -> u64 {
        let controller = self.controller.get();
        let window_bytes = controller.limits().window_bytes;
        let credit_bytes = controller.credit_bytes();
        // The controller learns at the end of a turn how many bytes it sent.
        let credit_bytes = credit_bytes.saturating_sub(self.turn_bytes);
        credit_bytes.min(window_bytes.saturating_sub(self.in_flight_bytes()))
    }

    /// Bytes that queue pair `index` may send now. More may leave, up to a whole packet.
    pub(super) fn allowance(&mut self, now_ns: u64, index: u32) -> u64 {
        if self.line.front().is_some_and(|&first| first != index) {
            return 0;
        }
        let room_bytes = self.room_bytes();
        if room_bytes == 0 {
            return 0;
        }
        self.set_pace(now_ns);
        self.bucket.allowance(now_ns).min(room_bytes)
    }

    /// Bytes that may leave at once at a given pace.
    fn burst_bytes(&self, pace_bps: u64) -> u64 {
        let base_rtt_ns = self.controller.base_rtt_ns();
        let bytes = burst_bytes(&self.choice, pace_bps, base_rtt_ns, &self.timing);
        self.most_burst_bytes.min(bytes.max(self.packet_bytes))
    }

    fn set_pace(&mut self, now_ns: u64) {
        let pace_bps = self.controller.get().limits().pace_bps;
        if pace_bps == self.bucket.pace_bps() {
            return;
        }
        self.bucket.set_pace(now_ns, pace_bps);
        let burst = self.burst_bytes(pace_bps);
        self.bucket.set_burst(now_ns, burst);
    }

    /// Records packets that left.
    pub(super) fn note_departure(&mut self, now_ns: u64, run: &Run) {
        self.departures.push(now_ns, self.sent_bytes, run);
        self.bucket.consume(now_ns, run.bytes);
        self.sent_bytes += run.bytes;
        self.sent_packets += u64::from(run.packets.end - run.packets.start);
        self.turn_bytes += run.bytes;
        if run.replaces_lost {
            self.controller.get_mut().on_loss(now_ns, Loss::Reported);
        }
    }

    /// Ends the turn of queue pair `index`.
    pub(super) fn end_turn(
        &mut self,
        now_ns: u64,
        index: u32,
        standing: &mut Standing,
        end: &TurnEnd,
        waits: &Waits,
    ) {
        let TurnEnd {
            wants, waits: held, ..
        } = *end;
        match (standing.wants, wants) {
            (false, true) => self.wanting += 1,
            (true, false) => self.wanting -= 1,
            _ => {}
        }
        standing.wants = wants;
        let bytes = std::mem::take(&mut self.turn_bytes);
        // A queue pair that could not send anything stays first.
        if self.line.front() == Some(&index) && (bytes > 0 || !held) {
            self.line.pop_front();
            standing.is_in_line = false;
        }
        if held && !std::mem::replace(&mut standing.is_in_line, true) {
            self.line.push_back(index);
        }
        if held && (bytes > 0 || self.paced_until_ns <= now_ns) {
            self.paced_until_ns = now_ns + self.grain_ns();
        }
        if bytes > 0 {
            let in_flight_bytes = self.in_flight_bytes();
            self.controller.get_mut().on_sent(&Sent {
                now_ns,
                bytes,
                in_flight_bytes,
                app_limited: self.wanting == 0,
            });
        }
        self.ask(now_ns, index, standing, end, waits);
    }

    /// Prepares a request for credit after a turn.
    fn ask(
        &mut self,
        now_ns: u64,
        index: u32,
        standing: &mut Standing,
        end: &TurnEnd,
        waits: &Waits,
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
        let before_bytes = std::mem::replace(&mut standing.backlog_bytes, backlog_bytes);
        self.backlog_bytes = self.backlog_bytes - before_bytes + backlog_bytes;
        if let Some(asking) = &mut self.asking {
            let left_bytes = self.backlog_bytes.saturating_sub(unasked_bytes);
            asking.note(now_ns, index, (used_bytes, left_bytes), waits);
        }
    }

    /// Returns the queue pair that carries the next request for credit, and when it is due.
    pub(super) fn request_due(&self) -> Option<(u32, u64)> {
        self.asking.as_ref()?.due()
    }

    /// Returns a request for credit for a control packet of queue pair `index` that leaves now, if
    /// one is due.
    pub(super) fn take_request(
        &mut self,
        now_ns: u64,
        index: u32,
        waits: &Waits,
    ) -> Option<CreditRequest> {
        self.asking.as_mut()?.take(now_ns, index, waits)
    }

    /// Handles credit of the receiver, or refuses it.
    pub(super) fn handle_credit(&mut self, now_ns: u64, credit: &Credit, waits: &Waits) {
        let heard = match &mut self.asking {
            Some(asking) => asking.hear(now_ns, credit, waits),
            None => Heard::Refused,
        };
        match heard {
            Heard::Granted(bytes) => self.controller.get_mut().on_grant(now_ns, bytes),
            Heard::Overtaken => {}
            Heard::Refused => self.refused_feedback += 1,
        }
    }

    /// Removes a queue pair that has ended.
    pub(super) fn leave(&mut self, index: u32, standing: Standing) {
        self.wanting -= usize::from(standing.wants);
        self.line.retain(|&other| other != index);
        self.backlog_bytes -= standing.backlog_bytes;
        if let Some(asking) = &mut self.asking {
            asking.leave(index, self.line.front().copied());
        }
    }

    /// Does the work that is due at `now_ns`. Returns the queue pair that may send now, if one
    /// waits.
    pub(super) fn release(&mut self, now_ns: u64) -> Option<u32> {
        let timeout = self.controller.get().next_timeout();
        if timeout.is_some_and(|at_ns| at_ns <= now_ns) {
            // Without a window, the timers of a controller have nothing to do with reports.
            let has_window = self.controller.get().limits().window_bytes < u64::MAX;
            self.controller.get_mut().on_timeout(now_ns);
            if has_window {
                self.give_up();
            }
        }
        let first = *self.line.front()?;
        let may_send = now_ns >= self.paced_until_ns && self.allowance(now_ns, first) > 0;
        may_send.then_some(first)
    }

    /// Returns when to call [`Sending::release`] next.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let is_open = !self.line.is_empty() && self.room_bytes() > 0;
        let paced_ns = is_open.then(|| self.bucket.next_ns(now_ns).max(self.paced_until_ns));
        let timeout_ns = self.controller.get().next_timeout();
        [paced_ns, timeout_ns].into_iter().flatten().min()
    }

    /// Returns at most half a burst, so that the pace is kept. A slow pace has a further limit, so
    /// that repairs wait no longer than one packet takes at this pace.
    fn grain_ns(&self) -> u64 {
        let pace_bps = self.bucket.pace_bps();
        let burst = self.burst_bytes(pace_bps);
        let ns = u128::from(burst) * 4 * 1_000_000_000 / u128::from(pace_bps);
        u64::try_from(ns).unwrap_or(u64::MAX).min(MAX_GRAIN_NS)
    }

    /// Gives up the bytes in flight, because no report arrived in time. The packets may have left
    /// just now, or their reports may take longer than the controller waits on a path that it does
    /// not know. So the departures stay in the log until one more timeout: a late report still
    /// gives the round trip.
    fn give_up(&mut self) {
        self.settled_bytes = self.sent_bytes;
        let before = std::mem::replace(&mut self.timed_out_bytes, self.sent_bytes);
        self.departures.settle(before);
    }

    /// Counts a report that was refused.
    pub(super) fn refuse_feedback(&mut self) {
        self.refused_feedback += 1;
    }

    /// Handles a report that arrived through the queue pair with serial number `serial`, or refuses
    /// it.
    pub(super) fn handle_feedback(
        &mut self,
        now_ns: u64,
        serial: u32,
        named: Named,
        report: &PathFeedback,
    ) {
        let Named::Sent { message, packet } = named else {
            // A late packet may belong to an older message than the report says.
            self.refused_feedback += u64::from(!report.is_late);
            return;
        };
        let departure = self.departures.find(serial, message, packet);
        let newest_bytes = departure.map_or(self.reported_bytes, |found| found.sent_bytes);
        let sent = Amount {
            packets: self.sent_packets,
            bytes: self.sent_bytes,
        };
        match self.received.take(report, newest_bytes, sent) {
            Taken::Now => {}
            Taken::Excess => self.excess_feedback += 1,
            Taken::Overtaken => return,
            Taken::Refused => {
                self.refuse_feedback();
                return;
            }
        }
        // The receiver held the report after the packet had arrived.
        let arrived_ns = now_ns.saturating_sub(report.hold_ns);
        let base_rtt_ns = self.controller.base_rtt_ns();
        self.reported_bytes = self.reported_bytes.max(newest_bytes);
        self.settled_bytes = self.settled_bytes.max(self.reported_bytes);
        self.departures.settle(self.reported_bytes);
        self.controller.get_mut().on_feedback(&Feedback {
            now_ns,
            newest: Some(Newest {
                sent_bytes: newest_bytes,
                departed_ns: departure
                    .and_then(|found| found.sampled_ns(arrived_ns, base_rtt_ns, report.is_late)),
                hold_ns: report.hold_ns,
            }),
            received_bytes: self.received.delivered().bytes.min(self.sent_bytes),
            received_packets: self.received.delivered().packets,
            marked_packets: self.received.marked_packets(),
            dropped_packets: self.received.dropped_packets(),
            drain_bps: report.drain_bps,
        });
    }

    /// Returns the statistics of the path. `rtt_ns` is the round trip, and `ecn_from_peer` is the
    /// state of the ECN field in packets from the peer.
    pub(super) fn stats(&self, rtt_ns: u64, ecn_from_peer: EcnField) -> PathStats {
        let limits = self.controller.get().limits();
        let received = &self.received;
        let delivered = received.delivered();
        PathStats {
            rtt_ns,
            base_rtt_ns: self.controller.base_rtt_ns(),
            pace_bps: limits.pace_bps,
            window_bytes: (limits.window_bytes < u64::MAX).then_some(limits.window_bytes),
            in_flight_bytes: self.in_flight_bytes(),
            limit: match self.wanting {
                0 => PathLimit::Nothing,
                _ => self.controller.limit(&self.choice),
            },
            phase: self.controller.phase(),
            learned: self.controller.learned(),
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            reported_bytes: self.reported_bytes,
            delivered_bytes: delivered.bytes.min(self.reported_bytes),
            marked_packets: received.marked_packets(),
            peer_socket_drops: received.dropped_packets(),
            ecn_to_peer: EcnField::of(delivered.packets, received.ect_packets()),
            ecn_from_peer,
            refused_feedback: self.refused_feedback,
            excess_feedback: self.excess_feedback,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PACKET: u64 = 1_000;

    /// Sends a packet through queue pair 1, and leaves nothing else to send.
    fn send(sending: &mut Sending, now_ns: u64, packet: u32) {
        sending.note_departure(
            now_ns,
            &Run {
                serial: 1,
                message: MessageId::new(0),
                packets: packet..packet + 1,
                packet_bytes: PACKET,
                bytes: PACKET,
                is_repeat: false,
                replaces_lost: false,
            },
        );
        let waits = Waits {
            period_ns: MS,
            answer_ns: MS,
            longest_ns: MS,
        };
        let end = TurnEnd::default();
        sending.end_turn(now_ns, 0, &mut Standing::default(), &end, &waits);
    }

    /// Delivers a report of the first `packets` packets.
    fn hear(sending: &mut Sending, now_ns: u64, packets: u32) {
        let report = PathFeedback {
            path: 1,
            packet: packets - 1,
            received_packets: packets.into(),
            received_bytes: u64::from(packets) * PACKET,
            ..PathFeedback::default()
        };
        let named = Named::Sent {
            message: MessageId::new(0),
            packet: report.packet,
        };
        sending.handle_feedback(now_ns, 1, named, &report);
    }

    /// Sends two packets, the first of them before a timeout and the second just before it.
    fn time_out() -> Sending {
        let choice = RateControl::default();
        let mut sending = Sending::new(1, choice, 1 << 20, PACKET, Timing::wide_area());
        send(&mut sending, 0, 0);
        send(&mut sending, 990 * MS, 1);
        sending.release(1_000 * MS);
        assert_eq!(sending.in_flight_bytes(), 0);
        sending
    }

    fn base_rtt_ns(sending: &Sending) -> Option<u64> {
        sending.stats(0, EcnField::of(0, 0)).base_rtt_ns
    }

    #[test]
    fn a_report_after_a_timeout_gives_a_round_trip() {
        let mut sending = time_out();
        hear(&mut sending, 1_500 * MS, 1);
        assert_eq!(base_rtt_ns(&sending), Some(1_500 * MS));
        assert_eq!(sending.reported_bytes, PACKET);
        hear(&mut sending, 1_510 * MS, 2);
        assert_eq!(base_rtt_ns(&sending), Some(520 * MS));
        assert_eq!(
            (sending.reported_bytes, sending.in_flight_bytes()),
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
        assert_eq!((base_rtt_ns(&sending), sending.reported_bytes), (None, 0));
        hear(&mut sending, 9_010 * MS, 3);
        assert_eq!(sending.reported_bytes, 3 * PACKET);
    }
}
