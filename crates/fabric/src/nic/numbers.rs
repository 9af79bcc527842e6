//! Numbers that nobody off the path can guess, and maps keyed by them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;

/// A map from numbers drawn by [`Numbers`].
///
/// The keys in the map are random, so one multiplication spreads them. A peer may look up any
/// number but cannot insert one, so it cannot make the map slow.
pub(super) type ByNumber<T> = HashMap<u32, T, BuildHasherDefault<NumberHasher>>;

/// Hashes one `u32`.
#[derive(Clone, Copy, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        // The constant is 2^64 divided by the golden ratio. The map uses the highest and the lowest
        // bits.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Generator of keys and queue pair numbers.
pub(super) struct Numbers {
    rng: ChaCha20Rng,
}

impl Numbers {
    pub(super) fn new(rng: ChaCha20Rng) -> Self {
        Self { rng }
    }

    /// A random number of 24 bits, which may be in use.
    pub(super) fn draw_24(&mut self) -> u32 {
        self.rng.next_u32() >> 8
    }

    /// A key of 32 bits that is not 0 and not in `taken`.
    ///
    /// The loop ends because every map of keys is far from full (at most 2^21 of 2^32 numbers).
    pub(super) fn key<T>(&mut self, taken: &ByNumber<T>) -> u32 {
        loop {
            let key = self.rng.next_u32();
            if key != 0 && !taken.contains_key(&key) {
                return key;
            }
        }
    }

    /// A queue pair number of 24 bits that is not in `taken`. It is never 0 or 1, which are
    /// management queue pairs (IBTA 3.9.1).
    ///
    /// The loop ends because the map is far from full (at most 2^20 of 2^24 numbers).
    pub(super) fn qpn<T>(&mut self, taken: &ByNumber<T>) -> u32 {
        loop {
            let qpn = self.draw_24();
            if qpn > 1 && !taken.contains_key(&qpn) {
                return qpn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    #[test]
    fn numbers_repeat_with_the_seed_and_never_collide() {
        let draw = |seed| {
            let mut numbers = Numbers::new(ChaCha20Rng::seed_from_u64(seed));
            let mut taken = ByNumber::default();
            for _ in 0..10_000 {
                let qpn = numbers.qpn(&taken);
                assert!((2..1 << 24).contains(&qpn));
                assert_eq!(taken.insert(qpn, ()), None);
            }
            numbers.key(&taken)
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
