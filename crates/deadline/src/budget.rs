//! Splits the time of an operation over its phases.

/// The end of each of several sequential phases, in nanoseconds from the start of the operation.
/// Each phase gets a share of `total_ns` in proportion to its weight, for instance its bytes. The
/// last phase ends at `total_ns`. Parallel steps of a phase share its end. If a phase ends early,
/// the next phase gets the rest of its time. If all weights are 0, the phases get equal shares.
///
/// ```
/// let ends: Vec<u64> = farwrite_deadline::phase_ends_ns(900, &[1, 1, 4]).collect();
/// assert_eq!(ends, [150, 300, 900]);
/// ```
pub fn phase_ends_ns(total_ns: u64, weights: &[u64]) -> impl Iterator<Item = u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let alike = sum == 0;
    let sum = if alike { weights.len() as u128 } else { sum };
    let share = weights.iter().scan(0_u128, move |before, &weight| {
        *before += if alike { 1 } else { u128::from(weight) };
        Some(*before)
    });
    share.map(move |share| {
        let end = match u128::from(total_ns).checked_mul(share) {
            Some(product) => product / sum,
            None => u128::from(total_ns) / sum * share,
        };
        u64::try_from(end).unwrap_or(total_ns).min(total_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn phases_share_the_whole_time_in_proportion(
            total_ns in any::<u64>(),
            weights in prop::collection::vec(0u64..1 << 32, 1..20),
        ) {
            let ends: Vec<u64> = phase_ends_ns(total_ns, &weights).collect();
            prop_assert_eq!(ends.len(), weights.len());
            prop_assert_eq!(ends.last(), Some(&total_ns));
            let sum: u64 = weights.iter().sum();
            let mut before = 0;
            for (end, weight) in ends.into_iter().zip(weights) {
                prop_assert!(end >= before);
                if sum > 0 {
                    let fair = u128::from(total_ns) * u128::from(weight) / u128::from(sum);
                    prop_assert!(u128::from(end - before).abs_diff(fair) <= 1);
                }
                before = end;
            }
        }
    }

    #[test]
    fn no_phase_or_no_weight() {
        assert_eq!(phase_ends_ns(100, &[]).count(), 0);
        let ends: Vec<u64> = phase_ends_ns(100, &[0, 0]).collect();
        assert_eq!(ends, [50, 100]);
    }
}
