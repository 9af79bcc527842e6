//! Seeded draws.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of draws, fixed by a seed and by nothing else.
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

    /// 64 random bits, such as the seed of another stream.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// True with the given probability; 0 draws nothing.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits fill a float's mantissa: uniform in [0, 1), so that 1 is always true.
        #[allow(clippy::cast_precision_loss)]
        let uniform = |bits: u64| (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        probability > 0.0 && uniform(self.0.next_u64()) < probability
    }

    /// Uniform in `0..limit`, biased by at most `limit / 2^64`; 0 where `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        // A product's upper half is below its second factor, so it fits.
        #[allow(clippy::cast_possible_truncation)]
        let scaled = ((u128::from(self.0.next_u64()) * limit as u128) >> 64) as usize;
        scaled
    }
}
