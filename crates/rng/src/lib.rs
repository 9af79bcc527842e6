//! Seeded random draws for tests and for the fault swarm. All of them use one generator, so that a
//! printed seed gives the same case on every machine.
//!
//! Link models and simulations use `farwrite_link::Rng` instead: it is part of shipped crates, and
//! its streams can be split without overlap. The two generators stay separate, because documented
//! results and printed seeds depend on the sequence of draws of each.
//!
//! ```
//! use farwrite_rng::SplitMix;
//!
//! let mut rng = SplitMix::new(7);
//! assert!((3..9).contains(&rng.within(3..9)));
//! // The same seed gives the same draws.
//! assert_eq!(SplitMix::new(7).bytes(20), SplitMix::new(7).bytes(20));
//! ```

use std::ops::Range;

/// `SplitMix64` (Steele et al. 2014): a small generator, good enough for choosing faults and test
/// data.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that never ends is used by mistake"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A uniform number in a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// A uniform number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            end => self.next() % end,
        }
    }

    /// A uniform index below `count`, which must not be 0.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// One of the choices. There must be at least one.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Returns `true` with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns `true` in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A uniform number from 0 (included) to 1 (excluded).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are taken")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }
}

/// Mixes a number, so that each bit of it affects all bits of the result.
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
