//! Seeded draws.

use std::ops::Range;

/// `SplitMix64` (Steele et al. 2014): small, and good enough to choose faults by. Its stream is
/// fixed, so that a printed seed means the same case on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number of the range, which is not empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// An index into something of `count` elements, which is not 0.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0..count as u64)).expect("below a usize")
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// True with the probability given.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from 0 up to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are taken")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Spreads every bit of a number over the whole result.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
