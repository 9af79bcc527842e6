//! Connects a queue pair to its congestion controller.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

use farwrite_net::{MAX_HOPS, Telemetry};
use farwrite_rate::{
    Acknowledged, Detail, Feedback, Hop, Loss, Newest, RateControl, Sent, TokenBucket,
};

/// Applies the pace, the window and the credit of a congestion controller to a queue pair.
pub(crate) struct CongestionControl {
    rate: Box<dyn RateControl + Send>,
    detail: Detail,
    bucket: TokenBucket,
    flight: Flight,
}

impl CongestionControl {
    /// Starts a controller at `now_ns`.
    pub(crate) fn new(now_ns: u64, rate: Box<dyn RateControl + Send>) -> Self {
        let mut bucket = TokenBucket::new(1, 1);
        bucket.set_pace(now_ns, rate.limits().pace_bps);
        let detail = rate.detail();
        Self {
            rate,
            detail,
            bucket,
            flight: Flight::default(),
        }
    }

    /// Bytes of telemetry in a request packet; 0 if the controller does not read it.
    pub(crate) fn telemetry_bytes(&self) -> u64 {
        match self.detail {
            Detail::Telemetry => u64::from(Telemetry::BYTES),
            Detail::Reports | Detail::Packets => 0,
        }
    }

    /// Time at which the pace allows the next packet; `now_ns` if it allows one now.
    pub(crate) fn next_send_ns(&mut self, now_ns: u64) -> u64 {
        if self
            .rate
            .next_timeout()
            .is_some_and(|at_ns| at_ns <= now_ns)
        {
            self.rate.on_timeout(now_ns);
        }
        self.refresh(now_ns);
        self.bucket.next_ns(now_ns)
    }

    /// Whether the window has room for a packet that was not sent before.
    pub(crate) fn has_window(&self) -> bool {
        self.flight.in_flight_bytes < self.rate.limits().window_bytes
    }

    /// Whether each packet asks for an acknowledgement: the controller reads them, or they make room for packets. Without
    /// them, a sender whose window has shrunk would wait for a timeout.
    pub(crate) fn wants_acknowledgements(&self) -> bool {
        self.detail > Detail::Reports || self.rate.limits().window_bytes < u64::MAX
    }

    /// Whether the receiver's credit allows a packet. Always true without credit-based control.
    pub(crate) fn has_credit(&self) -> bool {
        self.rate.credit_bytes() > 0
    }

    /// Time at which the controller changes its limits without an external event.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.rate.next_timeout()
    }

    /// Records that a request packet leaves. `app_limited`: no other packet is ready to be sent.
    pub(crate) fn on_request(&mut self, now_ns: u64, count: u64, bytes: u64, app_limited: bool) {
        self.flight.add(now_ns, count, bytes);
        self.pay(now_ns, bytes);
        self.rate.on_sent(&Sent {
            now_ns,
            bytes,
            in_flight_bytes: self.flight.in_flight_bytes,
            app_limited,
        });
        self.refresh(now_ns);
    }

    /// Records that a response packet leaves. Nobody acknowledges it, so only the pace applies to
    /// it, not window or credit.
    pub(crate) fn on_response(&mut self, now_ns: u64, bytes: u64) {
        self.pay(now_ns, bytes);
    }

    /// Records that all packets before `end` have arrived.
    pub(crate) fn on_arrived_before(&mut self, end: u64) {
        self.flight.arrive_before(end);
    }

    /// Records that one packet has arrived.
    pub(crate) fn on_arrived(&mut self, count: u64) {
        self.flight.arrive(count);
    }

    /// Passes an acknowledgement to a controller that reads them, before [`report`](Self::report). `marked` and `telemetry`
    /// are those that the receiver returns.
    pub(crate) fn acknowledge(&mut self, now_ns: u64, marked: bool, telemetry: Option<&Telemetry>) {
        if self.detail == Detail::Reports {
            return;
        }
        let fresh = core::mem::take(&mut self.flight.fresh);
        let Some(newest) = fresh.newest else {
            return;
        };
        if marked {
            self.flight.marked_packets += fresh.packets;
        }
        let mut hops = [Hop::default(); MAX_HOPS];
        let recorded = telemetry.map_or(&[][..], Telemetry::hops);
        for (hop, recorded) in hops.iter_mut().zip(recorded) {
            *hop = read(recorded);
        }
        self.rate.on_acknowledged(&Acknowledged {
            now_ns,
            sent_bytes: newest.sent_bytes,
            bytes: fresh.bytes,
            rtt_ns: newest.departed_ns.map(|at_ns| now_ns.saturating_sub(at_ns)),
            marked,
            hops: &hops[..recorded.len()],
        });
        self.refresh(now_ns);
    }

    /// Reports arrivals since the last call to the controller.
    pub(crate) fn report(&mut self, now_ns: u64) {
        if core::mem::take(&mut self.flight.changed) {
            self.rate.on_feedback(&Feedback {
                now_ns,
                newest: self.flight.newest,
                received_bytes: self.flight.received_bytes,
                received_packets: self.flight.received_packets,
                marked_packets: self.flight.marked_packets,
                ..Feedback::default()
            });
            self.refresh(now_ns);
        }
    }

    pub(crate) fn on_notification(&mut self, now_ns: u64) {
        self.rate.on_notification(now_ns);
        self.refresh(now_ns);
    }

    pub(crate) fn on_grant(&mut self, now_ns: u64, granted_bytes: u64) {
        self.rate.on_grant(now_ns, granted_bytes);
        self.refresh(now_ns);
    }

    pub(crate) fn on_loss(&mut self, now_ns: u64, loss: Loss) {
        self.rate.on_loss(now_ns, loss);
        self.refresh(now_ns);
    }

    /// Go-Back-N: the packets from `count` on no longer count as sent.
    pub(crate) fn on_go_back(&mut self, count: u64) {
        self.flight.forget_from(count);
    }

    /// The pace that the controller allows now, in bits per second.
    pub(crate) fn pace_bps(&self) -> u64 {
        self.rate.limits().pace_bps
    }

    fn pay(&mut self, now_ns: u64, bytes: u64) {
        self.bucket.consume(now_ns, bytes);
    }

    fn refresh(&mut self, now_ns: u64) {
        let pace_bps = self.rate.limits().pace_bps;
        if pace_bps != self.bucket.pace_bps() {
            self.bucket.set_pace(now_ns, pace_bps);
        }
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CongestionControl")
            .field("limits", &self.rate.limits())
            .field("flight", &self.flight)
            .finish_non_exhaustive()
    }
}

/// Request packets in flight: sent, and not known to have arrived.
#[derive(Debug, Default)]
struct Flight {
    /// In ascending order of count.
    packets: VecDeque<InFlight>,
    in_flight_bytes: u64,
    sent_bytes: u64,
    /// All packets before this one have left at least once.
    sent_end: u64,
    received_bytes: u64,
    received_packets: u64,
    /// Packets whose acknowledgement returned a mark, if the controller reads acknowledgements.
    marked_packets: u64,
    newest: Option<Newest>,
    /// Whether packets have arrived since the last report.
    changed: bool,
    fresh: Fresh,
}

/// Packets that arrived since the controller last read an acknowledgement.
#[derive(Debug, Default)]
struct Fresh {
    bytes: u64,
    packets: u64,
    newest: Option<Newest>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    count: u64,
    bytes: u64,
    /// Value of [`Flight::sent_bytes`] after this packet was sent.
    sent_bytes: u64,
    /// `None` if the packet was retransmitted: an acknowledgement does not show which copy arrived
    /// (Karn's rule).
    departed_ns: Option<u64>,
    arrived: bool,
}

impl Flight {
    fn add(&mut self, now_ns: u64, count: u64, bytes: u64) {
        self.sent_bytes += bytes;
        let at = self.packets.partition_point(|packet| packet.count < count);
        if let Some(packet) = self
            .packets
            .get_mut(at)
            .filter(|packet| packet.count == count)
        {
            packet.sent_bytes = self.sent_bytes;
            packet.departed_ns = None;
            return;
        }
        self.in_flight_bytes += bytes;
        let packet = InFlight {
            count,
            bytes,
            sent_bytes: self.sent_bytes,
            // After Go-Back-N, packets leave again that are no longer here.
            departed_ns: (count >= self.sent_end).then_some(now_ns),
            arrived: false,
        };
        self.sent_end = self.sent_end.max(count + 1);
        self.packets.insert(at, packet);
    }

    fn arrive_before(&mut self, end: u64) {
        while let Some(packet) = self.packets.pop_front() {
            if packet.count >= end {
                self.packets.push_front(packet);
                return;
            }
            if !packet.arrived {
                self.note(&packet);
            }
        }
    }

    fn arrive(&mut self, count: u64) {
        let at = self.packets.partition_point(|packet| packet.count < count);
        let packet = self
            .packets
            .get_mut(at)
            .filter(|packet| packet.count == count);
        if let Some(packet) = packet.filter(|packet| !packet.arrived) {
            packet.arrived = true;
            let packet = *packet;
            self.note(&packet);
        }
    }

    fn note(&mut self, packet: &InFlight) {
        self.in_flight_bytes -= packet.bytes;
        self.received_bytes += packet.bytes;
        self.received_packets += 1;
        self.changed = true;
        let newer = |newest: Newest| packet.sent_bytes > newest.sent_bytes;
        let newest = Newest {
            sent_bytes: packet.sent_bytes,
            departed_ns: packet.departed_ns,
            hold_ns: 0,
        };
        if self.newest.is_none_or(newer) {
            self.newest = Some(newest);
        }
        self.fresh.bytes += packet.bytes;
        self.fresh.packets += 1;
        if self.fresh.newest.is_none_or(newer) {
            self.fresh.newest = Some(newest);
        }
    }

    fn forget_from(&mut self, count: u64) {
        while let Some(packet) = self.packets.pop_back() {
            if packet.count < count {
                self.packets.push_back(packet);
                return;
            }
            if !packet.arrived {
                self.in_flight_bytes -= packet.bytes;
            }
        }
    }
}

/// A hop of a packet, as controllers read it.
fn read(hop: &farwrite_net::Hop) -> Hop {
    Hop {
        port: hop.port,
        at_ns: hop.at_ns,
        queued_bytes: hop.queued_bytes,
        sent_bytes: hop.sent_bytes,
        rate_bps: hop.rate_bps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(counts: core::ops::Range<u64>) -> Flight {
        let mut flight = Flight::default();
        for count in counts {
            flight.add(count, count, 100);
        }
        flight
    }

    #[test]
    fn arrivals_in_any_order_count_once() {
        let mut flight = flight(10..16);
        assert_eq!(flight.in_flight_bytes, 600);
        flight.arrive(13);
        flight.arrive(13);
        assert_eq!((flight.in_flight_bytes, flight.received_packets), (500, 1));
        assert_eq!(flight.newest.unwrap().departed_ns, Some(13));
        flight.arrive_before(15);
        assert_eq!((flight.in_flight_bytes, flight.received_bytes), (100, 500));
        assert_eq!(flight.newest.unwrap().sent_bytes, 500);
    }

    #[test]
    fn a_repeated_packet_is_in_flight_once_and_gives_no_round_trip() {
        let mut flight = flight(10..12);
        flight.add(50, 10, 100);
        assert_eq!((flight.in_flight_bytes, flight.sent_bytes), (200, 300));
        flight.arrive_before(11);
        let newest = flight.newest.unwrap();
        assert_eq!((newest.sent_bytes, newest.departed_ns), (300, None));
    }

    #[test]
    fn packets_behind_the_point_of_return_are_not_in_flight() {
        let mut flight = flight(10..16);
        flight.forget_from(12);
        assert_eq!(flight.in_flight_bytes, 200);
        flight.arrive_before(20);
        assert_eq!((flight.in_flight_bytes, flight.received_packets), (0, 2));
    }
}
