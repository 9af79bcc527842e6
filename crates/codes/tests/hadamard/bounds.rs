//! The computation is the orthonormal transform, with at most the documented error.

use farwrite_codes::Kernel;
use farwrite_codes::hadamard::{Interleave, Transform};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::common::{Format, MOST, distance, encode, ends, norm, shapes, tensor, values};

/// Returns the documented bound of the error of one transform, for coefficients with the norm
/// `size`.
fn bound<T: Format>(shape: Interleave, elements: usize, size: f64) -> f64 {
    let sums = f64::from(shape.block().ilog2() + 3) * f32::UNIT;
    (sums + T::UNIT) * (1.0 + 1e-3) * size + T::TINY * (elements as f64).sqrt()
}

fn check<T: Format>(shape: Interleave, elements: usize, segments: usize, seed: u64) {
    let input = tensor::<T>(elements, seed);
    let ends = ends(elements, segments, seed);
    let transform = Transform::new(shape);
    let mut encoded = vec![T::of(f32::NAN); elements];
    transform.encode(&input, &mut encoded, &ends).unwrap();
    let exact = values(&input);
    let mut start = 0;
    let mut expected = Vec::new();
    for end in &ends {
        expected.extend(encode(shape, &exact[start..*end]));
        start = *end;
    }
    let most = bound::<T>(shape, elements, norm(&exact));
    assert!(
        distance(&values(&encoded), &expected) <= most,
        "{shape:?} {elements}"
    );

    let mut decoded = vec![T::of(f32::NAN); elements];
    transform.decode(&encoded, &mut decoded, &ends).unwrap();
    let most = 2.1 * most;
    assert!(
        distance(&values(&decoded), &exact) <= most,
        "{shape:?} {elements}"
    );
}

proptest! {
    #[test]
    fn encoding_and_decoding_keep_the_bounds(
        shape in shapes(if cfg!(miri) { 4 } else { 9 }, if cfg!(miri) { 4 } else { 8 }),
        elements in 0..MOST,
        segments in 1_usize..5,
        seed: u64,
    ) {
        check::<f32>(shape, elements, segments, seed);
        check::<f16>(shape, elements, segments, seed);
        check::<bf16>(shape, elements, segments, seed);
    }

    /// Encoding preserves inner products, and so lengths and angles.
    #[test]
    fn it_is_orthonormal(shape in shapes(8, 6), elements in 1..MOST, seed: u64) {
        let transform = Transform::new(shape);
        let tensors = [seed, !seed].map(|seed| tensor::<f32>(elements, seed));
        let encoded = tensors.each_ref().map(|tensor| {
            let mut encoded = vec![0.0; elements];
            transform.encode(tensor, &mut encoded, &[elements]).unwrap();
            encoded
        });
        let product = |tensors: &[Vec<f32>; 2]| -> f64 {
            let [a, b] = tensors.each_ref().map(|tensor| values(tensor));
            a.iter().zip(&b).map(|(a, b)| a * b).sum()
        };
        let sizes = tensors.each_ref().map(|tensor| norm(&values(tensor)));
        let most = 3.0 * bound::<f32>(shape, elements, sizes[0]) * sizes[1].max(1.0);
        prop_assert!((product(&tensors) - product(&encoded)).abs() <= most);
    }

    /// The sum of encoded tensors decodes to the sum of the tensors.
    #[test]
    fn sums_can_be_taken_while_encoded(
        shape in shapes(8, 6),
        elements in 1..MOST,
        seed: u64,
    ) {
        let transform = Transform::new(shape);
        let mut total = vec![0.0_f32; elements];
        let mut expected = vec![0.0; elements];
        let mut sizes = 0.0;
        for rank in 0..4 {
            let tensor = tensor::<f32>(elements, seed.wrapping_add(rank));
            let mut encoded = vec![0.0; elements];
            transform.encode(&tensor, &mut encoded, &[elements]).unwrap();
            total.iter_mut().zip(&encoded).for_each(|(total, value)| *total += value);
            expected.iter_mut().zip(values(&tensor)).for_each(|(sum, value)| *sum += value);
            sizes += norm(&values(&tensor));
        }
        let mut decoded = vec![0.0; elements];
        transform.decode(&total, &mut decoded, &[elements]).unwrap();
        let most = 5.0 * bound::<f32>(shape, elements, sizes);
        prop_assert!(distance(&values(&decoded), &expected) <= most);
    }
}

/// If one element is 1 and the others are 0, the result is one row of the matrix. It is exact where
/// the scale is exact. The test includes blocks larger than a tile and a strip.
#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn impulses_give_rows_of_the_matrix() {
    for (levels, at) in [(4, 5), (10, 777), (12, 4095), (14, 9999), (20, 654_321)] {
        let block = 1 << levels;
        let shape = Interleave::new(block, 1024, 1).unwrap();
        let mut values = vec![0.0_f32; block];
        values[at] = 1.0;
        let one = 1.0 / f32::powi(2.0, levels / 2);
        for kernel in Kernel::available() {
            let mut encoded = vec![0.0; block];
            let transform = Transform::with_kernel(shape, kernel);
            transform.encode(&values, &mut encoded, &[block]).unwrap();
            for (i, &value) in encoded.iter().enumerate() {
                let minus = !(i & at).count_ones().is_multiple_of(2);
                assert_eq!(
                    value,
                    if minus { -one } else { one },
                    "{kernel} {levels} {i}"
                );
            }
        }
    }
}

/// Encodes and decodes the largest block.
#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn the_largest_block_comes_back() {
    let shape = Interleave::new(1 << 25, 2048, 1).unwrap();
    let input = tensor::<bf16>(1 << 25, 1);
    let transform = Transform::new(shape);
    let (mut encoded, mut decoded) = (vec![bf16::ZERO; 1 << 25], vec![bf16::ZERO; 1 << 25]);
    transform.encode(&input, &mut encoded, &[1 << 25]).unwrap();
    transform
        .decode(&encoded, &mut decoded, &[1 << 25])
        .unwrap();
    // Do not convert all values to `f64` vectors: each would take 256 MiB.
    let (mut size, mut error) = (0.0, 0.0);
    for (exact, value) in input.iter().zip(&decoded) {
        size += exact.value().powi(2);
        error += (exact.value() - value.value()).powi(2);
    }
    let most = 2.1 * bound::<bf16>(shape, 1 << 25, size.sqrt());
    assert!(error.sqrt() <= most);
}
