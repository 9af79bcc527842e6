//! Traces of mobile and satellite links, drawn from published statistics.

use farwrite_link::DeliveryTrace;
use farwrite_rng::SplitMix;

/// Steps of the models, in milliseconds.
const STEP_MS: u32 = 20;

/// A downlink of LTE, after the model in "Stochastic Forecasts Achieve High Throughput and Low Delay
/// over Cellular Networks" (Winstein, Sivaraman and Balakrishnan, NSDI 2013, section 3): packets are
/// delivered by a Poisson process, whose rate is a Brownian motion with a noise of 200 packets per
/// second and root of a second, between 0 and 1000 packets a second. A rate of 0 is an outage. Once a
/// second in the mean, the rate then moves again. Half of these moves are downward, and the outage
/// continues.
///
/// `scale` multiplies the rates and the noise: a carrier of today has more bandwidth than theirs.
pub(crate) fn lte(seed: u64, seconds: u32, scale: f64) -> DeliveryTrace {
    let mut rng = SplitMix::new(seed);
    let step_s = f64::from(STEP_MS) / 1e3;
    let (most, noise) = (1_000.0 * scale, 200.0 * scale * step_s.sqrt());
    let mut packets_per_s = most / 2.0;
    let mut at_ms = Vec::new();
    for step in 0..seconds * 1_000 / STEP_MS {
        packets_per_s = if packets_per_s > 0.0 || uniform(&mut rng) < step_s {
            (packets_per_s + noise * normal(&mut rng)).clamp(0.0, most)
        } else {
            0.0
        };
        poisson(&mut rng, &mut at_ms, step * STEP_MS, packets_per_s);
    }
    closed(at_ms, seconds * 1_000)
}

/// A downlink of a satellite in a low orbit. As in "A Multifaceted Look at Starlink Performance"
/// (Mohan et al., WWW 2024), the path changes every 15 seconds, with a short degradation, and stays
/// much the same in between. The other values are assumptions: the rate of an interval is uniform from
/// 50 to 250 Mbit/s, varies by a tenth in each step, and is 0 in the first 40 ms.
pub(crate) fn leo(seed: u64, seconds: u32) -> DeliveryTrace {
    const INTERVAL_MS: u32 = 15_000;
    const HANDOVER_MS: u32 = 40;
    let mut rng = SplitMix::new(seed);
    let mut at_ms = Vec::new();
    let mut interval_bps = 0.0;
    for start_ms in (0..seconds * 1_000).step_by(STEP_MS as usize) {
        let within_ms = start_ms % INTERVAL_MS;
        if within_ms < STEP_MS {
            interval_bps = 50e6 + 200e6 * uniform(&mut rng);
        }
        if within_ms >= HANDOVER_MS {
            let bps = interval_bps * (1.0 + 0.1 * normal(&mut rng)).clamp(0.5, 1.5);
            poisson(&mut rng, &mut at_ms, start_ms, bps / 12_000.0);
        }
    }
    closed(at_ms, seconds * 1_000)
}

/// Adds the opportunities of a step at a rate.
fn poisson(rng: &mut SplitMix, at_ms: &mut Vec<u32>, start_ms: u32, packets_per_s: f64) {
    if packets_per_s <= 0.0 {
        return;
    }
    let mut at = 0.0;
    loop {
        at -= uniform(rng).ln() * 1e3 / packets_per_s;
        if at >= f64::from(STEP_MS) {
            return;
        }
        at_ms.push(start_ms + at as u32);
    }
}

/// The trace repeats after `end_ms`.
fn closed(mut at_ms: Vec<u32>, end_ms: u32) -> DeliveryTrace {
    at_ms.push(end_ms);
    DeliveryTrace::new(at_ms).expect("times ascend")
}

/// A number above 0, up to 1.
fn uniform(rng: &mut SplitMix) -> f64 {
    (rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64
}

/// A normal number of mean 0 and deviation 1 (Box and Muller, 1958).
fn normal(rng: &mut SplitMix) -> f64 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}
