//! Checks arithmetic on tensors, value by value, against the definitions of the types, in unaligned
//! memory.

#![allow(
    clippy::cast_possible_truncation,
    reason = "a result is cut to the type of the values"
)]

use farwrite_collectives::{ElementType, Reduction, kernel};
use half::{bf16, f16};

/// Bits that represent numbers of any size and sign, infinities and NaN, in no particular order.
fn bits(i: u64) -> u64 {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Returns values as bytes, at an odd address.
fn tensor(element: ElementType, count: usize, seed: u64) -> Vec<u8> {
    let size = usize::try_from(element.bytes()).unwrap();
    let value = |i: usize| bits(i as u64 + seed).to_ne_bytes()[8 - size..].to_vec();
    (0..count).flat_map(value).collect()
}

fn float(reduction: Reduction, a: f64, b: f64) -> f64 {
    match reduction {
        Reduction::Sum | Reduction::Mean => a + b,
        Reduction::Product => a * b,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::And | Reduction::Or | Reduction::Xor => unreachable!("floats have no bits"),
    }
}

fn integer(reduction: Reduction, a: i64, b: i64) -> i64 {
    match reduction {
        Reduction::Sum | Reduction::Mean => a.wrapping_add(b),
        Reduction::Product => a.wrapping_mul(b),
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::And => a & b,
        Reduction::Or => a | b,
        Reduction::Xor => a ^ b,
    }
}

/// Computes one value in a way that shares nothing with the kernel.
fn expected(element: ElementType, reduction: Reduction, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! values {
        ($type:ty) => {
            (
                <$type>::from_ne_bytes(a.try_into().unwrap()),
                <$type>::from_ne_bytes(b.try_into().unwrap()),
            )
        };
    }
    // A sum or a product of two values of a shorter type is exact enough in `f64` that a single
    // rounding gives the correct value.
    match element {
        ElementType::F64 => {
            let (a, b) = values!(f64);
            float(reduction, a, b).to_ne_bytes().to_vec()
        }
        ElementType::F32 => {
            let (a, b) = values!(f32);
            (float(reduction, a.into(), b.into()) as f32)
                .to_ne_bytes()
                .to_vec()
        }
        ElementType::F16 => {
            let (a, b) = values!(f16);
            let value = float(reduction, a.into(), b.into()) as f32;
            f16::from_f32_const(value).to_ne_bytes().to_vec()
        }
        ElementType::Bf16 => {
            let (a, b) = values!(bf16);
            let value = float(reduction, a.into(), b.into()) as f32;
            bf16::from_f32_const(value).to_ne_bytes().to_vec()
        }
        ElementType::I64 => {
            let (a, b) = values!(i64);
            integer(reduction, a, b).to_ne_bytes().to_vec()
        }
        ElementType::I32 => {
            let (a, b) = values!(i32);
            (integer(reduction, a.into(), b.into()) as i32)
                .to_ne_bytes()
                .to_vec()
        }
        ElementType::I8 => {
            let (a, b) = values!(i8);
            (integer(reduction, a.into(), b.into()) as i8)
                .to_ne_bytes()
                .to_vec()
        }
        ElementType::U8 => vec![integer(reduction, a[0].into(), b[0].into()) as u8],
        ElementType::Bool => {
            let (a, b) = (a[0] != 0, b[0] != 0);
            vec![u8::from(match reduction {
                Reduction::Min | Reduction::Product | Reduction::And => a && b,
                Reduction::Xor => a != b,
                _ => a || b,
            })]
        }
    }
}

fn is_nan(element: ElementType, value: &[u8]) -> bool {
    match element {
        ElementType::F64 => f64::from_ne_bytes(value.try_into().unwrap()).is_nan(),
        ElementType::F32 => f32::from_ne_bytes(value.try_into().unwrap()).is_nan(),
        ElementType::F16 => f16::from_ne_bytes(value.try_into().unwrap()).is_nan(),
        ElementType::Bf16 => bf16::from_ne_bytes(value.try_into().unwrap()).is_nan(),
        _ => false,
    }
}

/// Returns whether the value is a zero of either sign: a minimum of two zeros may be either.
fn is_zero(element: ElementType, value: &[u8]) -> bool {
    match element {
        ElementType::F64 => f64::from_ne_bytes(value.try_into().unwrap()) == 0.0,
        ElementType::F32 => f32::from_ne_bytes(value.try_into().unwrap()) == 0.0,
        ElementType::F16 => f16::from_ne_bytes(value.try_into().unwrap()) == f16::ZERO,
        ElementType::Bf16 => bf16::from_ne_bytes(value.try_into().unwrap()) == bf16::ZERO,
        _ => false,
    }
}

#[test]
fn every_reduction_of_every_type_is_right() {
    for element in ElementType::ALL {
        let size = usize::try_from(element.bytes()).unwrap();
        let supported =
            |reduction: &Reduction| *reduction == Reduction::Mean || reduction.supports(element);
        for reduction in Reduction::ALL.into_iter().filter(supported) {
            for count in [0, 1, 7, 512, 513, 3000] {
                let (ours, theirs) = (tensor(element, count, 1), tensor(element, count, 77));
                let mut memory = [&[0], &ours[..], &[0]].concat();
                let (target, end) = memory[1..].split_at_mut(ours.len());
                kernel::reduce(element, reduction, target, &theirs);
                assert_eq!(end, [0]);
                let pairs = ours.chunks(size).zip(theirs.chunks(size));
                for (value, (a, b)) in target.chunks(size).zip(pairs) {
                    let expected = expected(element, reduction, a, b);
                    let both_nan = is_nan(element, value) && is_nan(element, &expected);
                    let both_zero = is_zero(element, value) && is_zero(element, &expected);
                    assert!(
                        value == expected || both_nan || both_zero,
                        "{reduction} of {element} {a:?} and {b:?}: {value:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_mean_divides_in_its_type() {
    let divided = |element, value: &[u8], count| {
        let mut value = value.to_vec();
        kernel::divide(element, &mut value, count);
        value
    };
    assert_eq!(
        divided(ElementType::F64, &1.0_f64.to_ne_bytes(), 3),
        (1.0_f64 / 3.0).to_ne_bytes()
    );
    assert_eq!(
        divided(ElementType::F32, &1.0_f32.to_ne_bytes(), 3),
        (1.0_f32 / 3.0).to_ne_bytes()
    );
    let third = f16::from_f32(1.0 / 3.0).to_ne_bytes();
    assert_eq!(divided(ElementType::F16, &f16::ONE.to_ne_bytes(), 3), third);
    let third = bf16::from_f32(1.0 / 3.0).to_ne_bytes();
    assert_eq!(
        divided(ElementType::Bf16, &bf16::ONE.to_ne_bytes(), 3),
        third
    );
    assert_eq!(
        divided(ElementType::I64, &(-7_i64).to_ne_bytes(), 2),
        (-3_i64).to_ne_bytes()
    );
    assert_eq!(
        divided(ElementType::I32, &(-7_i32).to_ne_bytes(), 2),
        (-3_i32).to_ne_bytes()
    );
    assert_eq!(divided(ElementType::U8, &[255], 2), [127]);
    assert_eq!(
        divided(ElementType::I8, &(-7_i8).to_ne_bytes(), 2),
        (-3_i8).to_ne_bytes()
    );
}

#[test]
fn bfloat16_rounds_as_the_library_does() {
    // All exponents and the bits around a tie, doubled and halved by sums with themselves.
    for high in 0..=u16::MAX {
        let value = bf16::from_bits(high);
        for other in [bf16::from_f32(1.0), bf16::from_f32(-3.5e-3), value] {
            let mut sum = value.to_ne_bytes();
            kernel::reduce(
                ElementType::Bf16,
                Reduction::Sum,
                &mut sum,
                &other.to_ne_bytes(),
            );
            let sum = bf16::from_ne_bytes(sum);
            let expected = bf16::from_f32(value.to_f32() + other.to_f32());
            assert!(sum.to_bits() == expected.to_bits() || sum.is_nan() && expected.is_nan());
        }
    }
}
