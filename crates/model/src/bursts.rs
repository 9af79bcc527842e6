//! The excess of selective repeat under Markov loss. Each round of transmissions has an independent
//! chain.
//!
//! Times are in slots. Between two transmissions of a chunk lies a timeout, after which the chain
//! has mostly forgotten its state. So the model assumes that rounds are independent. Within a
//! round, it is exact (`docs/model.md` section 6.3).

use std::collections::BinaryHeap;

use crate::error::{ModelError, Unsupported};
use crate::excess::{Mean, Parts, float, index};
use crate::loss::{Chain, States};

/// Probability mass that may be neglected.
const NEGLIGIBLE: f64 = 1e-15;
/// Highest number of evaluations for a mean.
const BUDGET: usize = 512;

/// The distribution of the excess, for messages of any length on one path.
#[derive(Clone, Debug)]
pub(crate) struct BurstExcess {
    share: [f64; 2],
    period: f64,
    levels: Vec<Level>,
}

/// The chunks that have been sent in exactly `rounds` rounds, traversed from the last to the first.
///
/// The state is that of the first round's chain, and how many of the other rounds' chains are bad.
/// The other chains are alike only to one another, because all chunks are sent in the first round.
/// State `2 * bad + first` means: `bad` of the other chains are bad, and the first round's chain is
/// good (`first` is 0) or bad (1).
#[derive(Clone, Debug)]
struct Level {
    rounds: usize,
    /// Transition matrices over powers of two of chunks.
    spans: Vec<Span>,
}

#[derive(Clone, Debug)]
struct Span {
    /// Transitions from state to state.
    walk: Square,
    /// The same transitions, for the event that some chunk is lost in all of its rounds.
    dead: Square,
}

impl BurstExcess {
    /// For messages up to `max_chunks` chunks.
    pub(crate) fn new(chain: &Chain, period: f64, max_chunks: f64) -> Result<Self, ModelError> {
        let loss = chain.loss_chunk();
        if loss > 0.5 {
            return Err(ModelError::Unsupported(Unsupported::MarkovLoss(loss)));
        }
        let chain = chain.reversed();
        let mut levels = Vec::new();
        let mut all_lost = loss;
        while all_lost * max_chunks > NEGLIGIBLE * loss {
            levels.push(Level::new(&chain, levels.len() + 1, max_chunks));
            all_lost *= loss;
        }
        Ok(Self {
            share: chain.share,
            period,
            levels,
        })
    }

    /// Probability that the excess over `chunks` chunks is more than `slots`, together with the
    /// event that the chain was good, or bad, before the first transmission of the first chunk.
    pub(crate) fn survival(&self, chunks: f64, slots: f64) -> [f64; 2] {
        let passed = (slots / self.period).floor();
        if passed >= float(self.levels.len()) || chunks < 1.0 {
            return [0.0; 2];
        }
        let mut dead = vec![0.0; 2 * (index(passed) + 1)];
        let mut done = 0.0;
        for level in &self.levels[index(passed)..] {
            // The number of chunks, from the last one on, that have been sent at most this often.
            let count = (float(level.rounds) * self.period - slots).ceil();
            let count = count.clamp(done, chunks);
            level.pass(self.share, &mut dead, count - done);
            done = count;
            if done >= chunks {
                break;
            }
            // Add a round with an independent chain.
            dead.extend([0.0; 2]);
            for state in (0..dead.len()).rev() {
                let came = if state >= 2 { dead[state - 2] } else { 0.0 };
                dead[state] = dead[state] * self.share[0] + came * self.share[1];
            }
        }
        let first = |state| dead.iter().skip(state).step_by(2).sum();
        [first(0), first(1)]
    }

    /// The mean excess over `chunks` chunks.
    ///
    /// The survival function decreases, so between two evaluations it lies between their values.
    /// The algorithm halves the gap with the largest uncertainty, until the evaluations are used
    /// up. It assumes that the function falls evenly within a gap.
    pub(crate) fn mean(&self, chunks: f64) -> Parts {
        if chunks < 1.0 || self.levels.is_empty() {
            return Parts([Mean::default(); 2]);
        }
        let mut gaps = BinaryHeap::new();
        let mut left = (0.0, self.survival(chunks, 0.0));
        let mut add = |until: f64| {
            let right = (until, self.survival(chunks, until));
            gaps.push(Gap { left, right });
            left = right;
        };
        for level in &self.levels {
            let end = float(level.rounds) * self.period;
            if chunks < self.period {
                add(end - chunks);
            }
            add(end);
        }
        for _ in 0..BUDGET {
            let Some(Gap { left, right }) = gaps.pop() else {
                break;
            };
            let middle = left.0 + (right.0 - left.0) / 2.0;
            let middle = (middle, self.survival(chunks, middle));
            gaps.push(Gap {
                left,
                right: middle,
            });
            gaps.push(Gap {
                left: middle,
                right,
            });
        }
        let mut parts = [Mean::default(); 2];
        for gap in gaps {
            let width = gap.right.0 - gap.left.0;
            for (state, mean) in parts.iter_mut().enumerate() {
                mean.low += gap.right.1[state] * width;
                mean.high += gap.left.1[state] * width;
                mean.middle = mean.low + (mean.high - mean.low) / 2.0;
            }
        }
        Parts(parts)
    }
}

/// An interval of slots, and the survival function at its ends.
#[derive(Debug)]
struct Gap {
    left: (f64, [f64; 2]),
    right: (f64, [f64; 2]),
}

impl Gap {
    fn doubt(&self) -> f64 {
        let fall = |state: usize| self.left.1[state] - self.right.1[state];
        (fall(0) + fall(1)) * (self.right.0 - self.left.0)
    }
}

impl PartialEq for Gap {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Gap {}

impl PartialOrd for Gap {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Gap {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.doubt().total_cmp(&other.doubt())
    }
}

impl Level {
    fn new(chain: &Chain, rounds: usize, max_chunks: f64) -> Self {
        let mut span = Span {
            walk: Square::of_rounds(&chain.walk(1.0), rounds),
            dead: Square::of_rounds(&chain.lost, rounds),
        };
        let mut spans = vec![];
        let mut reach = 1.0;
        while reach <= max_chunks {
            let longer = span.twice();
            spans.push(span);
            span = longer;
            reach *= 2.0;
        }
        Self { rounds, spans }
    }

    /// Advances the state by `chunks` chunks.
    fn pass(&self, share: [f64; 2], dead: &mut Vec<f64>, chunks: f64) {
        let mut left = chunks;
        let mut alive = Vec::new();
        for span in &self.spans {
            if left < 1.0 {
                break;
            }
            if left % 2.0 >= 1.0 {
                alive.clear();
                let shares = states(share, self.rounds);
                alive.extend(
                    shares
                        .zip(dead.iter())
                        .map(|(all, dead)| (all - dead).max(0.0)),
                );
                let mut next = vec![0.0; dead.len()];
                span.walk.apply(dead, &mut next);
                span.dead.apply(&alive, &mut next);
                *dead = next;
            }
            left = (left / 2.0).floor();
        }
    }
}

/// Long-run probabilities of the states of `rounds` rounds.
fn states(share: [f64; 2], rounds: usize) -> impl Iterator<Item = f64> {
    let others = rounds - 1;
    let mut choose = 1.0;
    (0..=others).flat_map(move |bad| {
        let (bad, good) = (float(bad), float(others - bad));
        let probability = choose * share[0].powf(good) * share[1].powf(bad);
        choose *= good / (bad + 1.0);
        share.map(|first| first * probability)
    })
}

impl Span {
    /// Two such spans one after the other: a chunk dies in the first span, or only in the second.
    fn twice(&self) -> Self {
        let mut dead = self.dead.times(&self.walk);
        let alive = Square {
            size: self.walk.size,
            cells: self
                .walk
                .cells
                .iter()
                .zip(&self.dead.cells)
                .map(|(w, d)| (w - d).max(0.0))
                .collect(),
        };
        for (cell, more) in dead.cells.iter_mut().zip(alive.times(&self.dead).cells) {
            *cell += more;
        }
        Self {
            walk: self.walk.times(&self.walk),
            dead,
        }
    }
}

/// A square matrix, row after row.
#[derive(Clone, Debug)]
struct Square {
    size: usize,
    cells: Vec<f64>,
}

impl Square {
    /// The transition matrix of the states of `rounds` rounds, whose chains have the transition
    /// `step`.
    fn of_rounds(step: &States, rounds: usize) -> Self {
        let others = Self::of_chains(step, rounds - 1);
        let mut cells = Vec::with_capacity(4 * others.cells.len());
        for row in others.cells.chunks_exact(others.size) {
            for first in step {
                cells.extend(row.iter().flat_map(|cell| first.map(|to| cell * to)));
            }
        }
        Self {
            size: 2 * others.size,
            cells,
        }
    }

    /// The transition matrix of the number of bad chains among `chains` chains, each with the
    /// transition `step`.
    fn of_chains(step: &States, chains: usize) -> Self {
        let size = chains + 1;
        let mut cells = Vec::with_capacity(size * size);
        for bad in 0..size {
            // Coefficients of (gg + gb z)^good (bg + bb z)^bad.
            let mut row = vec![0.0; size];
            row[0] = 1.0;
            for chain in 0..chains {
                let from = if chain < bad { step[1] } else { step[0] };
                for to in (0..=chain + 1).rev() {
                    let came = if to > 0 { row[to - 1] } else { 0.0 };
                    row[to] = row[to] * from[0] + came * from[1];
                }
            }
            cells.append(&mut row);
        }
        Self { size, cells }
    }

    /// Adds `vector` times this to `sum`.
    fn apply(&self, vector: &[f64], sum: &mut [f64]) {
        for (&factor, row) in vector.iter().zip(self.cells.chunks_exact(self.size)) {
            for (cell, &by) in sum.iter_mut().zip(row) {
                *cell += factor * by;
            }
        }
    }

    fn times(&self, right: &Self) -> Self {
        let mut cells = vec![0.0; self.cells.len()];
        for (row, sum) in self
            .cells
            .chunks_exact(self.size)
            .zip(cells.chunks_exact_mut(self.size))
        {
            right.apply(row, sum);
        }
        Self {
            size: self.size,
            cells,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempts::Attempts;
    use crate::excess::IidExcess;
    use crate::loss::Loss;

    /// The probability that the excess is more than `slots`, by the state of the first round's
    /// chain before the first chunk: forward through all states of all rounds' chains.
    fn survival_by_states(chain: &Chain, period: f64, chunks: u32, slots: f64) -> [f64; 2] {
        let rounds = |chunk: u32| 1 + index(((slots + f64::from(chunk)) / period).floor());
        let all = rounds(chunks - 1);
        let bad = |state: usize, round: usize| state >> round & 1;
        let mut parts = [0.0; 2];
        for (start, part) in parts.iter_mut().enumerate() {
            let share = |state| {
                (0..all)
                    .map(|round| chain.share[bad(state, round)])
                    .product()
            };
            let begin = |state| {
                if bad(state, 0) == start {
                    share(state)
                } else {
                    0.0
                }
            };
            // The probabilities of the states, if no chunk is open, and in all cases.
            let mut done: Vec<f64> = (0..1 << all).map(begin).collect();
            let before: f64 = done.iter().sum();
            for chunk in 0..chunks {
                // The excess counts from the last chunk. Earlier chunks are sent more often.
                let sent = rounds(chunks - 1 - chunk);
                let mut next = vec![0.0; done.len()];
                for (from, p) in done.iter().enumerate() {
                    for (to, sum) in next.iter_mut().enumerate() {
                        let product = |matrix: &States, rounds: core::ops::Range<usize>| {
                            let step = |round| matrix[bad(from, round)][bad(to, round)];
                            rounds.map(step).product::<f64>()
                        };
                        let walk = chain.walk(1.0);
                        let lost = product(&chain.lost, 0..sent) * product(&walk, sent..all);
                        *sum += p * (product(&walk, 0..all) - lost);
                    }
                }
                done = next;
            }
            *part = before - done.iter().sum::<f64>();
        }
        parts
    }

    #[test]
    fn the_first_chain_before_the_first_chunk_is_that_of_all_states() {
        let loss = Loss::Markov {
            p_good_to_bad: 0.02,
            p_bad_to_good: 0.2,
            loss_good: 1e-3,
            loss_bad: 0.7,
            packets_per_chunk: 2,
        };
        let chain = loss.chain().unwrap().unwrap();
        for (chunks, period) in [(1, 2.0), (5, 4.5), (7, 3.0), (9, 20.0)] {
            let bursts = BurstExcess::new(&chain, period, f64::from(chunks)).unwrap();
            let mut before = [1.0; 2];
            for step in 0..8 {
                let slots = f64::from(step) * period / 3.7;
                let want = survival_by_states(&chain, period, chunks, slots);
                let got = bursts.survival(f64::from(chunks), slots);
                for state in 0..2 {
                    let close = (got[state] - want[state]).abs() < 1e-12;
                    assert!(close, "{chunks} {slots}: {got:?} {want:?}");
                    assert!(got[state] <= before[state], "{chunks} {slots}: {got:?}");
                }
                before = got;
            }
        }
    }

    #[test]
    fn states_alike_are_iid_loss() {
        for loss in [1e-6, 0.01, 0.4] {
            let markov = Loss::Markov {
                p_good_to_bad: 0.2,
                p_bad_to_good: 0.3,
                loss_good: loss,
                loss_bad: loss,
                packets_per_chunk: 1,
            };
            let chain = markov.chain().unwrap().unwrap();
            for (chunks, period) in [(1.0, 7.0), (30.0, 100.5), (300.0, 21.0)] {
                let bursts = BurstExcess::new(&chain, period, chunks).unwrap();
                let iid = IidExcess::new(Attempts::new(loss, 1.0).all_missing(chunks), period);
                for step in 0..200 {
                    let slots = f64::from(step) * period / 31.3;
                    let want = -iid.log_cdf(chunks, slots).exp_m1();
                    let got: f64 = bursts.survival(chunks, slots).iter().sum();
                    assert!(
                        (got - want).abs() < 1e-11 * want + 1e-14,
                        "{loss} {chunks} {slots}: {got} {want}"
                    );
                }
                let got = bursts.mean(chunks).weighted(crate::terms::STATIONARY);
                let want = iid.mean(chunks);
                assert!(
                    got.low <= want * (1.0 + 1e-9) && want <= got.high * (1.0 + 1e-9),
                    "{got:?} {want}"
                );
                assert!((got.middle / want - 1.0).abs() < 2e-3, "{got:?} {want}");
            }
        }
    }
}
