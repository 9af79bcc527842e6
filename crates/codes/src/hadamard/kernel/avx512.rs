//! AVX-512. A vector has 16 floats, and a pass holds 16 vectors in registers.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m256i, __m512, _CMP_UNORD_Q, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0,
    _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi32,
    _mm512_add_ps, _mm512_and_si512, _mm512_castpd_ps, _mm512_castps_pd, _mm512_castps_si512,
    _mm512_castsi256_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_fmadd_ps, _mm512_inserti64x4,
    _mm512_loadu_ps, _mm512_mask_or_epi32, _mm512_mul_ps, _mm512_permute_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setr_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_slli_epi32,
    _mm512_srli_epi32, _mm512_storeu_ps, _mm512_stream_ps, _mm512_stream_si512, _mm512_sub_ps,
    _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use super::super::element::Format;
use super::vector::{Vector, Work};

/// # Safety
/// The machine has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn run(work: impl Work) {
    // SAFETY: as the caller guarantees.
    unsafe { work.run::<Floats>() };
}

#[derive(Clone, Copy)]
struct Floats(__m512);

/// Permutations that swap neighbours, and neighbouring pairs: of floats, or of quarters of a
/// vector.
const NEIGHBOURS: i32 = 0b10_11_00_01;
const PAIRS: i32 = 0b01_00_11_10;
/// Permutations that take the even, or the odd, quarters of two vectors.
const EVEN: i32 = 0b10_00_10_00;
const ODD: i32 = 0b11_01_11_01;

// SAFETY of all blocks below: the caller guarantees what the trait requires.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Floats {
    const LANES: usize = 16;
    const LEVELS: u32 = 4;

    #[inline(always)]
    unsafe fn load(source: *const f32) -> Self {
        Self(unsafe { _mm512_loadu_ps(source) })
    }

    #[inline(always)]
    unsafe fn load_f16(source: *const u16) -> Self {
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(source.cast())) })
    }

    #[inline(always)]
    unsafe fn load_bf16(source: *const u16) -> Self {
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(source.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32) {
        unsafe { _mm512_storeu_ps(target, self.0) };
    }

    #[inline(always)]
    unsafe fn store_f16(self, target: *mut u16) {
        unsafe { _mm256_storeu_si256(target.cast(), self.to_f16()) };
    }

    #[inline(always)]
    unsafe fn store_bf16(self, target: *mut u16) {
        unsafe { _mm256_storeu_si256(target.cast(), self.to_bf16()) };
    }

    #[inline(always)]
    unsafe fn stream(source: *const f32, target: *mut u8, format: Format) {
        unsafe {
            let first = Self::load(source);
            let halves = match format {
                Format::F32 => return _mm512_stream_ps(target.cast(), first.0),
                Format::F16 => [first.to_f16(), Self::load(source.add(16)).to_f16()],
                Format::Bf16 => [first.to_bf16(), Self::load(source.add(16)).to_bf16()],
            };
            let low = _mm512_castsi256_si512(halves[0]);
            let line = _mm512_inserti64x4::<1>(low, halves[1]);
            _mm512_stream_si512(target.cast(), line);
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
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn within(self, level: u32) -> Self {
        // `other` has the partner of each lane. The factor is 1 for the lower and -1 for the upper
        // lane of each pair. So the lower lane becomes the sum, and the upper lane becomes the
        // lower minus the upper value. A product with 1 or -1 is exact, so the result is that of an
        // addition.
        unsafe {
            let (a, b, v) = (1.0, -1.0, self.0);
            let (other, signs) = match level {
                0 => (
                    _mm512_permute_ps::<NEIGHBOURS>(v),
                    _mm512_setr_ps(a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b),
                ),
                1 => (
                    _mm512_permute_ps::<PAIRS>(v),
                    _mm512_setr_ps(a, a, b, b, a, a, b, b, a, a, b, b, a, a, b, b),
                ),
                2 => (
                    _mm512_shuffle_f32x4::<NEIGHBOURS>(v, v),
                    _mm512_setr_ps(a, a, a, a, b, b, b, b, a, a, a, a, b, b, b, b),
                ),
                _ => (
                    _mm512_shuffle_f32x4::<PAIRS>(v, v),
                    _mm512_setr_ps(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b),
                ),
            };
            Self(_mm512_fmadd_ps(v, signs, other))
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
            // Transposes squares of 4 by 4 floats, then exchanges quarters. Quarter `q` of
            // `columns[c][i]` is column `4q + c` of rows `4i..4i + 4`.
            let mut columns = [[_mm512_setzero_ps(); 4]; 4];
            for i in [0, 1, 2, 3] {
                let source = source.add(4 * i * source_pitch);
                let a = _mm512_loadu_ps(source);
                let b = _mm512_loadu_ps(source.add(source_pitch));
                let c = _mm512_loadu_ps(source.add(2 * source_pitch));
                let d = _mm512_loadu_ps(source.add(3 * source_pitch));
                let low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
                let high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
                let next_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
                let next_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
                columns[0][i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, next_low));
                columns[1][i] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, next_low));
                columns[2][i] = _mm512_castpd_ps(_mm512_unpacklo_pd(high, next_high));
                columns[3][i] = _mm512_castpd_ps(_mm512_unpackhi_pd(high, next_high));
            }
            for (column, [a, b, c, d]) in columns.into_iter().enumerate() {
                let even = _mm512_shuffle_f32x4::<EVEN>(a, b);
                let odd = _mm512_shuffle_f32x4::<ODD>(a, b);
                let next_even = _mm512_shuffle_f32x4::<EVEN>(c, d);
                let next_odd = _mm512_shuffle_f32x4::<ODD>(c, d);
                let rows = [
                    _mm512_shuffle_f32x4::<EVEN>(even, next_even),
                    _mm512_shuffle_f32x4::<EVEN>(odd, next_odd),
                    _mm512_shuffle_f32x4::<ODD>(even, next_even),
                    _mm512_shuffle_f32x4::<ODD>(odd, next_odd),
                ];
                for (quarter, row) in rows.into_iter().enumerate() {
                    _mm512_storeu_ps(target.add((4 * quarter + column) * target_pitch), row);
                }
            }
        }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Floats {
    /// # Safety
    /// The machine has AVX-512F.
    #[inline(always)]
    unsafe fn to_f16(self) -> __m256i {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { _mm512_cvtps_ph::<NEAREST>(self.0) }
    }

    /// Converts by integer arithmetic, because the conversion instruction treats subnormal values
    /// as zero.
    ///
    /// # Safety
    /// The machine has AVX-512F.
    #[inline(always)]
    unsafe fn to_bf16(self) -> __m256i {
        unsafe {
            // bf16 is the upper half of a float. The addition of 0x7FFF, and of the lowest bit that
            // stays, rounds to the nearest value with ties to even. A NaN is not rounded: it keeps
            // its upper half, with the quiet bit set.
            let bits = _mm512_castps_si512(self.0);
            let high = _mm512_srli_epi32::<16>(bits);
            let odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
            let nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
            let rounded = _mm512_srli_epi32::<16>(nearest);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let quiet = _mm512_set1_epi32(0x40);
            _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, quiet))
        }
    }
}
