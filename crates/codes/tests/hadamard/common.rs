//! Random tensors, and the transform computed by its definition.

use farwrite_codes::hadamard::Interleave;
use farwrite_rng::SplitMix;
use half::{bf16, f16};
use proptest::prelude::*;

/// Maximum number of elements of random tensors.
pub(crate) const MOST: usize = if cfg!(miri) { 150 } else { 2000 };

/// A format, with the conversions that the tests need.
pub(crate) trait Format:
    farwrite_codes::hadamard::Element + std::fmt::Debug + PartialEq
{
    /// Half the distance from 1 to the next value.
    const UNIT: f64;
    /// Half the smallest distance between two values.
    const TINY: f64;
    fn of(value: f32) -> Self;
    fn value(self) -> f64;
    fn float(self) -> f32;
    fn bits(self) -> u32;
}

impl Format for f32 {
    const UNIT: f64 = 1.0 / (1_u64 << 24) as f64;
    const TINY: f64 = f32::from_bits(1) as f64 / 2.0;

    fn of(value: f32) -> Self {
        value
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn float(self) -> f32 {
        self
    }

    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Format for f16 {
    const UNIT: f64 = 1.0 / (1_u64 << 11) as f64;
    const TINY: f64 = 1.0 / (1_u64 << 25) as f64;

    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn float(self) -> f32 {
        self.into()
    }

    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Format for bf16 {
    const UNIT: f64 = 1.0 / (1_u64 << 8) as f64;
    const TINY: f64 = f32::from_bits(1 << 16) as f64 / 2.0;

    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn float(self) -> f32 {
        self.into()
    }

    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

/// Returns values from -1 to 1, of which some are much smaller.
pub(crate) fn tensor<T: Format>(elements: usize, seed: u64) -> Vec<T> {
    let mut rng = SplitMix::new(seed);
    let mut value = || {
        let small = rng.next().is_multiple_of(8);
        let value = rng.index(1 << 20) as f32 / (1 << 19) as f32 - 1.0;
        T::of(if small { value * 1e-4 } else { value })
    };
    (0..elements).map(|_| value()).collect()
}

pub(crate) fn values<T: Format>(tensor: &[T]) -> Vec<f64> {
    tensor.iter().map(|value| value.value()).collect()
}

pub(crate) fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

/// Returns the blocks of a segment: whole blocks, then blocks of descending powers of two.
pub(crate) fn blocks(shape: Interleave, elements: usize) -> Vec<std::ops::Range<usize>> {
    let mut blocks = Vec::new();
    let mut start = 0;
    while start < elements {
        let left = elements - start;
        let block = shape.block().min(1 << left.ilog2());
        blocks.push(start..start + block);
        start += block;
    }
    blocks
}

/// Encodes a segment in double precision, by the definition: coefficient `i` of a block is the
/// scaled sum of its elements, where element `j` is negated if `i & j` has an odd number of ones.
pub(crate) fn encode(shape: Interleave, values: &[f64]) -> Vec<f64> {
    let mut encoded = vec![f64::NAN; values.len()];
    for block in blocks(shape, values.len()) {
        for i in 0..block.len() {
            let sign = |j: usize| {
                if (i & j).count_ones().is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                }
            };
            let sum: f64 = (0..block.len())
                .map(|j| sign(j) * values[block.start + j])
                .sum();
            let at = shape.position(values.len(), block.start + i);
            encoded[at] = sum / (block.len() as f64).sqrt();
        }
    }
    encoded
}

/// Returns shapes with blocks of up to `2^block` and packets of up to `2^packet` elements.
pub(crate) fn shapes(block: u32, packet: u32) -> impl Strategy<Value = Interleave> {
    (0..=block, 0..=packet)
        .prop_flat_map(|(block, packet)| (Just(block), Just(packet), 0..=packet))
        .prop_map(|(block, packet, stride)| {
            Interleave::new(1 << block, 1 << packet, 1 << stride).unwrap()
        })
}

/// Returns the ends of the segments of a tensor with `elements` elements.
pub(crate) fn ends(elements: usize, segments: usize, seed: u64) -> Vec<usize> {
    let mut rng = SplitMix::new(seed);
    let mut cut = || rng.index(elements + 1);
    let mut ends: Vec<usize> = (1..segments).map(|_| cut()).collect();
    ends.push(elements);
    ends.sort_unstable();
    ends
}
