//! What the tile kernels do with vectors: transposing, and storing rows of the output.

use super::super::rows::Sink;
use super::input::halved;
use super::{Job, PANEL, Part, TILE};
use pteron_tensor::DType;
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

/// Writes the sums of a part, whose tiles have the output's columns as rows, in the output's dtype.
///
/// # Safety
/// `sums` has two tiles for every panel and strip, panel by panel; the part exists, and nobody else uses its
/// columns of the output now.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
pub(super) unsafe fn store_part(job: &Job<'_>, part: &Part, sums: *const f32) {
    let first_column = part.panels.start * PANEL;
    let columns = job.weight.n.min(part.panels.end * PANEL) - first_column;
    let is_half = job.out.dtype() != DType::F32;
    for strip in 0..part.row_tiles() {
        let first_row = part.rows.start + strip * TILE;
        let rows = TILE.min(part.rows.end - first_row);
        for column_tile in 0..columns.div_ceil(TILE) {
            let (panel, half) = (column_tile / 2, column_tile % 2);
            let tile = sums.wrapping_add(((panel * part.row_tiles() + strip) * 2 + half) * TILE * TILE);
            let left = columns - column_tile * TILE;
            let place = Place { row: first_row, rows, column: first_column + column_tile * TILE };
            // SAFETY: the caller's promise.
            unsafe {
                if is_half && left >= TILE {
                    store_halves(&job.out, tile, place);
                } else {
                    store_tile(&job.out, tile, place, left);
                }
            }
        }
    }
}

/// Where a tile of sums goes: its first row of the output, how many rows there are, and its first column.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    rows: usize,
    column: usize,
}

/// Writes so many columns of a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn store_tile(out: &Sink, sums: *const f32, place: Place, columns: usize) {
    let mask = (u32::MAX >> (32 - TILE.min(columns))) as __mmask16;
    // SAFETY: a tile of sums, and the rows and columns of the output that it goes to.
    unsafe {
        let mut tile = std::array::from_fn(|i| _mm512_loadu_si512(sums.add(TILE * i).cast()));
        transpose(&mut tile);
        for (row, values) in tile.into_iter().enumerate().take(place.rows) {
            out.write_vector(place.row + row, place.column, mask, _mm512_castsi512_ps(values));
        }
    }
}

/// Writes a whole tile as f16 or bf16. Neighbouring columns are put together before they are transposed, which
/// is then half the work.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
unsafe fn store_halves(out: &Sink, sums: *const f32, place: Place) {
    let apart: [i16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * 16) as i16);
    // SAFETY: a tile of sums, and the rows and columns of the output that it goes to.
    unsafe {
        let apart = _mm512_loadu_si512(apart.as_ptr().cast());
        // 32 bits `m` of pair `i` are columns `2 * i` and `2 * i + 1` of row `m`.
        let pairs: [__m512i; 8] = std::array::from_fn(|i| {
            let even = _mm512_loadu_ps(sums.add(2 * TILE * i));
            let odd = _mm512_loadu_ps(sums.add(2 * TILE * i + TILE));
            let both = if out.dtype() == DType::F16 {
                let even = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(even);
                let odd = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(odd);
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(even), odd)
            } else {
                halved(even, odd)
            };
            _mm512_permutexvar_epi16(apart, both)
        });
        // The `l`-th 128 bits of quad `j` are the first eight columns of row `4 * l + j`; then the other eight.
        let mut quads = [_mm512_setzero_si512(); 8];
        for (four, quads) in pairs.chunks_exact(4).zip(quads.chunks_exact_mut(4)) {
            let (ab, cd) = (_mm512_unpacklo_epi32(four[0], four[1]), _mm512_unpacklo_epi32(four[2], four[3]));
            quads[0] = _mm512_unpacklo_epi64(ab, cd);
            quads[1] = _mm512_unpackhi_epi64(ab, cd);
            let (ab, cd) = (_mm512_unpackhi_epi32(four[0], four[1]), _mm512_unpackhi_epi32(four[2], four[3]));
            quads[2] = _mm512_unpacklo_epi64(ab, cd);
            quads[3] = _mm512_unpackhi_epi64(ab, cd);
        }
        let (low, high) =
            (_mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15));
        for j in 0..4 {
            for (first, order) in [(j, low), (8 + j, high)] {
                let rows = _mm512_permutex2var_epi64(quads[j], order, quads[4 + j]);
                if first < place.rows {
                    let to = out.place(place.row + first, place.column);
                    _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(rows));
                }
                if first + 4 < place.rows {
                    let to = out.place(place.row + first + 4, place.column);
                    _mm256_storeu_si256(to.cast(), _mm512_extracti64x4_epi64::<1>(rows));
                }
            }
        }
    }
}
