//! What the tile kernels do with vectors: transposing, and storing rows of the output.

use super::{Job, PANEL, Part, TASK_PANELS, TILE};
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

/// Writes the sums of a part, whose tiles have the output's columns as rows, in the output's dtype. Sixteen
/// rows of the output at a time, each along all of the part's columns, so that lines are written whole.
///
/// # Safety
/// `sums` has two tiles for every panel and strip, panel by panel; the part exists, and nobody else uses its
/// columns of the output now.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn store_part(job: &Job<'_>, part: &Part, sums: *const f32) {
    const COLUMNS: usize = TASK_PANELS * PANEL;
    let mut rows_of_strip = [_mm512_setzero_ps(); TILE * COLUMNS / 16];
    let first_column = part.panels.start * PANEL;
    let columns = job.weight.n.min(part.panels.end * PANEL) - first_column;
    for strip in 0..part.row_tiles() {
        let first_row = part.rows.start + strip * TILE;
        let rows = TILE.min(part.rows.end - first_row);
        for column_tile in 0..columns.div_ceil(TILE) {
            let (panel, half) = (column_tile / 2, column_tile % 2);
            let tile = ((panel * part.row_tiles() + strip) * 2 + half) * TILE * TILE;
            // SAFETY: the caller's promise.
            let mut tile: [__m512i; 16] =
                std::array::from_fn(|i| unsafe { _mm512_loadu_si512(sums.add(tile + 16 * i).cast()) });
            transpose(&mut tile);
            for (row, values) in tile.into_iter().enumerate().take(rows) {
                rows_of_strip[row * COLUMNS / 16 + column_tile] = _mm512_castsi512_ps(values);
            }
        }
        for row in 0..rows {
            for column in (0..columns).step_by(16) {
                let mask = (u32::MAX >> (32 - 16.min(columns - column))) as __mmask16;
                let values = rows_of_strip[(row * COLUMNS + column) / 16];
                // SAFETY: the caller's promise.
                unsafe { job.out.write_vector(first_row + row, first_column + column, mask, values) };
            }
        }
    }
}
