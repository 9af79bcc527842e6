//! Means and quantiles.

use std::borrow::Borrow;

use crate::show::real;

/// The mean; NaN without values.
#[must_use]
pub fn mean<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> f64 {
    let mut count = 0_u64;
    let values = values.into_iter().inspect(|_| count += 1);
    let sum: f64 = values.map(|value| *value.borrow()).sum();
    sum / real(count)
}

/// The standard deviation of all values, not of a sample of them; NaN without values.
#[must_use]
pub fn deviation(values: &[f64]) -> f64 {
    let mean_value = mean(values);
    // A product, because the precision of `powi` depends on the machine.
    let squares = values
        .iter()
        .map(|value| (value - mean_value) * (value - mean_value));
    mean(squares).sqrt()
}

/// The standard error of the mean of independent values; 0 for one value, which does not show the
/// spread, and NaN without values.
#[must_use]
pub fn standard_error(values: &[f64]) -> f64 {
    let mean_value = mean(values);
    let squares: f64 = values
        .iter()
        .map(|value| (value - mean_value) * (value - mean_value))
        .sum();
    let count = real(values.len() as u64);
    (squares / (count - 1.0).max(1.0) / count).sqrt()
}

/// The median, the upper one if there are two; NaN without values.
#[must_use]
pub fn median<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A percentile of ascending values by the nearest rank: the smallest value that at least this many
/// hundredths of the values do not exceed. 0 gives the smallest, 100 the largest. `None` without
/// values.
#[must_use]
pub fn percentile<T: Copy>(ascending: &[T], hundredths: usize) -> Option<T> {
    let rank = (ascending.len() * hundredths.min(100)).div_ceil(100);
    ascending.get(rank.saturating_sub(1)).copied()
}

/// As [`percentile`], of a share between 0 and 1. Where the product of the share and the number of
/// values is a whole number, rounding may give the next value.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list"
)]
pub fn quantile<T: Copy>(ascending: &[T], share: f64) -> Option<T> {
    let rank = (real(ascending.len() as u64) * share).ceil() as usize;
    let last = ascending.len().checked_sub(1)?;
    ascending.get(rank.saturating_sub(1).min(last)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_and_the_deviation_are_of_all_values() {
        assert_eq!(mean([1.0, 2.0, 6.0]), 3.0);
        assert_eq!(deviation(&[1.0, 3.0]), 1.0);
        assert_eq!(standard_error(&[1.0, 3.0]), 1.0);
        assert_eq!(standard_error(&[7.0]), 0.0);
        assert!(mean::<f64>([]).is_nan());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 3.0);
        assert!(median::<f64>([]).is_nan());
    }

    #[test]
    fn percentiles_and_quantiles_are_values() {
        let values: Vec<u32> = (1..=200).collect();
        for (hundredths, want) in [(0, 1), (1, 2), (50, 100), (99, 198), (100, 200)] {
            let share = f64::from(u32::try_from(hundredths).unwrap()) / 100.0;
            assert_eq!(percentile(&values, hundredths), Some(want));
            assert_eq!(quantile(&values, share), Some(want), "{share}");
        }
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(
            (percentile::<u32>(&[], 50), quantile::<u32>(&[], 0.5)),
            (None, None)
        );
    }
}
