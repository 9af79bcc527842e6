//! Where every scenario's randomness comes from: 64-bit seeds, printed, and given back through the
//! environment.
//!
//! `FARWRITE_TEST_SEED=0x1234` runs a test with that one seed; `FARWRITE_TEST_SEEDS=1000` runs each
//! with a thousand. Without them a test runs with a few that never change.

use std::ops::Range;

/// Runs `scenario` with each seed of a test. Of a failing test the last seed printed is the one.
pub(crate) fn each(test: &str, count: u64, mut scenario: impl FnMut(u64)) {
    if let Some(seed) = variable("FARWRITE_TEST_SEED") {
        announce(test, seed);
        return scenario(seed);
    }
    // A test's name sets it apart, so that no two try the same mixes.
    let mut dice = Dice::new(
        test.bytes()
            .fold(0, |h: u64, b| h.wrapping_mul(131) ^ u64::from(b)),
    );
    for _ in 0..variable("FARWRITE_TEST_SEEDS").unwrap_or(count) {
        let seed = dice.next();
        announce(test, seed);
        scenario(seed);
    }
}

fn announce(test: &str, seed: u64) {
    println!("{test}: FARWRITE_TEST_SEED={seed:#018x}");
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{name}={text}: want a number, 0x before hexadecimal")))
}

/// `SplitMix64`: small, and good enough to choose faults by.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of the range, which is not empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.next() % choices.len() as u64;
        choices[usize::try_from(index).expect("an index")]
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

    /// Bytes that differ everywhere.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }
}
