//! Recursive halving and doubling: as few rounds as a tree, and as few bytes as a ring. Distances
//! are up to half the group, so it needs a network in which any two ranks can communicate at full
//! rate.

use std::ops::Range;

use super::{Action, Step};

/// The number of parts for [`halving_all_reduce`]: the largest power of two that is at most `ranks`.
#[must_use]
pub fn halving_parts(ranks: usize) -> usize {
    1 << ranks.max(1).ilog2()
}

/// After this schedule, every rank has the reduction of the memory of all ranks. `parts` are
/// [`halving_parts`] parts of the memory, in order.
///
/// With n ranks and p parts, the first 2 (n - p) ranks form pairs: the even rank sends its values
/// to the odd rank before the rounds, and receives the result after them. The p remaining ranks are
/// numbered again from 0. In each round, two ranks whose numbers differ in one bit, the highest bit
/// first, exchange halves of the range that they still reduce. Each adds the values of the other to
/// its own. With 4 ranks, part 0 is `(x0 + x2) + (x1 + x3)`. Then the rounds run backward with
/// copies.
#[must_use]
pub fn halving_all_reduce(rank: usize, ranks: usize, parts: &[Range<u64>]) -> Vec<Step> {
    let left = parts.len();
    let paired = 2 * (ranks - left);
    let whole = parts[0].start..parts[left - 1].end;
    if rank < paired && rank.is_multiple_of(2) {
        return vec![
            Step::new(rank + 1, Action::Send, &whole),
            Step::new(rank + 1, Action::Copy, &whole),
        ];
    }
    let place = if rank < paired {
        rank / 2
    } else {
        rank - paired / 2
    };
    let rank_at = |place: usize| match place < paired / 2 {
        true => 2 * place + 1,
        false => place + paired / 2,
    };
    let block = |first: usize, count: usize| parts[first].start..parts[first + count - 1].end;
    let mut steps = Vec::new();
    if rank < paired {
        steps.push(Step::new(rank - 1, Action::Reduce { last: false }, &whole));
    }
    let bits: Vec<usize> = (0..left.ilog2()).map(|bit| 1 << bit).collect();
    // The range that this rank has after the round with a given distance, and the range of the
    // other rank.
    let halves = |distance: usize| {
        let own = place & !(distance - 1);
        [own, own ^ distance].map(|first| block(first, distance))
    };
    for &distance in bits.iter().rev() {
        let peer = rank_at(place ^ distance);
        let [own, other] = halves(distance);
        let last = distance == 1;
        steps.push(Step::new(peer, Action::Send, &other));
        steps.push(Step::new(peer, Action::Reduce { last }, &own));
    }
    for &distance in &bits {
        let peer = rank_at(place ^ distance);
        let [own, other] = halves(distance);
        steps.push(Step::new(peer, Action::Send, &own));
        steps.push(Step::new(peer, Action::Copy, &other));
    }
    if rank < paired {
        steps.push(Step::new(rank - 1, Action::Send, &whole));
    }
    steps
}
