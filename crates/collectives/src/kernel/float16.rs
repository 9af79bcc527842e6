//! Floats of 16 bits: each value is converted to `f32` and back, with one rounding.
//!
//! The plain loops here define the results. The vector kernels compute the same bits, except that a
//! NaN may be another NaN.
#![allow(unsafe_code, reason = "vector kernels are called after a check")]

use half::f16;

#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use super::{each, fold, greatest, join_bits, least};
use crate::element::Reduction;

/// A format of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    F16,
    Bf16,
}

/// The vector instructions of a machine. A value proves that this machine has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vectors(Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    None,
}

impl Vectors {
    /// Plain loops.
    const NONE: Self = Self(Isa::None);

    /// The widest vectors of this machine.
    pub(super) fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            return Self(Isa::Avx512);
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            return Self(Isa::Avx2);
        }
        Self::NONE
    }
}

/// `target = target (reduction) source`, value by value.
pub(super) fn reduce(
    vectors: Vectors,
    format: Format,
    reduction: Reduction,
    target: &mut [u8],
    source: &[u8],
) {
    let done = match vectors.0 {
        // SAFETY: a value of this variant exists only on machines with the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::reduce(format, reduction, target, source) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::reduce(format, reduction, target, source) },
        Isa::None => 0,
    };
    let (target, source) = (&mut target[done..], &source[done..]);
    match format {
        Format::F16 => plain(reduction, target, source, f16_value, f16_bytes),
        Format::Bf16 => plain(reduction, target, source, bf16_value, bf16_bytes),
    }
}

/// Divides every value by `count`.
pub(super) fn divide(vectors: Vectors, format: Format, target: &mut [u8], count: u32) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "groups have fewer than 2^24 ranks"
    )]
    let count = count as f32;
    let done = match vectors.0 {
        // SAFETY: a value of this variant exists only on machines with the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::divide(format, target, count) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::divide(format, target, count) },
        Isa::None => 0,
    };
    let target = &mut target[done..];
    match format {
        Format::F16 => each(target, |x| f16_bytes(f16_value(x) / count)),
        Format::Bf16 => each(target, |x| bf16_bytes(bf16_value(x) / count)),
    }
}

fn plain(
    reduction: Reduction,
    target: &mut [u8],
    source: &[u8],
    widen: impl Fn([u8; 2]) -> f32,
    round: impl Fn(f32) -> [u8; 2],
) {
    let join = |a, b, join: fn(f32, f32) -> f32| round(join(widen(a), widen(b)));
    match reduction {
        Reduction::Sum | Reduction::Mean => fold(target, source, |a, b| join(a, b, |a, b| a + b)),
        Reduction::Min => fold(target, source, |a, b| join(a, b, least)),
        Reduction::Max => fold(target, source, |a, b| join(a, b, greatest)),
        Reduction::Product => fold(target, source, |a, b| join(a, b, |a, b| a * b)),
        Reduction::And => join_bits::<2>(target, source, |a, b| a & b),
        Reduction::Or => join_bits::<2>(target, source, |a, b| a | b),
        Reduction::Xor => join_bits::<2>(target, source, |a, b| a ^ b),
    }
}

#[inline]
fn f16_value(bytes: [u8; 2]) -> f32 {
    f16::from_ne_bytes(bytes).to_f32()
}

#[inline]
fn f16_bytes(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_ne_bytes()
}

#[inline]
fn bf16_value(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16)
}

/// The nearest value, computed without a branch, so that the compiler vectorizes the loops.
#[inline]
fn bf16_bytes(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // A NaN stays a NaN: rounding could carry it over to infinity or zero.
    let quiet = bits >> 16 | 0x40;
    let chosen = if value.is_nan() { quiet } else { rounded };
    #[expect(clippy::cast_possible_truncation, reason = "shifted down to 16 bits")]
    let chosen = chosen as u16;
    chosen.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// All vectors that this machine has.
    fn available() -> Vec<Vectors> {
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = is_x86_feature_detected!("avx512f").then_some(Vectors(Isa::Avx512));
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            let avx2 = has_avx2.then_some(Vectors(Isa::Avx2));
            avx512.into_iter().chain(avx2).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        Vec::new()
    }

    fn is_nan(format: Format, bits: [u8; 2]) -> bool {
        match format {
            Format::F16 => f16_value(bits).is_nan(),
            Format::Bf16 => bf16_value(bits).is_nan(),
        }
    }

    /// The same bits, or two NaNs.
    fn same(format: Format, ours: &[u8], theirs: &[u8]) -> bool {
        let pairs = ours.as_chunks().0.iter().zip(theirs.as_chunks().0);
        let mut pairs = pairs.map(|(&a, &b)| a == b || is_nan(format, a) && is_nan(format, b));
        ours.len() == theirs.len() && pairs.all(|same| same)
    }

    proptest! {
        /// Any bits, so also infinities, NaNs, subnormal values and zeros of both signs.
        #[test]
        fn vectors_compute_what_plain_loops_do(
            pairs in vec((any::<[u8; 2]>(), any::<[u8; 2]>()), 0..150),
            extra in 0..2_usize,
            count in 1..2000_u32,
        ) {
            let bytes = |values: Vec<[u8; 2]>| [values.concat(), vec![7; extra]].concat();
            let ours = bytes(pairs.iter().map(|pair| pair.0).collect());
            let theirs = bytes(pairs.iter().map(|pair| pair.1).collect());
            for format in [Format::F16, Format::Bf16] {
                let run = |vectors, change: &dyn Fn(Vectors, &mut [u8])| {
                    let mut target = ours.clone();
                    change(vectors, &mut target);
                    target
                };
                for vectors in available() {
                    for reduction in Reduction::ALL {
                        let change = |vectors, target: &mut [u8]| {
                            reduce(vectors, format, reduction, target, &theirs);
                        };
                        let (one, other) = (run(vectors, &change), run(Vectors::NONE, &change));
                        prop_assert!(
                            same(format, &one, &other),
                            "{vectors:?}, {reduction} of {format:?}: {one:?}, not {other:?}"
                        );
                    }
                    let change = |vectors, target: &mut [u8]| divide(vectors, format, target, count);
                    let (one, other) = (run(vectors, &change), run(Vectors::NONE, &change));
                    prop_assert!(same(format, &one, &other), "{vectors:?}, {format:?} by {count}");
                }
            }
        }
    }

    #[test]
    fn every_value_is_converted_and_rounded_alike() {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        for format in [Format::F16, Format::Bf16] {
            for vectors in available() {
                for other in [0x3c01_u16, 0x3f81, 0x0001, 0x8000, 0x7bff] {
                    let source = other.to_ne_bytes().repeat(1 << 16);
                    for reduction in Reduction::ALL {
                        let (mut one, mut plain) = (all.clone(), all.clone());
                        reduce(vectors, format, reduction, &mut one, &source);
                        reduce(Vectors::NONE, format, reduction, &mut plain, &source);
                        assert!(
                            same(format, &one, &plain),
                            "{vectors:?}, {reduction}, {other:#x}"
                        );
                    }
                }
            }
        }
    }
}
