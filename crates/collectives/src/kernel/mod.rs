//! Arithmetic on tensors: plain loops that the compiler vectorizes, and `float16` for floats of
//! 16 bits.
//!
//! Tensors are bytes without alignment. Arrays of bytes are converted to values and back, which
//! costs nothing on current machines. Trailing bytes that do not fill an element stay unchanged.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float16;
#[cfg(target_arch = "x86_64")]
mod loops;

use crate::element::{ElementType, Reduction};
use float16::{Format, Vectors};

/// `target = target (reduction) source`, value by value. `Mean` adds. [`divide`] completes it.
pub fn reduce(element: ElementType, reduction: Reduction, target: &mut [u8], source: &[u8]) {
    debug_assert_eq!(target.len(), source.len());
    match element {
        ElementType::F64 => reduce_f64(reduction, target, source),
        ElementType::F32 => reduce_f32(reduction, target, source),
        ElementType::F16 | ElementType::Bf16 => {
            let format = match element {
                ElementType::F16 => Format::F16,
                _ => Format::Bf16,
            };
            float16::reduce(Vectors::here(), format, reduction, target, source);
        }
        ElementType::I64 => reduce_i64(reduction, target, source),
        ElementType::I32 => reduce_i32(reduction, target, source),
        ElementType::U8 => reduce_u8(reduction, target, source),
        ElementType::Bool => reduce_bool(reduction, target, source),
        ElementType::I8 => reduce_i8(reduction, target, source),
    }
}

/// Divides every value by `count`, which must not be 0. Floats are rounded to nearest, integers
/// toward 0.
pub fn divide(element: ElementType, target: &mut [u8], count: u32) {
    match element {
        ElementType::F64 => each(target, |x| {
            (f64::from_ne_bytes(x) / f64::from(count)).to_ne_bytes()
        }),
        ElementType::F32 => {
            // Counts above 2^24 would be rounded. Groups are far smaller.
            #[expect(
                clippy::cast_precision_loss,
                reason = "groups have fewer than 2^24 ranks"
            )]
            let count = count as f32;
            each(target, |x| (f32::from_ne_bytes(x) / count).to_ne_bytes());
        }
        ElementType::F16 => float16::divide(Vectors::here(), Format::F16, target, count),
        ElementType::Bf16 => float16::divide(Vectors::here(), Format::Bf16, target, count),
        ElementType::I64 => each(target, |x| {
            (i64::from_ne_bytes(x) / i64::from(count)).to_ne_bytes()
        }),
        ElementType::I32 => each(target, |x| {
            let quotient = i64::from(i32::from_ne_bytes(x)) / i64::from(count);
            i32::try_from(quotient).unwrap_or(0).to_ne_bytes()
        }),
        ElementType::U8 => each(target, |[x]: [u8; 1]| {
            [u8::try_from(u32::from(x) / count).unwrap_or(0)]
        }),
        ElementType::Bool => {}
        ElementType::I8 => each(target, |x| {
            let quotient = i64::from(i8::from_ne_bytes(x)) / i64::from(count);
            i8::try_from(quotient).unwrap_or(0).to_ne_bytes()
        }),
    }
}

/// `target[i] = change(target[i])`.
fn each<const N: usize>(target: &mut [u8], change: impl Fn([u8; N]) -> [u8; N]) {
    for value in target.as_chunks_mut::<N>().0 {
        *value = change(*value);
    }
}

/// `target[i] = join(target[i], source[i])`.
fn fold<const N: usize>(
    target: &mut [u8],
    source: &[u8],
    join: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (target, source) = (target.as_chunks_mut::<N>().0, source.as_chunks::<N>().0);
    for (target, source) in target.iter_mut().zip(source) {
        *target = join(*target, *source);
    }
}

/// Defines a function for a type of numbers: `$add` and `$multiply` define the sum and the product.
macro_rules! reduce_numbers {
    ($name:ident, $number:ty, $add:expr, $multiply:expr) => {
        fn $name(reduction: Reduction, target: &mut [u8], source: &[u8]) {
            fn join(target: &mut [u8], source: &[u8], join: impl Fn($number, $number) -> $number) {
                fold(target, source, |a, b| {
                    join(<$number>::from_ne_bytes(a), <$number>::from_ne_bytes(b)).to_ne_bytes()
                });
            }
            match reduction {
                Reduction::Sum | Reduction::Mean => join(target, source, $add),
                Reduction::Min => join(target, source, |a, b| least(a, b)),
                Reduction::Max => join(target, source, |a, b| greatest(a, b)),
                Reduction::Product => join(target, source, $multiply),
                Reduction::And => {
                    join_bits::<{ size_of::<$number>() }>(target, source, |a, b| a & b)
                }
                Reduction::Or => {
                    join_bits::<{ size_of::<$number>() }>(target, source, |a, b| a | b)
                }
                Reduction::Xor => {
                    join_bits::<{ size_of::<$number>() }>(target, source, |a, b| a ^ b)
                }
            }
        }
    };
}

reduce_numbers!(reduce_f64, f64, |a, b| a + b, |a, b| a * b);
reduce_numbers!(reduce_f32, f32, |a, b| a + b, |a, b| a * b);
reduce_numbers!(reduce_i64, i64, i64::wrapping_add, i64::wrapping_mul);
reduce_numbers!(reduce_i32, i32, i32::wrapping_add, i32::wrapping_mul);
reduce_numbers!(reduce_i8, i8, i8::wrapping_add, i8::wrapping_mul);
reduce_numbers!(reduce_u8, u8, u8::wrapping_add, u8::wrapping_mul);

/// Joins values of `N` bytes bit by bit.
fn join_bits<const N: usize>(target: &mut [u8], source: &[u8], join: impl Fn(u8, u8) -> u8) {
    fold(target, source, |a: [u8; N], b| {
        std::array::from_fn(|byte| join(a[byte], b[byte]))
    });
}

/// The smaller value; NaN if either value is NaN.
#[inline]
#[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
fn least<T: PartialOrd + Copy>(a: T, b: T) -> T {
    if a < b || a != a { a } else { b }
}

/// The greater value; NaN if either value is NaN.
#[inline]
#[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
fn greatest<T: PartialOrd + Copy>(a: T, b: T) -> T {
    if a > b || a != a { a } else { b }
}

fn reduce_bool(reduction: Reduction, target: &mut [u8], source: &[u8]) {
    let either = |[a]: [u8; 1], [b]: [u8; 1]| [u8::from(a | b != 0)];
    let both = |[a]: [u8; 1], [b]: [u8; 1]| [u8::from(a != 0) & u8::from(b != 0)];
    let one = |[a]: [u8; 1], [b]: [u8; 1]| [u8::from((a != 0) != (b != 0))];
    match reduction {
        Reduction::Sum | Reduction::Mean | Reduction::Max | Reduction::Or => {
            fold(target, source, either);
        }
        Reduction::Min | Reduction::Product | Reduction::And => fold(target, source, both),
        Reduction::Xor => fold(target, source, one),
    }
}
