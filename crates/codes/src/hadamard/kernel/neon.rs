//! NEON. A vector has 4 floats, and a pass holds 16 vectors in registers. Every 64-bit Arm
//! processor has NEON.
#![allow(unsafe_code)]

use core::arch::aarch64::{
    float32x4_t, uint16x4_t, vaddq_f32, vaddq_u32, vandq_u32, vbslq_u32, vceqq_f32, vdupq_n_f32,
    vdupq_n_u32, veorq_u32, vextq_f32, vld1_u16, vld1q_f32, vld1q_u32, vmovn_u32, vmulq_f32,
    vorrq_u32, vreinterpretq_f32_f64, vreinterpretq_f32_u32, vreinterpretq_f64_f32,
    vreinterpretq_u32_f32, vrev64q_f32, vshll_n_u16, vshrq_n_u32, vst1_u16, vst1q_f32, vsubq_f32,
    vtrn1q_f32, vtrn2q_f32, vzip1q_f64, vzip2q_f64,
};
use core::arch::asm;

use super::super::element::Format;
use super::vector::{Vector, Work};

/// Runs work with these vectors.
///
/// # Safety
/// No requirement: every 64-bit Arm has NEON. The function is `unsafe` only to match the other
/// kernels.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run(work: impl Work) {
    // SAFETY: every 64-bit Arm has NEON.
    unsafe { work.run::<Floats>() };
}

#[derive(Clone, Copy)]
struct Floats(float32x4_t);

/// The sign bit of a float.
const MINUS: u32 = 1 << 31;

// SAFETY of all blocks below: the caller guarantees what the trait requires.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Floats {
    const LANES: usize = 4;
    const LEVELS: u32 = 4;

    #[inline(always)]
    unsafe fn load(source: *const f32) -> Self {
        Self(unsafe { vld1q_f32(source) })
    }

    #[inline(always)]
    unsafe fn load_f16(source: *const u16) -> Self {
        unsafe {
            let (halves, floats): (uint16x4_t, float32x4_t);
            halves = vld1_u16(source);
            // The oldest supported compiler does not have the intrinsic.
            asm!(
                "fcvtl {floats:v}.4s, {halves:v}.4h",
                floats = out(vreg) floats,
                halves = in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags),
            );
            Self(floats)
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(source: *const u16) -> Self {
        Self(unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(source))) })
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32) {
        unsafe { vst1q_f32(target, self.0) };
    }

    #[inline(always)]
    unsafe fn store_f16(self, target: *mut u16) {
        unsafe {
            let halves: uint16x4_t;
            asm!(
                "fcvtn {halves:v}.4h, {floats:v}.4s",
                halves = out(vreg) halves,
                floats = in(vreg) self.0,
                options(pure, nomem, nostack, preserves_flags),
            );
            vst1_u16(target, halves);
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, target: *mut u16) {
        unsafe {
            // bf16 is the upper half of a float. The addition of 0x7FFF, and of the lowest bit that
            // stays, rounds to the nearest value with ties to even. A NaN is not rounded: it keeps
            // its upper half, with the quiet bit set.
            let bits = vreinterpretq_u32_f32(self.0);
            let high = vshrq_n_u32::<16>(bits);
            let odd = vandq_u32(high, vdupq_n_u32(1));
            let nearest = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
            let rounded = vshrq_n_u32::<16>(nearest);
            let quiet = vorrq_u32(high, vdupq_n_u32(0x40));
            let number = vceqq_f32(self.0, self.0);
            vst1_u16(target, vmovn_u32(vbslq_u32(number, rounded, quiet)));
        }
    }

    unsafe fn stream(_: *const f32, _: *mut u8, _: Format) {
        unreachable!("Rust has no stable way to write past the caches here");
    }

    #[inline(always)]
    unsafe fn end_stream() {}

    /// Does nothing: stable Rust has no prefetch for this architecture.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { vaddq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { vsubq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { vmulq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn within(self, level: u32) -> Self {
        // `other` has the partner of each lane. The XOR flips the sign of the upper lane of each
        // pair. So the lower lane becomes the sum, and the upper lane becomes the lower minus the
        // upper value.
        unsafe {
            let (other, signs) = match level {
                0 => (vrev64q_f32(self.0), [0, MINUS, 0, MINUS]),
                _ => (vextq_f32::<2>(self.0, self.0), [0, 0, MINUS, MINUS]),
            };
            let signed = veorq_u32(vreinterpretq_u32_f32(self.0), vld1q_u32(signs.as_ptr()));
            Self(vaddq_f32(other, vreinterpretq_f32_u32(signed)))
        }
    }

    #[inline(always)]
    unsafe fn transpose(
        source: *const f32,
        source_pitch: usize,
        target: *mut f32,
        target_pitch: usize,
    ) {
        unsafe {
            let a = vld1q_f32(source);
            let b = vld1q_f32(source.add(source_pitch));
            let c = vld1q_f32(source.add(2 * source_pitch));
            let d = vld1q_f32(source.add(3 * source_pitch));
            let even = vreinterpretq_f64_f32(vtrn1q_f32(a, b));
            let odd = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
            let next_even = vreinterpretq_f64_f32(vtrn1q_f32(c, d));
            let next_odd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
            let rows = [
                vzip1q_f64(even, next_even),
                vzip1q_f64(odd, next_odd),
                vzip2q_f64(even, next_even),
                vzip2q_f64(odd, next_odd),
            ];
            for (i, row) in rows.into_iter().enumerate() {
                vst1q_f32(target.add(i * target_pitch), vreinterpretq_f32_f64(row));
            }
        }
    }
}
