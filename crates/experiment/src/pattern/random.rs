//! Random workloads.

use std::time::Duration;

use farwrite_link::Rng;
use farwrite_units::show::real;

use super::{MAX_FLOWS, PatternError, PatternNetwork, range};
use crate::sizes::{Sizes, exponential};
use crate::units::nanoseconds;
use crate::{Flow, Workload};

/// A uniformly random cycle through all hosts (Sattolo's algorithm), so that no host sends to
/// itself.
pub(super) fn permutation(hosts: usize, size: u64, seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let mut targets: Vec<_> = (0..hosts).collect();
    for at in (1..hosts).rev() {
        targets.swap(at, rng.below(at));
    }
    let flows = targets.into_iter().enumerate();
    Workload::of(
        flows
            .map(|(src, dst)| Flow::new(src, dst, size, 0))
            .collect(),
    )
}

pub(super) fn poisson(
    network: &PatternNetwork,
    load: f64,
    sizes: &Sizes,
    flows: usize,
    seed: u64,
) -> Workload {
    let mut rng = Rng::new(seed);
    let bytes_per_ns = network.rates_bps.iter().copied().map(real).sum::<f64>() / 8e9;
    let gap_ns = sizes.mean() / (bytes_per_ns * load);
    let mut at_ns = 0.0;
    let flows = (0..flows).map(|_| {
        at_ns += gap_ns * exponential(&mut rng);
        let src = rng.below(network.hosts());
        let dst = other_host(network.hosts(), src, &mut rng);
        Flow::new(src, dst, sizes.draw(&mut rng), rounded(at_ns))
    });
    Workload::of(flows.collect())
}

/// `senders` and bytes of each message.
pub(super) fn poisson_incast(
    network: &PatternNetwork,
    load: f64,
    (senders, bytes): (usize, u64),
    incasts: usize,
    seed: u64,
) -> Workload {
    let mut rng = Rng::new(seed);
    let bytes_per_ns = network.rates_bps.iter().copied().map(real).sum::<f64>() / 8e9;
    let gap_ns = real(bytes) * real(senders as u64) / (bytes_per_ns * load);
    let mut hosts: Vec<_> = (0..network.hosts()).collect();
    let mut at_ns = 0.0;
    let mut flows = Vec::with_capacity(senders * incasts);
    for _ in 0..incasts {
        at_ns += gap_ns * exponential(&mut rng);
        // Each step of the shuffle draws one host: first the receiver, then the senders.
        for at in 0..=senders {
            let other = at + rng.below(hosts.len() - at);
            hosts.swap(at, other);
        }
        let of_hosts = hosts[1..=senders].iter();
        flows.extend(of_hosts.map(|&src| Flow::new(src, hosts[0], bytes, rounded(at_ns))));
    }
    Workload::of(flows)
}

/// `silence` and `until`.
pub(super) fn on_off(
    network: &PatternNetwork,
    senders: usize,
    burst: u64,
    [silence, until]: [Duration; 2],
    seed: u64,
) -> Result<Workload, PatternError> {
    let bytes_per_ns = |host: usize| real(network.rates_bps[host]) / 8e9;
    let sending = network.hosts() - senders..network.hosts();
    let expected = sending.clone().map(|host| {
        let mean_ns = real(burst) / bytes_per_ns(host) + real(nanoseconds(silence));
        real(nanoseconds(until)) / mean_ns
    });
    let expected: f64 = expected.sum();
    if expected > real(MAX_FLOWS as u64) {
        let until = humantime::format_duration(until);
        let want = format!("about {expected:.0} bursts; at most {MAX_FLOWS} are possible");
        return Err(range("until", until, want));
    }
    let mut rng = Rng::new(seed);
    let mut flows = Vec::new();
    for src in sending {
        let mut rng = Rng::new(rng.bits());
        let mut at_ns = exponential(&mut rng) * real(nanoseconds(silence));
        while at_ns <= real(nanoseconds(until)) {
            let bytes = rounded(real(burst) * exponential(&mut rng)).max(1);
            let dst = other_host(network.hosts(), src, &mut rng);
            flows.push(Flow::new(src, dst, bytes, rounded(at_ns)));
            let silence_ns = real(nanoseconds(silence)) * exponential(&mut rng);
            at_ns += real(bytes) / bytes_per_ns(src) + silence_ns;
        }
    }
    Ok(Workload::of(flows))
}

fn other_host(hosts: usize, src: usize, rng: &mut Rng) -> usize {
    let drawn = rng.below(hosts - 1);
    drawn + usize::from(drawn >= src)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; casts saturate"
)]
fn rounded(value: f64) -> u64 {
    (value + 0.5) as u64
}
