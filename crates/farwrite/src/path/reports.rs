//! What a receiver reports about a path, and when (P4.10).

use farwrite_fabric::contract::Counters;
use farwrite_wire::control::PathFeedback;
use farwrite_wire::timing::Timing;

use super::drain::DrainMeter;
use super::drops::DropShare;
use crate::intake::InletCounts;

/// Reports in a round trip while packets come.
const REPORTS_A_ROUND_TRIP: u64 = 8;
/// Times that the last report is sent again, since one may be lost.
const REPEATS: u32 = 3;

/// The data packet that arrived last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewestPacket {
    /// Number of its message, or of the parity that it is of.
    pub(crate) message: u64,
    /// Its number in the message.
    pub(crate) packet: u32,
    pub(crate) arrived_ns: u64,
}

/// The receiving half of a path.
#[derive(Debug)]
pub(super) struct Reports {
    /// What the peer is told as the number of the path.
    number: u64,
    overhead_bytes: u64,
    /// Shortest time between two reports.
    least_ns: u64,
    counts: InletCounts,
    /// The newest packet, and the index of the queue pair that it came through.
    newest: Option<(u32, NewestPacket)>,
    drain: DrainMeter,
    drops: DropShare,
    /// When the next report is due.
    due_ns: Option<u64>,
    reported_ns: Option<u64>,
    /// Repeats of the last report that are still to be sent.
    repeats: u32,
}

impl Reports {
    pub(super) fn new(
        number: u64,
        overhead_bytes: u64,
        timing: &Timing,
        counters: &Counters,
    ) -> Self {
        Self {
            number,
            overhead_bytes,
            least_ns: timing.min_repeat_ns / 8,
            counts: InletCounts::default(),
            newest: None,
            drain: DrainMeter::new(timing.min_ping_ns),
            drops: DropShare::new(counters, 0),
            due_ns: None,
            reported_ns: None,
            repeats: 0,
        }
    }

    /// Takes in what arrived through queue pair `index` since the last call for it, where the next
    /// report is to come `period_ns` after the last.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        index: u32,
        gained: &InletCounts,
        newest: Option<NewestPacket>,
        period_ns: u64,
    ) {
        self.counts.add(gained);
        if gained.data_packets == 0 {
            return;
        }
        if let Some(newest) = newest
            && self
                .newest
                .is_none_or(|(_, known)| known.arrived_ns <= newest.arrived_ns)
        {
            self.newest = Some((index, newest));
        }
        // At once after a pause.
        let due_ns = self.reported_ns.map_or(now_ns, |ns| ns + period_ns);
        let due_ns = due_ns.max(now_ns);
        self.due_ns = Some(self.due_ns.map_or(due_ns, |ns| ns.min(due_ns)));
        self.repeats = REPEATS;
    }

    /// Time between two reports on a path with this round trip. One that was never measured may be
    /// far shorter than it is thought to be.
    pub(super) fn period_ns(&self, rtt_ns: Option<u64>) -> u64 {
        rtt_ns.map_or(self.least_ns * REPORTS_A_ROUND_TRIP, |ns| {
            (ns / REPORTS_A_ROUND_TRIP).max(self.least_ns)
        })
    }

    /// The queue pair that carries the next report, and when it is due.
    pub(super) fn due(&self) -> Option<(u32, u64)> {
        Some((self.newest?.0, self.due_ns?))
    }

    /// The report, for a control packet of queue pair `index` that leaves now, if one is due. One
    /// that is due in less than half a period goes with a packet that leaves anyway.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        index: u32,
        period_ns: u64,
        leaves_anyway: bool,
        counters: &Counters,
    ) -> Option<PathFeedback> {
        let (through, newest) = self.newest?;
        let early_ns = if leaves_anyway { period_ns / 2 } else { 0 };
        if through != index || self.due_ns? > now_ns.saturating_add(early_ns) {
            return None;
        }
        self.reported_ns = Some(now_ns);
        // The last repeats are a round trip apart: what loses one may lose all that are near.
        let wait_ns = match self.repeats {
            REPEATS => Some(period_ns),
            0 => None,
            _ => Some(period_ns * REPORTS_A_ROUND_TRIP),
        };
        self.due_ns = wait_ns.map(|ns| now_ns.saturating_add(ns));
        self.repeats = self.repeats.saturating_sub(1);
        let bytes = self.wire_bytes();
        let counts = &self.counts;
        let ect_packets = counts.ect_packets.min(counts.data_packets);
        Some(PathFeedback {
            path: self.number,
            message: newest.message,
            packet: newest.packet,
            hold_ns: now_ns.saturating_sub(newest.arrived_ns),
            received_packets: counts.data_packets,
            received_bytes: bytes,
            ect_packets,
            marked_packets: counts.marked_packets.min(ect_packets),
            dropped_packets: self.drops.update(counters, counts.accepted_packets),
            drain_bps: self.drain.rate_bps(now_ns, bytes),
        })
    }

    /// What arrived of the packets of queue pairs that there were.
    pub(super) fn counts(&self) -> &InletCounts {
        &self.counts
    }

    /// A queue pair has ended: no report about its packets can be sent.
    pub(super) fn leave(&mut self, index: u32) {
        if self.newest.is_some_and(|(through, _)| through == index) {
            self.newest = None;
            self.due_ns = None;
        }
    }

    fn wire_bytes(&self) -> u64 {
        self.counts.data_bytes + self.counts.data_packets * self.overhead_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PERIOD: u64 = 3 * MS;

    fn reports() -> Reports {
        Reports::new(4, 64, &Timing::wide_area(), &Counters::default())
    }

    /// A packet arrives through queue pair 1.
    fn arrive(reports: &mut Reports, now_ns: u64, packet: u32) {
        let gained = InletCounts {
            accepted_packets: 1,
            data_packets: 1,
            data_bytes: 1_000,
            ect_packets: 1,
            ..InletCounts::default()
        };
        let newest = NewestPacket {
            message: 3,
            packet,
            arrived_ns: now_ns,
        };
        reports.note(now_ns, 1, &gained, Some(newest), PERIOD);
    }

    fn take(reports: &mut Reports, now_ns: u64, leaves_anyway: bool) -> Option<PathFeedback> {
        reports.take(now_ns, 1, PERIOD, leaves_anyway, &Counters::default())
    }

    #[test]
    fn the_first_packet_after_a_pause_is_reported_at_once_and_the_rest_each_period() {
        let mut reports = reports();
        assert_eq!(reports.due(), None);
        arrive(&mut reports, 10 * MS, 0);
        assert_eq!(reports.due(), Some((1, 10 * MS)));
        let report = take(&mut reports, 10 * MS, false).unwrap();
        assert_eq!((report.path, report.message, report.packet), (4, 3, 0));
        assert_eq!((report.received_packets, report.received_bytes), (1, 1_064));
        arrive(&mut reports, 11 * MS, 1);
        assert_eq!(take(&mut reports, 12 * MS, false), None);
        let report = take(&mut reports, 13 * MS, false).unwrap();
        assert_eq!((report.packet, report.hold_ns), (1, 2 * MS));
        arrive(&mut reports, 14 * MS, 2);
        assert_eq!(take(&mut reports, 14 * MS, true), None);
        assert!(take(&mut reports, 15 * MS, true).is_some());
        while let Some((_, due_ns)) = reports.due() {
            take(&mut reports, due_ns, false);
        }
        arrive(&mut reports, 900 * MS, 3);
        assert_eq!(reports.due(), Some((1, 900 * MS)));
    }

    #[test]
    fn the_last_report_is_repeated_a_bounded_number_of_times() {
        let mut reports = reports();
        arrive(&mut reports, 0, 0);
        let mut sent = Vec::new();
        while let Some((_, due_ns)) = reports.due() {
            let report = take(&mut reports, due_ns, false).unwrap();
            assert_eq!(report.hold_ns, due_ns);
            sent.push(due_ns / MS);
        }
        assert_eq!(sent, [0, 3, 27, 51]);
    }

    #[test]
    fn only_the_queue_pair_of_the_newest_packet_reports() {
        let mut reports = reports();
        arrive(&mut reports, 0, 0);
        let other = reports.take(0, 2, PERIOD, true, &Counters::default());
        assert_eq!(other, None);
        reports.leave(2);
        assert_eq!(reports.due(), Some((1, 0)));
        reports.leave(1);
        assert_eq!(reports.due(), None);
        // What came before still counts.
        arrive(&mut reports, MS, 1);
        let report = take(&mut reports, MS, false).unwrap();
        assert_eq!(report.received_packets, 2);
    }
}
