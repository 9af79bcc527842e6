//! One sender and its receiver.

use std::collections::VecDeque;

use farwrite_rate::{
    Adaptive, AdaptiveOptions, BatchLimits, Dcqcn, DcqcnOptions, Feedback, Loss, Newest, Pacer,
    RateControl, Sent, Swift, SwiftOptions,
};

use super::bbr::Bbr;
use super::case::{Case, FlowCase, FlowKind, Messages};
use super::loss_based::LossBased;
use super::measure::Excess;
use super::rack::{Rack, Taken};

/// The sender's record of a packet.
struct Departure {
    sequence: u32,
    /// `None`: the packet repeats a lost one, so its report gives no round trip (P5.5.6).
    departed_ns: Option<u64>,
    sent_bytes: u64,
}

/// A report on its way to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReportInFlight {
    sequence: u32,
    pub(crate) hold_ns: u64,
    bytes: u64,
    packets: u64,
    marked: u64,
}

/// The data of a sender of messages.
struct Backlog {
    messages: Messages,
    /// Bytes of the message that were not sent yet.
    left_bytes: u64,
    started_ns: u64,
    /// When the next message starts, after the end of this one.
    next_ns: Option<u64>,
    /// How long each message took, in nanoseconds.
    times_ns: Vec<u64>,
}

/// The sending half. It always has data to send, unless it sends messages.
pub(crate) struct Sender {
    controller: Box<dyn RateControl>,
    pacer: Pacer,
    max_rate_bps: u64,
    /// The shortest round trip, as endpoints measure it.
    rtt_ns: u64,
    departures: VecDeque<Departure>,
    sequence: u32,
    sent_bytes: u64,
    /// Bytes sent before the newest reported packet, or before a timeout.
    settled_bytes: u64,
    /// Bytes that were lost, and bytes that repeat lost ones.
    lost_bytes: u64,
    repeated_bytes: u64,
    received_bytes: u64,
    backlog: Option<Backlog>,
    most_pace_bps: u64,
    excess: Excess,
    pub(crate) wake_ns: Option<u64>,
}

impl Sender {
    pub(crate) fn new(case: &Case, flow: &FlowCase) -> Self {
        let controller: Box<dyn RateControl> = match flow.kind {
            FlowKind::Adaptive => Box::new(Adaptive::new(AdaptiveOptions {
                packet_bytes: case.packet_bytes(),
                max_rate_bps: case.max_rate_bps,
                jitter_ns: case.jitter_ns,
                recovery_ns: 1_000_000_000,
                start: case.start(flow),
            })),
            FlowKind::Reno => Box::new(LossBased::new(false)),
            FlowKind::Cubic => Box::new(LossBased::new(true)),
            FlowKind::Bbr => Box::new(Bbr::default()),
            FlowKind::Other(other) => (other.new)(case.packet_bytes()),
            FlowKind::Dcqcn => Box::new(Dcqcn::new(DcqcnOptions::paper(case.rate_bps))),
            FlowKind::Swift => {
                let packet_bytes = case.packet_bytes();
                let options = SwiftOptions::new(case.rate_bps, packet_bytes, 1);
                let path_packets = case.path_bytes() / packet_bytes as f64;
                // Swift is for datacenters. Here it knows the path, and may fill a long one.
                Box::new(Swift::new(SwiftOptions {
                    base_target_ns: case.rtt_ns * 5 / 4,
                    endpoint_target_ns: options.endpoint_target_ns.max(case.rtt_ns / 4),
                    max_cwnd_millionths: options
                        .max_cwnd_millionths
                        .max((path_packets * 4e6) as u64),
                    ..options
                }))
            }
        };
        Self {
            pacer: Pacer::new(batch_limits(case), controller.limits().pace_bps),
            max_rate_bps: case.max_rate_bps,
            rtt_ns: case.rtt_ns,
            controller,
            departures: VecDeque::new(),
            sequence: 0,
            sent_bytes: 0,
            settled_bytes: 0,
            lost_bytes: 0,
            repeated_bytes: 0,
            received_bytes: 0,
            backlog: flow.messages.map(|messages| Backlog {
                messages,
                left_bytes: 0,
                started_ns: 0,
                next_ns: Some(0),
                times_ns: Vec::new(),
            }),
            most_pace_bps: 0,
            excess: Excess::over(2 * case.carried_bps()),
            wake_ns: None,
        }
    }

    pub(crate) fn most_pace_bps(&self) -> u64 {
        self.most_pace_bps
    }

    /// The longest time in nanoseconds for which the pace was more than twice what the path carries.
    pub(crate) fn excess_ns(&self) -> u64 {
        self.excess.longest_ns()
    }

    /// Share of the sent bytes that repeat lost ones.
    pub(crate) fn repeated(&self) -> f64 {
        self.repeated_bytes as f64 / self.sent_bytes.max(1) as f64
    }

    /// Whether a message has ended.
    pub(crate) fn has_sent_a_message(&self) -> bool {
        let times = self.backlog.as_ref().map(|backlog| &backlog.times_ns);
        times.is_some_and(|times| !times.is_empty())
    }

    pub(crate) fn set_max_rate(&mut self, max_rate_bps: u64) {
        self.max_rate_bps = max_rate_bps;
        self.controller.set_max_rate(max_rate_bps);
    }

    /// How long each message took, in nanoseconds.
    pub(crate) fn message_times_ns(self) -> Vec<u64> {
        self.backlog
            .map_or_else(Vec::new, |backlog| backlog.times_ns)
    }

    /// Bytes that there are to send, repeats included. Ends a message whose bytes are all reported,
    /// and starts the next one when it is due.
    fn available(&mut self, now_ns: u64) -> u64 {
        let repeats = self.lost_bytes.saturating_sub(self.repeated_bytes);
        let is_settled = self.settled_bytes == self.sent_bytes;
        let Some(backlog) = &mut self.backlog else {
            return u64::MAX;
        };
        if backlog.left_bytes == 0 && repeats == 0 && is_settled && backlog.next_ns.is_none() {
            backlog.times_ns.push(now_ns - backlog.started_ns);
            backlog.next_ns = Some(now_ns + backlog.messages.pause_ns);
        }
        if backlog.next_ns.is_some_and(|next_ns| next_ns <= now_ns) {
            backlog.next_ns = None;
            backlog.started_ns = now_ns;
            backlog.left_bytes = backlog.messages.bytes;
        }
        backlog.left_bytes + repeats
    }

    /// Returns the bytes that may be sent now, at most `most`. If there are none and a timer
    /// decides, returns when to ask again.
    pub(crate) fn allowed(
        &mut self,
        now_ns: u64,
        least: u64,
        most: u64,
    ) -> Result<u64, Option<u64>> {
        if self
            .controller
            .next_timeout()
            .is_some_and(|ns| ns <= now_ns)
            && self.controller.on_timeout(now_ns)
        {
            self.settled_bytes = self.sent_bytes;
            self.lost_bytes = self.sent_bytes - self.received_bytes;
        }
        let available = self.available(now_ns);
        if available == 0 {
            self.pacer.pause();
            let next_ns = self.backlog.as_ref().and_then(|backlog| backlog.next_ns);
            return Err(next_ns.or(self.controller.next_timeout()));
        }
        let limits = self.controller.limits();
        let in_flight = self.sent_bytes - self.settled_bytes;
        let room = limits.window_bytes.saturating_sub(in_flight);
        if room == 0 || in_flight > 0 && room < least {
            self.pacer.pause();
            return Err(self.controller.next_timeout());
        }
        self.most_pace_bps = self.most_pace_bps.max(limits.pace_bps);
        self.excess.note(now_ns, limits.pace_bps);
        let is_highest = limits.pace_bps >= self.max_rate_bps;
        self.pacer
            .set_pace(now_ns, limits.pace_bps, Some(self.rtt_ns), is_highest);
        if self.pacer.allowance(now_ns) == 0 {
            return Err(Some(self.pacer.next_ns(now_ns)));
        }
        let bytes = room.min(limits.window_bytes / 32).min(available);
        Ok(bytes.clamp(least, most))
    }

    /// Sends bytes. Returns the number of the packet.
    pub(crate) fn send(&mut self, now_ns: u64, bytes: u64) -> u32 {
        self.sequence += 1;
        self.sent_bytes += bytes;
        self.pacer.consume(now_ns, bytes);
        let is_repeat = self.repeated_bytes < self.lost_bytes;
        if is_repeat {
            self.repeated_bytes += bytes;
        } else if let Some(backlog) = &mut self.backlog {
            backlog.left_bytes = backlog.left_bytes.saturating_sub(bytes);
        }
        let app_limited = self
            .backlog
            .as_ref()
            .is_some_and(|backlog| backlog.left_bytes == 0);
        let app_limited = app_limited && self.repeated_bytes >= self.lost_bytes;
        self.departures.push_back(Departure {
            sequence: self.sequence,
            departed_ns: (!is_repeat).then_some(now_ns),
            sent_bytes: self.sent_bytes,
        });
        if is_repeat {
            self.controller.on_loss(now_ns, Loss::Reported);
        }
        self.controller.on_sent(&Sent {
            now_ns,
            bytes,
            in_flight_bytes: self.sent_bytes - self.settled_bytes,
            app_limited,
        });
        self.sequence
    }

    /// Processes a report.
    pub(crate) fn take(&mut self, now_ns: u64, report: &ReportInFlight) {
        while self.departures.len() > 1 && self.departures[0].sequence < report.sequence {
            self.departures.pop_front();
        }
        let Some(newest) = self.departures.front() else {
            return;
        };
        // A report that a newer one has overtaken has no effect.
        if newest.sequence != report.sequence || report.bytes < self.received_bytes {
            return;
        }
        self.settled_bytes = self.settled_bytes.max(newest.sent_bytes);
        self.received_bytes = report.bytes;
        let lost_bytes = newest.sent_bytes.saturating_sub(report.bytes);
        self.lost_bytes = self.lost_bytes.max(lost_bytes);
        self.controller.on_feedback(&Feedback {
            now_ns,
            newest: Some(Newest {
                sent_bytes: newest.sent_bytes,
                departed_ns: newest.departed_ns,
                hold_ns: report.hold_ns,
            }),
            received_bytes: report.bytes,
            received_packets: report.packets,
            marked_packets: report.marked,
            dropped_packets: 0,
            drain_bps: 0,
        });
    }
}

/// Batches as endpoints have them. Hosts that are never late send packet by packet, and those that wait make up for it.
fn batch_limits(case: &Case) -> BatchLimits {
    if case.host.is_some() {
        return BatchLimits {
            packet_bytes: case.packet_bytes(),
            burst_bytes: 256 * 1024,
            longest_ns: case.jitter_ns,
            late_ns: case.jitter_ns / 10,
            make_up_ns: case.jitter_ns / 4,
            owed_ns: 4 * case.jitter_ns,
        };
    }
    BatchLimits {
        packet_bytes: 1,
        burst_bytes: u64::MAX,
        longest_ns: 0,
        late_ns: 0,
        make_up_ns: case.waits.map_or(0, |_| case.jitter_ns),
        owed_ns: 0,
    }
}

/// The receiving half.
#[derive(Default)]
pub(crate) struct Receiver {
    newest: u32,
    newest_ns: u64,
    bytes: u64,
    packets: u64,
    marked: u64,
    reported_ns: Option<u64>,
    interval_ns: u64,
    /// Of a flow of TCP, on a path on which packets overtake.
    rack: Option<Rack>,
    pub(crate) waiting: bool,
}

impl Receiver {
    pub(crate) fn new(case: &Case, flow: &FlowCase) -> Self {
        let is_tcp = flow.kind.is_tcp();
        Self {
            interval_ns: match is_tcp {
                true => 0,
                false => {
                    let least_ns = case.host.map_or(0, |host| host.least_report_ns);
                    (case.rtt_ns / case.reports_per_round).max(least_ns)
                }
            },
            rack: (is_tcp && case.packets_overtake()).then(|| Rack::new(case.rtt_ns)),
            ..Self::default()
        }
    }

    /// Processes a packet. Returns when to report; `None` if there is nothing new.
    pub(crate) fn take(&mut self, packet: Taken) -> Option<u64> {
        let heard = match &mut self.rack {
            Some(rack) => rack.take(packet),
            None => vec![packet],
        };
        for packet in &heard {
            if packet.sequence > self.newest {
                self.newest = packet.sequence;
                self.newest_ns = packet.at_ns;
            }
            self.bytes += packet.bytes;
            self.packets += 1;
            self.marked += u64::from(packet.marked);
        }
        let due_ns = self.reported_ns.map_or(0, |ns| ns + self.interval_ns);
        (!heard.is_empty()).then_some(due_ns.max(packet.at_ns))
    }

    pub(crate) fn report(&mut self, now_ns: u64) -> ReportInFlight {
        self.reported_ns = Some(now_ns);
        ReportInFlight {
            sequence: self.newest,
            hold_ns: now_ns - self.newest_ns,
            bytes: self.bytes,
            packets: self.packets,
            marked: self.marked,
        }
    }
}
