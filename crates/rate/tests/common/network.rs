//! Flows through one bottleneck, which `farwrite-link` models.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use farwrite_link::{Datagram, DeliveryTrace, Link, LinkConfig, Loss, Passage, Policer, Wire};
use farwrite_rng::SplitMix;

use super::case::Case;
use super::flow::{Receiver, ReportInFlight, Sender};
use super::host::{self, Host};
use super::measure::{CaseResult, Measure};
use super::rack::Taken;

/// Approximate number of simulated packets on the path. On a longer path, several packets are sent
/// as one.
const PATH_PACKETS: f64 = 1_000.0;

/// Bytes of a simulated datagram.
const DATAGRAM: u64 = 1_200;
const SMALLEST: u64 = 40;

/// Packets that a host sends before it looks at reports again.
const MOST_PACKETS: u64 = 64;

/// Time between two stalls of a receiver, in nanoseconds.
const STALL_EVERY_NS: u64 = 7_000_000;

/// A packet at the receiver's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    flow: usize,
    sequence: u32,
    bytes: u64,
    marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    Take(Arrival),
    ReportDue(usize),
    ReportInFlight(usize, ReportInFlight),
    Step,
    NewMax(u64),
}

/// A running network.
pub(crate) struct Network<'a> {
    case: &'a Case,
    /// Real bytes per simulated byte. Rates stay exact, and payloads small.
    scale: u64,
    rate_bps: f64,
    rtt_ns: f64,
    /// Packets enter the last link; the earlier links still deliver their packets.
    links: Vec<Link>,
    /// The way of reports.
    way_back: Wire,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    measure: Measure,
    hosts: SplitMix,
    /// Until when the processor of each sender is busy.
    busy_ns: Vec<u64>,
}

/// Runs a case to its end.
pub(crate) fn run(case: &Case) -> CaseResult {
    let mut network = Network::new(case);
    network.run();
    let counters = || network.links.iter().map(Link::counters);
    let dropped = counters().map(|link| link.queue_dropped + link.policed);
    let offered = counters().map(|link| link.offered);
    let result = network.measure.outcome(case, dropped.sum(), offered.sum());
    let sender = network.senders.swap_remove(0);
    CaseResult {
        most_pace_bps: sender.most_pace_bps(),
        excess_ns: sender.excess_ns(),
        repeated: sender.repeated(),
        message_times_ns: sender.message_times_ns(),
        ..result
    }
}

/// The way of reports of a round trip: no loss, and no limit.
fn way_back(case: &Case, rtt_ns: f64) -> Wire {
    let config = LinkConfig {
        delay: Duration::from_nanos((rtt_ns / 2.0) as u64),
        variation: case.back_variation,
        ..LinkConfig::default()
    };
    // Other delays than those of the packets.
    Wire::new(config, !case.seed).unwrap()
}

impl<'a> Network<'a> {
    fn new(case: &'a Case) -> Self {
        let batch = (case.path_bytes() / PATH_PACKETS).max(case.packet_bytes() as f64);
        let mut network = Self {
            case,
            scale: (batch / DATAGRAM as f64).ceil() as u64,
            rate_bps: case.rate_bps as f64,
            rtt_ns: case.rtt_ns as f64,
            links: Vec::new(),
            way_back: way_back(case, case.rtt_ns as f64),
            events: BinaryHeap::new(),
            order: 0,
            senders: Vec::new(),
            receivers: Vec::new(),
            measure: Measure::new(case),
            hosts: SplitMix::new(case.seed ^ 0x686f_7374),
            busy_ns: vec![0; case.flows.len()],
        };
        network.links.push(network.link());
        for (i, flow) in case.flows.iter().enumerate() {
            network.receivers.push(Receiver::new(case, flow));
            // Flows do not start in the same nanosecond.
            let start_ns = flow.start_rounds * network.rtt_ns + 977.0 * i as f64;
            let mut sender = Sender::new(case, flow);
            sender.wake_ns = Some(start_ns as u64);
            network.senders.push(sender);
            network.schedule(start_ns as u64, Event::Wake(i));
        }
        if let Some((at_rounds, bps)) = case.new_max {
            network.schedule((at_rounds * network.rtt_ns) as u64, Event::NewMax(bps));
        }
        if let Some(step) = case.step {
            network.schedule((step.at_rounds * network.rtt_ns) as u64, Event::Step);
        }
        network
    }

    fn link(&self) -> Link {
        let case = self.case;
        let queue = case.queue_bytes() / self.scale as f64;
        let rate_bps = (self.rate_bps / self.scale as f64) as u64;
        let config = LinkConfig {
            delay: Duration::from_nanos((self.rtt_ns / 2.0) as u64),
            rate_bps: case.trace.is_none().then_some(rate_bps),
            queue_bytes: Some(queue as u64),
            policer: case.policer.map(|policer| Policer {
                rate_bps: policer.rate_bps / self.scale,
                burst_bytes: policer.burst_bytes / self.scale,
            }),
            loss: Loss::Iid {
                loss_packet: case.loss,
            },
            variation: case.variation,
            reorder: case.reorder,
            ..LinkConfig::default()
        };
        let seed = case.seed + self.links.len() as u64;
        match &case.trace {
            Some(trace) => {
                let each_bytes = DeliveryTrace::OPPORTUNITY_BYTES / self.scale;
                let trace = trace.as_ref().clone().delivering(each_bytes);
                Link::traced(config, Arc::new(trace), &[], seed).unwrap()
            }
            None => Link::new(config, seed).unwrap(),
        }
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at_ns, self.order, event)));
    }

    fn run(&mut self) {
        let end_ns = (self.case.rounds * self.case.rtt_ns as f64) as u64;
        loop {
            let arrival_ns = self.links.iter().filter_map(Link::next_ns).min();
            let event_ns = self.events.peek().map(|Reverse((ns, _, _))| *ns);
            let now_ns = match (arrival_ns, event_ns) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b).unwrap_or(u64::MAX),
            };
            let is_over = self.case.ends_with_message && self.senders[0].has_sent_a_message();
            if now_ns >= end_ns || is_over {
                return;
            }
            self.deliver(now_ns);
            while let Some(Reverse((at_ns, _, event))) = self.events.peek().copied()
                && at_ns <= now_ns
            {
                self.events.pop();
                self.handle_or_wait(now_ns, event);
            }
        }
    }

    fn deliver(&mut self, now_ns: u64) {
        for i in 0..self.links.len() {
            while let Some(datagram) = self.links[i].poll(now_ns) {
                let word = |at: usize| {
                    u32::from_be_bytes(datagram.payload[at..at + 4].try_into().unwrap())
                };
                let (flow, sequence) = (word(0) as usize, word(4));
                self.take(
                    now_ns,
                    Arrival {
                        flow,
                        sequence,
                        bytes: datagram.ip_bytes() * self.scale,
                        marked: datagram.tos == 3,
                    },
                );
            }
        }
    }

    /// The receiver takes a packet, or leaves it in its socket while it stalls.
    fn take(&mut self, now_ns: u64, arrival: Arrival) {
        let awake_ns = self.awake_ns(now_ns);
        if awake_ns > now_ns {
            return self.schedule(awake_ns, Event::Take(arrival));
        }
        let flow = arrival.flow;
        let receiver = &mut self.receivers[flow];
        let due_ns = receiver.take(Taken {
            sequence: arrival.sequence,
            at_ns: now_ns,
            bytes: arrival.bytes,
            marked: arrival.marked,
        });
        if let Some(due_ns) = due_ns
            && !std::mem::replace(&mut receiver.waiting, true)
        {
            let late_ns = self.late_ns(flow, |host| host.sleep);
            // A report that is due when a packet arrives needs no sleep.
            let late_ns = if due_ns > now_ns {
                late_ns
            } else {
                late_ns / 8
            };
            self.schedule(due_ns + late_ns, Event::ReportDue(flow));
        }
        self.measure.delivered(now_ns, flow, arrival.bytes);
    }

    /// When receivers take packets that arrive at `now_ns`.
    fn awake_ns(&self, now_ns: u64) -> u64 {
        let now_ns = self.burst_end_ns(now_ns);
        if self.case.stall_ns == 0 {
            return now_ns;
        }
        let stall = now_ns / STALL_EVERY_NS;
        let length_ns = SplitMix::new(self.case.seed ^ stall).below(self.case.stall_ns);
        now_ns.max(stall * STALL_EVERY_NS + length_ns)
    }

    /// When the path hands over packets that leave it at `now_ns`: there is one burst at a random
    /// instant of each period.
    fn burst_end_ns(&self, now_ns: u64) -> u64 {
        let period_ns = self.case.burst_ns;
        if period_ns == 0 {
            return now_ns;
        }
        let instant_ns = |period: u64| {
            let offset_ns = SplitMix::new(self.case.seed << 40 ^ period).below(period_ns);
            period * period_ns + offset_ns
        };
        let period = now_ns / period_ns;
        let first_ns = instant_ns(period);
        if first_ns < now_ns {
            instant_ns(period + 1)
        } else {
            first_ns
        }
    }

    /// When the ends of a flow go on, of which one has something to do at `now_ns`.
    fn runs_ns(&self, now_ns: u64, flow: usize) -> u64 {
        if self.case.flows[flow].kind.is_tcp() {
            return now_ns;
        }
        let Some(waits) = self.case.waits else {
            return now_ns;
        };
        let period = now_ns / waits.every_ns;
        let length_ns = SplitMix::new(self.case.seed << 32 ^ period).below(waits.most_ns);
        now_ns.max(period * waits.every_ns + length_ns)
    }

    /// Handles an event of a flow, or puts it off while the ends of the flow wait for a processor.
    fn handle_or_wait(&mut self, now_ns: u64, event: Event) {
        let (Event::Wake(flow) | Event::ReportDue(flow) | Event::ReportInFlight(flow, _)) = event
        else {
            return self.handle(now_ns, event);
        };
        let busy_ns = match event {
            Event::ReportDue(_) => 0,
            _ => self.busy_ns[flow],
        };
        let runs_ns = self.runs_ns(now_ns, flow).max(busy_ns);
        if runs_ns == now_ns {
            return self.handle(now_ns, event);
        }
        let event = match event {
            Event::ReportInFlight(_, mut report) => {
                report.hold_ns += runs_ns - now_ns;
                Event::ReportInFlight(flow, report)
            }
            event => event,
        };
        self.schedule(runs_ns, event);
    }

    fn handle(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Wake(flow) => {
                // An earlier wake-up may have happened in the meantime.
                if self.senders[flow].wake_ns.is_some_and(|ns| ns <= now_ns) {
                    self.senders[flow].wake_ns = None;
                    self.pump(now_ns, flow);
                }
            }
            Event::Take(arrival) => self.take(now_ns, arrival),
            Event::ReportDue(flow) => {
                self.receivers[flow].waiting = false;
                let report = self.receivers[flow].report(now_ns);
                let Passage::Once(journey) = self.way_back.carry(now_ns, 0, 0) else {
                    unreachable!("the way of reports loses nothing");
                };
                let read_ns = self.late_ns(flow, |host| host.read);
                let at_ns = now_ns + journey.delay_ns + read_ns;
                self.schedule(at_ns, Event::ReportInFlight(flow, report));
            }
            Event::ReportInFlight(flow, report) => {
                self.senders[flow].take(now_ns, &report);
                self.pump(now_ns, flow);
            }
            Event::NewMax(bps) => {
                for flow in 0..self.senders.len() {
                    self.senders[flow].set_max_rate(bps);
                    self.pump(now_ns, flow);
                }
            }
            Event::Step => {
                let step = self.case.step.unwrap();
                self.rate_bps *= step.rate_factor;
                self.rtt_ns *= step.rtt_factor;
                self.links.push(self.link());
                self.way_back = way_back(self.case, self.rtt_ns);
            }
        }
    }

    /// How late the hosts of a flow are; 0 without hosts and for TCP, which runs in the kernel.
    fn late_ns(&mut self, flow: usize, of: impl Fn(&Host) -> host::Lateness) -> u64 {
        let is_tcp = self.case.flows[flow].kind.is_tcp();
        let host = self.case.host.as_ref().filter(|_| !is_tcp);
        host.map_or(0, |host| host::draw(&mut self.hosts, of(host)))
    }

    /// The processor of a sender handles `packets` packets.
    fn work(&mut self, now_ns: u64, flow: usize, packets: u64) {
        if let Some(host) = self.case.host
            && packets > 0
        {
            self.busy_ns[flow] = now_ns + host.batch_ns + packets * host.packet_ns;
        }
    }

    /// Sends the packets that a flow may send now.
    fn pump(&mut self, now_ns: u64, flow: usize) {
        let packet = self.case.packet_bytes() / self.scale;
        let least = packet.clamp(SMALLEST, DATAGRAM);
        let most = DATAGRAM;
        let mut packets = 0;
        loop {
            let sender = &mut self.senders[flow];
            if self.case.host.is_some() && packets == MOST_PACKETS {
                self.work(now_ns, flow, packets);
                let at_ns = self.busy_ns[flow];
                self.senders[flow].wake_ns = Some(at_ns);
                return self.schedule(at_ns, Event::Wake(flow));
            }
            match sender.allowed(now_ns, least * self.scale, most * self.scale) {
                Ok(bytes) => {
                    let units = bytes / self.scale;
                    let sequence = sender.send(now_ns, units * self.scale);
                    self.offer(now_ns, flow, sequence, units);
                    packets += 1;
                }
                Err(None) => return self.work(now_ns, flow, packets),
                Err(Some(at_ns)) => {
                    if sender.wake_ns.is_none_or(|ns| at_ns < ns) {
                        sender.wake_ns = Some(at_ns);
                        let late_ns = self.late_ns(flow, |host| host.sleep);
                        self.schedule(at_ns + late_ns, Event::Wake(flow));
                    }
                    return self.work(now_ns, flow, packets);
                }
            }
        }
    }

    fn offer(&mut self, now_ns: u64, flow: usize, sequence: u32, units: u64) {
        let link = self.links.last_mut().unwrap();
        let queue_bytes = link.queue_bytes(now_ns) * self.scale;
        let mark_bytes = (self.case.path_bytes() / 16.0).max(4.0 * self.case.packet_bytes() as f64);
        let mut payload = vec![0; units as usize - 28];
        payload[..4].copy_from_slice(&(flow as u32).to_be_bytes());
        payload[4..8].copy_from_slice(&sequence.to_be_bytes());
        let marked = self.case.ecn && queue_bytes as f64 > mark_bytes;
        link.send(
            now_ns,
            Datagram {
                src: "10.0.0.1:49152".parse().unwrap(),
                dst: "10.0.0.2:4791".parse().unwrap(),
                tos: if marked { 3 } else { 2 },
                id: 0,
                payload,
            },
        );
        self.measure
            .queued(now_ns, queue_bytes as f64 * 8e9 / self.rate_bps);
    }
}
