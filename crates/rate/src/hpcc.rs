//! HPCC (SIGCOMM 2019, algorithm 1): the window follows the load of the links, which packets measure on their way.

use alloc::vec::Vec;

use crate::math::{bytes_in, mul_div, rate_of};
use crate::parameters::{Parameter, Parameters, Quantity};
use crate::{Acknowledged, Detail, Feedback, Hop, Limits, RateControl, Sent};

/// The value 1 of a load.
const ONE: u64 = 1 << 32;
const BIT_NS: u128 = 8_000_000_000;

/// Parameters of [`Hpcc`], with the names of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HpccOptions {
    /// `B` of the NIC: rate of the sender's port in bits a second.
    pub line_rate_bps: u64,
    /// `T`: the base round trip, in nanoseconds.
    pub base_rtt_ns: u64,
    /// `eta`: the load to which windows lead links, in millionths.
    pub eta_millionths: u64,
    /// `maxStage`: round trips of additive increase before a multiplicative one.
    pub max_stage: u32,
    /// `W_AI`: additive increase in bytes.
    pub additive_bytes: u64,
}

impl HpccOptions {
    /// `eta` 0.95, `maxStage` 5, and `W_AI` by the paper's rule for 100 flows: `W_init (1 - eta) / 100`.
    #[must_use]
    pub fn paper(line_rate_bps: u64, base_rtt_ns: u64) -> Self {
        let first = bytes_in(line_rate_bps, base_rtt_ns);
        Self {
            line_rate_bps,
            base_rtt_ns,
            eta_millionths: 950_000,
            max_stage: 5,
            additive_bytes: (first / 2_000).max(1),
        }
    }
}

impl Parameters for HpccOptions {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::new("T", Quantity::Wait, |to, value| to.base_rtt_ns = value),
        Parameter::new(
            "eta",
            Quantity::Millionths {
                least: 1,
                most: 1_000_000,
            },
            |to, value| to.eta_millionths = value,
        ),
        Parameter::new("max_stage", Quantity::Steps { most: 1_000 }, |to, value| {
            to.max_stage = u32::try_from(value).unwrap_or(u32::MAX);
        }),
        Parameter::new("W_AI", Quantity::Size, |to, value| {
            to.additive_bytes = value;
        }),
    ];
}

/// A window that leads the most loaded link of the path to the load `eta`.
///
/// The first acknowledgement gives the reference of the counters, and the load starts at 1, as in the RDMA trees of
/// ns-3. An acknowledgement whose packet took other ports gives a new reference. HPCC does not react to losses.
#[derive(Clone, Debug)]
pub struct Hpcc {
    options: HpccOptions,
    /// `W` in bytes.
    window_bytes: u64,
    /// `W_c` in bytes.
    reference_bytes: u64,
    /// `U`, in units of 1 / [`ONE`].
    load: u64,
    stage: u32,
    /// `L`: what the previous acknowledgement said of each link.
    links: Vec<Hop>,
    /// `snd_nxt`: all bytes sent.
    sent_bytes: u64,
    /// `lastUpdateSeq`.
    updated_at: u64,
}

impl Hpcc {
    /// Starts with a window of one base round trip. Numbers that are 0 count as 1.
    #[must_use]
    pub fn new(options: HpccOptions) -> Self {
        let options = HpccOptions {
            line_rate_bps: options.line_rate_bps.max(1),
            base_rtt_ns: options.base_rtt_ns.max(1),
            eta_millionths: options.eta_millionths.clamp(1, 1_000_000),
            ..options
        };
        let mut hpcc = Self {
            options,
            window_bytes: 0,
            reference_bytes: 0,
            load: ONE,
            stage: 0,
            links: Vec::new(),
            sent_bytes: 0,
            updated_at: 0,
        };
        hpcc.window_bytes = hpcc.most_bytes();
        hpcc.reference_bytes = hpcc.window_bytes;
        hpcc
    }

    /// `W_init`, which is also the largest window.
    fn most_bytes(&self) -> u64 {
        bytes_in(self.options.line_rate_bps, self.options.base_rtt_ns).max(1)
    }

    /// `MeasureInflight`: the new `U`. `None`: no counter has moved.
    fn measured(&self, hops: &[Hop]) -> Option<u64> {
        let base_ns = self.options.base_rtt_ns;
        let loads = self.links.iter().zip(hops).filter_map(|(before, now)| {
            let ns = now.at_ns.saturating_sub(before.at_ns);
            let queued = u128::from(now.queued_bytes.min(before.queued_bytes));
            let held = u128::from(now.rate_bps.max(1)) * u128::from(base_ns);
            let queue = u128::from(ONE).saturating_mul(queued * BIT_NS) / held;
            let queue = u64::try_from(queue).unwrap_or(u64::MAX);
            let bytes = now.sent_bytes.saturating_sub(before.sent_bytes);
            let rate = mul_div(ONE, rate_of(bytes, ns), now.rate_bps);
            (ns > 0).then(|| (queue.saturating_add(rate), ns))
        });
        let (load, ns) = loads.max_by_key(|(load, _)| *load)?;
        let newest_ns = ns.min(base_ns);
        let old = mul_div(self.load, base_ns - newest_ns, base_ns);
        Some(old.saturating_add(mul_div(load, newest_ns, base_ns)))
    }

    /// `ComputeWind`.
    fn compute_window(&mut self, update: bool) {
        let eta = mul_div(ONE, self.options.eta_millionths, 1_000_000);
        let multiplies = self.load >= eta || self.stage >= self.options.max_stage;
        let base = match multiplies {
            true => mul_div(self.reference_bytes, eta, self.load),
            false => self.reference_bytes,
        };
        let window = base.saturating_add(self.options.additive_bytes);
        self.window_bytes = window.clamp(1, self.most_bytes());
        if update {
            self.stage = match multiplies {
                true => 0,
                false => self.stage + 1,
            };
            self.reference_bytes = self.window_bytes;
        }
    }
}

impl RateControl for Hpcc {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent_bytes = self.sent_bytes.saturating_add(sent.bytes);
    }

    fn on_feedback(&mut self, _feedback: &Feedback) {}

    fn detail(&self) -> Detail {
        Detail::Telemetry
    }

    /// `NewAck`.
    fn on_acknowledged(&mut self, acknowledged: &Acknowledged<'_>) {
        let hops = acknowledged.hops;
        if hops.is_empty() {
            return;
        }
        let ports = hops.iter().map(|hop| hop.port);
        if self.links.iter().map(|link| link.port).eq(ports) {
            if let Some(load) = self.measured(hops) {
                self.load = load;
                let update = acknowledged.sent_bytes > self.updated_at;
                self.compute_window(update);
                if update {
                    self.updated_at = self.sent_bytes;
                }
            }
        } else if self.updated_at == 0 {
            self.updated_at = self.sent_bytes;
        }
        self.links.clear();
        self.links.extend_from_slice(hops);
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    /// The pace is `R = W / T`.
    fn limits(&self) -> Limits {
        let pace_bps = rate_of(self.window_bytes, self.options.base_rtt_ns);
        Limits {
            pace_bps: pace_bps.clamp(1, self.options.line_rate_bps),
            window_bytes: self.window_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 100_000_000_000;
    /// `T`: 10 us, in which the line carries 125,000 bytes.
    const T: u64 = 10_000;

    fn hpcc() -> Hpcc {
        let mut hpcc = Hpcc::new(HpccOptions {
            additive_bytes: 80,
            ..HpccOptions::paper(LINE, T)
        });
        hpcc.sent_bytes = 1_000_000;
        hpcc
    }

    /// An acknowledgement over one link of 100 Gbit/s.
    fn acknowledge(hpcc: &mut Hpcc, sent_bytes: u64, hop: (u64, u64, u64)) {
        let (at_ns, queued_bytes, link_bytes) = hop;
        hpcc.on_acknowledged(&Acknowledged {
            sent_bytes,
            hops: &[Hop {
                port: 7,
                at_ns,
                queued_bytes,
                sent_bytes: link_bytes,
                rate_bps: LINE,
            }],
            ..Acknowledged::default()
        });
    }

    #[test]
    fn a_flow_starts_at_the_line_rate_with_a_window_of_a_round_trip() {
        let limits = hpcc().limits();
        assert_eq!((limits.pace_bps, limits.window_bytes), (LINE, 125_000));
        // 125,000 * 0.05 / 100 = 62.5.
        assert_eq!(HpccOptions::paper(LINE, T).additive_bytes, 62);
    }

    /// The queue is min(50,000, 25,000) = 25,000 bytes: 0.2 of a round trip. The link carries all it can: txRate / B is
    /// 1. Over 5 us, half of T, U = 1 / 2 + 1.2 / 2 = 1.1, and W = 125,000 * 0.95 / 1.1 + 80.
    #[test]
    fn a_full_link_with_a_queue_lowers_the_window() {
        let mut hpcc = hpcc();
        acknowledge(&mut hpcc, 1_000, (0, 50_000, 0));
        assert_eq!(hpcc.window_bytes, 125_000);
        acknowledge(&mut hpcc, 1_000_001, (5_000, 25_000, 62_500));
        let want = 125_000.0 * 0.95 / 1.1 + 80.0;
        assert!((hpcc.window_bytes as f64 - want).abs() < 2.0);
        assert_eq!(hpcc.reference_bytes, hpcc.window_bytes);
        // The pace is W / T.
        let want = want * 8.0 / 10e-6;
        assert!((hpcc.limits().pace_bps as f64 - want).abs() < 2e6);
    }

    /// Acknowledgements within a round trip start from the same `W_c`.
    #[test]
    fn the_reference_changes_once_in_a_round_trip() {
        let mut hpcc = hpcc();
        acknowledge(&mut hpcc, 1_000, (0, 0, 0));
        acknowledge(&mut hpcc, 1_000_001, (10_000, 0, 125_000));
        let reference = hpcc.reference_bytes;
        assert!(reference.abs_diff(125_000 * 95 / 100 + 80) <= 1);
        hpcc.sent_bytes = 2_000_000;
        for step in 2..6 {
            // Queues of a round trip: U is 2.
            let at_ns = step * 10_000;
            hpcc.links[0].queued_bytes = 125_000;
            acknowledge(&mut hpcc, 500_000, (at_ns, 125_000, step * 125_000));
            assert_eq!(hpcc.reference_bytes, reference);
            let want = reference as f64 * 0.95 / 2.0 + 80.0;
            assert!((hpcc.window_bytes as f64 - want).abs() < 2.0);
        }
    }

    /// Below eta, five round trips add `W_AI`, and the sixth multiplies: the load is a half.
    #[test]
    fn a_light_load_adds_five_times_and_then_multiplies() {
        let mut hpcc = hpcc();
        hpcc.reference_bytes = 10_000;
        hpcc.load = ONE / 2;
        acknowledge(&mut hpcc, 1_000, (0, 0, 0));
        for step in 1..=5 {
            acknowledge(&mut hpcc, 1_000_001, (step * T, 0, step * 62_500));
            assert_eq!(hpcc.window_bytes, 10_000 + step * 80);
        }
        acknowledge(&mut hpcc, 1_000_001, (6 * T, 0, 6 * 62_500));
        let want = 10_400.0 * 0.95 / 0.5 + 80.0;
        assert!((hpcc.window_bytes as f64 - want).abs() < 2.0);
        assert_eq!(hpcc.stage, 0);
    }

    #[test]
    fn another_path_gives_a_new_reference_only() {
        let mut hpcc = hpcc();
        acknowledge(&mut hpcc, 1_000, (0, 0, 0));
        hpcc.links[0].port = 8;
        acknowledge(&mut hpcc, 1_000_001, (10_000, 125_000, 125_000));
        assert_eq!(hpcc.window_bytes, 125_000);
        assert_eq!(hpcc.links[0].port, 7);
    }
}
