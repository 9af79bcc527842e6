//! What is in flight to a peer, and what the reports of the receiver say of it.

use farwrite_rate::{Feedback, Newest};
use farwrite_wire::control::{MessageId, PeerFeedback};

use super::packet_log::{PacketLog, Run};
use super::received::{Amount, CountEffect, Received, SentTotals};

/// What a queue pair knows of a packet that a report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportedPacket {
    /// The packet was never sent.
    Never,
    /// The packet may have been sent.
    Sent { message: MessageId, packet: u32 },
}

#[derive(Debug)]
pub(super) enum ReportEffect {
    New(Feedback),
    Nothing,
    /// Something that contradicts what was sent or reported.
    Contradictory,
}

/// What the receiver has counted up to a report.
#[derive(Clone, Copy, Debug, Default)]
struct Arrived {
    bytes: u64,
    packets: u64,
    marked_packets: u64,
}

/// The packets that have left, and how many of them have been reported.
#[derive(Debug, Default)]
pub(super) struct Flight {
    log: PacketLog,
    pub(super) sent: Amount,
    /// Packets of which an older copy had left before.
    repeated_packets: u64,
    /// Bytes that are no longer in flight: up to the newest packet reported, or given up.
    settled_bytes: u64,
    /// Bytes sent at the time of the latest timeout. Their departures are known until the next
    /// timeout.
    timed_out_bytes: u64,
    /// Bytes up to the newest packet reported.
    pub(super) reported_bytes: u64,
    pub(super) received: Received,
    /// What had arrived when the newest packet was reported.
    arrived: Arrived,
    /// Reports that count more than was sent.
    pub(super) excess_reports: u64,
}

impl Flight {
    pub(super) fn bytes(&self) -> u64 {
        self.sent.bytes - self.settled_bytes
    }

    pub(super) fn push(&mut self, now_ns: u64, run: &Run) {
        self.log.push(now_ns, self.sent.bytes, run);
        self.sent.bytes += run.bytes;
        let packets = u64::from(run.packets.end - run.packets.start);
        self.sent.packets += packets;
        if run.is_repeat {
            self.repeated_packets += packets;
        }
    }

    /// Gives up the bytes in flight, because no report arrived in time. The packets may have left
    /// just now, or their reports may take longer than the controller waits on a path that it does
    /// not know. So the departures stay in the log until one more timeout: a late report still
    /// gives the round trip.
    pub(super) fn give_up(&mut self) {
        self.settled_bytes = self.sent.bytes;
        let before = std::mem::replace(&mut self.timed_out_bytes, self.sent.bytes);
        self.log.settle(before);
    }

    /// Handles a report that arrived through the queue pair with serial number `serial`.
    pub(super) fn handle_report(
        &mut self,
        now_ns: u64,
        serial: u32,
        named: ReportedPacket,
        report: &PeerFeedback,
        base_rtt_ns: Option<u64>,
        least_rtt_ns: u64,
    ) -> ReportEffect {
        let departure = match named {
            ReportedPacket::Sent { message, packet } => self.log.find(serial, message, packet),
            // A late packet may belong to an older message than the report says.
            ReportedPacket::Never if report.is_late => None,
            ReportedPacket::Never => return ReportEffect::Contradictory,
        };
        // The receiver held the report after the packet had arrived.
        let arrived_ns = now_ns.saturating_sub(report.hold_ns);
        // Where the older copy was among the packets is no longer known.
        let departure = departure.filter(|found| !found.is_of_older_copy(arrived_ns, least_rtt_ns));
        // A packet that left before the newest one was late, and this is no delay of the path.
        let departure = departure.filter(|found| found.sent_bytes >= self.reported_bytes);
        let is_stale = self.received.adds_only_stale(report);
        // A copy of a packet that an earlier report has passed shows no round trip.
        let departure =
            departure.filter(|found| !is_stale || found.sent_bytes > self.reported_bytes);
        let reported_bytes = departure.map_or(self.reported_bytes, |found| found.sent_bytes);
        let is_stale = is_stale && reported_bytes == self.reported_bytes;
        let left = SentTotals {
            sent: self.sent,
            reported_bytes,
            reported_before_bytes: self.reported_bytes,
            repeated_packets: self.repeated_packets,
        };
        match self.received.take(report, &left) {
            CountEffect::Now => {}
            CountEffect::Excess => self.excess_reports += 1,
            CountEffect::Overtaken => return ReportEffect::Nothing,
            CountEffect::Refused => return ReportEffect::Contradictory,
        }
        if is_stale {
            return ReportEffect::Nothing;
        }
        let delivered = self.received.delivered;
        // The packet that arrived last may have been late.
        let reported_bytes = match delivered == self.sent {
            true => self.sent.bytes,
            false => reported_bytes,
        };
        // A report that names a late packet counts packets that left after the newest one. The
        // controller compares what has arrived with what has left, so it learns of them when a
        // report names one of them, or a later one.
        if reported_bytes > self.reported_bytes {
            self.arrived = Arrived {
                bytes: delivered.bytes,
                packets: self.received.own_packets,
                marked_packets: self.received.own_marked_packets,
            };
        }
        self.reported_bytes = reported_bytes;
        self.settled_bytes = self.settled_bytes.max(self.reported_bytes);
        self.log.settle(self.reported_bytes);
        ReportEffect::New(Feedback {
            now_ns,
            newest: Some(Newest {
                sent_bytes: reported_bytes,
                departed_ns: departure
                    .and_then(|found| found.sampled_ns(arrived_ns, base_rtt_ns, report.is_late)),
                hold_ns: report.hold_ns,
            }),
            received_bytes: self.arrived.bytes,
            received_packets: self.arrived.packets,
            marked_packets: self.arrived.marked_packets,
            dropped_packets: self.received.dropped_packets,
            drain_bps: report.drain_bps,
        })
    }
}

#[cfg(test)]
mod tests {
    use farwrite_wire::control::StaleCounts;

    use super::*;

    const MS: u64 = 1_000_000;
    const RTT: u64 = 20 * MS;
    const BYTES: u64 = 1_000;

    fn send(flight: &mut Flight, now_ns: u64, packets: std::ops::Range<u32>, is_repeat: bool) {
        flight.push(now_ns, &Run::of(0, packets, BYTES, is_repeat));
    }

    /// Delivers a report that names `packet`. Returns the bytes up to the newest packet and the bytes
    /// received, as the controller gets them.
    fn hear(flight: &mut Flight, now_ns: u64, packet: u32, packets: u64) -> [u64; 2] {
        hear_stale(flight, now_ns, packet, [packets, 0])
    }

    /// As [`hear`]. `packets`: how many arrived, and how many of them brought nothing new.
    fn hear_stale(flight: &mut Flight, now_ns: u64, packet: u32, packets: [u64; 2]) -> [u64; 2] {
        let [packets, stale_packets] = packets;
        let report = PeerFeedback {
            epoch: 1,
            packet,
            received_packets: packets,
            received_bytes: packets * BYTES,
            stale: StaleCounts {
                packets: stale_packets,
                marked_packets: 0,
            },
            ..PeerFeedback::default()
        };
        let message = MessageId::new(0);
        let named = ReportedPacket::Sent { message, packet };
        let said = flight.handle_report(now_ns, 1, named, &report, Some(RTT), RTT / 8 * 7);
        let ReportEffect::New(feedback) = said else {
            panic!("{said:?}");
        };
        let newest = feedback.newest.expect("a packet");
        let latest = (newest.sent_bytes / BYTES, feedback.received_bytes / BYTES);
        [latest.0, latest.1]
    }

    /// Otherwise, all that left before the repeat would seem to be lost.
    #[test]
    fn a_late_packet_does_not_stand_for_its_repeat() {
        let mut flight = Flight::default();
        send(&mut flight, 0, 0..10, false);
        assert_eq!(hear(&mut flight, RTT, 4, 4), [5, 4], "one is missing");
        // It is repeated, and then arrives.
        send(&mut flight, RTT + 3 * MS, 10..40, false);
        send(&mut flight, RTT + 4 * MS, 2..3, true);
        assert_eq!(hear(&mut flight, RTT + 5 * MS, 2, 5), [5, 4]);
        assert_eq!(flight.bytes(), 36 * BYTES);
        assert_eq!(hear(&mut flight, RTT + 6 * MS, 9, 10), [10, 10]);
        // The repeat itself may be what a report names, once it can have arrived.
        assert_eq!(hear(&mut flight, 2 * RTT + 4 * MS, 2, 41), [41, 41]);
        assert_eq!(flight.bytes(), 0);
    }

    /// Packets that left later are among those that a report of a late packet counts.
    #[test]
    fn a_report_of_a_late_packet_counts_with_the_next_one() {
        let mut flight = Flight::default();
        send(&mut flight, 0, 0..10, false);
        assert_eq!(hear(&mut flight, RTT, 4, 4), [5, 4]);
        assert_eq!(hear(&mut flight, RTT + MS, 2, 8), [5, 4]);
        assert_eq!(hear(&mut flight, RTT + 2 * MS, 8, 9), [9, 9]);
    }

    /// Otherwise, parity that comes when its message is over would first count in place of older losses, and then seem to
    /// be lost itself.
    #[test]
    fn late_parity_counts_with_the_report_that_names_or_passes_it() {
        let mut flight = Flight::default();
        // The last 20 of 100 packets are parity, and ten others are lost.
        send(&mut flight, 0, 0..100, false);
        assert_eq!(hear(&mut flight, RTT, 49, 40), [50, 40]);
        let newest = hear_stale(&mut flight, RTT + MS, 84, [85, 10]);
        assert_eq!(
            newest,
            [85, 75],
            "ten came later than the packet that the report names"
        );
        let newest = hear_stale(&mut flight, RTT + 2 * MS, 97, [88, 13]);
        assert_eq!(newest, [98, 88]);
        // The last two are lost. New data passes them.
        send(&mut flight, RTT + 3 * MS, 100..120, false);
        assert_eq!(
            hear_stale(&mut flight, 2 * RTT + 3 * MS, 119, [108, 13]),
            [120, 108]
        );
    }

    /// The packets of waiting parity count at once, so that one copy may be more than was sent.
    #[test]
    fn late_parity_still_counts_after_a_report_of_more_than_was_sent() {
        let mut flight = Flight::default();
        // The last 20 of 100 packets are parity, and 19 of them arrive early.
        send(&mut flight, 0, 0..100, false);
        assert_eq!(hear_stale(&mut flight, RTT, 69, [89, 19]), [70, 70]);
        // The last parity arrives, and a copy.
        assert_eq!(hear_stale(&mut flight, RTT + MS, 79, [101, 21]), [80, 80]);
        assert_eq!(flight.excess_reports, 1);
        send(&mut flight, RTT + 3 * MS, 100..120, false);
        let newest = hear_stale(&mut flight, 2 * RTT + 3 * MS, 119, [121, 21]);
        assert_eq!(newest, [120, 119], "the parity beside the copy seems lost");
    }

    /// The last packet to arrive may be a late one.
    #[test]
    fn nothing_is_in_flight_when_all_packets_have_arrived() {
        let mut flight = Flight::default();
        send(&mut flight, 0, 0..10, false);
        assert_eq!(hear(&mut flight, RTT, 4, 4), [5, 4]);
        assert_eq!(hear(&mut flight, RTT + MS, 2, 10), [10, 10]);
        assert_eq!(flight.bytes(), 0);
    }
}
