//! Distributions of message sizes.

use farwrite_link::Rng;

/// A distribution of message sizes: a cumulative distribution function that is linear between
/// points.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Points: bytes, and the probability that a message has at most this size. Neither falls; the
    /// first probability is 0, the last 1. Between two points with the same bytes, the function
    /// steps: this share of the messages has exactly this size.
    points: Vec<(f64, f64)>,
}

/// Why a list of points is not a distribution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// There are too few points.
    #[error("a size distribution has at least two points, not {0}")]
    TooFew(usize),
    /// A number is out of range.
    #[error("point {point}: {value}: bytes and percents are numbers from 0 on")]
    Number {
        /// Number of the point, from 1.
        point: usize,
        /// The value given.
        value: f64,
    },
    /// A point is below the previous one.
    #[error(
        "point {point}: {bytes} bytes at {percent} %: neither may be below that of the point before"
    )]
    Falling {
        /// Number of the point, from 1.
        point: usize,
        /// Bytes of the point.
        bytes: f64,
        /// Percents of the point.
        percent: f64,
    },
    /// The percents do not go from 0 to 100.
    #[error(
        "the points go from {first} to {last}; they must go from 0 to 100 (percents) or to 1 (shares)"
    )]
    Ends {
        /// Percents of the first point.
        first: f64,
        /// Percents of the last point.
        last: f64,
    },
}

impl SizeError {
    /// The number of the point that is wrong, from 1; `None` if it is the number of points.
    #[must_use]
    pub fn point(&self) -> Option<usize> {
        match self {
            Self::TooFew(_) => None,
            Self::Number { point, .. } | Self::Falling { point, .. } => Some(*point),
            // One percent at the first point may be wrong, or that of the last one.
            Self::Ends { first, .. } if *first != 0.0 => Some(1),
            Self::Ends { .. } => None,
        }
    }
}

/// A web search cluster: DCTCP (SIGCOMM 2010), with the points of HPCC (SIGCOMM 2019,
/// `traffic_gen/WebSearch_distribution.txt`).
const WEB_SEARCH: [(f64, f64); 12] = [
    (0.0, 0.0),
    (10_000.0, 15.0),
    (20_000.0, 20.0),
    (30_000.0, 30.0),
    (50_000.0, 40.0),
    (80_000.0, 53.0),
    (200_000.0, 60.0),
    (1_000_000.0, 70.0),
    (2_000_000.0, 80.0),
    (5_000_000.0, 90.0),
    (10_000_000.0, 97.0),
    (30_000_000.0, 100.0),
];

/// A Hadoop cluster: Roy et al. (SIGCOMM 2015), with the points of HPCC (SIGCOMM 2019,
/// `traffic_gen/FbHdp_distribution.txt`).
const HADOOP: [(f64, f64); 20] = [
    (0.0, 0.0),
    (100.0, 1.0),
    (200.0, 2.0),
    (300.0, 5.0),
    (350.0, 15.0),
    (400.0, 20.0),
    (500.0, 30.0),
    (600.0, 40.0),
    (700.0, 50.0),
    (1_000.0, 60.0),
    (2_000.0, 67.0),
    (7_000.0, 70.0),
    (30_000.0, 72.0),
    (50_000.0, 82.0),
    (80_000.0, 87.0),
    (120_000.0, 90.0),
    (300_000.0, 95.0),
    (1_000_000.0, 97.5),
    (2_000_000.0, 99.0),
    (10_000_000.0, 100.0),
];

impl Sizes {
    /// Message sizes of web search.
    ///
    /// # Panics
    /// Never: the points are constant, and a test checks them.
    #[must_use]
    pub fn web_search() -> Self {
        Self::from_percents(&WEB_SEARCH).expect("the points rise from 0 to 100 %")
    }

    /// Message sizes of Hadoop.
    ///
    /// # Panics
    /// Never: the points are constant, and a test checks them.
    #[must_use]
    pub fn hadoop() -> Self {
        Self::from_percents(&HADOOP).expect("the points rise from 0 to 100 %")
    }

    /// A single message size.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    pub fn fixed(bytes: u64) -> Self {
        let bytes = bytes as f64;
        Self {
            points: vec![(bytes, 0.0), (bytes, 1.0)],
        }
    }

    /// A distribution from points of bytes and percents. If the last percent is 1, they are shares.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn from_percents(points: &[(f64, f64)]) -> Result<Self, SizeError> {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Err(SizeError::TooFew(0));
        };
        if points.len() < 2 {
            return Err(SizeError::TooFew(points.len()));
        }
        for (point, &(bytes, percent)) in (1..).zip(points) {
            let wrong = |value: f64| !value.is_finite() || value < 0.0;
            if let Some(value) = [bytes, percent].into_iter().find(|value| wrong(*value)) {
                return Err(SizeError::Number { point, value });
            }
        }
        for (point, pair) in (2..).zip(points.windows(2)) {
            let (bytes, percent) = pair[1];
            if bytes < pair[0].0 || percent < pair[0].1 {
                return Err(SizeError::Falling {
                    point,
                    bytes,
                    percent,
                });
            }
        }
        // Files have these very numbers.
        if first.1 != 0.0 || ![1.0, 100.0].contains(&last.1) {
            return Err(SizeError::Ends {
                first: first.1,
                last: last.1,
            });
        }
        let points = points
            .iter()
            .map(|(bytes, percent)| (*bytes, percent / last.1));
        Ok(Self {
            points: points.collect(),
        })
    }

    /// The mean, in bytes.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let pieces = self.points.windows(2);
        pieces
            .map(|pair| (pair[0].0 + pair[1].0) / 2.0 * (pair[1].1 - pair[0].1))
            .sum()
    }

    /// Draws a size, at least 1.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let share = uniform(rng);
        let at = self.points.partition_point(|point| point.1 <= share);
        let at = at.clamp(1, self.points.len() - 1);
        let ((low, below), (high, above)) = (self.points[at - 1], self.points[at]);
        let bytes = low + (high - low) * (share - below) / (above - below);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the last point, which is finite; casts saturate"
        )]
        let bytes = bytes as u64;
        bytes.max(1)
    }
}

/// Uniform in [0, 1), with 53 bits.
pub(crate) fn uniform(rng: &mut Rng) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float")]
    let bits = (rng.bits() >> 11) as f64;
    bits / 9_007_199_254_740_992.0
}

/// Draws from the exponential distribution with mean 1. The algorithm only compares uniform draws
/// (von Neumann, 1951), so the result is the same on every machine.
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = uniform(rng);
        let mut last = first;
        let mut falls = 1_u32;
        loop {
            let next = uniform(rng);
            if next >= last {
                break;
            }
            last = next;
            falls += 1;
        }
        if falls % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_of_the_distribution() {
        for sizes in [Sizes::web_search(), Sizes::hadoop(), Sizes::fixed(5000)] {
            let mut rng = Rng::new(1);
            let sum: u64 = (0..200_000).map(|_| sizes.draw(&mut rng)).sum();
            let mean = farwrite_units::show::real(sum) / 200_000.0;
            let off = mean / sizes.mean() - 1.0;
            assert!(off.abs() < 0.03, "{mean} and {}", sizes.mean());
        }
        // Computed by hand from the points.
        assert!((Sizes::web_search().mean() - 1_711_250.0).abs() < 1.0);
        assert!((Sizes::hadoop().mean() - 120_420.75).abs() < 1.0);
    }

    #[test]
    fn half_of_hadoop_messages_have_at_most_700_bytes() {
        let mut rng = Rng::new(2);
        let sizes = Sizes::hadoop();
        let small = (0..100_000).filter(|_| sizes.draw(&mut rng) <= 700).count();
        assert!((49_000..51_000).contains(&small), "{small}");
    }

    #[test]
    fn exponential_draws_have_mean_and_variance_1() {
        let mut rng = Rng::new(3);
        let draws: Vec<_> = (0..200_000).map(|_| exponential(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 200_000.0;
        let square = draws.iter().map(|draw| draw * draw).sum::<f64>() / 200_000.0;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((square - 2.0).abs() < 0.06, "{square}");
    }

    /// Half of the messages have 100 bytes, none has 101 to 199, and the others have 200.
    #[test]
    fn a_distribution_in_shares_may_step_and_be_flat() {
        let points = [(100.0, 0.0), (100.0, 0.5), (200.0, 0.5), (200.0, 1.0)];
        let sizes = Sizes::from_percents(&points).unwrap();
        assert!((sizes.mean() - 150.0).abs() < 1e-9);
        let mut rng = Rng::new(4);
        let draws: Vec<_> = (0..10_000).map(|_| sizes.draw(&mut rng)).collect();
        assert!(draws.iter().all(|bytes| [100, 200].contains(bytes)));
        let small = draws.iter().filter(|bytes| **bytes == 100).count();
        assert!((4_800..5_200).contains(&small), "{small}");
    }

    #[test]
    fn points_that_are_no_distribution_are_named() {
        let error = |points: &[_]| Sizes::from_percents(points).unwrap_err().to_string();
        assert!(error(&[(0.0, 0.0)]).contains("at least two points"));
        let falling = error(&[(0.0, 0.0), (10.0, 50.0), (9.0, 100.0)]);
        assert!(
            falling.starts_with("point 3: 9 bytes at 100 %"),
            "{falling}"
        );
        assert!(error(&[(0.0, 0.0), (10.0, 50.0)]).contains("from 0 to 50;"));
        assert!(error(&[(0.0, -1.0), (10.0, 50.0)]).starts_with("point 1: -1"));
    }
}
