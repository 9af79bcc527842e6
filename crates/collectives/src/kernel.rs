//! Arithmetic on tensors, as plain loops that the compiler vectorizes.
//!
//! Tensors are bytes without alignment. Arrays of bytes are converted to values and back, which
//! costs nothing on current machines. Trailing bytes that do not fill an element stay unchanged.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use crate::element::{ElementType, Reduction};

/// The number of half-precision values converted at a time. This many values stay in the
/// first-level cache.
const BLOCK: usize = 512;

/// `target = target (reduction) source`, value by value. `Mean` adds. [`divide`] completes it.
pub fn reduce(element: ElementType, reduction: Reduction, target: &mut [u8], source: &[u8]) {
    debug_assert_eq!(target.len(), source.len());
    match element {
        ElementType::F64 => reduce_f64(reduction, target, source),
        ElementType::F32 => reduce_f32(reduction, target, source),
        ElementType::F16 => reduce_f16(reduction, target, source),
        ElementType::Bf16 => reduce_bf16(reduction, target, source),
        ElementType::I64 => reduce_i64(reduction, target, source),
        ElementType::I32 => reduce_i32(reduction, target, source),
        ElementType::U8 => reduce_u8(reduction, target, source),
        ElementType::Bool => reduce_bool(reduction, target, source),
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
        ElementType::F16 => divide_f16(target, count),
        ElementType::Bf16 => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "groups have fewer than 2^24 ranks"
            )]
            let count = count as f32;
            each(target, |x| bf16_bytes(bf16_value(x) / count));
        }
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
            }
        }
    };
}

reduce_numbers!(reduce_f64, f64, |a, b| a + b, |a, b| a * b);
reduce_numbers!(reduce_f32, f32, |a, b| a + b, |a, b| a * b);
reduce_numbers!(reduce_i64, i64, i64::wrapping_add, i64::wrapping_mul);
reduce_numbers!(reduce_i32, i32, i32::wrapping_add, i32::wrapping_mul);
reduce_numbers!(reduce_u8, u8, u8::wrapping_add, u8::wrapping_mul);

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
    match reduction {
        Reduction::Sum | Reduction::Mean | Reduction::Max => fold(target, source, either),
        Reduction::Min | Reduction::Product => fold(target, source, both),
    }
}

fn reduce_bf16(reduction: Reduction, target: &mut [u8], source: &[u8]) {
    fn join(target: &mut [u8], source: &[u8], join: impl Fn(f32, f32) -> f32) {
        fold(target, source, |a, b| {
            bf16_bytes(join(bf16_value(a), bf16_value(b)))
        });
    }
    match reduction {
        Reduction::Sum | Reduction::Mean => join(target, source, |a, b| a + b),
        Reduction::Min => join(target, source, least),
        Reduction::Max => join(target, source, greatest),
        Reduction::Product => join(target, source, |a, b| a * b),
    }
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

fn reduce_f16(reduction: Reduction, target: &mut [u8], source: &[u8]) {
    let blocks = target.chunks_mut(2 * BLOCK).zip(source.chunks(2 * BLOCK));
    let (mut ours, mut theirs) = ([0.0; BLOCK], [0.0; BLOCK]);
    for (target, source) in blocks {
        let values = target.len() / 2;
        let (ours, theirs) = (&mut ours[..values], &mut theirs[..values]);
        load_f16(target, ours);
        load_f16(source, theirs);
        let pairs = ours.iter_mut().zip(theirs.iter());
        match reduction {
            Reduction::Sum | Reduction::Mean => pairs.for_each(|(a, b)| *a += b),
            Reduction::Min => pairs.for_each(|(a, b)| *a = least(*a, *b)),
            Reduction::Max => pairs.for_each(|(a, b)| *a = greatest(*a, *b)),
            Reduction::Product => pairs.for_each(|(a, b)| *a *= b),
        }
        store_f16(ours, target);
    }
}

fn divide_f16(target: &mut [u8], count: u32) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "groups have fewer than 2^24 ranks"
    )]
    let count = count as f32;
    let mut values = [0.0; BLOCK];
    for target in target.chunks_mut(2 * BLOCK) {
        let values = &mut values[..target.len() / 2];
        load_f16(target, values);
        values.iter_mut().for_each(|value| *value /= count);
        store_f16(values, target);
    }
}

fn load_f16(bytes: &[u8], out: &mut [f32]) {
    let mut bits = [0_u16; BLOCK];
    for (bits, bytes) in bits.iter_mut().zip(bytes.as_chunks().0) {
        *bits = u16::from_ne_bytes(*bytes);
    }
    let values = bits[..out.len()].reinterpret_cast::<f16>();
    values.convert_to_f32_slice(out);
}

fn store_f16(values: &[f32], out: &mut [u8]) {
    let mut bits = [0_u16; BLOCK];
    let narrow = bits[..values.len()].reinterpret_cast_mut::<f16>();
    narrow.convert_from_f32_slice(values);
    for (bytes, bits) in out.as_chunks_mut().0.iter_mut().zip(bits) {
        *bytes = bits.to_ne_bytes();
    }
}
