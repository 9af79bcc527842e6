//! Floats of 16 bits with AVX-512: 16 values at a time.

use core::arch::x86_64::{
    __m256i, __m512, _CMP_GT_OQ, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_NO_EXC,
    _MM_FROUND_TO_NEAREST_INT, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_div_ps, _mm512_mask_blend_ps,
    _mm512_mask_or_epi32, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32,
    _mm512_srli_epi32,
};

use super::float16::Format;
use super::loops::loops;
use crate::element::Reduction;

/// Bytes of a vector.
const BYTES: usize = 32;

loops! {
    "avx512f", __m256i, __m512,
    add: _mm512_add_ps, multiply: _mm512_mul_ps, divide: _mm512_div_ps, repeat: _mm512_set1_ps
}

#[inline]
#[target_feature(enable = "avx512f")]
fn from_f16(values: __m256i) -> __m512 {
    _mm512_cvtph_ps(values)
}

/// `a` where it compares with `b` as given, or is NaN, and `b` elsewhere.
#[inline]
#[target_feature(enable = "avx512f")]
fn choose<const COMPARISON: i32>(a: __m512, b: __m512) -> __m512 {
    let first = _mm512_cmp_ps_mask::<COMPARISON>(a, b);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
    _mm512_mask_blend_ps(first | nan, b, a)
}

/// Rounds to the nearest values.
#[inline]
#[target_feature(enable = "avx512f")]
fn f16(values: __m512) -> __m256i {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm512_cvtps_ph::<NEAREST>(values)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn from_bf16(values: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(values)))
}

/// Rounds to the nearest values by integer arithmetic, as the plain loop does: the instruction for
/// it treats subnormal values as zero.
#[inline]
#[target_feature(enable = "avx512f")]
fn bf16(values: __m512) -> __m256i {
    let bits = _mm512_castps_si512(values);
    let high = _mm512_srli_epi32::<16>(bits);
    let odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    let nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let rounded = _mm512_srli_epi32::<16>(nearest);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    let quiet = _mm512_set1_epi32(0x40);
    _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, quiet))
}
