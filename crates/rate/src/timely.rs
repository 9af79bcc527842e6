//! TIMELY (SIGCOMM 2015): the rate follows the gradient of the round trip.

use crate::math::{mul_div, time_of};
use crate::parameters::{Parameter, Parameters, Quantity};
use crate::{Acknowledged, Detail, Feedback, Limits, RateControl, Sent};

/// The value 1 of weights and gradients.
const ONE: i128 = 1_000_000;

/// Parameters of [`Timely`], with the letters of the paper. Factors are in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelyOptions {
    /// Rate of the sender's port in bits a second; flows start with it.
    pub line_rate_bps: u64,
    /// Lowest rate of a flow, in bits a second.
    pub min_rate_bps: u64,
    /// Bytes of a segment. Its last packet gives a sample of the round trip.
    pub segment_bytes: u64,
    /// `alpha`: weight of the newest difference of round trips.
    pub alpha_millionths: u64,
    /// `beta`: factor of decreases.
    pub beta_millionths: u64,
    /// `delta`: step of additive increase, in bits a second.
    pub delta_bps: u64,
    /// `T_low` in nanoseconds: shorter round trips always raise the rate.
    pub low_ns: u64,
    /// `T_high` in nanoseconds: longer round trips always lower the rate.
    pub high_ns: u64,
    /// `minRTT` in nanoseconds, by which gradients are divided.
    pub min_rtt_ns: u64,
    /// `N` of hyperactive increase (HAI): after this many samples in a row whose gradient is not above 0, steps are
    /// this many times as large.
    pub hai: u64,
}

impl TimelyOptions {
    /// The values of the paper for 10 Gbit/s: alpha 0.875, beta 0.8, delta 10 Mbit/s, `T_low` 50 us, `T_high` 500 us,
    /// `minRTT` 20 us, N 5 and segments of 16 kB. The lowest rate is a thousandth of the line rate.
    #[must_use]
    pub fn paper(line_rate_bps: u64) -> Self {
        Self {
            line_rate_bps,
            min_rate_bps: line_rate_bps / 1_000,
            segment_bytes: 16_000,
            alpha_millionths: 875_000,
            beta_millionths: 800_000,
            delta_bps: 10_000_000,
            low_ns: 50_000,
            high_ns: 500_000,
            min_rtt_ns: 20_000,
            hai: 5,
        }
    }
}

impl Parameters for TimelyOptions {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::new("segment", Quantity::Size, |to, value| {
            to.segment_bytes = value;
        }),
        Parameter::new("alpha", UP_TO_ONE, |to, value| to.alpha_millionths = value),
        Parameter::new("beta", UP_TO_ONE, |to, value| to.beta_millionths = value),
        Parameter::new("delta", Quantity::Rate, |to, value| to.delta_bps = value),
        Parameter::new("T_low", Quantity::Time, |to, value| to.low_ns = value),
        Parameter::new("T_high", Quantity::Wait, |to, value| to.high_ns = value),
        Parameter::new("min_rtt", Quantity::Wait, |to, value| to.min_rtt_ns = value),
        Parameter::new("N", Quantity::Count, |to, value| to.hai = value),
        Parameter::new("min_rate", Quantity::Rate, |to, value| {
            to.min_rate_bps = value;
        }),
    ];
}

const UP_TO_ONE: Quantity = Quantity::Millionths {
    least: 0,
    most: 1_000_000,
};

/// A rate that each sample of the round trip changes (algorithm 1 of the paper).
///
/// Packets whose round trip is not known, because they were sent twice, give no sample. TIMELY does not react to losses.
#[derive(Clone, Debug)]
pub struct Timely {
    options: TimelyOptions,
    rate_bps: u64,
    previous_ns: Option<u64>,
    /// `rtt_diff` in nanoseconds times [`ONE`].
    difference: i128,
    /// Samples in a row whose gradient was not above 0.
    calm: u64,
    /// The sample after these bytes is the next one.
    segment_end: u64,
}

impl Timely {
    /// Starts at the line rate. Numbers that are 0 count as 1.
    #[must_use]
    pub fn new(options: TimelyOptions) -> Self {
        let line_rate_bps = options.line_rate_bps.max(1);
        let options = TimelyOptions {
            line_rate_bps,
            min_rate_bps: options.min_rate_bps.clamp(1, line_rate_bps),
            segment_bytes: options.segment_bytes.max(1),
            min_rtt_ns: options.min_rtt_ns.max(1),
            alpha_millionths: options.alpha_millionths.min(1_000_000),
            beta_millionths: options.beta_millionths.min(1_000_000),
            ..options
        };
        Self {
            options,
            rate_bps: line_rate_bps,
            previous_ns: None,
            difference: 0,
            calm: 0,
            segment_end: options.segment_bytes,
        }
    }

    /// Changes the rate by a sample of the round trip.
    fn on_round_trip(&mut self, rtt_ns: u64) {
        let options = self.options;
        let Some(previous_ns) = self.previous_ns.replace(rtt_ns) else {
            return;
        };
        let alpha = i128::from(options.alpha_millionths);
        let newest = i128::from(rtt_ns) - i128::from(previous_ns);
        self.difference = (ONE - alpha) * self.difference / ONE + alpha * newest;
        let gradient = self.difference / i128::from(options.min_rtt_ns);
        self.calm = match gradient {
            ..=0 => self.calm.saturating_add(1),
            _ => 0,
        };
        if rtt_ns < options.low_ns {
            self.raise(1);
        } else if rtt_ns > options.high_ns {
            let excess = mul_div(1_000_000, rtt_ns - options.high_ns, rtt_ns);
            self.lower(excess);
        } else if gradient <= 0 {
            self.raise(match self.calm >= options.hai {
                true => options.hai.max(1),
                false => 1,
            });
        } else {
            self.lower(u64::try_from(gradient).unwrap_or(u64::MAX));
        }
    }

    fn raise(&mut self, steps: u64) {
        let more = self.options.delta_bps.saturating_mul(steps);
        self.rate_bps = self.rate_bps.saturating_add(more);
        self.rate_bps = self.rate_bps.min(self.options.line_rate_bps);
    }

    /// Lowers the rate by beta times a share in millionths.
    fn lower(&mut self, share: u64) {
        let share = mul_div(self.options.beta_millionths, share, 1_000_000).min(1_000_000);
        let rate_bps = mul_div(self.rate_bps, 1_000_000 - share, 1_000_000);
        self.rate_bps = rate_bps.max(self.options.min_rate_bps);
    }
}

impl RateControl for Timely {
    fn on_sent(&mut self, _sent: &Sent) {}

    fn on_feedback(&mut self, _feedback: &Feedback) {}

    fn detail(&self) -> Detail {
        Detail::Packets
    }

    fn on_acknowledged(&mut self, acknowledged: &Acknowledged<'_>) {
        if acknowledged.sent_bytes < self.segment_end {
            return;
        }
        self.segment_end = (acknowledged.sent_bytes).saturating_add(self.options.segment_bytes);
        if let Some(rtt_ns) = acknowledged.rtt_ns {
            // The paper takes the time of the bytes at the NIC's rate off the round trip.
            let own_ns = time_of(acknowledged.bytes, self.options.line_rate_bps);
            self.on_round_trip(rtt_ns.saturating_sub(own_ns));
        }
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.rate_bps,
            window_bytes: u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 10_000_000_000;

    /// A flow at 5 Gbit/s that has seen a round trip.
    fn timely(rtt_ns: u64) -> Timely {
        let mut timely = Timely::new(TimelyOptions::paper(LINE));
        timely.rate_bps = LINE / 2;
        timely.on_round_trip(rtt_ns);
        timely
    }

    fn rate(timely: &Timely) -> u64 {
        timely.limits().pace_bps
    }

    #[test]
    fn below_t_low_the_rate_rises_by_delta_whatever_the_gradient() {
        let mut timely = timely(20_000);
        timely.on_round_trip(49_999);
        assert_eq!(rate(&timely), 5_010_000_000);
    }

    /// 1 - 0.8 (1 - 500 / 625) = 0.84.
    #[test]
    fn above_t_high_the_rate_falls_by_the_excess() {
        let mut timely = timely(700_000);
        timely.on_round_trip(625_000);
        assert_eq!(rate(&timely), 4_200_000_000);
    }

    /// Two differences of 4 us and 2 us: the filter gives 0.875 * 4 = 3.5 us and 0.125 * 3.5 + 0.875 * 2 = 2.1875 us,
    /// and their gradients are 0.175 and 0.109375.
    #[test]
    fn between_them_the_rate_falls_by_the_filtered_gradient() {
        let mut timely = timely(100_000);
        timely.on_round_trip(104_000);
        assert_eq!(rate(&timely), 4_300_000_000);
        timely.on_round_trip(106_000);
        let want = 4_300_000_000.0 * (1.0 - 0.8 * 0.109_375);
        assert!((rate(&timely) as f64 - want).abs() < 5_000.0);
    }

    /// The first four calm samples add delta each; from the fifth on, each adds five times as much.
    #[test]
    fn five_calm_samples_begin_the_hyperactive_increase() {
        let mut timely = timely(100_000);
        for _ in 0..4 {
            timely.on_round_trip(100_000);
        }
        assert_eq!(rate(&timely), 5_040_000_000);
        timely.on_round_trip(100_000);
        assert_eq!(rate(&timely), 5_090_000_000);
        // A rise ends it.
        timely.on_round_trip(110_000);
        let low = rate(&timely);
        timely.on_round_trip(60_000);
        assert_eq!(rate(&timely), low + 10_000_000);
    }

    #[test]
    fn a_segment_gives_one_sample_without_the_time_of_its_bytes() {
        let mut timely = timely(30_000);
        for packet in 1..=32 {
            timely.on_acknowledged(&Acknowledged {
                sent_bytes: packet * 1_000,
                bytes: 1_000,
                // 800 ns are the packet at 10 Gbit/s.
                rtt_ns: Some(50_799),
                ..Acknowledged::default()
            });
        }
        assert_eq!(rate(&timely), 5_020_000_000);
        assert_eq!(timely.previous_ns, Some(49_999));
    }

    #[test]
    fn rates_keep_their_bounds() {
        let mut timely = timely(60_000);
        timely.on_round_trip(u64::MAX);
        timely.on_round_trip(400_000);
        timely.on_round_trip(499_000);
        for _ in 0..200 {
            timely.on_round_trip(u64::MAX);
        }
        assert_eq!(rate(&timely), LINE / 1_000);
        for _ in 0..2_000 {
            timely.on_round_trip(1);
        }
        assert_eq!(rate(&timely), LINE);
    }
}
