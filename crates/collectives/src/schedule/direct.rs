//! Every rank communicates directly with every rank that it needs: one round, and the shortest time
//! for little data.

use std::ops::Range;

use super::{Action, Step};

/// The ranks after `rank`, in order, wrapping around to the rank before it. Each rank begins with a
/// different peer, so they do not all send to the same rank.
fn others(rank: usize, ranks: usize) -> impl Iterator<Item = usize> {
    (1..ranks).map(move |distance| (rank + distance) % ranks)
}

/// After this schedule, rank r of n has the reduction of part r of the memory of all ranks. Other
/// parts are unchanged.
///
/// Part p is `((x[p] + x[p+1]) + x[p+2]) + ...`, with rank numbers modulo n.
#[must_use]
pub fn direct_reduce_scatter(rank: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let ranks = parts.len();
    let sends = others(rank, ranks).map(|peer| Step::new(peer, Action::Send, &parts[peer]));
    let receives = others(rank, ranks).map(|peer| {
        let last = peer == (rank + ranks - 1) % ranks;
        Step::new(peer, Action::Reduce { last }, &parts[rank])
    });
    sends.chain(receives).collect()
}

/// Before this schedule, rank r has part r; after it, every rank has all parts.
#[must_use]
pub fn direct_gather(rank: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let ranks = parts.len();
    let sends = others(rank, ranks).map(|peer| Step::new(peer, Action::Send, &parts[rank]));
    let receives = others(rank, ranks).map(|peer| Step::new(peer, Action::Copy, &parts[peer]));
    sends.chain(receives).collect()
}

/// Sends bytes `sends[p]` of the input to rank p, and receives bytes `receives[p]` from it. The
/// data that a rank sends to itself is not in the schedule.
#[must_use]
pub fn all_to_all(rank: usize, sends: &[Range<u64>], receives: &[Range<u64>]) -> Vec<Step> {
    let ranks = sends.len();
    let sends = others(rank, ranks).map(|peer| Step::new(peer, Action::SendInput, &sends[peer]));
    let receives = others(rank, ranks).map(|peer| Step::new(peer, Action::Copy, &receives[peer]));
    sends.chain(receives).collect()
}

/// The root receives part p of its memory from rank p, which sends its whole input.
#[must_use]
pub fn gather(rank: usize, root: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let ranks = parts.len();
    if rank != root {
        let whole = 0..parts[rank].end - parts[rank].start;
        return vec![Step::new(root, Action::SendInput, &whole)];
    }
    let receives = others(rank, ranks).map(|peer| Step::new(peer, Action::Copy, &parts[peer]));
    receives.collect()
}

/// The root sends part p of its input to rank p.
#[must_use]
pub fn scatter(rank: usize, root: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let ranks = parts.len();
    if rank != root {
        let whole = 0..parts[rank].end - parts[rank].start;
        return vec![Step::new(root, Action::Copy, &whole)];
    }
    let sends = others(rank, ranks).map(|peer| Step::new(peer, Action::SendInput, &parts[peer]));
    sends.collect()
}
