//! The simulated cases.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farwrite_link::{DeliveryTrace, Policer, Reorder, Spread, Variation};
use farwrite_rate::{RateControl, Start};

use super::host::Host;

/// The controller of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FlowKind {
    Adaptive,
    Reno,
    Cubic,
    Bbr,
    Dcqcn,
    Swift,
    /// One that the program brings along.
    Other(OtherController),
}

/// A controller by its name.
#[derive(Clone, Copy)]
pub(crate) struct OtherController {
    pub(crate) name: &'static str,
    /// Makes one for packets of this many bytes.
    pub(crate) new: fn(u64) -> Box<dyn RateControl>,
}

impl PartialEq for OtherController {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for OtherController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FlowKind {
    /// Whether the kernel sends the packets and answers them.
    pub(crate) fn is_tcp(self) -> bool {
        matches!(self, Self::Reno | Self::Cubic | Self::Bbr)
    }
}

/// One flow of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlowCase {
    pub(crate) kind: FlowKind,
    /// When it starts, in round trips.
    pub(crate) start_rounds: f64,
    /// The hint at its start, as a multiple of the true rate.
    pub(crate) hint: Option<f64>,
    /// What it sends; `None`: it always has data.
    pub(crate) messages: Option<Messages>,
}

/// Messages one after the other, each some time after the last report of the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Messages {
    pub(crate) bytes: u64,
    pub(crate) pause_ns: u64,
}

/// A change of the path during the case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathStep {
    pub(crate) at_rounds: f64,
    pub(crate) rate_factor: f64,
    pub(crate) rtt_factor: f64,
}

/// Programs that wait for a processor: in each period, from its start, both ends of a flow do nothing
/// for a random time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Waits {
    pub(crate) every_ns: u64,
    pub(crate) most_ns: u64,
}

/// A path and the flows on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) rate_bps: u64,
    pub(crate) rtt_ns: u64,
    /// Length of the queue, as a multiple of the bandwidth-delay product.
    pub(crate) buffer: f64,
    /// Probability that a packet is lost behind the queue.
    pub(crate) loss: f64,
    /// Whether packets are marked when the queue is above a sixteenth of the bandwidth-delay
    /// product.
    pub(crate) ecn: bool,
    pub(crate) flows: Vec<FlowCase>,
    pub(crate) step: Option<PathStep>,
    /// Length of the case, in round trips.
    pub(crate) rounds: f64,
    pub(crate) warm_rounds: f64,
    /// Whether the end of the first message of the first flow ends the case.
    pub(crate) ends_with_message: bool,
    pub(crate) reports_per_round: u64,
    /// Bytes of a full packet; `None`: depends on the bandwidth-delay product.
    pub(crate) packet_bytes: Option<u64>,
    /// Delays that adaptive flows attribute to noise of their hosts.
    pub(crate) jitter_ns: u64,
    /// Longest time for which a receiver takes no packets, every 7 ms.
    pub(crate) stall_ns: u64,
    /// Waits of hosts that are busy. TCP runs in the kernel and does not wait. Kernels say when packets
    /// arrived, so a wait counts as time for which the hosts held a report (P4.10).
    pub(crate) waits: Option<Waits>,
    /// What the hosts of adaptive flows do; `None`: they wake up in time, and their processors are never busy.
    pub(crate) host: Option<Host>,
    /// Mean time between two bursts of packets that the path hands over, as an emulator in software
    /// does; the longest time is twice as long. 0: it hands over each packet on its own.
    pub(crate) burst_ns: u64,
    /// Additional delay of packets, and that of reports on their way back. Controllers meet the same
    /// delays, because those of slots do not depend on what is sent.
    pub(crate) variation: Variation,
    pub(crate) back_variation: Variation,
    /// Packets that are held back.
    pub(crate) reorder: Reorder,
    /// Drops packets behind the queue.
    pub(crate) policer: Option<Policer>,
    /// When packets can leave the queue, in place of `rate_bps`, which should be its mean rate.
    pub(crate) trace: Option<Arc<DeliveryTrace>>,
    /// The maximum rate of adaptive flows, and another one from a round trip on.
    pub(crate) max_rate_bps: u64,
    pub(crate) new_max: Option<(f64, u64)>,
    pub(crate) seed: u64,
}

impl Case {
    /// One adaptive flow without loss, with a queue of one bandwidth-delay product.
    pub(crate) fn new(rate_bps: u64, rtt_ns: u64) -> Self {
        Self {
            rate_bps,
            rtt_ns,
            buffer: 1.0,
            loss: 0.0,
            ecn: false,
            flows: vec![FlowCase {
                kind: FlowKind::Adaptive,
                start_rounds: 0.0,
                hint: None,
                messages: None,
            }],
            step: None,
            rounds: 100.0,
            warm_rounds: 40.0,
            ends_with_message: false,
            reports_per_round: 8,
            packet_bytes: None,
            jitter_ns: 0,
            stall_ns: 0,
            waits: None,
            host: None,
            burst_ns: 0,
            variation: Variation::default(),
            back_variation: Variation::default(),
            reorder: Reorder::default(),
            policer: None,
            trace: None,
            max_rate_bps: 400_000_000_000,
            new_max: None,
            seed: 1,
        }
    }

    /// One adaptive flow with packets of 1500 bytes, between hosts with 1 ms of noise, as
    /// `farwrite send` assumes.
    pub(crate) fn between_hosts(rate_bps: u64, rtt_ns: u64) -> Self {
        Self {
            packet_bytes: Some(1_500),
            jitter_ns: 1_000_000,
            ..Self::new(rate_bps, rtt_ns)
        }
    }

    /// The delay varies in both directions.
    pub(crate) fn varying(mut self, variation: Variation) -> Self {
        self.variation = variation;
        self.back_variation = variation;
        self
    }

    /// `flows` adaptive flows, each started `apart_rounds` after the previous one.
    pub(crate) fn with_flows(mut self, flows: usize, apart_rounds: f64) -> Self {
        let first = self.flows[0];
        self.flows = (0..flows)
            .map(|i| FlowCase {
                start_rounds: i as f64 * apart_rounds,
                ..first
            })
            .collect();
        self
    }

    /// Adds a flow of another kind, from `start_rounds` on.
    pub(crate) fn beside(mut self, kind: FlowKind, start_rounds: f64) -> Self {
        self.flows.push(FlowCase {
            kind,
            start_rounds,
            hint: None,
            messages: None,
        });
        self
    }

    /// All flows have this controller.
    pub(crate) fn under(mut self, kind: FlowKind) -> Self {
        for flow in &mut self.flows {
            flow.kind = kind;
        }
        self
    }

    /// All flows start with a hint of `factor` times the true rate.
    pub(crate) fn hinted(mut self, factor: f64) -> Self {
        for flow in &mut self.flows {
            flow.hint = Some(factor);
        }
        self
    }

    /// Lasts `rounds`, of which the first `warm_rounds` are not measured.
    pub(crate) fn lasting(mut self, rounds: f64, warm_rounds: f64) -> Self {
        self.rounds = rounds;
        self.warm_rounds = warm_rounds;
        self
    }

    /// Whether packets overtake one another.
    pub(crate) fn packets_overtake(&self) -> bool {
        let varies = self.variation.spread != Spread::None;
        varies && self.variation.overtakes || self.reorder.probability > 0.0
    }

    /// Returns the bandwidth-delay product in bytes.
    pub(crate) fn path_bytes(&self) -> f64 {
        self.rate_bps as f64 / 8e9 * self.rtt_ns as f64
    }

    /// The rate that the path and its policer carry.
    pub(crate) fn carried_bps(&self) -> u64 {
        let policed_bps = self.policer.map_or(u64::MAX, |policer| policer.rate_bps);
        self.rate_bps.min(policed_bps)
    }

    /// Length of the queue in bytes, at least eight packets.
    pub(crate) fn queue_bytes(&self) -> f64 {
        (self.path_bytes() * self.buffer).max(8.0 * self.packet_bytes() as f64)
    }

    /// Returns the bytes of a full packet.
    pub(crate) fn packet_bytes(&self) -> u64 {
        let small = self.path_bytes() < 262_144.0;
        let by_length = if small { 1_500 } else { 4_096 };
        self.packet_bytes.unwrap_or(by_length)
    }

    /// Returns the hint of a flow.
    pub(crate) fn start(&self, flow: &FlowCase) -> Option<Start> {
        flow.hint.map(|factor| Start {
            rate_bps: (self.rate_bps as f64 * factor) as u64,
            rtt_ns: self.rtt_ns,
        })
    }
}

/// An additional delay that is uniform from 0, drawn again every `every_ms`. Packets stay in order.
pub(crate) fn uniform(most_ms: u64, every_ms: u64) -> Variation {
    Variation {
        spread: Spread::Uniform {
            most: Duration::from_millis(most_ms),
        },
        every: Duration::from_millis(every_ms),
        overtakes: false,
    }
}
