//! All kernels return the bits of the scalar kernel, for any shape, length and address.

use farwrite_codes::Kernel;
use farwrite_codes::hadamard::{Interleave, Rescale, Transform};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::common::{Format, ends, shapes, tensor};

fn bits<T: Format>(tensor: &[T]) -> Vec<u32> {
    tensor.iter().map(|value| value.bits()).collect()
}

/// Encodes and decodes with all kernels, at addresses that are `skew` elements after the start of
/// an allocation. Checks that the results are equal.
fn agree<T: Format>(shape: Interleave, values: &[T], ends: &[usize], skew: usize) {
    let zero = T::of(0.0);
    let arrived = |segment: usize, packet: usize| !(segment + packet).is_multiple_of(3);
    let run = |kernel| {
        let transform = Transform::with_kernel(shape, kernel);
        let input = [&vec![zero; skew], values].concat();
        let mut encoded = vec![zero; input.len()];
        transform
            .encode(&input[skew..], &mut encoded[skew..], ends)
            .unwrap();
        let mut whole = vec![zero; input.len()];
        transform
            .decode(&encoded[skew..], &mut whole[skew..], ends)
            .unwrap();
        let mut damaged = encoded.clone();
        let mut partial = vec![zero; input.len()];
        transform
            .decode_partial(
                &mut damaged[skew..],
                &mut partial[skew..],
                ends,
                arrived,
                Rescale::ByArrived,
            )
            .unwrap();
        [encoded, whole, partial].map(|tensor| bits(&tensor[skew..]))
    };
    let expected = run(Kernel::SCALAR);
    for kernel in Kernel::available() {
        assert!(
            run(kernel) == expected,
            "{kernel} {shape:?} {skew} {ends:?}"
        );
    }
}

proptest! {
    #[test]
    fn kernels_agree(
        shape in shapes(if cfg!(miri) { 5 } else { 11 }, if cfg!(miri) { 4 } else { 8 }),
        elements in 0_usize..if cfg!(miri) { 200 } else { 9000 },
        segments in 1_usize..4,
        skew in 0_usize..20,
        seed: u64,
    ) {
        let ends = ends(elements, segments, seed);
        agree(shape, &tensor::<f32>(elements, seed), &ends, skew);
        agree(shape, &tensor::<f16>(elements, seed), &ends, skew);
        agree(shape, &tensor::<bf16>(elements, seed), &ends, skew);
    }
}

/// Tensors that are large enough for streaming stores, and blocks larger than a tile and a strip.
#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn large_tensors_are_like_small_ones() {
    let elements = (1 << 19) + 12_345;
    for (block, packet, stride) in [
        (1024, 1024, 1),
        (1024, 1024, 1024),
        (256, 512, 256),
        (1 << 13, 256, 1),
        (1 << 13, 256, 64),
        (1 << 17, 1024, 512),
        (1 << 19, 1024, 1),
    ] {
        let shape = Interleave::new(block, packet, stride).unwrap();
        for skew in [0, 3] {
            agree(
                shape,
                &tensor::<f32>(elements, 1),
                &[elements / 3, elements],
                skew,
            );
            agree(shape, &tensor::<f16>(elements, 2), &[elements], skew);
            agree(shape, &tensor::<bf16>(elements, 3), &[elements], skew);
        }
    }
}

/// Every 16-bit value passes through blocks of one element unchanged. All kernels round sums of
/// floats in the same way: subnormal sums, huge sums, and sums in the middle between two values.
#[test]
fn rounding_is_that_of_the_definition() {
    fn check<T: Format>(from_bits: fn(u16) -> T, from_f32: fn(f32) -> T) {
        let step = if cfg!(miri) { 97 } else { 1 };
        let all: Vec<T> = (0..=u16::MAX).step_by(step).map(from_bits).collect();
        let finite: Vec<T> = all
            .into_iter()
            .filter(|value| value.value().is_finite())
            .collect();
        let shape = |block| Interleave::new(block, 1, 1).unwrap();
        for kernel in Kernel::available() {
            let mut out = vec![T::of(0.0); finite.len()];
            let one = Transform::with_kernel(shape(1), kernel);
            one.encode(&finite, &mut out, &[finite.len()]).unwrap();
            assert_eq!(bits(&out), bits(&finite), "{kernel}");

            // Blocks of four have the exact scale 1/2, so the sums of neighbours are the only
            // source of rounding.
            let pairs: Vec<T> = finite
                .windows(2)
                .flat_map(|pair| [pair[0], pair[1], T::of(0.0), T::of(0.0)])
                .collect();
            let mut out = vec![T::of(0.0); pairs.len()];
            let four = Transform::with_kernel(shape(4), kernel);
            four.encode(&pairs, &mut out, &[pairs.len()]).unwrap();
            for (pair, out) in pairs.chunks(4).zip(out.chunks(4)) {
                let [a, b] = [pair[0], pair[1]].map(|value| value.float() * 0.5);
                let expected = [a + b, a - b, a + b, a - b].map(from_f32);
                assert_eq!(bits(out), bits(&expected), "{kernel} {pair:?}");
            }
        }
    }
    check(f16::from_bits, f16::from_f32_const);
    check(bf16::from_bits, bf16::from_f32_const);
}

/// NaN and infinity affect only their own block.
#[test]
fn special_values_stay_in_their_block() {
    let shape = Interleave::new(64, 64, 1).unwrap();
    for kernel in Kernel::available() {
        for special in [f32::NAN, f32::INFINITY] {
            let mut values = vec![1.0_f32; 192];
            values[70] = special;
            let mut encoded = vec![0.0; 192];
            let transform = Transform::with_kernel(shape, kernel);
            transform.encode(&values, &mut encoded, &[192]).unwrap();
            for (at, value) in encoded.iter().enumerate() {
                assert_eq!(value.is_finite(), at / 64 != 1, "{kernel} {at}");
            }
            let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
            let mut encoded = vec![bf16::ZERO; 192];
            transform.encode(&values, &mut encoded, &[192]).unwrap();
            for (at, value) in encoded.iter().enumerate() {
                assert_eq!(
                    value.is_nan(),
                    at / 64 == 1 && special.is_nan(),
                    "{kernel} {at}"
                );
            }
        }
    }
}
