//! Loss detection by time of transmission: RACK with a tail loss probe (RFC 8985).
//!
//! Packets that take several paths overtake each other, so a gap alone is no loss. RACK compares
//! times of transmission instead of packet numbers: a packet is lost if a packet that was sent
//! later has arrived, and the latest round trip plus a reordering window has passed since the
//! packet was sent. A retransmission has a time of its own, so that its loss is found in the same
//! way. If nothing arrives that would show a loss, a probe repeats the packet that was sent last.
//!
//! Differences from RFC 8985: the reordering window is fixed and does not adapt to spurious
//! retransmissions. Only SENDs and WRITEs are covered; the timeout repairs lost READs and lost
//! packets of their responses.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::Recovery;
use crate::requester::Requester;

/// Times of transmission of the packets in flight.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// The last transmission of each packet that has neither arrived nor been found lost.
    in_flight: BTreeMap<u64, Transmission>,
    /// All transmissions, oldest first: time and packet. An entry is stale if `in_flight` has no
    /// transmission of this packet at this time.
    order: VecDeque<(u64, u64)>,
    /// The latest time of transmission of a packet that has arrived.
    newest_ns: u64,
    /// The latest round trip, and the shortest one.
    rtt_ns: u64,
    min_rtt_ns: Option<u64>,
    /// Whether a probe was sent since the last arrival.
    probed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    sent_ns: u64,
    repeated: bool,
}

impl Rack {
    pub(crate) fn on_sent(&mut self, now_ns: u64, count: u64, repeated: bool) {
        let sent = Transmission {
            sent_ns: now_ns,
            repeated,
        };
        self.in_flight.insert(count, sent);
        self.order.push_back((now_ns, count));
    }

    pub(crate) fn on_arrived(&mut self, now_ns: u64, count: u64) {
        if let Some(sent) = self.in_flight.remove(&count) {
            self.note(now_ns, sent);
        }
    }

    pub(crate) fn on_arrived_before(&mut self, now_ns: u64, end: u64) {
        while let Some(first) = self.in_flight.first_entry().filter(|at| *at.key() < end) {
            let sent = first.remove();
            self.note(now_ns, sent);
        }
    }

    /// The packet found lost, or about to be repeated, is no longer in flight.
    pub(crate) fn forget(&mut self, count: u64) {
        self.in_flight.remove(&count);
    }

    pub(crate) fn forget_all(&mut self) {
        self.in_flight.clear();
        self.order.clear();
    }

    fn note(&mut self, now_ns: u64, sent: Transmission) {
        self.probed = false;
        let rtt_ns = now_ns.saturating_sub(sent.sent_ns);
        // The acknowledgement is for the first copy: it came too early for the second one.
        if sent.repeated && self.min_rtt_ns.is_none_or(|least_ns| rtt_ns < least_ns) {
            return;
        }
        self.min_rtt_ns = Some(self.min_rtt_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
        if sent.sent_ns >= self.newest_ns {
            self.newest_ns = sent.sent_ns;
            self.rtt_ns = rtt_ns;
        }
    }

    /// The oldest transmission that is not stale.
    fn oldest(&mut self) -> Option<(u64, u64)> {
        while let Some(&(sent_ns, count)) = self.order.front() {
            let current = self.in_flight.get(&count);
            if current.is_some_and(|at| at.sent_ns == sent_ns) {
                return Some((sent_ns, count));
            }
            self.order.pop_front();
        }
        None
    }

    /// Removes and returns the oldest packet in flight if it counts as lost now.
    fn pop_lost(&mut self, now_ns: u64, reorder_ns: u64) -> Option<u64> {
        let (sent_ns, count) = self.oldest()?;
        if self.lost_at_ns(sent_ns, reorder_ns)? > now_ns {
            return None;
        }
        self.order.pop_front();
        self.in_flight.remove(&count);
        Some(count)
    }

    /// Time at which a packet in flight counts as lost, if a packet sent later has arrived.
    fn lost_at_ns(&self, sent_ns: u64, reorder_ns: u64) -> Option<u64> {
        let wait_ns = self.rtt_ns.saturating_add(reorder_ns);
        (sent_ns < self.newest_ns).then_some(sent_ns.saturating_add(wait_ns))
    }

    /// Time at which the next packet counts as lost.
    fn next_timeout(&self, reorder_ns: u64) -> Option<u64> {
        // A stale entry makes the timer early, never late: `pop_lost` then finds nothing.
        let &(sent_ns, _) = self.order.front()?;
        self.lost_at_ns(sent_ns, reorder_ns)
    }
}

impl Requester {
    /// Records a transmission, if losses are found by time.
    pub(crate) fn note_sent(&mut self, now_ns: u64, count: u64) {
        let work = self.queue.get(self.work_of(count));
        let is_read = work.is_some_and(|work| work.request.is_read());
        if matches!(self.config.recovery, Recovery::Rack { .. }) && !is_read {
            self.rack.on_sent(now_ns, count, count < self.sent_end);
        }
    }

    /// Marks the packets as lost whose time has come.
    pub(crate) fn lose_overdue(&mut self, now_ns: u64) {
        let Recovery::Rack {
            reorder_ns,
            unit_packets,
            ..
        } = self.config.recovery
        else {
            return;
        };
        let mut lost = Vec::new();
        while let Some(count) = self.rack.pop_lost(now_ns, reorder_ns) {
            lost.push(count);
        }
        for &count in &lost {
            self.lose_unit(count, u64::from(unit_packets));
        }
        // Drops stale entries, so that the timer does not stay in the past.
        self.rack.oldest();
        if !lost.is_empty() {
            self.report_loss(now_ns);
        }
    }

    /// Marks all packets of the unit of a packet as lost, except those before the oldest
    /// unacknowledged packet and those that were never sent.
    fn lose_unit(&mut self, count: u64, unit: u64) {
        let Some(work) = self.queue.get(self.work_of(count)) else {
            return;
        };
        let from = count - (count - work.first) % unit;
        let end = (from + unit).min(work.end).min(self.sent_end);
        for count in from.max(self.oldest)..end {
            self.rack.forget(count);
            self.scoreboard.lose_again(count);
        }
    }

    /// Repeats the packet that was sent last, once until something arrives. Returns whether this is
    /// the reaction to the current timeout.
    pub(crate) fn probe(&mut self) -> bool {
        if !matches!(self.config.recovery, Recovery::Rack { .. }) || self.rack.probed {
            return false;
        }
        self.rack.probed = true;
        if let Some((&count, _)) = self.rack.in_flight.last_key_value() {
            self.rack.forget(count);
            self.scoreboard.lose_again(count);
        }
        true
    }

    /// Time at which the next packet counts as lost.
    pub(crate) fn next_loss_ns(&self) -> Option<u64> {
        match self.config.recovery {
            Recovery::Rack { reorder_ns, .. } => self.rack.next_timeout(reorder_ns),
            _ => None,
        }
    }

    /// The wait before a probe; `None` if a probe was sent since the last arrival.
    pub(crate) fn probe_wait_ns(&self) -> Option<u64> {
        match self.config.recovery {
            Recovery::Rack { probe_ns, .. } if !self.rack.probed => Some(probe_ns),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets 0 to 9, sent every 10 ns.
    fn sent() -> Rack {
        let mut rack = Rack::default();
        for count in 0..10 {
            rack.on_sent(count * 10, count, false);
        }
        rack
    }

    #[test]
    fn a_packet_is_lost_a_window_after_a_later_one_has_arrived() {
        let mut rack = sent();
        assert_eq!(rack.next_timeout(50), None);
        rack.on_arrived(110, 1);
        // Packet 0 was sent at 0: its round trip of 100 ns ended at 100, and the window at 150.
        assert_eq!(rack.next_timeout(50), Some(150));
        assert_eq!(rack.pop_lost(149, 50), None);
        assert_eq!(rack.pop_lost(150, 50), Some(0));
        // Nothing shows that packet 2 is lost.
        assert_eq!(rack.pop_lost(1000, 50), None);
    }

    #[test]
    fn a_lost_repetition_is_found_by_a_packet_sent_after_it() {
        let mut rack = sent();
        rack.on_arrived(110, 1);
        assert_eq!(rack.pop_lost(200, 50), Some(0));
        rack.on_sent(200, 0, true);
        rack.on_sent(210, 10, false);
        rack.on_arrived(310, 10);
        let lost: Vec<_> = core::iter::from_fn(|| rack.pop_lost(360, 50)).collect();
        assert_eq!(lost, [2, 3, 4, 5, 6, 7, 8, 9, 0]);
    }

    /// An acknowledgement that comes earlier than any round trip is for the first copy.
    #[test]
    fn an_early_acknowledgement_of_a_repetition_gives_no_round_trip() {
        let mut rack = sent();
        rack.on_arrived(110, 1);
        rack.on_sent(200, 0, true);
        rack.on_arrived(220, 0);
        assert_eq!((rack.newest_ns, rack.rtt_ns), (10, 100));
    }
}
