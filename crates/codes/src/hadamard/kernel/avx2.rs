//! AVX2 with F16C. A vector has 8 floats, and a pass holds 8 vectors in registers.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m128i, __m256, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_loadu_si128,
    _mm_packus_epi32, _mm_prefetch, _mm_sfence, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_ps,
    _mm256_and_si256, _mm256_blendv_epi8, _mm256_castpd_ps, _mm256_castps_pd, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmp_ps, _mm256_cvtepu16_epi32,
    _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_mul_ps,
    _mm256_or_si256, _mm256_permute_ps, _mm256_permute2f128_ps, _mm256_set_m128i,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_ps, _mm256_setzero_ps, _mm256_slli_epi32,
    _mm256_srli_epi32, _mm256_storeu_ps, _mm256_stream_ps, _mm256_stream_si256, _mm256_sub_ps,
    _mm256_unpackhi_pd, _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps, _mm256_xor_ps,
};

use super::super::element::Format;
use super::vector::{Vector, Work};

/// # Safety
/// The machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn run(work: impl Work) {
    // SAFETY: as the caller guarantees.
    unsafe { work.run::<Floats>() };
}

#[derive(Clone, Copy)]
struct Floats(__m256);

/// Permutations that swap neighbouring floats, and neighbouring pairs of floats.
const NEIGHBOURS: i32 = 0b10_11_00_01;
const PAIRS: i32 = 0b01_00_11_10;
/// Permutations of halves: swap the halves of a vector; take the low halves, or the high halves, of
/// two vectors.
const HALVES: i32 = 0x01;
const LOW: i32 = 0x20;
const HIGH: i32 = 0x31;

// SAFETY of all blocks below: the caller guarantees what the trait requires.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Floats {
    const LANES: usize = 8;
    const LEVELS: u32 = 3;

    #[inline(always)]
    unsafe fn load(source: *const f32) -> Self {
        Self(unsafe { _mm256_loadu_ps(source) })
    }

    #[inline(always)]
    unsafe fn load_f16(source: *const u16) -> Self {
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(source.cast())) })
    }

    #[inline(always)]
    unsafe fn load_bf16(source: *const u16) -> Self {
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(source.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32) {
        unsafe { _mm256_storeu_ps(target, self.0) };
    }

    #[inline(always)]
    unsafe fn store_f16(self, target: *mut u16) {
        unsafe { _mm_storeu_si128(target.cast(), self.to_f16()) };
    }

    #[inline(always)]
    unsafe fn store_bf16(self, target: *mut u16) {
        unsafe { _mm_storeu_si128(target.cast(), self.to_bf16()) };
    }

    #[inline(always)]
    unsafe fn stream(source: *const f32, target: *mut u8, format: Format) {
        unsafe {
            for half in 0..2 {
                let target = target.add(32 * half);
                if format == Format::F32 {
                    _mm256_stream_ps(target.cast(), _mm256_loadu_ps(source.add(8 * half)));
                    continue;
                }
                let low = Self::load(source.add(16 * half));
                let high = Self::load(source.add(16 * half + 8));
                let (low, high) = match format {
                    Format::F16 => (low.to_f16(), high.to_f16()),
                    _ => (low.to_bf16(), high.to_bf16()),
                };
                _mm256_stream_si256(target.cast(), _mm256_set_m128i(high, low));
            }
        }
    }

    #[inline(always)]
    unsafe fn end_stream() {
        unsafe { _mm_sfence() };
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn within(self, level: u32) -> Self {
        // `other` has the partner of each lane. The XOR flips the sign of the upper lane of each
        // pair. So the lower lane becomes the sum, and the upper lane becomes the lower minus the
        // upper value.
        unsafe {
            let (a, b, v) = (0.0, -0.0, self.0);
            let (other, signs) = match level {
                0 => (
                    _mm256_permute_ps::<NEIGHBOURS>(v),
                    _mm256_setr_ps(a, b, a, b, a, b, a, b),
                ),
                1 => (
                    _mm256_permute_ps::<PAIRS>(v),
                    _mm256_setr_ps(a, a, b, b, a, a, b, b),
                ),
                _ => (
                    _mm256_permute2f128_ps::<HALVES>(v, v),
                    _mm256_setr_ps(a, a, a, a, b, b, b, b),
                ),
            };
            Self(_mm256_add_ps(other, _mm256_xor_ps(v, signs)))
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
            // Transposes squares of 4 by 4 floats, then exchanges halves. Half `h` of
            // `columns[c][i]` is column `4h + c` of rows `4i..4i + 4`.
            let mut columns = [[_mm256_setzero_ps(); 2]; 4];
            for i in [0, 1] {
                let source = source.add(4 * i * source_pitch);
                let a = _mm256_loadu_ps(source);
                let b = _mm256_loadu_ps(source.add(source_pitch));
                let c = _mm256_loadu_ps(source.add(2 * source_pitch));
                let d = _mm256_loadu_ps(source.add(3 * source_pitch));
                let low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
                let high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
                let next_low = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
                let next_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
                columns[0][i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, next_low));
                columns[1][i] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, next_low));
                columns[2][i] = _mm256_castpd_ps(_mm256_unpacklo_pd(high, next_high));
                columns[3][i] = _mm256_castpd_ps(_mm256_unpackhi_pd(high, next_high));
            }
            for (column, [a, b]) in columns.into_iter().enumerate() {
                let low = _mm256_permute2f128_ps::<LOW>(a, b);
                let high = _mm256_permute2f128_ps::<HIGH>(a, b);
                _mm256_storeu_ps(target.add(column * target_pitch), low);
                _mm256_storeu_ps(target.add((4 + column) * target_pitch), high);
            }
        }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Floats {
    /// # Safety
    /// The machine has F16C.
    #[inline(always)]
    unsafe fn to_f16(self) -> __m128i {
        unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0) }
    }

    /// # Safety
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn to_bf16(self) -> __m128i {
        unsafe {
            // bf16 is the upper half of a float. The addition of 0x7FFF, and of the lowest bit that
            // stays, rounds to the nearest value with ties to even. A NaN is not rounded: it keeps
            // its upper half, with the quiet bit set.
            let bits = _mm256_castps_si256(self.0);
            let high = _mm256_srli_epi32::<16>(bits);
            let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
            let nearest = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
            let rounded = _mm256_srli_epi32::<16>(nearest);
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
            let quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
            let rounded = _mm256_blendv_epi8(rounded, quiet, nan);
            _mm_packus_epi32(
                _mm256_castsi256_si128(rounded),
                _mm256_extracti128_si256::<1>(rounded),
            )
        }
    }
}
