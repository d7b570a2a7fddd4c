//! Products of bf16 matrices on matrix tiles, with weights that are dense along the inner axis. A tile of the weight
//! is loaded as it lies; the left matrix is packed once into pairs of terms, and the result comes out transposed.
//! Products of two bf16 are exact in f32, and so sums differ from vector code in their order alone.

use super::One;
use crate::amx::Configured;
use crate::path::Path;
use crate::pool::Pool;
use crate::simd::transpose_16;
use crate::split::{Shared, in_parts};
use pteron_tensor::DType;
use std::arch::x86_64::{_mm512_loadu_ps, _mm512_setzero_ps, _mm512_storeu_ps};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Terms of one tile.
const TERMS: usize = 32;
/// Columns of the weight, and rows of the left matrix, that are multiplied together: two tiles each.
const PAIR: usize = 32;

/// Whether the product can and should run on tiles.
pub(super) fn fits(one: &One) -> bool {
    let bf16 = one.a.dtype == DType::BF16 && one.b.dtype == DType::BF16;
    let whole = one.inner.is_multiple_of(TERMS) && one.inner > 0 && one.columns.is_multiple_of(16);
    one.path == Path::Amx && one.path.is_available() && bf16 && whole && one.rows > 8 && one.b.strides[1] >= 0
}

pub(super) fn run(pool: &Pool, one: &One, scratch: &mut [f32]) {
    let panels = one.rows.div_ceil(PAIR);
    // A float holds a pair of bf16.
    let panel_floats = one.inner / 2 * PAIR;
    let (packed, own) = scratch.split_at_mut(panels * panel_floats);
    let packed = Shared::new(packed.as_mut_ptr().cast::<u32>());
    in_parts(pool, panels, 1, panel_floats, &|range| {
        for panel in range {
            let to = packed.get().wrapping_add(panel * panel_floats);
            // SAFETY: the panel has its own room; rows behind the last are zeros; the path has AVX-512.
            unsafe {
                if one.a.strides[1] == 1 && (panel + 1) * PAIR <= one.rows {
                    pack_whole(one, panel * PAIR, to);
                } else {
                    pack(one, panel * PAIR, to);
                }
            }
        }
    });
    let own = Shared::new(own.as_mut_ptr());
    let items = one.columns.div_ceil(PAIR);
    let next = AtomicUsize::new(0);
    pool.run(pool.threads().min(items), &|task| {
        let Some(tiles) = Configured::new() else { return };
        // SAFETY: the scratch has room for the sums of every thread; see `many::task_floats`, which is more.
        let sums = unsafe { own.get().add(task * PAIR * PAIR) };
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            for panel in 0..panels {
                let b = packed.get().cast_const().wrapping_add(panel * panel_floats);
                // SAFETY: columns and rows are inside, and this item's columns are nobody else's.
                unsafe { block(one, &tiles, item * PAIR, panel * PAIR, b, sums) };
            }
        }
    });
}

/// Packs rows as pairs of terms: `[inner / 2][PAIR]`.
///
/// # Safety
/// There is room for that at `to`.
unsafe fn pack(one: &One, first: usize, to: *mut u32) {
    for i in 0..PAIR {
        let row = first + i;
        for pair in 0..one.inner / 2 {
            // SAFETY: the caller's promise; rows are inside where they are read.
            unsafe {
                let term = |j: usize| u32::from(one.a.at(row, j).cast::<u16>().read());
                let value = if row < one.rows { term(2 * pair) | term(2 * pair + 1) << 16 } else { 0 };
                to.add(pair * PAIR + i).write(value);
            }
        }
    }
}

/// The same for rows that are all there and dense: sixteen rows of sixteen pairs at a time.
///
/// # Safety
/// As [`pack`]; AVX-512 is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pack_whole(one: &One, first: usize, to: *mut u32) {
    for i in (0..PAIR).step_by(16) {
        for term in (0..one.inner).step_by(TERMS) {
            // SAFETY: the caller's promise; a pair of bf16 is moved as one element.
            unsafe {
                let mut rows = [_mm512_setzero_ps(); 16];
                for (j, row) in rows.iter_mut().enumerate() {
                    *row = _mm512_loadu_ps(one.a.at(first + i + j, term).cast());
                }
                for (j, pairs) in transpose_16(rows).into_iter().enumerate() {
                    _mm512_storeu_ps(to.add((term / 2 + j) * PAIR + i).cast(), pairs);
                }
            }
        }
    }
}

/// Up to 32 columns times up to 32 rows.
///
/// # Safety
/// The first column and row are inside; `sums` has room for 32 rows of 32.
unsafe fn block(one: &One, tiles: &Configured, column: usize, row: usize, b: *const u32, sums: *mut f32) {
    let two = column + 16 < one.columns;
    let stride = one.b.strides[1] as usize * 2;
    // SAFETY: 16 or 32 columns of the weight are there, each dense over whole tiles of terms; the panel is padded.
    unsafe {
        tiles.zero::<0>();
        tiles.zero::<1>();
        tiles.zero::<2>();
        tiles.zero::<3>();
        for start in (0..one.inner).step_by(TERMS) {
            let b = b.add(start / 2 * PAIR).cast::<u8>();
            tiles.load::<6>(b, PAIR * 4);
            tiles.load::<7>(b.add(64), PAIR * 4);
            tiles.load::<4>(one.b.at(start, column), stride);
            tiles.multiply_bf16::<0, 4, 6>();
            tiles.multiply_bf16::<1, 4, 7>();
            if two {
                tiles.load::<5>(one.b.at(start, column + 16), stride);
                tiles.multiply_bf16::<2, 5, 6>();
                tiles.multiply_bf16::<3, 5, 7>();
            }
        }
        let to = sums.cast::<u8>();
        tiles.store::<0>(to, PAIR * 4);
        tiles.store::<1>(to.add(64), PAIR * 4);
        tiles.store::<2>(to.add(16 * PAIR * 4), PAIR * 4);
        tiles.store::<3>(to.add(16 * PAIR * 4 + 64), PAIR * 4);
        let columns = if two { PAIR } else { 16 };
        let mut line = [0f32; PAIR];
        for i in 0..PAIR.min(one.rows - row) {
            for (j, value) in line[..columns].iter_mut().enumerate() {
                *value = sums.add(j * PAIR + i).read();
            }
            one.finish_row(row + i, column, line.as_ptr(), columns);
        }
    }
}
