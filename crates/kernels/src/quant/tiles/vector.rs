//! What the tile kernels do with vectors: transposing, and storing rows of the output.

use super::super::rows::Sink;
use std::arch::x86_64::*;

/// Transposes 16 rows of 16 values of 32 bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose(rows: &mut [__m512i; 16]) {
    let mut pairs = [_mm512_setzero_si512(); 16];
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // Quad `4 * i + j` holds, in each 128 bits, column `j` of them of rows `4 * i..4 * i + 4`.
    let mut quads = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        quads[4 * i] = _mm512_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 1] = _mm512_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 2] = _mm512_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
        quads[4 * i + 3] = _mm512_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
    for j in 0..4 {
        let low = _mm512_shuffle_i32x4::<0b10_00_10_00>(quads[j], quads[4 + j]);
        let high = _mm512_shuffle_i32x4::<0b11_01_11_01>(quads[j], quads[4 + j]);
        let low_rest = _mm512_shuffle_i32x4::<0b10_00_10_00>(quads[8 + j], quads[12 + j]);
        let high_rest = _mm512_shuffle_i32x4::<0b11_01_11_01>(quads[8 + j], quads[12 + j]);
        rows[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low, low_rest);
        rows[8 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low, low_rest);
        rows[4 + j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(high, high_rest);
        rows[12 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(high, high_rest);
    }
}

/// Writes a tile of sums, whose rows are columns of the output, in the output's dtype.
///
/// # Safety
/// `sums` has 16 rows of 16 floats; the output has the first `rows` rows and `columns` columns from the given ones on, and
/// nobody else uses them now.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn store_tile(
    sums: *const f32,
    out: Sink,
    (first_row, rows): (usize, usize),
    (first_column, columns): (usize, usize),
) {
    // SAFETY: the caller's promise.
    let mut tile: [__m512i; 16] = std::array::from_fn(|i| unsafe { _mm512_loadu_si512(sums.add(16 * i).cast()) });
    transpose(&mut tile);
    let mask = ((1u32 << columns) - 1) as __mmask16;
    for (row, &values) in tile.iter().enumerate().take(rows) {
        // SAFETY: the caller's promise.
        unsafe { out.write_vector(first_row + row, first_column, mask, _mm512_castsi512_ps(values)) };
    }
}
