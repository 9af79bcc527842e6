//! Seeded random draws for link models and simulations.
//!
//! `farwrite-rng` has another generator, `SplitMix`, for tests and the fault swarm. The two stay
//! separate for two reasons. First, [`Rng`] is part of shipped crates and needs streams that
//! provably do not overlap ([`Rng::split`]), which `SplitMix` does not have; `farwrite-rng` is
//! only for tests. Second, documented results and printed seeds depend on the sequence of draws of
//! each generator.

use core::time::Duration;

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random draws that depends only on its seed.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A stream that does not overlap this one within 2^128 draws.
    #[must_use]
    pub fn split(&self) -> Self {
        let mut far = self.0.clone();
        far.jump();
        Self(far)
    }

    /// 64 random bits, for instance the seed of another stream.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns `true` with the given probability. A probability of 0 consumes no draw.
    pub fn chance(&mut self, probability: f64) -> bool {
        // The value is below 1, so a probability of 1 is always true.
        probability > 0.0 && uniform(self.0.next_u64()) < probability
    }

    /// A time with an exponential distribution, in whole nanoseconds.
    pub(crate) fn exponential_ns(&mut self, mean_ns: f64) -> u64 {
        let time_ns = -libm::log(1.0 - uniform(self.0.next_u64())) * mean_ns;
        // A time beyond the range becomes the longest one.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let time_ns = time_ns as u64;
        time_ns
    }

    /// A whole number from 0 to `most`, both included, with equal probabilities.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        // The upper half of the product is at most `most`, so it fits.
        #[allow(clippy::cast_possible_truncation)]
        let scaled = ((u128::from(self.0.next_u64()) * (u128::from(most) + 1)) >> 64) as u64;
        scaled
    }

    /// A time with a normal distribution of mean 0, truncated at 0 and at `most`, in whole
    /// nanoseconds. `deviation` must not be 0.
    pub(crate) fn half_normal_ns(&mut self, deviation: Duration, most: Duration) -> u64 {
        let deviation_ns = deviation.as_secs_f64() * 1e9;
        // A longer time has a probability below 1e-15.
        let most_ns = (most.as_secs_f64() * 1e9).min(8.0 * deviation_ns);
        // Rejection from a uniform distribution: seven tries in the mean, or fewer.
        loop {
            let time_ns = uniform(self.0.next_u64()) * most_ns;
            let deviations = time_ns / deviation_ns;
            if self.chance(libm::exp(-0.5 * deviations * deviations)) {
                // Not negative, and at most a delay of a link.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                return time_ns as u64;
            }
        }
    }

    /// A uniform number in `0..limit`, with a bias of at most `limit / 2^64`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        // The upper half of the product is below `limit`, so it fits.
        #[allow(clippy::cast_possible_truncation)]
        let scaled = ((u128::from(self.0.next_u64()) * limit as u128) >> 64) as usize;
        scaled
    }
}

/// A uniform number in [0, 1), from 53 bits, which fill a float's mantissa.
fn uniform(bits: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let uniform = (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
    uniform
}
