//! What is simulated.

use farwrite_rate::Start;

/// Which controller a flow has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Adaptive,
    Reno,
    Cubic,
    Bbr,
    Dcqcn,
    Swift,
}

/// One flow of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlowCase {
    pub(crate) kind: Kind,
    /// When it starts, in round trips.
    pub(crate) start_rounds: f64,
    /// What it believes at its start, as multiples of the true rate and round trip.
    pub(crate) hint: Option<f64>,
}

/// A change of the path under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) at_rounds: f64,
    pub(crate) rate_factor: f64,
    pub(crate) rtt_factor: f64,
}

/// A path and the flows on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) rate_bps: u64,
    pub(crate) rtt_ns: u64,
    /// Bytes of the queue over those of the path (rate times round trip).
    pub(crate) buffer: f64,
    /// Probability that a packet is lost behind the queue.
    pub(crate) loss: f64,
    /// Packets are marked when they meet a queue of a sixteenth of the path.
    pub(crate) ecn: bool,
    pub(crate) flows: Vec<FlowCase>,
    pub(crate) step: Option<Step>,
    /// Length, and its first part that is left out of the means, in round trips.
    pub(crate) rounds: f64,
    pub(crate) warm_rounds: f64,
    pub(crate) reports_per_round: u64,
    /// Bytes of a full packet; `None`: by the length of the path.
    pub(crate) packet_bytes: Option<u64>,
    /// Delays that adaptive flows take for noise of their hosts.
    pub(crate) jitter_ns: u64,
    pub(crate) seed: u64,
}

impl Case {
    /// One adaptive flow without loss, over a queue of the bytes of the path.
    pub(crate) fn new(rate_bps: u64, rtt_ns: u64) -> Self {
        Self {
            rate_bps,
            rtt_ns,
            buffer: 1.0,
            loss: 0.0,
            ecn: false,
            flows: vec![FlowCase {
                kind: Kind::Adaptive,
                start_rounds: 0.0,
                hint: None,
            }],
            step: None,
            rounds: 100.0,
            warm_rounds: 40.0,
            reports_per_round: 8,
            packet_bytes: None,
            jitter_ns: 0,
            seed: 1,
        }
    }

    /// `flows` adaptive flows, each started `apart_rounds` after the one before.
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

    /// A flow of another kind beside, from `start_rounds` on.
    pub(crate) fn beside(mut self, kind: Kind, start_rounds: f64) -> Self {
        self.flows.push(FlowCase {
            kind,
            start_rounds,
            hint: None,
        });
        self
    }

    /// All flows have this controller.
    pub(crate) fn under(mut self, kind: Kind) -> Self {
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

    /// Bytes that the path holds.
    pub(crate) fn path_bytes(&self) -> f64 {
        self.rate_bps as f64 / 8e9 * self.rtt_ns as f64
    }

    /// Bytes of the queue, of which the smallest holds eight packets.
    pub(crate) fn queue_bytes(&self) -> f64 {
        (self.path_bytes() * self.buffer).max(8.0 * self.packet_bytes() as f64)
    }

    /// Bytes of a full packet.
    pub(crate) fn packet_bytes(&self) -> u64 {
        let small = self.path_bytes() < 262_144.0;
        let by_length = if small { 1_500 } else { 4_096 };
        self.packet_bytes.unwrap_or(by_length)
    }

    /// The hint of a flow.
    pub(crate) fn start(&self, flow: &FlowCase) -> Option<Start> {
        flow.hint.map(|factor| Start {
            rate_bps: (self.rate_bps as f64 * factor) as u64,
            rtt_ns: self.rtt_ns,
        })
    }
}
