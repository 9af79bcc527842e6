//! The terms of the distribution of each scheme.

use farwrite_codes::Kind;

use crate::error::ModelError;
use crate::group;
use crate::lattice::{CountRange, Lattice, binomial, negative_binomial};
use crate::loss::{IDENTITY, Loss, States, add};
use crate::scheme::Scheme;
use crate::setting::{Checked, Variant};
use crate::spectrum::{count_losses, count_steps};

/// Approximate limit of the number of terms. Beyond it, neighbours are merged.
const MAX_TERMS: f64 = 4096.0;
/// Limit of the counts of failed groups, and of lost transmissions for each of them, if both vary.
const MAX_PRODUCT: f64 = 192.0;

/// A random completion time: `start` slots plus the excess of selective repeat over `chunks`
/// chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) start: f64,
    pub(crate) chunks: f64,
}

/// A component of the mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) weight: f64,
    /// A lower bound of the true time.
    pub(crate) low: Position,
    /// The true time, or one with the same mean.
    pub(crate) middle: Position,
    /// An upper bound of the true time.
    pub(crate) high: Position,
    /// The probabilities that the chain of Markov loss is good, and bad, before the first chunk,
    /// each divided by its long-run value.
    pub(crate) state_ratios: [f64; 2],
}

/// The state ratios of a chain with its long-run probabilities.
pub(crate) const STATIONARY: [f64; 2] = [1.0, 1.0];

/// The terms of a setting, in ascending order of chunks.
pub(crate) fn of(setting: &Checked) -> Result<Vec<Term>, ModelError> {
    match setting.scheme {
        Scheme::SrRto | Scheme::SrNack => selective_repeat(setting),
        Scheme::GoBackN => go_back_n(setting),
        Scheme::Ec { code, k, m } => erasure(setting, code, k, m),
    }
}

fn at(start: f64, chunks: f64) -> Position {
    Position { start, chunks }
}

fn exactly(weight: f64, place: Position) -> Term {
    Term {
        weight,
        low: place,
        middle: place,
        high: place,
        state_ratios: STATIONARY,
    }
}

/// The single term of a time that is always the same.
pub(crate) fn fixed(start: f64) -> Vec<Term> {
    vec![exactly(1.0, at(start, 0.0))]
}

/// A term for each block of counts, each count placed by `place`.
fn placed(blocks: &[CountRange], weight: f64, place: impl Fn(f64) -> Position) -> Vec<Term> {
    let term = |block: &CountRange| Term {
        weight: weight * block.weight,
        low: place(block.low),
        middle: place(block.mean),
        high: place(block.high),
        state_ratios: STATIONARY,
    };
    blocks.iter().map(term).collect()
}

fn selective_repeat(setting: &Checked) -> Result<Vec<Term>, ModelError> {
    let (chunks, period, rtt) = (setting.chunks, setting.period, setting.rtt);
    if setting.variant == Variant::Paper || chunks <= period {
        return Ok(vec![exactly(1.0, at(chunks + rtt, chunks))]);
    }
    // Before the last new chunk is sent, all losses are repaired, each in a slot of its own, except
    // for the losses of the period before it (docs/model.md section 5.1).
    let mut terms = Vec::new();
    for (lost, state_ratios) in losses(setting, chunks - period, MAX_TERMS)? {
        let mut weighted = placed(&lost, 1.0, |lost| at(chunks + lost + rtt, period));
        weighted
            .iter_mut()
            .for_each(|term| term.state_ratios = state_ratios);
        terms.append(&mut weighted);
    }
    Ok(terms)
}

fn go_back_n(setting: &Checked) -> Result<Vec<Term>, ModelError> {
    let start = setting.chunks + setting.rtt;
    let lost = match setting.loss.chain()? {
        None => negative_binomial(
            setting.chunks,
            setting.attempts.loss_of_transmissions(),
            MAX_TERMS,
        ),
        Some(chain) => {
            let pause = chain.walk(setting.period.round() - 1.0);
            count_losses(&chain, &pause, setting.chunks, &IDENTITY, MAX_TERMS)?
        }
    };
    let place = |lost| at(start + lost * setting.period, 0.0);
    Ok(placed(&lost, 1.0, place))
}

/// The distribution of the number of transmissions lost in full slots before `successes` are
/// delivered, for each state after the last success. The state becomes [`Term::state_ratios`].
fn losses(
    setting: &Checked,
    successes: f64,
    most: f64,
) -> Result<Vec<(Lattice, [f64; 2])>, ModelError> {
    let Some(chain) = setting.loss.chain()? else {
        let lattice = negative_binomial(successes, setting.attempts.loss_of_transmissions(), most);
        return Ok(vec![(lattice, STATIONARY)]);
    };
    let [good, bad] = chain.share;
    let count = |ending| count_losses(&chain, &IDENTITY, successes.max(0.0), &ending, most);
    Ok(vec![
        (count([[1.0, 0.0], [0.0, 0.0]])?, [1.0 / good, 0.0]),
        (count([[0.0, 0.0], [0.0, 1.0]])?, [0.0, 1.0 / bad]),
    ])
}

/// A possible outcome of the last group of a message, with the failures of the other groups.
struct Ending {
    weight: f64,
    /// Data chunks of the last group that must be repeated.
    chunks: f64,
    /// Slots of decoding after the last arrival.
    decode: f64,
    failures: Lattice,
}

fn erasure(setting: &Checked, code: Kind, k: u32, m: u32) -> Result<Vec<Term>, ModelError> {
    let (data, parity) = (f64::from(k), f64::from(m));
    let groups = (setting.chunks / data).ceil();
    let (injection, endings) = match setting.variant {
        Variant::Paper => (
            setting.chunks + (setting.chunks * parity / data).ceil(),
            paper_ending(setting, code, k, m)?,
        ),
        Variant::Serial | Variant::Protocol => (
            serial_injection(setting, groups, data, parity),
            serial_endings(setting, code, k, m)?,
        ),
    };
    let mut terms = Vec::new();
    for ending in &endings {
        let place = |failures: f64| {
            // The mean of a merged block may be fractional, but the number of chunks is whole.
            let again = (failures * data).round() + ending.chunks;
            if again > 0.0 {
                let late = (1.0 + setting.beta) * setting.rtt;
                at(
                    injection + late + failures * data + ending.chunks + setting.rtt,
                    again,
                )
            } else {
                at(injection + setting.rtt + ending.decode, 0.0)
            }
        };
        terms.append(&mut placed(&ending.failures, ending.weight, place));
    }
    if setting.variant == Variant::Serial {
        terms = queued(setting, terms)?;
    }
    terms.sort_by(|x, y| x.middle.chunks.total_cmp(&y.middle.chunks));
    Ok(terms)
}

/// All groups are equal.
fn paper_ending(setting: &Checked, code: Kind, k: u32, m: u32) -> Result<Vec<Ending>, ModelError> {
    let groups = (setting.chunks / f64::from(k)).ceil();
    let failures = match setting.loss.chain()? {
        None => binomial(
            groups,
            group::odds(code, k, m, setting.loss_chunk),
            MAX_TERMS,
        ),
        Some(chain) => {
            let group = group::outcomes_markov(code, k, m, &chain)?;
            let decoded = add(&group.clean, &group.repaired);
            count_steps(
                chain.share,
                &decoded,
                &group.failed,
                groups,
                &IDENTITY,
                MAX_TERMS,
            )?
        }
    };
    Ok(vec![Ending {
        weight: 1.0,
        chunks: 0.0,
        decode: 0.0,
        failures,
    }])
}

/// Slots to inject data and parity. The parity of a group can be sent after it is computed.
pub(crate) fn serial_injection(setting: &Checked, groups: f64, data: f64, parity: f64) -> f64 {
    let (chunks, encode) = (setting.chunks, setting.encode);
    let first = encode * data.min(chunks) + groups * parity;
    let last = encode * chunks + parity;
    (chunks + groups * parity).max(first).max(last)
}

/// The possible outcomes of the last group, which may be short.
fn serial_endings(
    setting: &Checked,
    code: Kind,
    k: u32,
    m: u32,
) -> Result<Vec<Ending>, ModelError> {
    let data = f64::from(k);
    let full = (setting.chunks / data).ceil() - 1.0;
    let short = setting.chunks - full * data;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1 to k"
    )]
    let last = short as u32;
    let (clean, repaired) = decoding(setting, full, short, data, f64::from(m));
    let ending = |weight, chunks, decode, failures| Ending {
        weight,
        chunks,
        decode,
        failures,
    };
    let Some(chain) = setting.loss.chain()? else {
        let last = group::outcomes(code, last, m, setting.loss_chunk);
        let odds = group::odds(code, k, m, setting.loss_chunk);
        let failures = binomial(full, odds, MAX_PRODUCT);
        return Ok(vec![
            ending(last.clean, 0.0, clean, failures.clone()),
            ending(last.repaired, 0.0, repaired, failures.clone()),
            ending(last.failed, short, 0.0, failures),
        ]);
    };
    let group = group::outcomes_markov(code, k, m, &chain)?;
    let last = group::outcomes_markov(code, last, m, &chain)?;
    let decoded = add(&group.clean, &group.repaired);
    let failures =
        |end: &States| count_steps(chain.share, &decoded, &group.failed, full, end, MAX_PRODUCT);
    Ok(vec![
        ending(1.0, 0.0, clean, failures(&last.clean)?),
        ending(1.0, 0.0, repaired, failures(&last.repaired)?),
        ending(1.0, short, 0.0, failures(&last.failed)?),
    ])
}

/// Slots of decoding after the last arrival, if the last group lost no data, and if it did.
///
/// A decoder that is fast enough has at most the last group left. A slower decoder has at most the
/// backlog of all groups left, and at most the work of all groups that may be damaged.
pub(crate) fn decoding(
    setting: &Checked,
    full: f64,
    short: f64,
    data: f64,
    parity: f64,
) -> (f64, f64) {
    let group = data * setting.decode;
    let behind = group - (data + parity);
    let last = short * setting.decode;
    if behind <= 0.0 {
        return (0.0, last);
    }
    let all = full * behind + last;
    let late = match setting.loss {
        Loss::Markov { .. } => all,
        Loss::Iid { loss_chunk, .. } => {
            let damaged = -(data * (-loss_chunk).ln_1p()).exp_m1();
            let mean = (full + 1.0) * damaged;
            // This is exceeded with a probability of at most 1e-8.
            let most = mean + 8.0 * mean.sqrt() + 12.0;
            if loss_chunk > 0.0 {
                all.min(most * group)
            } else {
                0.0
            }
        }
    };
    (late, late.max(last))
}

/// Replaces terms whose fallback is longer than the period by the terms of section 5.1.
fn queued(setting: &Checked, terms: Vec<Term>) -> Result<Vec<Term>, ModelError> {
    let period = setting.period;
    let (long, mut rest): (Vec<Term>, Vec<Term>) = terms
        .into_iter()
        .partition(|term| term.high.chunks > period);
    let mut spread = Vec::new();
    for term in long {
        let extra = losses(setting, term.middle.chunks - period, MAX_PRODUCT)?;
        let less = most_lost(term.middle.chunks - term.low.chunks, setting.loss_chunk);
        let more = most_lost(term.high.chunks - term.middle.chunks, setting.loss_chunk);
        for (lost, state_ratios) in extra {
            for block in lost {
                let place = |from: Position, lost| at(from.start + lost, from.chunks.min(period));
                spread.push(Term {
                    weight: term.weight * block.weight,
                    low: place(term.low, block.low - less),
                    middle: place(term.middle, block.mean),
                    high: place(term.high, block.high + more),
                    state_ratios,
                });
            }
        }
    }
    // Separate by the state ratios, which have two possible values under Markov loss.
    let (good, bad) = spread
        .into_iter()
        .partition(|term| term.state_ratios[0] > 0.0);
    rest.append(&mut merged(good));
    rest.append(&mut merged(bad));
    Ok(rest)
}

/// A bound that the number of lost transmissions before `successes` deliveries exceeds with a
/// probability of at most 1e-12.
fn most_lost(successes: f64, loss: f64) -> f64 {
    if successes <= 0.0 {
        return 0.0;
    }
    let mean = successes * loss / (1.0 - loss);
    let deviation = (successes * loss).sqrt() / (1.0 - loss);
    mean + 10.0 * deviation - 28.0 / loss.ln()
}

/// Merges neighbouring terms if there are too many. All terms must have the same state ratios.
fn merged(mut terms: Vec<Term>) -> Vec<Term> {
    terms.sort_by(|x, y| x.middle.start.total_cmp(&y.middle.start));
    let (Some(first), Some(last)) = (terms.first(), terms.last()) else {
        return terms;
    };
    let (from, width) = (
        first.middle.start,
        (last.middle.start - first.middle.start) / MAX_TERMS,
    );
    let mut bins: Vec<Term> = Vec::new();
    let mut key = f64::NAN;
    for term in terms {
        let bin = ((term.middle.start - from) / width).floor();
        match bins.last_mut() {
            Some(sum) if bin == key => {
                sum.weight += term.weight;
                let share = term.weight / sum.weight;
                sum.middle.start += (term.middle.start - sum.middle.start) * share;
                sum.low.start = sum.low.start.min(term.low.start);
                sum.low.chunks = sum.low.chunks.min(term.low.chunks);
                sum.high.start = sum.high.start.max(term.high.start);
            }
            _ => bins.push(term),
        }
        key = bin;
    }
    bins
}
