//! Floats of 16 bits with AVX2 and F16C: 8 values at a time.

use core::arch::x86_64::{
    __m128i, __m256, _CMP_GT_OQ, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT,
    _mm_packus_epi32, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_blendv_ps,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmp_ps,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_div_ps,
    _mm256_extracti128_si256, _mm256_mul_ps, _mm256_or_ps, _mm256_or_si256, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32,
};

use super::float16::Format;
use super::loops::loops;
use crate::element::Reduction;

/// Bytes of a vector.
const BYTES: usize = 16;

loops! {
    "avx2,f16c", __m128i, __m256,
    add: _mm256_add_ps, multiply: _mm256_mul_ps, divide: _mm256_div_ps, repeat: _mm256_set1_ps
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn from_f16(values: __m128i) -> __m256 {
    _mm256_cvtph_ps(values)
}

/// `a` where it compares with `b` as given, or is NaN, and `b` elsewhere.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn choose<const COMPARISON: i32>(a: __m256, b: __m256) -> __m256 {
    let first = _mm256_cmp_ps::<COMPARISON>(a, b);
    let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a);
    _mm256_blendv_ps(b, a, _mm256_or_ps(first, nan))
}

/// Rounds to the nearest values.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn f16(values: __m256) -> __m128i {
    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn from_bf16(values: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(values)))
}

/// Rounds to the nearest values, as the plain loop does.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn bf16(values: __m256) -> __m128i {
    let bits = _mm256_castps_si256(values);
    let high = _mm256_srli_epi32::<16>(bits);
    let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    let nearest = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    let rounded = _mm256_castsi256_ps(_mm256_srli_epi32::<16>(nearest));
    let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
    let quiet = _mm256_castsi256_ps(_mm256_or_si256(high, _mm256_set1_epi32(0x40)));
    let chosen = _mm256_castps_si256(_mm256_blendv_ps(rounded, quiet, nan));
    // Values of 32 bits are cut to 16, of which none is above the largest.
    _mm_packus_epi32(
        _mm256_castsi256_si128(chosen),
        _mm256_extracti128_si256::<1>(chosen),
    )
}
