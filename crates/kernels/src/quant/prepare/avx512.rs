//! Quantising activations with AVX-512.

use super::super::layout::{InputLayout, Numbers};
use super::super::rows::Rows;
use pteron_tensor::DType;
use std::arch::x86_64::*;

/// The plain way, compiled for AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn lane_row(layout: &InputLayout, x: &Rows<'_>, row: usize, to: &mut [u8]) {
    super::lane_row(layout, x, row, to);
}

/// Prepares one row of signed bytes for sixteen lanes; `to` has the layout's row bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(super) fn quantised_row(layout: &InputLayout, x: &Rows<'_>, row: usize, to: &mut [u8]) {
    let lanes = layout.lanes;
    let (blocks, sums) = to.split_at_mut(layout.lane_sums_at());
    let sums: &mut [f32] = bytemuck::cast_slice_mut(sums);
    sums.fill(0.0);
    let (sum_shift, factor) = (layout.summed().trailing_zeros(), _mm512_set1_ps(layout.sum_factor()));
    let block = lanes.block();
    // Sums of two bytes, then of those; these need no int8 dot product.
    let pairs = |bytes| _mm512_maddubs_epi16(_mm512_set1_epi8(1), bytes);
    let fours = |pairs| _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
    for (index, to) in blocks.chunks_exact_mut(lanes.block_bytes()).enumerate() {
        let first = index * block;
        let mut scales = [0.0f32; 4];
        let mut quants = [_mm512_setzero_si512(); 2];
        for (half, quants) in quants.iter_mut().enumerate().take(block / 64) {
            let low = thirty_two(x, row, first + 64 * half, layout.k, &mut scales[2 * half]);
            let high = thirty_two(x, row, first + 64 * half + 32, layout.k, &mut scales[2 * half + 1]);
            *quants = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        }
        // SAFETY: a block has its vectors of bytes, a vector of scales and, where shifted, one of starts.
        unsafe {
            let to = to.as_mut_ptr();
            let scales = _mm512_broadcast_f32x4(_mm_loadu_ps(scales.as_ptr()));
            let (lane_sums, scales, after) = if lanes.per_lane == 8 {
                // Bytes at even and at odd places.
                let [low, high] = quants;
                let even = both(_mm512_cvtepi16_epi8(low), _mm512_cvtepi16_epi8(high));
                let odd = both(
                    _mm512_cvtepi16_epi8(_mm512_srli_epi16::<8>(low)),
                    _mm512_cvtepi16_epi8(_mm512_srli_epi16::<8>(high)),
                );
                _mm512_storeu_si512(to.cast(), even);
                _mm512_storeu_si512(to.add(64).cast(), odd);
                let sums = fours(_mm512_add_epi16(pairs(even), pairs(odd)));
                let order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
                (sums, _mm512_permutexvar_ps(order, scales), to.add(128))
            } else {
                _mm512_storeu_si512(to.cast(), quants[0]);
                let sums = fours(pairs(quants[0]));
                let order = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
                (sums, _mm512_permutexvar_ps(order, scales), to.add(64))
            };
            _mm512_storeu_ps(after.cast(), scales);
            if let Numbers::Int8Shifted { by } = lanes.numbers {
                let starts = _mm512_mullo_epi32(lane_sums, _mm512_set1_epi32(-i32::from(by)));
                _mm512_storeu_si512(after.add(64).cast(), starts);
            }
            let mut of_lanes = [0.0f32; 16];
            let summed = _mm512_mul_ps(_mm512_cvtepi32_ps(lane_sums), _mm512_mul_ps(scales, factor));
            _mm512_storeu_ps(of_lanes.as_mut_ptr(), summed);
            for (lane, of_lane) in of_lanes.iter().enumerate() {
                // Lanes beyond the row have sums of zero, and the sums are padded.
                if let Some(sum) = sums.get_mut((first + lane * lanes.per_lane) >> sum_shift) {
                    *sum += of_lane;
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn both(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// 32 values of a row (zeros beyond `k`) as multiples of their largest magnitude's 127th part, which is the
/// scale; NaN where one is not finite.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn thirty_two(x: &Rows<'_>, row: usize, first: usize, k: usize, scale: &mut f32) -> __m256i {
    let left = k.saturating_sub(first).min(32);
    let mask = ((1u64 << left) - 1) as u32;
    let (low, high) =
        (sixteen(x, row, first, mask as __mmask16), sixteen(x, row, first + 16, (mask >> 16) as __mmask16));
    // Magnitudes order as their bits do, and NaN above all.
    let bits = |values| _mm512_castps_si512(_mm512_abs_ps(values));
    let largest = f32::from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(bits(low), bits(high))));
    if !largest.is_finite() {
        *scale = f32::NAN;
        return _mm256_setzero_si256();
    }
    *scale = largest / 127.0;
    // Below this, the reciprocal overflows; such values do not count beside any others.
    let inverse = _mm512_set1_ps(if largest < 1e-35 { 0.0 } else { 127.0 / largest });
    let quants = |values| _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(values, inverse)));
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(quants(low)), quants(high))
}

/// The values of a row that the mask names, from `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
pub(in super::super) fn sixteen(x: &Rows<'_>, row: usize, first: usize, mask: __mmask16) -> __m512 {
    let from = x.row(row).wrapping_add(first * x.dtype().size());
    // SAFETY: the mask names elements of the row only.
    unsafe {
        match x.dtype() {
            DType::F32 => _mm512_maskz_loadu_ps(mask, from.cast()),
            DType::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
            _ => {
                let wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            }
        }
    }
}
