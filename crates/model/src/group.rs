//! The outcomes of a group of `k` data and `m` parity chunks.

use farwrite_codes::Kind;

use crate::error::{ModelError, Unsupported};
use crate::lattice::Odds;
use crate::loss::{Chain, States};

/// Probabilities of the outcomes of a group. They sum to one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcomes<P> {
    /// No data chunk was lost.
    pub(crate) clean: P,
    /// Data chunks were lost, and decoding recovers them.
    pub(crate) repaired: P,
    /// Too many chunks were lost.
    pub(crate) failed: P,
}

/// Probability that a group of `k + m` chunks cannot be decoded, with independent losses of
/// probability `loss_chunk` (paper section 5.1.1; `docs/model.md` section 4).
///
/// # Errors
///
/// `k` and `m` must be at least 1 and sum to at most 4096, with `m` at most `k` for XOR;
/// `loss_chunk` must be 0 to 1.
pub fn group_failure(code: Kind, k: u32, m: u32, loss_chunk: f64) -> Result<f64, ModelError> {
    crate::scheme::Scheme::Ec { code, k, m }.check()?;
    crate::loss::probability("loss_chunk", loss_chunk)?;
    Ok(odds(code, k, m, loss_chunk).fail)
}

/// Odds that a group cannot be decoded, with i.i.d. loss. In a short group, `k` may be less than
/// `m`.
pub(crate) fn odds(code: Kind, k: u32, m: u32, loss: f64) -> Odds {
    match code {
        Kind::Mds => more_than(m, k + m, loss),
        Kind::Xor => {
            // The number of sub-groups with one more data chunk than the others, and of the others.
            let more = k % m;
            let mut ok_log = 0.0;
            for (count, data) in [(more, k / m + 1), (m - more, k / m)] {
                let odds = more_than(1, data + 1, loss);
                // Compute from the rarer of both events, which has full precision.
                let log = if odds.fail < odds.ok {
                    (-odds.fail).ln_1p()
                } else {
                    odds.ok.ln()
                };
                // If there are no such sub-groups, none fails, even if they would always fail.
                ok_log += if count > 0 {
                    f64::from(count) * log
                } else {
                    0.0
                };
            }
            Odds {
                fail: -ok_log.exp_m1(),
                ok: ok_log.exp(),
            }
        }
    }
}

/// Outcomes of a group with i.i.d. loss.
pub(crate) fn outcomes(code: Kind, k: u32, m: u32, loss: f64) -> Outcomes<f64> {
    let odds = odds(code, k, m, loss);
    let clean_log = f64::from(k) * (-loss).ln_1p();
    Outcomes {
        clean: clean_log.exp(),
        repaired: (-clean_log.exp_m1() - odds.fail).max(0.0),
        failed: odds.fail,
    }
}

/// Probability that a group cannot be decoded whose data chunks are missing with probability
/// `missing`, and its parity chunks with `loss`. A group without missing data is decoded.
pub(crate) fn failure_of_repaired(code: Kind, k: u32, m: u32, missing: f64, loss: f64) -> f64 {
    match code {
        Kind::Mds => {
            let tails = tails(m, k, missing);
            if loss <= 0.0 {
                return tails[m as usize];
            }
            let lost = losses(m, loss).zip(tails.iter().rev());
            let fail: f64 = lost.map(|(share, tail)| share * tail).sum();
            // The sum of many terms may exceed one by rounding.
            fail.min(1.0)
        }
        Kind::Xor => {
            let sub = |data| {
                let fail = |most| more_than(most, data, missing).fail;
                ((1.0 - loss) * fail(1) + loss * fail(0)).min(1.0)
            };
            let more = k % m;
            // The log of the odds of sub-groups that always fail is infinite, and there may be none.
            let subs = [(more, k / m + 1), (m - more, k / m)].into_iter();
            let subs = subs.filter(|(count, _)| *count > 0);
            let ok_log: f64 = subs
                .map(|(count, data)| f64::from(count) * (-sub(data)).ln_1p())
                .sum();
            -ok_log.exp_m1()
        }
    }
}

/// Mean number of lost data chunks of a group that cannot be decoded, counted as 0 for others.
pub(crate) fn lost_data_of_failures(code: Kind, k: u32, m: u32, loss: f64) -> f64 {
    let lost = f64::from(k) * loss;
    // The share of lost chunks that are in groups that are decoded.
    let decoded = match code {
        Kind::Mds => more_than(m - 1, k + m - 1, loss).ok,
        Kind::Xor => {
            let (more, ok) = (k % m, odds(code, k, m, loss).ok);
            let share = |subs: u32, data: u32| {
                let alone = (1.0 - loss).powi(exponent(data));
                let of_sub = more_than(1, data + 1, loss).ok;
                match of_sub > 0.0 {
                    true => f64::from(subs * data) / f64::from(k) * alone * ok / of_sub,
                    false => 0.0,
                }
            };
            share(more, k / m + 1) + share(m - more, k / m)
        }
    };
    (lost * (1.0 - decoded)).max(0.0)
}

fn exponent(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Odds that more than `most` of `n` chunks are lost.
fn more_than(most: u32, n: u32, loss: f64) -> Odds {
    if loss <= 0.0 || n <= most {
        return Odds { fail: 0.0, ok: 1.0 };
    }
    if loss >= 1.0 {
        return Odds { fail: 1.0, ok: 0.0 };
    }
    let mut odds = Odds { fail: 0.0, ok: 0.0 };
    for (lost, share) in (0..).zip(losses(n, loss)) {
        if lost > most {
            odds.fail += share;
        } else {
            odds.ok += share;
        }
    }
    // The sum of many terms may exceed one by rounding.
    Odds {
        fail: odds.fail.min(1.0),
        ok: odds.ok.min(1.0),
    }
}

/// Probabilities that more than 0, 1, ... `most` of `n` chunks are lost.
fn tails(most: u32, n: u32, loss: f64) -> Vec<f64> {
    let mut tails = vec![0.0; most as usize + 1];
    if loss <= 0.0 {
        return tails;
    }
    let shares: Vec<f64> = losses(n, loss).collect();
    let mut tail = 0.0;
    // From the largest number down, small probabilities keep their precision.
    for (lost, share) in shares.iter().enumerate().skip(1).rev() {
        tail += share;
        if let Some(entry) = tails.get_mut(lost - 1) {
            *entry = tail;
        }
    }
    tails
}

/// Probabilities that 0, 1, ... `n` of `n` chunks are lost, with a `loss` between 0 and 1.
fn losses(n: u32, loss: f64) -> impl Iterator<Item = f64> {
    let (log_lost, log_kept) = (loss.ln(), (-loss).ln_1p());
    let mut log_choose = 0.0;
    (0..=n).map(move |lost| {
        let log = log_choose + f64::from(lost) * log_lost + f64::from(n - lost) * log_kept;
        log_choose += (f64::from(n - lost) / f64::from(lost + 1)).ln();
        log.exp()
    })
}

/// Highest number of parity chunks of an XOR group under Markov loss. The state has a bit per
/// sub-group.
const MAX_XOR_BURST: u32 = 16;

/// Outcomes of a group under Markov loss, as transitions from the state before its first chunk to
/// the state after its last chunk. Data chunks come first, then parity chunks.
pub(crate) fn outcomes_markov(
    code: Kind,
    k: u32,
    m: u32,
    chain: &Chain,
) -> Result<Outcomes<States>, ModelError> {
    let mut outcomes = Outcomes {
        clean: [[0.0; 2]; 2],
        repaired: [[0.0; 2]; 2],
        failed: [[0.0; 2]; 2],
    };
    if code == Kind::Xor && m > MAX_XOR_BURST {
        return Err(ModelError::Unsupported(Unsupported::XorParity(m)));
    }
    // The losses so far: for MDS their number, for XOR the set of sub-groups with a loss.
    let memory = match code {
        Kind::Mds => m as usize + 1,
        Kind::Xor => 1 << m,
    };
    let spent = |before: usize, chunk: u32| match code {
        Kind::Mds => Some(before + 1).filter(|&now| now < memory),
        Kind::Xor => Some(before | 1 << (chunk % m)).filter(|&now| now != before),
    };
    for start in 0..2 {
        let mut alive = vec![[0.0; 2]; memory];
        let mut clean = [0.0; 2];
        let mut failed = [0.0; 2];
        alive[0][start] = 1.0;
        for position in 0..k + m {
            // Parity chunk i belongs to sub-group i.
            let chunk = if position < k { position } else { position - k };
            let mut next = vec![[0.0; 2]; memory];
            let mut next_failed = step(failed, &chain.delivered);
            increase(&mut next_failed, step(failed, &chain.lost));
            for (before, &from) in alive.iter().enumerate() {
                if from == [0.0; 2] {
                    continue;
                }
                increase(&mut next[before], step(from, &chain.delivered));
                let lost = step(from, &chain.lost);
                match spent(before, chunk) {
                    Some(now) => increase(&mut next[now], lost),
                    None => increase(&mut next_failed, lost),
                }
            }
            alive = next;
            failed = next_failed;
            if position + 1 == k {
                clean = alive[0];
            }
        }
        // Without lost data, the loss of parity has no effect.
        let after = chain.walk(f64::from(m));
        let clean = step(clean, &after);
        for end in 0..2 {
            let ok: f64 = alive.iter().map(|states| states[end]).sum();
            outcomes.clean[start][end] = clean[end];
            outcomes.repaired[start][end] = (ok - clean[end]).max(0.0);
            outcomes.failed[start][end] = failed[end];
        }
    }
    Ok(outcomes)
}

fn step(from: [f64; 2], by: &States) -> [f64; 2] {
    [
        from[0] * by[0][0] + from[1] * by[1][0],
        from[0] * by[0][1] + from[1] * by[1][1],
    ]
}

fn increase(sum: &mut [f64; 2], by: [f64; 2]) {
    sum[0] += by[0];
    sum[1] += by[1];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Loss, weigh};

    /// Returns the failure probability as a sum over all patterns of losses, along the chain if
    /// there is one.
    fn by_patterns(code: Kind, k: u32, m: u32, loss: &Loss) -> f64 {
        let chain = loss.chain().unwrap();
        let p = loss.loss_chunk().unwrap();
        let mut failure = 0.0;
        for pattern in 0u32..1 << (k + m) {
            let probability = match chain {
                None => {
                    let lost = pattern.count_ones();
                    p.powi(lost as i32) * (1.0 - p).powi((k + m - lost) as i32)
                }
                Some(chain) => {
                    let mut states = chain.share;
                    for chunk in 0..k + m {
                        let lost = pattern >> chunk & 1 == 1;
                        states = step(states, if lost { &chain.lost } else { &chain.delivered });
                    }
                    states[0] + states[1]
                }
            };
            let fails = match code {
                Kind::Mds => pattern.count_ones() > m,
                Kind::Xor => (0..m).any(|sub| {
                    let members = (0..k).filter(|j| j % m == sub).chain([k + sub]);
                    members.filter(|j| pattern >> j & 1 == 1).count() > 1
                }),
            };
            failure += if fails { probability } else { 0.0 };
        }
        failure
    }

    #[test]
    fn failure_is_the_sum_over_patterns() {
        let burst = Loss::Markov {
            p_good_to_bad: 0.05,
            p_bad_to_good: 0.3,
            loss_good: 0.01,
            loss_bad: 0.6,
            packets_per_chunk: 2,
        };
        for code in [Kind::Mds, Kind::Xor] {
            for (k, m) in [(1, 1), (4, 2), (5, 2), (7, 3), (2, 3)] {
                for p in [1e-6, 0.01, 0.3] {
                    let want = by_patterns(code, k, m, &Loss::iid(p));
                    let got = odds(code, k, m, p);
                    assert!(
                        (got.fail / want - 1.0).abs() < 1e-10,
                        "{code:?} {k} {m} {p}"
                    );
                    assert!((got.ok + got.fail - 1.0).abs() < 1e-14);
                }
                let chain = burst.chain().unwrap().unwrap();
                let got = outcomes_markov(code, k, m, &chain).unwrap();
                let want = by_patterns(code, k, m, &burst);
                assert!((weigh(chain.share, &got.failed) / want - 1.0).abs() < 1e-12);
                let total = [got.clean, got.repaired, got.failed];
                let total: f64 = total.iter().map(|o| weigh(chain.share, o)).sum();
                assert!((total - 1.0).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn rare_failures_keep_their_digits() {
        // 9 of 40: C(40, 9) p^9.
        let want = 273_438_880.0 * 1e-108;
        assert!((odds(Kind::Mds, 32, 8, 1e-12).fail / want - 1.0).abs() < 1e-9);
        // 8 sub-groups, 2 of 5: 80 p^2.
        assert!((odds(Kind::Xor, 32, 8, 1e-12).fail / 80e-24 - 1.0).abs() < 1e-9);
        assert_eq!(odds(Kind::Mds, 32, 8, 0.0).fail, 0.0);
        // Rare successes are precise too.
        let all = odds(Kind::Xor, 64, 1, 0.5);
        assert!((all.ok / (66.0 * 0.5f64.powi(65)) - 1.0).abs() < 1e-9 && all.fail <= 1.0);
        let all = odds(Kind::Xor, 4000, 3, 0.99);
        assert!(all.ok == 0.0 && all.fail == 1.0);
        assert!(group_failure(Kind::Xor, 4, 8, 0.1).is_err());
    }
}
