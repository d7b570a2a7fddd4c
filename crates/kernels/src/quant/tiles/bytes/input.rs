//! Activations as bytes: for each 16 of them a sequence of tiles along the row. Row `r` of a tile holds values
//! `4r..4r + 4` of each of the 16. Where codes are nibbles, the even ones of 64 values come before the odd
//! ones.

use super::super::super::layout::{InputLayout, TileLayout};
use super::super::super::prepare::avx512::sixteen;
use super::super::super::rows::Rows;
use super::super::input::Target;
use super::super::vector::transpose;
use super::super::{BLOCK, TILE, TILE_BYTES, UNIT};
use super::narrow;
use crate::pool::Pool;
use std::arch::x86_64::*;

/// Where things are among prepared activations: blocks along the row, in each the strips of 16 activations
/// one after another; then, for each block and strip, 16 scales.
#[derive(Clone, Copy)]
pub(super) struct Places {
    strips: usize,
    k: usize,
}

impl Places {
    pub(super) fn new(layout: &InputLayout, rows: usize) -> Places {
        Places { strips: rows.div_ceil(TILE), k: layout.k }
    }

    fn bytes(values: usize) -> usize {
        values.div_ceil(UNIT) * TILE_BYTES
    }

    /// Bytes of a strip in the block that starts at a value.
    pub(super) fn strip_bytes(self, start: usize) -> usize {
        Places::bytes(BLOCK.min(self.k - start))
    }

    /// Where a strip's part of the block that starts at a value is.
    pub(super) fn strip(self, start: usize, strip: usize) -> usize {
        self.strips * Places::bytes(start) + strip * self.strip_bytes(start)
    }

    /// Where the scales of a strip are in the block that starts at a value.
    pub(super) fn scales(self, start: usize, strip: usize) -> usize {
        self.strips * Places::bytes(self.k) + (start / BLOCK * self.strips + strip) * TILE * 4
    }

    fn end(self) -> usize {
        self.scales(self.k.next_multiple_of(BLOCK), 0)
    }
}

/// Bytes of so many prepared activations.
pub(in super::super) fn input_bytes(layout: &InputLayout, rows: usize) -> usize {
    Places::new(layout, rows).end()
}

/// Prepares all rows; `to` has at least [`input_bytes`].
pub(in super::super) fn prepare(
    layout: &InputLayout,
    tiles: TileLayout,
    pool: &Pool,
    x: &Rows<'_>,
    to: &mut [u8],
) {
    let places = Places::new(layout, x.rows());
    let to = Target(to.as_mut_ptr());
    let order = order(tiles.nibbles);
    pool.run(places.strips, &|strip| {
        for start in (0..layout.k).step_by(BLOCK) {
            let scales = to.at(places.scales(start, strip)).cast();
            // SAFETY: a layout for tiles is chosen only where the machine has AVX-512 with VBMI; each strip is
            // one task's, and all of its places lie inside the memory.
            unsafe {
                let tiles = to.at(places.strip(start, strip));
                prepare_block(places.k, x, strip * TILE, start, &order, tiles, scales);
            }
        }
    });
}

/// For each byte of 64 values in the order of their tiles, where [`narrow`] left it.
fn order(nibbles: bool) -> [u8; UNIT] {
    std::array::from_fn(|at| {
        let value = match at {
            _ if !nibbles => at,
            _ if at < UNIT / 2 => 2 * at,
            _ => 2 * (at - UNIT / 2) + 1,
        };
        (value % 16 / 4 * 16 + value / 16 * 4 + value % 4) as u8
    })
}

/// Prepares the block from `start` on of the 16 rows from `first` on.
///
/// # Safety
/// The machine has what is enabled; there is room for the block's tiles and for 16 scales.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,f16c")]
unsafe fn prepare_block(
    k: usize,
    x: &Rows<'_>,
    first: usize,
    start: usize,
    order: &[u8; UNIT],
    to: *mut u8,
    scales: *mut f32,
) {
    let len = BLOCK.min(k - start);
    // SAFETY: the array has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    let mut planes = [[_mm512_setzero_si512(); TILE]; BLOCK / UNIT];
    let mut of_rows = [0.0f32; TILE];
    for row in 0..TILE.min(x.rows() - first) {
        let values: [__m512; BLOCK / 16] = std::array::from_fn(|i| {
            let left = len.saturating_sub(16 * i).min(16);
            sixteen(x, first + row, start + 16 * i, ((1u32 << left) - 1) as __mmask16)
        });
        // Magnitudes order as their bits do, and NaN above all.
        let bits = |values| _mm512_castps_si512(_mm512_abs_ps(values));
        let largest =
            values.iter().fold(_mm512_setzero_si512(), |most, &of| _mm512_max_epu32(most, bits(of)));
        let largest = f32::from_bits(_mm512_reduce_max_epu32(largest));
        let (scale, inverse) = super::scale_and_inverse(largest);
        of_rows[row] = scale;
        let inverse = _mm512_set1_ps(inverse);
        let rounded = |values| _mm512_cvtps_epi32(_mm512_mul_ps(values, inverse));
        for (values, plane) in values.chunks_exact(4).zip(&mut planes) {
            let bytes =
                narrow(rounded(values[0]), rounded(values[1]), rounded(values[2]), rounded(values[3]));
            plane[row] = _mm512_permutexvar_epi8(order, bytes);
        }
    }
    for (unit, plane) in planes.iter_mut().enumerate().take(len.div_ceil(UNIT)) {
        transpose(plane);
        let tile = to.wrapping_add(unit * TILE_BYTES);
        for (row, line) in plane.iter().enumerate() {
            // SAFETY: the tile lies in the strip's block.
            unsafe { _mm512_storeu_si512(tile.wrapping_add(64 * row).cast(), *line) };
        }
    }
    // SAFETY: there is room for 16 floats.
    unsafe { _mm512_storeu_ps(scales, _mm512_loadu_ps(of_rows.as_ptr())) };
}
