//! The grids of paths on which controllers are compared.

use farwrite_link::Policer;

use super::case::Case;
use super::host::Host;

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

/// One flow for a second of a short path of 1 Gbit/s between hosts: alone, below a maximum rate, with short queues,
/// and with policers. Queues of the shortest paths have 100 kB.
pub(crate) fn hosts(host: Host) -> impl Iterator<Item = Case> {
    const RTTS: [u64; 7] = [
        10_000, 100_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
    ];
    let path = move |rtt_ns: u64| {
        let rounds = 1e9 / rtt_ns as f64;
        let case = Case {
            host: Some(host),
            buffer: (100_000.0 / (rtt_ns as f64 / 8.0)).max(1.0),
            ..Case::between_hosts(1_000_000_000, rtt_ns)
        };
        case.lasting(rounds, rounds / 4.0)
    };
    let maxima = RTTS.into_iter().flat_map(move |rtt_ns| {
        [400_000_000_000, 500_000_000, 200_000_000].map(|max_rate_bps| Case {
            max_rate_bps,
            ..path(rtt_ns)
        })
    });
    let queues = [500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000].into_iter();
    let queues = queues.flat_map(move |rtt_ns| {
        [0.1, 0.25].map(|buffer| Case {
            buffer,
            ..path(rtt_ns)
        })
    });
    let policers = [(100_000_000, 15_000), (500_000_000, 30_000)].into_iter();
    let policers = policers.flat_map(move |(rate_bps, burst_bytes)| {
        [1_000_000, 5_000_000].map(|rtt_ns| Case {
            policer: Some(Policer {
                rate_bps,
                burst_bytes,
            }),
            ..path(rtt_ns)
        })
    });
    maxima.chain(queues).chain(policers)
}
