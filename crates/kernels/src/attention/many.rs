//! Attention of many queries, in tiles of rows that share a key head: block after block of keys is scored, weighed
//! and added, by vectors (`block`) or by matrix tiles (`tiles`).

use super::block::{Rows, Scores, Values, Weigh, add_visible_values, load, mask, place_of};
use super::scratch::padded;
use super::{Job, Sizes};
use crate::pool::Pool;
use crate::simd::{Kernel, Simd, on};
use crate::split::Shared;
use pteron_tensor::DType;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a tile: three of the widest vectors.
pub(super) const ROWS: usize = 48;
/// Keys of a block.
pub(super) const BLOCK: usize = 64;

/// Floats that a task works with.
fn work_floats(sizes: &Sizes) -> usize {
    let (features, values) = (padded(sizes.features), padded(sizes.values));
    let (features, values) = (features.saturating_mul(ROWS + BLOCK), values.saturating_mul(ROWS + BLOCK));
    features.saturating_add(values).saturating_add(BLOCK * ROWS + ROWS * 3 + ROWS * BLOCK / 2)
}

pub(super) fn scratch_floats(sizes: &Sizes, threads: usize) -> usize {
    threads.saturating_mul(work_floats(sizes))
}

/// The parts of a task's scratch.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// `[features][ROWS]`, scaled.
    pub(super) queries: *mut f32,
    /// `[BLOCK][features, padded]`.
    pub(super) keys: *mut f32,
    /// `[BLOCK][values, padded]`.
    pub(super) values: *mut f32,
    /// `[BLOCK][ROWS]`: scores, then weights.
    pub(super) weights: *mut f32,
    /// `[ROWS][values, padded]`.
    pub(super) sums: *mut f32,
    /// Largest scores, sums of weights, and by what the sums of values shrink; [ROWS] each.
    pub(super) largest: *mut f32,
    pub(super) totals: *mut f32,
    pub(super) factors: *mut f32,
    /// `[ROWS][BLOCK]`, weights as bf16; for matrix tiles alone.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) rounded: *mut u16,
    pub(super) features: usize,
    pub(super) width: usize,
}

impl Work {
    fn at(first: *mut f32, sizes: &Sizes) -> Work {
        let (features, width) = (padded(sizes.features), padded(sizes.values));
        let keys = first.wrapping_add(features * ROWS);
        let values = keys.wrapping_add(BLOCK * features);
        let weights = values.wrapping_add(BLOCK * width);
        let sums = weights.wrapping_add(BLOCK * ROWS);
        let largest = sums.wrapping_add(ROWS * width);
        let (totals, factors) = (largest.wrapping_add(ROWS), largest.wrapping_add(2 * ROWS));
        let rounded = largest.wrapping_add(3 * ROWS).cast();
        let queries = first;
        Work { queries, keys, values, weights, sums, largest, totals, factors, rounded, features, width }
    }
}

pub(super) fn run(pool: &Pool, job: &Job<'_>, scratch: &mut [f32]) {
    let sizes = &job.sizes;
    let height = on(job.path, Height).min(sizes.rows().max(1));
    let tiles = sizes.rows().div_ceil(height);
    let items = sizes.batch * sizes.shared * tiles;
    let (next, floats) = (AtomicUsize::new(0), work_floats(sizes));
    let scratch = Shared::new(scratch.as_mut_ptr());
    let task = |task: usize| {
        // SAFETY: every task has its own part of the scratch, which was checked to be large enough.
        let work = Work::at(unsafe { scratch.get().add(task * floats) }, sizes);
        #[cfg(target_arch = "x86_64")]
        let matrix = if super::tiles::fits(job) { crate::amx::Configured::new() } else { None };
        #[cfg(not(target_arch = "x86_64"))]
        let matrix: Option<std::convert::Infallible> = None;
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            // The last tiles see the most keys when attention is causal; they come first.
            let (head, index) = (item / tiles, tiles - 1 - item % tiles);
            let first = index * height;
            // SAFETY: heads and rows are inside their sizes, and every row belongs to one item.
            unsafe { run_tile(job, head, (first, height.min(sizes.rows() - first)), work, matrix.as_ref()) };
        }
    };
    let cost = items * height * sizes.keys * (sizes.features + sizes.values) / 16;
    pool.run(if cost < 8_000 { 1 } else { pool.threads().min(items) }, &task);
}

/// Rows of a tile on a path.
struct Height;
impl Kernel for Height {
    type Output = usize;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        3 * S::LANES
    }
}

/// What multiplies on matrix tiles, where there are any.
#[cfg(target_arch = "x86_64")]
type Tiles<'a> = Option<&'a crate::amx::Configured>;
#[cfg(not(target_arch = "x86_64"))]
type Tiles<'a> = Option<&'a std::convert::Infallible>;

/// # Safety
/// `rows` rows from `first` on are inside the shared head, and nobody else has them. With tiles, the job fits them.
unsafe fn run_tile(job: &Job<'_>, head: usize, (first, rows): (usize, usize), work: Work, tiles: Tiles<'_>) {
    let sizes = &job.sizes;
    let (batch, shared) = (head / sizes.shared, head % sizes.shared);
    let row = |row: usize| job.row(shared, first + row);
    let (first_query, last_query) = (row(0).1, row(rows - 1).1);
    // SAFETY: scratch has room as `work_floats` counts it; rows and keys are inside their sizes.
    unsafe {
        work.sums.write_bytes(0, ROWS * work.width);
        work.totals.write_bytes(0, ROWS);
        for i in 0..ROWS {
            work.largest.add(i).write(f32::NEG_INFINITY);
        }
        load_queries(job, (batch, shared), (first, rows), work, tiles);
        let visible = job.visible(first_query, last_query);
        let mut key = visible.start;
        while key < visible.end {
            let (place, run) = job.place(key);
            let count = run.min(visible.end - key).min(BLOCK);
            let hidden = (0..rows).all(|i| {
                let (head, query) = row(i);
                job.is_hidden((batch, head, query), key..key + count)
            });
            if hidden {
                key += count;
                continue;
            }
            let block = |data| Rows { data, batch, shared, row: place.row };
            score(job, block(place.keys), count, rows, work, tiles);
            let open = job.is_open(first_query, last_query, &(key..key + count));
            if !open {
                mask(job, (batch, shared), (first, rows), (key, count), work.weights);
            }
            on(job.path, Weigh { work, count, rows });
            add(job, block(place.values), count, rows, open, work, tiles);
            key += count;
        }
        for i in 0..rows {
            let (head, query) = row(i);
            let total = work.totals.add(i).read();
            let unseen = work.largest.add(i).read() == f32::NEG_INFINITY && total == 0.0;
            let factor = if unseen { 0.0 } else { 1.0 / total };
            job.store(batch, head, query, work.sums.add(i * work.width), factor);
        }
    }
}

/// Brings the rows' queries into the form in which they are multiplied.
///
/// # Safety
/// As [`run_tile`].
unsafe fn load_queries(
    job: &Job<'_>,
    (batch, shared): (usize, usize),
    (first, rows): (usize, usize),
    work: Work,
    tiles: Tiles<'_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if tiles.is_some() {
            return super::tiles::pack_queries(job, (batch, shared), (first, rows), work);
        }
        let _ = tiles;
        work.queries.write_bytes(0, work.features * ROWS);
        for i in 0..rows {
            let (head, query) = job.row(shared, first + i);
            job.load_query(batch, head, query, work.queries.add(i), ROWS, job.sizes.features);
        }
    }
}

/// Scores of all rows against a block of keys.
///
/// # Safety
/// As [`run_tile`], for `count` keys of a block.
unsafe fn score(job: &Job<'_>, block: Rows, count: usize, rows: usize, work: Work, tiles: Tiles<'_>) {
    let k = &job.attention.k;
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = tiles {
            let keys = place_of(k, block).cast::<u16>();
            return super::tiles::scores(tiles, job, keys, k.strides()[2] as usize, count, rows, work);
        }
        let _ = tiles;
        let (features, step) = (job.sizes.features, k.strides()[2]);
        let (keys, stride) = if k.dtype() == DType::F32 && k.has_dense_rows() && step >= 0 {
            // A tile reads them once: as they lie.
            (place_of(k, block).cast::<f32>(), step as usize)
        } else {
            load(job, k, block, (count, false), work.keys, work.features);
            (work.keys.cast_const(), work.features)
        };
        on(job.path, Scores { work, keys, stride, features, count, rows });
    }
}

/// Adds a block of values, weighted.
///
/// # Safety
/// As [`score`].
unsafe fn add(
    job: &Job<'_>,
    block: Rows,
    count: usize,
    rows: usize,
    open: bool,
    work: Work,
    tiles: Tiles<'_>,
) {
    let v = &job.attention.v;
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = tiles {
            let values = place_of(v, block).cast::<u16>();
            if super::tiles::pack_values(values, v.strides()[2], count, work) || open {
                return super::tiles::add_values(tiles, count, rows, work);
            }
        }
        let _ = tiles;
        if load(job, v, block, (count, !open), work.values, work.width) {
            on(job.path, Values { work, count, rows });
        } else {
            add_visible_values(work, count, rows);
        }
    }
}
