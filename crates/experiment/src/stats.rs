//! Means, percentiles and confidence intervals.

use farwrite_units::stats::{mean, percentile, standard_error};
use serde::Serialize;

/// Summary of many values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    #[serde(skip)]
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Median: half of the values do not exceed it.
    pub p50: f64,
    /// 99th percentile: 99% of the values do not exceed it.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

/// A mean, and the 95% confidence interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half of the interval's width; `None` for a single value, which does not show the spread.
    #[serde(rename = "ci95")]
    pub half_width: Option<f64>,
}

impl Summary {
    /// Summarizes values; `None` if there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        Some(Self {
            count: values.len(),
            mean: mean(&values),
            p50: percentile(&values, 50)?,
            p99: percentile(&values, 99)?,
            max: *values.last()?,
        })
    }
}

/// The mean of independent values, for example one per seed, with Student's t; `None` if there are
/// none.
#[must_use]
pub fn interval(values: &[f64]) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let half_width =
        (values.len() > 1).then(|| student_t(values.len() - 1) * standard_error(values));
    Some(Interval {
        mean: mean(values),
        half_width,
    })
}

/// The 97.5% quantile of Student's t distribution. Between two entries of the table, the entry for
/// fewer degrees of freedom applies, which is larger.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [(usize, f64); 18] = [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (6, 2.447),
        (7, 2.365),
        (8, 2.306),
        (9, 2.262),
        (10, 2.228),
        (12, 2.179),
        (15, 2.131),
        (19, 2.093),
        (24, 2.064),
        (29, 2.045),
        (39, 2.023),
        (59, 2.001),
        (119, 1.980),
    ];
    let below = TABLE.iter().rev().find(|(entry, _)| *entry <= freedom);
    below.map_or(f64::INFINITY, |(_, t)| *t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_came() {
        let summary = Summary::of((1..=200).map(f64::from).collect()).unwrap();
        assert_eq!(
            (summary.p50, summary.p99, summary.max),
            (100.0, 198.0, 200.0)
        );
        assert!((summary.mean - 100.5).abs() < 1e-12);
        assert_eq!(Summary::of(vec![]), None);
        assert_eq!(Summary::of(vec![3.0]).unwrap().p99, 3.0);
    }

    /// Five values with mean 10 and standard deviation sqrt(2.5): 2.776 * sqrt(2.5 / 5).
    #[test]
    fn intervals_are_those_of_student() {
        let interval = interval(&[8.0, 9.0, 10.0, 11.0, 12.0]).unwrap();
        assert_eq!(interval.mean, 10.0);
        assert!((interval.half_width.unwrap() - 1.963).abs() < 1e-3);
        assert_eq!(super::interval(&[1.0]).unwrap().half_width, None);
        assert_eq!(student_t(25), 2.064);
    }
}
