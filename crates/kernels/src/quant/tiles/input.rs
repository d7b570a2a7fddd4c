//! Activations as the right operand: for each 16 of them a sequence of tiles along the row. Row `r` of a tile
//! holds values `2r` and `2r + 1` of each of the 16 as a pair of bf16. Where codes are nibbles, the first
//! tile of 64 values has the even ones and the second the odd ones. An activation that bf16 cannot hold is a
//! sum of up to three, in tiles after each other.

use super::super::layout::{InputLayout, TileLayout};
use super::super::rows::Rows;
use super::vector::transpose;
use super::{BLOCK, TILE, TILE_BYTES, UNIT};
use crate::pool::Pool;
use pteron_tensor::DType;
use std::arch::x86_64::*;

/// Where things are among prepared activations. Blocks of values along the row come first, in each block the
/// strips of 16 activations one after another: what is used together lies together, at addresses that do not
/// crowd the same sets of a cache. Then the sums of the groups, 16 floats each, strip by strip.
#[derive(Clone, Copy)]
pub(super) struct Places {
    strips: usize,
    k: usize,
    groups: usize,
    tiles: TileLayout,
}

impl Places {
    pub(super) fn new(layout: &InputLayout, tiles: TileLayout, rows: usize) -> Places {
        Places { strips: rows.div_ceil(TILE), k: layout.k, groups: layout.k / layout.group, tiles }
    }

    /// Bytes of so many values of a strip.
    fn bytes(self, values: usize) -> usize {
        values.div_ceil(UNIT) * 2 * self.tiles.terms * TILE_BYTES
    }

    /// Bytes of a strip in the block that starts at a value.
    pub(super) fn strip_bytes(self, start: usize) -> usize {
        self.bytes(BLOCK.min(self.k - start))
    }

    /// Where a strip's part of the block that starts at a value is.
    pub(super) fn strip(self, start: usize, strip: usize) -> usize {
        self.strips * self.bytes(start) + strip * self.strip_bytes(start)
    }

    /// Where a strip's sums of the groups are.
    pub(super) fn sums(self, strip: usize) -> usize {
        self.strips * self.bytes(self.k) + if self.tiles.sums { strip * self.groups * TILE * 4 } else { 0 }
    }
}

/// Bytes of so many prepared activations.
pub(in super::super) fn input_bytes(layout: &InputLayout, tiles: TileLayout, rows: usize) -> usize {
    let places = Places::new(layout, tiles, rows);
    places.sums(places.strips)
}

/// Where the threads put what they prepare.
struct Target(*mut u8);

// SAFETY: a place and nothing more; each thread writes its own strips.
unsafe impl Sync for Target {}

impl Target {
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Prepares all rows; `to` has at least [`input_bytes`].
pub(in super::super) fn prepare(
    layout: &InputLayout,
    tiles: TileLayout,
    pool: &Pool,
    x: &Rows<'_>,
    to: &mut [u8],
) {
    let places = Places::new(layout, tiles, x.rows());
    let to = Target(to.as_mut_ptr());
    pool.run(places.strips, &|strip| {
        // SAFETY: a layout for tiles is chosen only where the machine has AVX-512 with BF16; each strip is
        // one task's, and all of its places lie inside the memory.
        unsafe {
            for start in (0..layout.k).step_by(BLOCK) {
                prepare_block(places, x, strip * TILE, start, to.at(places.strip(start, strip)));
            }
            if tiles.sums {
                add_sums(layout, x, strip * TILE, to.at(places.sums(strip)).cast());
            }
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn prepare_block(places: Places, x: &Rows<'_>, first: usize, start: usize, to: *mut u8) {
    let rows = TILE.min(x.rows() - first);
    let terms = places.tiles.terms;
    for (unit, at) in (start..places.k.min(start + BLOCK)).step_by(UNIT).enumerate() {
        // The two halves of each term: even and odd values, or the first 32 and the second.
        let mut planes = [[_mm512_setzero_si512(); TILE]; 6];
        let len = UNIT.min(places.k - at);
        for row in 0..rows {
            let parts = split(x, first + row, at, len, terms);
            for (&(low, high), planes) in parts.iter().zip(planes.chunks_exact_mut(2)).take(terms) {
                let (left, right) = if places.tiles.nibbles { even_and_odd(low, high) } else { (low, high) };
                planes[0][row] = left;
                planes[1][row] = right;
            }
        }
        for index in 0..2 * terms {
            // Tiles come as they are used: all terms of the first half, then all of the second.
            let (half, term) = (index / terms, index % terms);
            let plane = &mut planes[2 * term + half];
            transpose(plane);
            let tile = to.wrapping_add((unit * 2 * terms + index) * TILE_BYTES);
            for (row, line) in plane.iter().enumerate() {
                // SAFETY: the tile lies in the strip's block.
                unsafe { _mm512_storeu_si512(tile.wrapping_add(64 * row).cast(), *line) };
            }
        }
    }
}

/// 64 values of a row (zeros beyond `len`) as sums of `terms` bf16, two vectors of 32 for each term.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn split(x: &Rows<'_>, row: usize, at: usize, len: usize, terms: usize) -> [(__m512i, __m512i); 3] {
    let from = x.row(row).wrapping_add(at * x.dtype().size());
    let mask = u64::MAX >> (UNIT - len);
    let mut parts = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 3];
    if x.dtype() == DType::BF16 {
        let half = |i: usize| {
            // SAFETY: the mask names elements of the row only.
            unsafe {
                _mm512_maskz_loadu_epi16(
                    (mask >> (32 * i)) as __mmask32,
                    from.cast::<i16>().wrapping_add(32 * i),
                )
            }
        };
        parts[0] = (half(0), half(1));
        return parts;
    }
    let mut values: [__m512; 4] = std::array::from_fn(|i| {
        let mask = (mask >> (16 * i)) as __mmask16;
        // SAFETY: the mask names elements of the row only.
        unsafe {
            if x.dtype() == DType::F32 {
                _mm512_maskz_loadu_ps(mask, from.cast::<f32>().wrapping_add(16 * i))
            } else {
                _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast::<i16>().wrapping_add(16 * i)))
            }
        }
    });
    for part in parts.iter_mut().take(terms) {
        part.0 = halved(values[0], values[1]);
        part.1 = halved(values[2], values[3]);
        for (i, value) in values.iter_mut().enumerate() {
            let taken = if i < 2 { part.0 } else { part.1 };
            let taken = if i % 2 == 0 {
                _mm512_castsi512_si256(taken)
            } else {
                _mm512_extracti64x4_epi64::<1>(taken)
            };
            let taken = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(taken)));
            // Nothing is left of an infinity; the difference would be NaN.
            let is_finite =
                _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(taken), _mm512_set1_ps(f32::INFINITY));
            *value = _mm512_maskz_sub_ps(is_finite, *value, taken);
        }
    }
    parts
}

/// 32 floats as bf16, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn halved(low: __m512, high: __m512) -> __m512i {
    // SAFETY: both are 64 bytes of plain data.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) }
}

/// The even and the odd ones of 64 values of 16 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn even_and_odd(low: __m512i, high: __m512i) -> (__m512i, __m512i) {
    let even: [i16; 32] = std::array::from_fn(|i| 2 * i as i16);
    let odd: [i16; 32] = std::array::from_fn(|i| 2 * i as i16 + 1);
    // SAFETY: each array has 64 bytes.
    let (even, odd) =
        unsafe { (_mm512_loadu_si512(even.as_ptr().cast()), _mm512_loadu_si512(odd.as_ptr().cast())) };
    (_mm512_permutex2var_epi16(low, even, high), _mm512_permutex2var_epi16(low, odd, high))
}

/// Adds up the values of each group of a strip's rows.
///
/// # Safety
/// There is room for 16 floats a group.
unsafe fn add_sums(layout: &InputLayout, x: &Rows<'_>, first: usize, to: *mut f32) {
    // SAFETY: the caller's promise; all of it is written before it is read.
    let sums = unsafe {
        to.write_bytes(0, layout.k / layout.group * TILE);
        std::slice::from_raw_parts_mut(to, layout.k / layout.group * TILE)
    };
    let mut values = [0.0f32; 16];
    for row in 0..TILE.min(x.rows() - first) {
        for at in (0..layout.k).step_by(16) {
            x.read(first + row, at, &mut values);
            sums[at / layout.group * TILE + row] += values.iter().sum::<f32>();
        }
    }
}
