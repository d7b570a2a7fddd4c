//! Attention of many queries, in tiles of rows that share a key head. The lanes of scores are rows, so that the
//! softmax of a tile needs no sums across a vector; blocks of keys and values are converted to f32 once a tile.

use super::scratch::padded;
use super::{Job, Mask, Sizes, read, rounded};
use crate::dense::micro::{tile, with_rows};
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::split::Shared;
use pteron_tensor::DType;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a tile: three of the widest vectors.
const ROWS: usize = 48;
/// Keys of a block.
const BLOCK: usize = 64;
/// What stands for the largest score while there is none; anything added to it is itself.
const LOWEST: f32 = -3e38;

/// Floats that a task works with.
fn work_floats(sizes: &Sizes) -> usize {
    let (features, values) = (padded(sizes.features), padded(sizes.values));
    features * ROWS + BLOCK * (features + values + ROWS) + ROWS * (values + 3)
}

pub(super) fn scratch_floats(sizes: &Sizes, threads: usize) -> usize {
    threads * work_floats(sizes)
}

/// The parts of a task's scratch.
#[derive(Clone, Copy)]
struct Work {
    /// [features][ROWS], scaled.
    queries: *mut f32,
    /// [BLOCK][features, padded].
    keys: *mut f32,
    /// [BLOCK][values, padded].
    values: *mut f32,
    /// [BLOCK][ROWS]: scores, then weights.
    weights: *mut f32,
    /// [ROWS][values, padded].
    sums: *mut f32,
    /// Largest scores, sums of weights, and by what the sums of values shrink; [ROWS] each.
    largest: *mut f32,
    totals: *mut f32,
    factors: *mut f32,
    features: usize,
    width: usize,
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
        Work { queries: first, keys, values, weights, sums, largest, totals, factors, features, width }
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
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            // The last tiles see the most keys when attention is causal; they come first.
            let (head, index) = (item / tiles, tiles - 1 - item % tiles);
            let first = index * height;
            // SAFETY: heads and rows are inside their sizes, and every row belongs to one item.
            unsafe { run_tile(job, head, first, height.min(sizes.rows() - first), work) };
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

/// # Safety
/// `rows` rows from `first` on are inside the shared head, and nobody else has them.
unsafe fn run_tile(job: &Job<'_>, head: usize, first: usize, rows: usize, work: Work) {
    let sizes = &job.sizes;
    let (batch, shared) = (head / sizes.shared, head % sizes.shared);
    let row = |row: usize| job.row(shared, first + row);
    let (first_query, last_query) = (row(0).1, row(rows - 1).1);
    // SAFETY: scratch has room as `work_floats` counts it; rows and keys are inside their sizes.
    unsafe {
        work.queries.write_bytes(0, work.features * ROWS);
        work.sums.write_bytes(0, ROWS * work.width);
        work.totals.write_bytes(0, ROWS);
        for i in 0..ROWS {
            work.largest.add(i).write(f32::NEG_INFINITY);
        }
        for i in 0..rows {
            let (head, query) = row(i);
            job.load_query(batch, head, query, work.queries.add(i), ROWS, sizes.features);
        }
        let visible = job.visible(first_query, last_query);
        let mut key = visible.start;
        while key < visible.end {
            let (place, run) = job.place(key);
            let count = run.min(visible.end - key).min(BLOCK);
            let (k, v) = (&job.attention.k, &job.attention.v);
            load(job, k, (batch, shared, place), count, work.keys, work.features);
            let finite = load(job, v, (batch, shared, place), count, work.values, work.width);
            on(job.path, Scores { work, count, rows });
            let open = job.is_open(first_query, last_query, &(key..key + count));
            if !open {
                mask(job, (batch, shared), (first, rows), (key, count), work.weights);
            }
            on(job.path, Weigh { work, count, rows });
            if finite || open {
                on(job.path, Values { work, count, rows });
            } else {
                add_visible_values(work, count, rows);
            }
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

/// Converts a block of rows of keys or values to f32, padded with zeros. Returns whether all are finite.
///
/// # Safety
/// `count` rows from the place on are inside the view; `to` has room for as many of `width`.
unsafe fn load(
    job: &Job<'_>,
    view: &crate::view::View<'_>,
    (batch, shared, place): (usize, usize, usize),
    count: usize,
    to: *mut f32,
    width: usize,
) -> bool {
    let s = view.strides();
    let first = batch as isize * s[0] + shared as isize * s[1] + place as isize * s[2];
    let features = view.sizes()[3];
    // SAFETY: the caller's promise.
    unsafe {
        if view.has_dense_rows() {
            return with_float!(view.dtype(), T => on(job.path, Load {
                from: view.data().cast::<T>().offset(first),
                stride: s[2],
                count,
                features,
                to,
                width,
            }));
        }
        let mut finite = true;
        for row in 0..count {
            for feature in 0..width {
                let at = first + row as isize * s[2] + feature as isize * s[3];
                let value = if feature < features { read(view.data(), view.dtype(), at) } else { 0.0 };
                finite &= value.is_finite();
                to.add(row * width + feature).write(value);
            }
        }
        finite
    }
}

struct Load<T> {
    from: *const T,
    stride: isize,
    count: usize,
    features: usize,
    to: *mut f32,
    width: usize,
}

impl<T: Stored> Kernel for Load<T> {
    type Output = bool;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> bool {
        // SAFETY: rows lie at the pointers, as `load` says; the padding is behind the features.
        unsafe {
            // Anything times 0 is 0, except what is not finite.
            let (mut trace, zero) = (S::splat(0.0), S::splat(0.0));
            for row in 0..self.count {
                let from = self.from.offset(row as isize * self.stride);
                let to = self.to.add(row * self.width);
                let mut at = 0;
                while at + S::LANES <= self.features {
                    let value = T::load::<S>(from.add(at));
                    trace = S::fma(value, zero, trace);
                    S::store(to.add(at), value);
                    at += S::LANES;
                }
                while at < self.width {
                    let value = if at < self.features { from.add(at).read().to_f32() } else { 0.0 };
                    trace = S::fma(S::splat(value), zero, trace);
                    to.add(at).write(value);
                    at += 1;
                }
            }
            S::sum(trace) == 0.0
        }
    }
}

/// `weights[key][row] = keys[key] . queries[row]`.
struct Scores {
    work: Work,
    count: usize,
    rows: usize,
}

impl Kernel for Scores {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Scores { work, count, rows } = self;
        let vectors = rows.div_ceil(S::LANES);
        let step = (S::ACCUMULATORS / 3).clamp(1, 8);
        let mut key = 0;
        while key < count {
            let keys = step.min(count - key);
            // SAFETY: keys and rows are inside the work's blocks, whose rows are padded.
            unsafe {
                let a = work.keys.add(key * work.features);
                let out = work.weights.add(key * ROWS);
                with_rows!(keys, M => match vectors {
                    3 => scores::<S, M, 3>(work, a, out),
                    2 => scores::<S, M, 2>(work, a, out),
                    _ => scores::<S, M, 1>(work, a, out),
                });
            }
            key += keys;
        }
    }
}

#[inline(always)]
unsafe fn scores<S: Simd, const M: usize, const N: usize>(work: Work, keys: *const f32, out: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let sums = tile::<S, f32, M, N>(work.features, keys, work.features, 1, work.queries, ROWS);
        for (m, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                S::store(out.add(m * ROWS + n * S::LANES), sum);
            }
        }
    }
}

/// Hides what the mask hides, or adds it.
///
/// # Safety
/// Rows and keys are inside their sizes; `weights` is [keys][ROWS].
unsafe fn mask(
    job: &Job<'_>,
    (batch, shared): (usize, usize),
    (first, rows): (usize, usize),
    (key, count): (usize, usize),
    weights: *mut f32,
) {
    for i in 0..rows {
        let (head, query) = job.row(shared, first + i);
        let Mask::Tensor(mask) = job.attention.mask else {
            for j in 0..count {
                // SAFETY: the caller's promise.
                unsafe {
                    let score = weights.add(j * ROWS + i);
                    score.write(job.masked((batch, head, query), key + j, score.read()));
                }
            }
            continue;
        };
        let s = mask.strides();
        let at = batch as isize * s[0] + head as isize * s[1] + query as isize * s[2] + key as isize * s[3];
        for j in 0..count {
            // SAFETY: the caller's promise; the elements lie in the view.
            unsafe {
                let score = weights.add(j * ROWS + i);
                let at = at + j as isize * s[3];
                if mask.dtype() == DType::Bool {
                    if mask.data().offset(at).read() == 0 {
                        score.write(f32::NEG_INFINITY);
                    }
                } else {
                    let bias = rounded(read(mask.data(), mask.dtype(), at), job.attention.q.dtype());
                    score.write(score.read() + bias);
                }
            }
        }
    }
}

/// Scores to weights relative to the largest score so far, a lane each row.
struct Weigh {
    work: Work,
    count: usize,
    rows: usize,
}

impl Kernel for Weigh {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Weigh { work, count, rows } = self;
        for row in (0..rows).step_by(S::LANES) {
            // SAFETY: whole vectors of rows are inside `ROWS`, a multiple of every vector.
            unsafe {
                let before = S::load(work.largest.add(row));
                let mut largest = before;
                for key in 0..count {
                    largest = S::max(S::load(work.weights.add(key * ROWS + row)), largest);
                }
                let shift = S::max(largest, S::splat(LOWEST));
                let mut total = S::splat(0.0);
                for key in 0..count {
                    let at = work.weights.add(key * ROWS + row);
                    let weight = S::exp_negative(S::sub(S::load(at), shift));
                    S::store(at, weight);
                    total = S::add(total, weight);
                }
                let factor = S::exp_negative(S::sub(before, shift));
                S::store(work.factors.add(row), factor);
                S::store(work.totals.add(row), S::fma(S::load(work.totals.add(row)), factor, total));
                S::store(work.largest.add(row), largest);
            }
        }
    }
}

/// `sums[row] = sums[row] * factors[row] + weights[row] . values`.
struct Values {
    work: Work,
    count: usize,
    rows: usize,
}

impl Kernel for Values {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Values { work, count, rows } = self;
        let step = (S::ACCUMULATORS / 4).clamp(1, 8);
        let mut row = 0;
        while row < rows {
            let height = step.min(rows - row);
            let mut column = 0;
            while column < work.width {
                let vectors = ((work.width - column) / S::LANES).min(4);
                // SAFETY: rows and columns are inside the work's blocks, whose width is padded to whole vectors.
                unsafe {
                    with_rows!(height, M => match vectors {
                        4 => values::<S, M, 4>(work, count, row, column),
                        3 => values::<S, M, 3>(work, count, row, column),
                        2 => values::<S, M, 2>(work, count, row, column),
                        _ => values::<S, M, 1>(work, count, row, column),
                    });
                }
                column += vectors.max(1) * S::LANES;
            }
            row += height;
        }
    }
}

#[inline(always)]
unsafe fn values<S: Simd, const M: usize, const N: usize>(work: Work, count: usize, row: usize, column: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (work.weights.add(row), work.values.add(column));
        let sums = tile::<S, f32, M, N>(count, a, 1, ROWS, b, work.width);
        for (m, sums) in sums.into_iter().enumerate() {
            let factor = S::splat(work.factors.add(row + m).read());
            for (n, sum) in sums.into_iter().enumerate() {
                let at = work.sums.add((row + m) * work.width + column + n * S::LANES);
                S::store(at, S::fma(S::load(at), factor, sum));
            }
        }
    }
}

/// The same where some value is not finite: a key that is out of sight must not leak it.
///
/// # Safety
/// Rows and keys are inside the work's blocks.
unsafe fn add_visible_values(work: Work, count: usize, rows: usize) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let sums = work.sums.add(row * work.width);
            let factor = work.factors.add(row).read();
            for column in 0..work.width {
                *sums.add(column) *= factor;
            }
            for key in 0..count {
                let weight = work.weights.add(key * ROWS + row).read();
                if weight == 0.0 {
                    continue;
                }
                for column in 0..work.width {
                    *sums.add(column) += weight * work.values.add(key * work.width + column).read();
                }
            }
        }
    }
}
