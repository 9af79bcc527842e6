//! Rings: every rank sends only to the next rank, so every byte crosses each hop once, and all hops
//! are always busy. These are the most economic algorithms for large data.

use std::ops::Range;

use super::{Action, Step};

/// After this schedule, rank r of n has the reduction of part r of the memory of all ranks, and the
/// other parts of its memory are overwritten.
///
/// Part p is reduced along the ring, starting at rank p + 1. Each rank adds its own values to those
/// that it receives: `((x[p+1] + x[p+2]) + ...) + x[p]`, with rank numbers modulo n, where `x` are
/// the initial values of each rank. It takes n - 1 rounds.
#[must_use]
pub fn ring_reduce_scatter(rank: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let ranks = parts.len();
    let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let mut steps = Vec::new();
    for round in 1..ranks {
        let sent = (rank + ranks - round) % ranks;
        let received = (rank + 2 * ranks - round - 1) % ranks;
        steps.push(Step::new(next, Action::Send, &parts[sent]));
        let last = round == ranks - 1;
        steps.push(Step::new(before, Action::Reduce { last }, &parts[received]));
    }
    steps
}

/// Before this schedule, rank r of n has part r; after it, every rank has all parts. It takes n - 1
/// rounds.
#[must_use]
pub fn ring_all_gather(rank: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let ranks = parts.len();
    let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let mut steps = Vec::new();
    for round in 0..ranks - 1 {
        let sent = (rank + ranks - round) % ranks;
        let received = (rank + ranks - round - 1) % ranks;
        steps.push(Step::new(next, Action::Send, &parts[sent]));
        steps.push(Step::new(before, Action::Copy, &parts[received]));
    }
    steps
}
