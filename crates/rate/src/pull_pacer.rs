//! EQDS's receiver: the pull pacer (NSDI 2022).

use alloc::collections::{BTreeMap, VecDeque};

use crate::{Arrival, Notice, ReceiverControl, TokenBucket};

/// Grants credit to all flows of a receiver together at the rate of its link, one packet at a time.
///
/// A flow takes part while it has more data to send, or has trimmed packets. Flows with trimmed
/// packets come first; within the two groups, flows take turns. The packet with the highest
/// position that has arrived says whether the flow has more data, so reordering does no harm. A
/// flow gets grants for at most `ahead_packets` beyond the packets that have arrived. This limits
/// the share of the link that a flow wastes if its sender has failed.
///
/// A flow whose sender says how much it wants takes part by [`ask`](Self::ask) instead, and gets
/// exactly that.
#[derive(Clone, Debug)]
pub struct PullPacer {
    pace: TokenBucket,
    packet_bytes: u64,
    ahead_packets: u64,
    flows: BTreeMap<u32, Flow>,
    /// Flows that take part: those with trimmed packets, and the others.
    turns: [VecDeque<u32>; 2],
    now_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    granted_packets: u64,
    arrived_packets: u64,
    /// The highest position that has arrived.
    highest: Option<u64>,
    more: bool,
    /// Trimmed packets without a grant yet.
    trimmed_packets: u64,
    /// Packets that the flow asks for.
    asked_packets: u64,
    listed: bool,
}

impl PullPacer {
    /// Grants packets of `packet_bytes` on the wire at `rate_bps` (0 counts as 1 in both): slightly
    /// less than the rate of the receiver's link. `ahead_packets` should cover a round trip
    /// including queueing delay.
    #[must_use]
    pub fn new(rate_bps: u64, packet_bytes: u64, ahead_packets: u64) -> Self {
        Self {
            // A burst of one byte: after a pause, only one packet is due.
            pace: TokenBucket::new(rate_bps, 1),
            packet_bytes: packet_bytes.max(1),
            ahead_packets: ahead_packets.max(1),
            flows: BTreeMap::new(),
            turns: [VecDeque::new(), VecDeque::new()],
            now_ns: 0,
        }
    }

    /// Changes how much may be granted at once after a pause, from `now_ns` on (0 counts as 1).
    /// Initially, one packet. A caller that polls late or rarely needs more: time beyond the burst
    /// is lost.
    pub fn set_burst(&mut self, now_ns: u64, burst_bytes: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.pace.set_burst(self.now_ns, burst_bytes);
    }

    /// Takes bytes from the next grants: other packets that arrive at the link.
    pub fn charge(&mut self, now_ns: u64, bytes: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.pace.consume(self.now_ns, bytes);
    }

    /// Sets the number of packets that a flow asks for. It replaces the number of an earlier call,
    /// of which some may have been granted since.
    pub fn ask(&mut self, now_ns: u64, flow: u32, packets: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.flows.entry(flow).or_default().asked_packets = packets;
        self.list(flow);
    }

    /// Forgets a flow that has ended. Its number may then belong to another flow.
    pub fn forget(&mut self, flow: u32) {
        self.flows.remove(&flow);
        for turns in &mut self.turns {
            turns.retain(|&listed| listed != flow);
        }
    }

    /// Adds a flow to `turns` if it takes part and is not there yet.
    fn list(&mut self, number: u32) {
        if let Some(flow) = self.flows.get_mut(&number)
            && flow.takes_part(self.ahead_packets)
            && !flow.listed
        {
            flow.listed = true;
            let group = usize::from(flow.trimmed_packets == 0);
            self.turns[group].push_back(number);
        }
    }
}

impl Flow {
    fn takes_part(&self, ahead_packets: u64) -> bool {
        let ahead = self.granted_packets.saturating_sub(self.arrived_packets);
        self.trimmed_packets > 0 || self.asked_packets > 0 || (self.more && ahead < ahead_packets)
    }
}

impl ReceiverControl for PullPacer {
    fn on_arrival(&mut self, arrival: &Arrival) {
        self.now_ns = self.now_ns.max(arrival.now_ns);
        let flow = self.flows.entry(arrival.flow).or_default();
        flow.arrived_packets += 1;
        flow.trimmed_packets += u64::from(arrival.trimmed);
        if flow
            .highest
            .is_none_or(|highest| arrival.position >= highest)
        {
            flow.highest = Some(arrival.position);
            flow.more = arrival.more;
        }
        self.list(arrival.flow);
    }

    fn poll(&mut self, now_ns: u64) -> Option<(u32, Notice)> {
        self.now_ns = self.now_ns.max(now_ns);
        while self.pace.next_ns(self.now_ns) <= self.now_ns {
            let [trimmed, others] = &mut self.turns;
            let number = trimmed.pop_front().or_else(|| others.pop_front())?;
            let Some(flow) = self.flows.get_mut(&number) else {
                continue;
            };
            flow.listed = false;
            // The flow may have ended since it was added.
            if !flow.takes_part(self.ahead_packets) {
                continue;
            }
            flow.trimmed_packets = flow.trimmed_packets.saturating_sub(1);
            flow.asked_packets = flow.asked_packets.saturating_sub(1);
            flow.granted_packets += 1;
            let granted_packets = flow.granted_packets;
            self.pace.consume(self.now_ns, self.packet_bytes);
            self.list(number);
            return Some((number, Notice::Grant { granted_packets }));
        }
        None
    }

    fn next_timeout(&self) -> Option<u64> {
        let idle = self.turns.iter().all(VecDeque::is_empty);
        (!idle).then(|| self.pace.next_ns(self.now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Returns a pacer for a link on which a packet takes a microsecond.
    fn pacer() -> PullPacer {
        PullPacer::new(8_000_000_000, 1_000, 8)
    }

    fn arrival(now_ns: u64, flow: u32, position: u64, more: bool) -> Arrival {
        Arrival {
            now_ns,
            flow,
            position,
            more,
            ..Arrival::default()
        }
    }

    /// Returns all grants up to a time, with their times.
    fn grants(pacer: &mut PullPacer, until_ns: u64) -> Vec<(u64, u32)> {
        let mut grants = Vec::new();
        while let Some(at_ns) = pacer.next_timeout().filter(|at_ns| *at_ns <= until_ns) {
            grants.extend(pacer.poll(at_ns).map(|(flow, _)| (at_ns, flow)));
        }
        grants
    }

    #[test]
    fn grants_leave_at_the_rate_of_the_link_and_flows_take_turns() {
        let mut pacer = pacer();
        for flow in 0..3 {
            pacer.on_arrival(&arrival(0, flow, 0, true));
        }
        let want: Vec<_> = (0..6)
            .map(|at| at * 1_000)
            .zip([0, 1, 2, 0, 1, 2])
            .collect();
        assert_eq!(grants(&mut pacer, 5_000), want);
    }

    #[test]
    fn a_flow_that_has_no_more_gets_no_grant() {
        let mut pacer = pacer();
        pacer.on_arrival(&arrival(0, 1, 5, false));
        assert_eq!(pacer.next_timeout(), None);
        // An overtaken packet changes nothing.
        pacer.on_arrival(&arrival(1, 1, 4, true));
        assert_eq!(pacer.poll(1), None);
    }

    #[test]
    fn trimmed_packets_get_credit_first_and_even_at_the_end_of_the_flow() {
        let mut pacer = pacer();
        pacer.on_arrival(&arrival(0, 1, 0, true));
        let trimmed = Arrival {
            trimmed: true,
            ..arrival(0, 2, 9, false)
        };
        pacer.on_arrival(&trimmed);
        assert_eq!(grants(&mut pacer, 2_000), [(0, 2), (1_000, 1), (2_000, 1)]);
    }

    #[test]
    fn a_silent_flow_gets_no_more_than_the_packets_ahead() {
        let mut pacer = pacer();
        pacer.on_arrival(&arrival(0, 1, 0, true));
        // One packet has arrived, so the limit of eight allows nine grants.
        assert_eq!(grants(&mut pacer, 1_000_000).len(), 9);
        pacer.on_arrival(&arrival(2_000_000, 1, 1, true));
        assert_eq!(grants(&mut pacer, 3_000_000).len(), 1);
    }

    #[test]
    fn a_flow_that_asks_gets_what_it_asked_for_last_in_turn_with_others() {
        let mut pacer = pacer();
        pacer.ask(0, 1, 9);
        pacer.ask(0, 1, 2);
        pacer.ask(0, 2, 3);
        let want: Vec<_> = (0..5).map(|at| at * 1_000).zip([1, 2, 1, 2, 2]).collect();
        assert_eq!(grants(&mut pacer, 1_000_000), want);
        pacer.ask(2_000_000, 1, 5);
        pacer.ask(2_000_000, 2, 1);
        pacer.forget(1);
        assert_eq!(grants(&mut pacer, 3_000_000), [(2_000_000, 2)]);
        // The number belongs to another flow.
        pacer.ask(4_000_000, 1, 1);
        assert_eq!(grants(&mut pacer, 5_000_000), [(4_000_000, 1)]);
    }

    #[test]
    fn bytes_of_other_packets_delay_the_grants() {
        let mut pacer = pacer();
        pacer.ask(0, 1, 100);
        assert_eq!(grants(&mut pacer, 0).len(), 1);
        pacer.charge(500, 4_000);
        assert_eq!(grants(&mut pacer, 6_000), [(5_000, 1), (6_000, 1)]);
    }

    #[test]
    fn a_burst_makes_up_for_a_late_call() {
        let mut pacer = pacer();
        pacer.set_burst(0, 3_000);
        pacer.ask(0, 1, 100);
        let mut granted = |now_ns| std::iter::from_fn(|| pacer.poll(now_ns)).count();
        assert_eq!(granted(0), 1);
        assert_eq!(granted(2_000), 2);
        assert_eq!(granted(50_000), 3);
    }

    proptest! {
        #[test]
        fn grants_never_exceed_the_rate(
            arrivals in prop::collection::vec((0u64..3_000, 0u32..4, any::<u64>(), any::<(bool, bool)>()), 1..100),
        ) {
            let mut pacer = pacer();
            let (mut now_ns, mut granted) = (0, 0);
            for (gap_ns, flow, position, (more, trimmed)) in arrivals {
                now_ns += gap_ns;
                granted += grants(&mut pacer, now_ns).len() as u64;
                pacer.on_arrival(&Arrival { trimmed, ..arrival(now_ns, flow, position, more) });
                prop_assert!(granted <= now_ns / 1_000 + 1);
            }
        }
    }
}
