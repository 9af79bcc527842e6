//! The receiver's half of a receiver-driven controller.

use alloc::collections::{BTreeMap, BTreeSet};

/// A data packet that has arrived, possibly trimmed to its headers by a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival, in nanoseconds of the receiver's clock.
    pub now_ns: u64,
    /// The flow of the packet. The receiver numbers its flows.
    pub flow: u32,
    /// Its position in the flow: the number of packets sent before it, without repetitions.
    pub position: u64,
    /// Whether it carried a congestion mark (ECN CE, RFC 3168).
    pub marked: bool,
    /// Whether its payload was cut off.
    pub trimmed: bool,
    /// Whether the sender had more data after this packet.
    pub more: bool,
}

/// A message from the receiver to the sender of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A congestion notification packet, for
    /// [`RateControl::on_notification`](crate::RateControl::on_notification).
    Congestion,
    /// All credit granted to the flow so far. Convert it to bytes for
    /// [`RateControl::on_grant`](crate::RateControl::on_grant).
    Grant {
        /// The sum, in packets of the flow's maximum length.
        granted_packets: u64,
    },
}

/// The receiving half of a controller, for all flows of one receiver.
pub trait ReceiverControl {
    /// Processes a data packet.
    fn on_arrival(&mut self, arrival: &Arrival);

    /// The next notice that is due, with its flow.
    fn poll(&mut self, now_ns: u64) -> Option<(u32, Notice)>;

    /// When [`poll`](Self::poll) has the next notice, in nanoseconds. A time in the past means now;
    /// `None` means not before a packet arrives.
    fn next_timeout(&self) -> Option<u64>;
}

/// DCQCN's notification point (SIGCOMM 2015, section 3.1): a marked packet causes a notification at
/// once, unless the flow had one in the last `N` nanoseconds. In that case, one notification
/// follows at the end of this time, for any number of marked packets.
#[derive(Clone, Debug)]
pub struct NotificationPoint {
    interval_ns: u64,
    /// Time of the last notification of each flow.
    notified_ns: BTreeMap<u32, u64>,
    /// Notifications to send: their time and flow.
    due: BTreeSet<(u64, u32)>,
}

impl NotificationPoint {
    /// At most one notification for each flow in `interval_ns`: `N` of the paper, 50 us there.
    #[must_use]
    pub fn new(interval_ns: u64) -> Self {
        Self {
            interval_ns,
            notified_ns: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }
}

impl ReceiverControl for NotificationPoint {
    fn on_arrival(&mut self, arrival: &Arrival) {
        if !arrival.marked {
            return;
        }
        let last_ns = self.notified_ns.get(&arrival.flow);
        let free_ns = last_ns.map_or(0, |at_ns| at_ns.saturating_add(self.interval_ns));
        // A flow has at most one entry. An entry that exists already has the same time.
        if !self.due.iter().any(|(_, flow)| *flow == arrival.flow) {
            self.due.insert((free_ns.max(arrival.now_ns), arrival.flow));
        }
    }

    fn poll(&mut self, now_ns: u64) -> Option<(u32, Notice)> {
        let (_, flow) = *self.due.first().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.due.pop_first();
        self.notified_ns.insert(flow, now_ns);
        Some((flow, Notice::Congestion))
    }

    fn next_timeout(&self) -> Option<u64> {
        self.due.first().map(|(at_ns, _)| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(now_ns: u64, flow: u32) -> Arrival {
        Arrival {
            now_ns,
            flow,
            marked: true,
            ..Arrival::default()
        }
    }

    #[test]
    fn the_first_mark_is_notified_at_once_and_later_ones_at_the_end_of_n() {
        let mut point = NotificationPoint::new(50_000);
        let notice = Some((7, Notice::Congestion));
        point.on_arrival(&Arrival::default());
        assert_eq!(point.poll(0), None);
        point.on_arrival(&marked(1_000, 7));
        assert_eq!(point.next_timeout(), Some(1_000));
        assert_eq!(point.poll(1_000), notice);
        point.on_arrival(&marked(2_000, 7));
        point.on_arrival(&marked(3_000, 7));
        assert_eq!(point.poll(50_999), None);
        assert_eq!(point.next_timeout(), Some(51_000));
        assert_eq!(point.poll(51_000), notice);
        // Without a further mark there is no further notification.
        assert_eq!((point.poll(200_000), point.next_timeout()), (None, None));
    }

    #[test]
    fn flows_are_notified_on_their_own() {
        let mut point = NotificationPoint::new(50_000);
        point.on_arrival(&marked(0, 1));
        assert_eq!(point.poll(0), Some((1, Notice::Congestion)));
        point.on_arrival(&marked(10, 1));
        point.on_arrival(&marked(20, 2));
        assert_eq!(point.poll(20), Some((2, Notice::Congestion)));
        assert_eq!(point.poll(20), None);
        assert_eq!(point.poll(50_000), Some((1, Notice::Congestion)));
    }
}
