//! Rows of the left matrix, split into three bf16 a number as they come. Rows with a number that is not finite, which has no
//! parts, are multiplied by vectors.

use super::weight::{Weight, parts};
use super::{COLUMNS, PARTS, ROWS, SUMS, TERMS, TILE, halves, pair};
use crate::dense::packed::Rows;
use std::arch::x86_64::*;
use std::ops::Range;

/// Split rows in scratch: by tile, by step, by part; behind each tile, which of its rows have a number that is not finite.
#[derive(Clone, Copy)]
pub(super) struct Left {
    data: *mut u8,
    pub(super) height: usize,
    steps: usize,
    inner: usize,
}

// SAFETY: tasks write tiles of their own, and read them when all are written.
unsafe impl Sync for Left {}

impl Left {
    /// Floats of so many tiles.
    pub(super) fn floats(tiles: usize, steps: usize) -> usize {
        // Each has a line of its own for what is said of it.
        tiles.saturating_mul(Left::tile_bytes(steps) / 4)
    }

    fn tile_bytes(steps: usize) -> usize {
        steps.saturating_mul(PARTS * TILE).saturating_add(64)
    }

    pub(super) fn at(scratch: *mut f32, height: usize, weight: &Weight) -> Left {
        Left { data: scratch.cast(), height, steps: weight.steps, inner: weight.inner }
    }

    /// Where the parts of a tile of rows begin, at a step.
    pub(super) fn tile(&self, tile: usize, step: usize) -> *mut u8 {
        self.data.wrapping_add(tile * Left::tile_bytes(self.steps) + step * PARTS * TILE)
    }

    /// Which rows of a tile are not finite, a bit each.
    fn unsplit(&self, tile: usize) -> *mut u32 {
        self.tile(tile, self.steps).cast()
    }

    /// Splits the rows of a tile.
    ///
    /// # Safety
    /// The rows are the source's; scratch has room for them where they are collected; nobody else has this tile; AVX-512 is there.
    pub(super) unsafe fn split(&self, tile: usize, rows: Range<usize>, source: &dyn Rows, scratch: *mut f32) {
        let (from, stride) = source.rows(rows.clone(), scratch);
        // SAFETY: the caller's promise.
        unsafe { self.split_rows(tile, rows.len(), from, stride) };
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn split_rows(&self, tile: usize, rows: usize, from: *const f32, stride: usize) {
        // SAFETY: rows lie as the caller says; a tile has room for whole steps.
        unsafe {
            let zero = _mm512_setzero_ps();
            let mut unsplit = 0u32;
            for row in 0..rows {
                let from = from.add(row * stride);
                let mut trace = zero;
                for step in 0..self.steps {
                    let at = step * TERMS;
                    let some = |at: usize| {
                        let count = self.inner.saturating_sub(at).min(16);
                        match count {
                            16 => _mm512_loadu_ps(from.add(at)),
                            _ => _mm512_maskz_loadu_ps(
                                ((1u32 << count) - 1) as __mmask16,
                                from.wrapping_add(at),
                            ),
                        }
                    };
                    let (a, b) = (some(at), some(at + 16));
                    // Anything times 0 is 0, except what is not finite.
                    trace = _mm512_fmadd_ps(a, zero, _mm512_fmadd_ps(b, zero, trace));
                    let (a, b) = (halves(a), halves(b));
                    let to = self.tile(tile, step).add(row * 64);
                    for part in 0..PARTS {
                        _mm512_store_si512(to.add(part * TILE).cast(), pair(a[part], b[part]));
                    }
                }
                let is_finite = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(trace, zero) == 0xffff;
                if !is_finite {
                    unsplit |= 1 << row;
                    self.keep(tile, row, std::slice::from_raw_parts(from, self.inner));
                }
            }
            self.unsplit(tile).write(unsplit);
        }
    }

    /// Writes a row so that its numbers are the sums of what is written: what is not finite has one part.
    ///
    /// # Safety
    /// Nobody else has this tile.
    #[cold]
    unsafe fn keep(&self, tile: usize, row: usize, values: &[f32]) {
        for (term, &value) in values.iter().enumerate() {
            let quiet = if value.is_nan() { 0x40 } else { 0 };
            let all =
                if value.is_finite() { parts(value) } else { [(value.to_bits() >> 16) as u16 | quiet, 0, 0] };
            for (part, bits) in all.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { self.element(tile, row, term, part).write(bits) };
            }
        }
    }

    /// Where a part of an element lies.
    fn element(&self, tile: usize, row: usize, term: usize, part: usize) -> *mut u16 {
        let within = row * 64 + term % 16 * 4 + term % TERMS / 16 * 2;
        self.tile(tile, term / TERMS).wrapping_add(part * TILE + within).cast()
    }

    /// Computes the sums of rows that could not be split, by vectors, from the numbers that their parts are.
    ///
    /// # Safety
    /// Rows and columns are those of sums that were just computed; AVX-512 is there.
    pub(super) unsafe fn mend(&self, weight: &Weight, rows: usize, columns: Range<usize>, sums: *mut f32) {
        for tile in 0..rows.div_ceil(self.height) {
            // SAFETY: the tile was split.
            let unsplit = unsafe { self.unsplit(tile).read() };
            for row in (0..ROWS).filter(|row| unsplit >> row & 1 == 1) {
                for (at, column) in columns.clone().enumerate() {
                    let to = sums.wrapping_add((tile * 2 + at) * SUMS + row * COLUMNS);
                    // SAFETY: the caller's promise.
                    unsafe { self.row(weight, tile, row, column, to) };
                }
            }
        }
    }

    /// One row times one tile of columns.
    ///
    /// # Safety
    /// As [`Left::mend`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn row(&self, weight: &Weight, tile: usize, row: usize, column: usize, to: *mut f32) {
        let mut sum = _mm512_setzero_ps();
        for term in 0..self.inner {
            // SAFETY: parts of this row, and of sixteen columns at this term.
            unsafe {
                let part =
                    |part: usize| f32::from_bits(u32::from(self.element(tile, row, term, part).read()) << 16);
                let value = _mm512_set1_ps(part(0) + part(1) + part(2));
                let line = weight.at(column, term / TERMS).add(term % 16 * 64);
                let columns = |part: usize| {
                    let pairs = _mm512_loadu_si512(line.add(part * TILE).cast());
                    _mm512_castsi512_ps(match term % TERMS < 16 {
                        true => _mm512_slli_epi32::<16>(pairs),
                        false => _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32)),
                    })
                };
                let columns = _mm512_add_ps(_mm512_add_ps(columns(0), columns(1)), columns(2));
                sum = _mm512_fmadd_ps(value, columns, sum);
            }
        }
        // SAFETY: sums of sixteen columns.
        unsafe { _mm512_storeu_ps(to, sum) };
    }
}
