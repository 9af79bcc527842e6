//! Measures the full stack with several receive workers, compared with one.

use farwrite::{RateControl, SchemeName, Sealing};

use crate::Failure;
use crate::meter::Moved;
use crate::stack::StackPair;
use crate::table;
use farwrite_units::stats::median;

/// Bytes per run.
const BYTES: usize = 512 << 20;
/// Payload bytes of a packet.
const MTU: u32 = 4096;
/// Far above the speed of the machine.
const RATE: RateControl = RateControl::Fixed {
    rate_bps: 100_000_000_000,
};
/// Numbers of receive workers. With 0, the receiver's poll receives. The second case is the
/// reference of the others.
const WORKERS: [u8; 4] = [0, 1, 2, 4];

/// Moves a message with each number of workers in alternation, and prints medians.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let pair = |workers| {
        StackPair::new(
            MTU,
            RATE,
            workers,
            Sealing::Off,
            vec![1; BYTES],
            vec![2; BYTES],
        )
    };
    let mut pairs = WORKERS
        .map(pair)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let mut rounds = Vec::new();
    for _ in 0..runs {
        let round = pairs
            .iter_mut()
            .map(|pair| pair.run(SchemeName::SrNack.tag()));
        rounds.push(round.collect::<Result<Vec<_>, _>>()?);
    }
    let rows: Vec<_> = (0..WORKERS.len()).map(|way| row(way, &rounds)).collect();
    let title = format!(
        "workers: {} MiB by sr-nack over loopback, to a receiver with threads that receive, each on \
         a port of its own;\nmedians of {runs} runs. Ratios are to one worker in the same run. Goal: \
         two workers move at least 0.95 of its\nbytes per core-second.",
        BYTES >> 20
    );
    table::print(
        &title,
        ["workers", "Gbit/s", "GB/core-s", "ratio", "cores"],
        &rows,
    );
    Ok(())
}

fn row(way: usize, rounds: &[Vec<Moved>]) -> [String; 5] {
    let of = |what: fn(&Moved) -> f64| median(rounds.iter().map(|round| what(&round[way])));
    let efficiency = |moved: &Moved| moved.bytes_per_core_second();
    let ratios = rounds
        .iter()
        .map(|round| efficiency(&round[way]) / efficiency(&round[1]));
    [
        match WORKERS[way] {
            0 => "none".to_owned(),
            workers => workers.to_string(),
        },
        format!("{:.1}", of(Moved::goodput_bps) / 1e9),
        format!("{:.2}", of(Moved::bytes_per_core_second) / 1e9),
        format!("{:.2}", median(ratios)),
        format!("{:.2}", of(|moved| moved.usage.cores())),
    ]
}
