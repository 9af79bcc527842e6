//! Seeded random draws for link models and simulations.
//!
//! `farwrite-dice` has another generator, `SplitMix`, for tests and the fault swarm. The two stay
//! separate for two reasons. First, [`Dice`] is part of shipped crates and needs streams that
//! provably do not overlap ([`Dice::split`]), which `SplitMix` does not have; `farwrite-dice` is
//! only for tests. Second, documented results and printed seeds depend on the sequence of draws of
//! each generator.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random draws that depends only on its seed.
#[derive(Clone, Debug)]
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
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
