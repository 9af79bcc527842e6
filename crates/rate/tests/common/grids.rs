//! The grids of paths on which controllers are compared.

use super::case::Case;

const RATES: [u64; 4] = [100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000];
const RTTS: [u64; 4] = [100_000, 1_000_000, 25_000_000, 300_000_000];

pub(crate) fn paths() -> impl Iterator<Item = Case> {
    RATES
        .into_iter()
        .flat_map(|rate_bps| RTTS.map(|rtt_ns| Case::new(rate_bps, rtt_ns)))
}

/// One flow.
pub(crate) fn alone() -> impl Iterator<Item = Case> {
    let faults = [(0.0, false), (0.0, true), (0.001, false), (0.01, false)];
    paths().flat_map(move |path| {
        [0.1, 0.2, 1.0, 4.0].into_iter().flat_map(move |buffer| {
            let path = path.clone();
            faults.map(move |(loss, ecn)| Case {
                buffer,
                loss,
                ecn,
                ..path.clone()
            })
        })
    })
}

/// Two to 16 equal flows.
pub(crate) fn equals() -> impl Iterator<Item = Case> {
    let queues = [(0.2, 0.0), (1.0, 0.0), (1.0, 0.01), (4.0, 0.0)];
    paths().flat_map(move |path| {
        queues.into_iter().flat_map(move |(buffer, loss)| {
            let path = path.clone();
            [2, 4, 16].map(move |flows| {
                let case = Case {
                    buffer,
                    loss,
                    ..path.clone()
                };
                case.with_flows(flows, 3.0).lasting(160.0, 100.0)
            })
        })
    })
}
