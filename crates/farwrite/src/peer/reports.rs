//! What a receiver reports to a peer, and when (P4.10).

use farwrite_fabric::contract::Counters;
use farwrite_wire::control::{MessageId, PeerFeedback, StaleCounts};
use farwrite_wire::timing::Timing;

use super::drain::DrainMeter;
use super::drops::DropShare;
use super::host_waits::HostWaits;
use crate::completions::{Latest, ReceiveCounts};

/// Reports in each round trip while packets arrive.
const REPORTS_A_ROUND_TRIP: u64 = 8;
/// How many times the last report is repeated, because one may be lost.
const REPEATS: u32 = 3;

/// The data packet that arrived last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewestPacket {
    pub(crate) message: MessageId,
    /// Whether the message was over. Then the packet may belong to an older message in the same slot
    /// and generation.
    pub(crate) is_late: bool,
    /// The number of the packet in its message.
    pub(crate) packet: u32,
    pub(crate) arrived_ns: u64,
}

impl NewestPacket {
    /// Moves the arrival by the time for which packets wait at this end.
    fn later_by(self, lasting_ns: u64) -> Self {
        Self {
            arrived_ns: self.arrived_ns + lasting_ns,
            ..self
        }
    }
}

/// Returns what identifies a packet.
fn name((index, packet): (u32, NewestPacket)) -> (u32, MessageId, u32) {
    (index, packet.message, packet.packet)
}

/// Returns the packet that arrived later. If both arrived at the same time, this is `next`.
fn later(
    known: Option<(u32, NewestPacket)>,
    next: Option<(u32, NewestPacket)>,
) -> Option<(u32, NewestPacket)> {
    match (known, next) {
        (Some(known), Some(next)) if known.1.arrived_ns > next.1.arrived_ns => Some(known),
        (known, next) => next.or(known),
    }
}

/// The receiving half of a peer's state.
#[derive(Debug)]
pub(crate) struct Reports {
    /// The number of this end's state of the peer, in reports.
    number: u64,
    overhead_bytes: u64,
    /// Shortest time between two reports.
    least_ns: u64,
    pub(super) counts: ReceiveCounts,
    /// The newest packet, and the newest with new data. Each has the index of the queue pair that it
    /// arrived through.
    latest: Latest<(u32, NewestPacket)>,
    /// Whether new data has arrived since the last report.
    has_fresh: bool,
    waits: HostWaits,
    drain: DrainMeter,
    drops: DropShare,
    due_ns: Option<u64>,
    /// Until when a report that is due waits for a packet that leaves anyway.
    waits_until_ns: u64,
    reported_ns: Option<u64>,
    /// When a report last left that was not due to packets without new data alone.
    fresh_reported_ns: Option<u64>,
    /// Number of repeats of the last report that remain to be sent.
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
            counts: ReceiveCounts::default(),
            latest: Latest::default(),
            has_fresh: false,
            waits: HostWaits::default(),
            drain: DrainMeter::new(timing.min_ping_ns),
            drops: DropShare::new(counters, 0),
            due_ns: None,
            waits_until_ns: 0,
            reported_ns: None,
            fresh_reported_ns: None,
            repeats: 0,
        }
    }

    /// Records what arrived through queue pair `index` since the last call for it, and the newest
    /// packets of it. The next report leaves `period_ns` after the last.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        index: u32,
        gained: &ReceiveCounts,
        latest: Latest<NewestPacket>,
        period_ns: u64,
    ) {
        self.counts.add(gained);
        if gained.data_packets == 0 && latest.any.is_none() {
            return;
        }
        if let Some(newest) = latest.any {
            let wait_ns = now_ns.saturating_sub(newest.arrived_ns);
            let rtt_ns = period_ns * REPORTS_A_ROUND_TRIP;
            let lasting_ns = self.waits.note(now_ns, wait_ns, rtt_ns);
            let latest = latest.map(|newest| (index, newest.later_by(lasting_ns)));
            self.latest.any = later(self.latest.any, latest.any);
            self.latest.fresh = later(self.latest.fresh, latest.fresh);
            self.has_fresh |= latest.fresh.is_some();
            // The sender knows when the latest copy of a packet left.
            if self.latest.any.map(name) == self.latest.fresh.map(name) {
                self.latest.fresh = self.latest.any;
            }
        }
        // After a pause, the report leaves at once. Packets without new data end no pause.
        let before_ns = match latest.fresh {
            Some(_) => self.fresh_reported_ns,
            None => self.reported_ns,
        };
        let due_ns = before_ns.map_or(now_ns, |ns| ns + period_ns);
        let due_ns = due_ns.max(now_ns);
        self.due_ns = Some(self.due_ns.map_or(due_ns, |ns| ns.min(due_ns)));
        self.waits_until_ns = 0;
        self.repeats = REPEATS;
    }

    /// Returns the time between two reports on a path with this round trip. If the round trip was
    /// never measured, it may be far shorter than assumed.
    pub(super) fn period_ns(&self, rtt_ns: Option<u64>) -> u64 {
        rtt_ns.map_or(self.least_ns * REPORTS_A_ROUND_TRIP, |ns| {
            (ns / REPORTS_A_ROUND_TRIP).max(self.least_ns)
        })
    }

    /// Returns the queue pair that carries the next report, and when the report is due.
    pub(super) fn due(&self) -> Option<(u32, u64)> {
        Some((self.named()?.0, self.due_ns?.max(self.waits_until_ns)))
    }

    /// Lets the report that queue pair `index` carries wait until `until_ns`, unless a packet leaves before or new
    /// packets arrive.
    pub(crate) fn postpone(&mut self, index: u32, until_ns: u64) {
        if self.due().is_some_and(|(through, _)| through == index) {
            self.waits_until_ns = until_ns;
        }
    }

    /// Returns the packet that the next report names. It is one with new data, if one has arrived
    /// since the last report: the copies of an attacker must not hide it.
    fn named(&self) -> Option<(u32, NewestPacket)> {
        let fresh = self.latest.fresh.filter(|_| self.has_fresh);
        fresh.or(self.latest.any)
    }

    /// Returns the report for a control packet of queue pair `index` that leaves now, if one is
    /// due. If a packet leaves anyway, it also carries a report that is due in less than half a
    /// period.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        index: u32,
        period_ns: u64,
        leaves_anyway: bool,
        counters: &Counters,
    ) -> Option<PeerFeedback> {
        let (through, newest) = self.named()?;
        let due_ns = match leaves_anyway {
            true => self.due_ns?.saturating_sub(period_ns / 2),
            false => self.due_ns?.max(self.waits_until_ns),
        };
        if through != index || due_ns > now_ns {
            return None;
        }
        self.waits_until_ns = 0;
        self.reported_ns = Some(now_ns);
        if self.has_fresh || self.repeats < REPEATS {
            self.fresh_reported_ns = Some(now_ns);
        }
        self.has_fresh = false;
        // The last repeats are a round trip apart, because an event that loses one packet may lose
        // all packets near it. On a short path, the next batch of a paced sender comes before the first repeat.
        let wait_ns = match self.repeats {
            REPEATS => Some(period_ns.max(self.least_ns * REPORTS_A_ROUND_TRIP)),
            0 => None,
            _ => Some(period_ns * REPORTS_A_ROUND_TRIP),
        };
        self.due_ns = wait_ns.map(|ns| now_ns.saturating_add(ns));
        self.repeats = self.repeats.saturating_sub(1);
        let drain_bps = self.drain.rate_bps(now_ns, self.wire_bytes(&self.counts));
        let dropped_packets = self.drops.update(counters, self.counts.accepted_packets);
        let counts = &self.counts;
        let ect_packets = counts.ect_packets.min(counts.data_packets);
        let marked_packets = counts.marked_packets.min(ect_packets);
        let stale_packets = counts.stale_packets().min(counts.data_packets);
        // Workers count while this end reads, so the counts may not fit together yet.
        let least_marked = marked_packets.saturating_sub(counts.data_packets - stale_packets);
        let most_marked = marked_packets.min(stale_packets);
        Some(PeerFeedback {
            epoch: self.number,
            message: newest.message,
            is_late: newest.is_late,
            packet: newest.packet,
            hold_ns: now_ns.saturating_sub(newest.arrived_ns),
            received_packets: counts.data_packets,
            received_bytes: self.wire_bytes(counts),
            ect_packets,
            marked_packets,
            dropped_packets,
            drain_bps,
            stale: StaleCounts {
                packets: stale_packets,
                marked_packets: counts.stale_marked_packets.clamp(least_marked, most_marked),
            },
        })
    }

    /// Removes a queue pair that has ended. No report about its packets can be sent.
    pub(super) fn leave(&mut self, index: u32) {
        for newest in [&mut self.latest.any, &mut self.latest.fresh] {
            newest.take_if(|(through, _)| *through == index);
        }
        if self.named().is_none() {
            self.due_ns = None;
        }
    }

    fn wire_bytes(&self, counts: &ReceiveCounts) -> u64 {
        counts.data_bytes + counts.data_packets * self.overhead_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PERIOD: u64 = 3 * MS;
    const LATE: u32 = 100;

    fn reports() -> Reports {
        Reports::new(4, 64, &Timing::wide_area(), &Counters::default())
    }

    /// Records a packet that arrives through queue pair 1. The message is over from packet [`LATE`] on.
    fn arrive(reports: &mut Reports, now_ns: u64, packet: u32) {
        note(reports, now_ns, packet, packet < LATE);
    }

    fn note(reports: &mut Reports, now_ns: u64, packet: u32, is_fresh: bool) {
        let is_late = packet >= LATE;
        let gained = ReceiveCounts {
            accepted_packets: 1,
            data_packets: 1,
            data_bytes: 1_000,
            ect_packets: 1,
            marked_packets: 1,
            stale_marked_packets: u64::from(!is_fresh),
            late_packets: u64::from(is_late),
            duplicate_packets: u64::from(!is_late && !is_fresh),
            ..ReceiveCounts::default()
        };
        let newest = Some(NewestPacket {
            message: MessageId::new(3),
            is_late,
            packet,
            arrived_ns: now_ns,
        });
        let latest = Latest {
            any: newest,
            fresh: newest.filter(|_| is_fresh),
        };
        reports.note(now_ns, 1, &gained, latest, PERIOD);
    }

    fn take(reports: &mut Reports, now_ns: u64, leaves_anyway: bool) -> Option<PeerFeedback> {
        reports.take(now_ns, 1, PERIOD, leaves_anyway, &Counters::default())
    }

    #[test]
    fn the_first_packet_after_a_pause_is_reported_at_once_and_the_rest_each_period() {
        let mut reports = reports();
        assert_eq!(reports.due(), None);
        arrive(&mut reports, 10 * MS, 0);
        assert_eq!(reports.due(), Some((1, 10 * MS)));
        let report = take(&mut reports, 10 * MS, false).unwrap();
        assert_eq!(
            (report.epoch, report.message, report.packet),
            (4, MessageId::new(3), 0)
        );
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
    fn a_report_that_waits_leaves_with_any_packet_and_new_packets_end_its_wait() {
        let mut reports = reports();
        arrive(&mut reports, 0, 0);
        reports.postpone(2, 9 * MS);
        assert_eq!(reports.due(), Some((1, 0)), "another queue pair");
        reports.postpone(1, 2 * MS);
        assert_eq!(reports.due(), Some((1, 2 * MS)));
        assert_eq!(take(&mut reports, MS, false), None);
        assert!(take(&mut reports, MS, true).is_some());
        // Its repeat.
        reports.postpone(1, 9 * MS);
        assert_eq!(take(&mut reports, 8 * MS, false), None);
        assert!(take(&mut reports, 9 * MS, false).is_some());
        reports.postpone(1, 99 * MS);
        arrive(&mut reports, 20 * MS, 1);
        assert_eq!(reports.due(), Some((1, 20 * MS)));
    }

    /// For example, parity that arrives after its message is whole. Without such a report, these
    /// bytes stay in flight at the sender until a packet of a newer message arrives.
    #[test]
    fn late_packets_are_reported_as_such() {
        let mut reports = reports();
        arrive(&mut reports, 0, 0);
        let report = take(&mut reports, 0, false).unwrap();
        assert_eq!((report.packet, report.is_late), (0, false));
        arrive(&mut reports, MS, LATE);
        arrive(&mut reports, 2 * MS, LATE + 1);
        let report = take(&mut reports, 3 * MS, false).unwrap();
        assert_eq!((report.packet, report.is_late), (LATE + 1, true));
        assert_eq!(
            (report.received_packets, report.received_bytes),
            (3, 3 * 1_064)
        );
    }

    /// Otherwise, an attacker who repeats one packet would keep the others in flight.
    #[test]
    fn a_packet_with_new_data_is_named_before_copies_and_a_copy_after_it() {
        let mut reports = reports();
        arrive(&mut reports, 0, 7);
        take(&mut reports, 0, false).unwrap();
        for copy in 0..100 {
            note(&mut reports, copy, 7, false);
        }
        arrive(&mut reports, MS, 8);
        note(&mut reports, MS + 1, 7, false);
        let report = take(&mut reports, 3 * MS, false).unwrap();
        assert_eq!((report.packet, report.hold_ns), (8, 2 * MS));
        let stale = StaleCounts {
            packets: 101,
            marked_packets: 101,
        };
        assert_eq!(
            (report.received_packets, report.marked_packets, report.stale),
            (103, 103, stale)
        );
        // The copies end no pause: new data after it is reported at once.
        for copy in 0..10 {
            note(&mut reports, (10 + copy) * MS, 7, false);
            take(&mut reports, (10 + copy) * MS, false);
        }
        arrive(&mut reports, 20 * MS, 9);
        assert_eq!(reports.due(), Some((1, 20 * MS)));
        take(&mut reports, 20 * MS, false).unwrap();
        // A repeat that was not needed must leave the sender's flight too.
        note(&mut reports, 21 * MS, 10, false);
        let report = take(&mut reports, 23 * MS, false).unwrap();
        assert_eq!((report.packet, report.hold_ns), (10, 2 * MS));
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

    /// The next batch of a paced sender often arrives before the first repeat is due.
    #[test]
    fn the_first_repeat_waits_longer_than_the_period_of_a_short_path() {
        let mut reports = reports();
        let period_ns = reports.period_ns(Some(MS / 50));
        assert_eq!(period_ns, MS / 8);
        arrive(&mut reports, 0, 0);
        let report = reports.take(0, 1, period_ns, false, &Counters::default());
        assert!(report.is_some());
        assert_eq!(reports.due(), Some((1, MS)));
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
