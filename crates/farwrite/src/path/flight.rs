//! What a path has in flight, and what the reports of the receiver say of it.

use farwrite_rate::{Feedback, Newest};
use farwrite_wire::control::{MessageId, PathFeedback};

use super::departures::{Departures, Run};
use super::received::{Amount, Left, Received, Taken};

/// What a queue pair knows of a packet that a report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The packet was never sent.
    Never,
    /// The packet may have been sent.
    Sent { message: MessageId, packet: u32 },
}

/// What a report says.
#[derive(Debug)]
pub(super) enum Said {
    /// This is new.
    New(Feedback),
    /// Nothing that is new.
    Nothing,
    /// Something that cannot be true.
    Untrue,
}

/// The packets that have left, and how many of them have been reported.
#[derive(Debug, Default)]
pub(super) struct Flight {
    departures: Departures,
    sent: Amount,
    /// Packets of which an older copy had left before.
    repeated_packets: u64,
    /// Bytes that are no longer in flight: up to the newest packet reported, or given up.
    settled_bytes: u64,
    /// Bytes sent at the time of the latest timeout. Their departures are known until the next
    /// timeout.
    timed_out_bytes: u64,
    /// Bytes up to the newest packet reported.
    reported_bytes: u64,
    received: Received,
    /// Reports that count more than was sent.
    excess_reports: u64,
}

impl Flight {
    /// Returns the number of bytes in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.sent.bytes - self.settled_bytes
    }

    /// Returns all that has left.
    pub(super) fn sent(&self) -> Amount {
        self.sent
    }

    /// Returns the number of bytes up to the newest packet reported.
    pub(super) fn reported_bytes(&self) -> u64 {
        self.reported_bytes
    }

    /// Returns what the receiver has counted.
    pub(super) fn received(&self) -> &Received {
        &self.received
    }

    /// Returns the number of reports that count more than was sent.
    pub(super) fn excess_reports(&self) -> u64 {
        self.excess_reports
    }

    /// Records packets that left.
    pub(super) fn push(&mut self, now_ns: u64, run: &Run) {
        self.departures.push(now_ns, self.sent.bytes, run);
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
        self.departures.settle(before);
    }

    /// Handles a report that arrived through the queue pair with serial number `serial`.
    pub(super) fn handle_report(
        &mut self,
        now_ns: u64,
        serial: u32,
        named: Named,
        report: &PathFeedback,
        base_rtt_ns: Option<u64>,
    ) -> Said {
        let departure = match named {
            Named::Sent { message, packet } => self.departures.find(serial, message, packet),
            // A late packet may belong to an older message than the report says.
            Named::Never if report.is_late => None,
            Named::Never => return Said::Untrue,
        };
        let is_stale = self.received.adds_only_stale(report);
        // A copy of a packet that an earlier report has passed shows no round trip.
        let departure =
            departure.filter(|found| !is_stale || found.sent_bytes > self.reported_bytes);
        let newest_bytes = departure.map_or(self.reported_bytes, |found| found.sent_bytes);
        let reported_bytes = newest_bytes.max(self.reported_bytes);
        let is_stale = is_stale && reported_bytes == self.reported_bytes;
        let left = Left {
            sent: self.sent,
            reported_bytes,
            repeated_packets: self.repeated_packets,
        };
        match self.received.take(report, &left) {
            Taken::Now => {}
            Taken::Excess => self.excess_reports += 1,
            Taken::Overtaken => return Said::Nothing,
            Taken::Refused => return Said::Untrue,
        }
        if is_stale {
            return Said::Nothing;
        }
        // The receiver held the report after the packet had arrived.
        let arrived_ns = now_ns.saturating_sub(report.hold_ns);
        self.reported_bytes = reported_bytes;
        self.settled_bytes = self.settled_bytes.max(self.reported_bytes);
        self.departures.settle(self.reported_bytes);
        let delivered = self.received.delivered();
        Said::New(Feedback {
            now_ns,
            newest: Some(Newest {
                sent_bytes: newest_bytes,
                departed_ns: departure
                    .and_then(|found| found.sampled_ns(arrived_ns, base_rtt_ns, report.is_late)),
                hold_ns: report.hold_ns,
            }),
            received_bytes: delivered.bytes,
            received_packets: self.received.own_packets(),
            marked_packets: self.received.own_marked_packets(),
            dropped_packets: self.received.dropped_packets(),
            drain_bps: report.drain_bps,
        })
    }
}
