//! Attention of few queries: keys and values are read once, from memory into multiply-adds. Items are pairs of a
//! shared head and a range of keys; partial results of the ranges of one head are merged at the end.

use super::scratch::padded;
use super::{Job, Sizes};
use crate::dense::micro::{dots, with_rows};
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::softmax::exp_one;
use crate::split::Shared;
use std::ops::Range;

/// The most query rows of a shared head for which this is the faster way.
const MAX_ROWS: usize = 16;
/// Keys between two looks at the largest score.
const BLOCK: usize = 64;
/// A range of keys is worth a task of its own from this many on.
const SMALLEST_RANGE: usize = 256;
/// Rows that go through the inner loops together.
const TILE: usize = 4;

/// Whether the job has few queries and rows that the inner loops can read.
pub(super) fn is_few(job: &Job<'_>) -> bool {
    let Sizes { features, values, .. } = job.sizes;
    let dense = job.attention.k.has_dense_rows() && job.attention.v.has_dense_rows();
    job.sizes.rows() <= MAX_ROWS && dense && features % 16 == 0 && values % 16 == 0
}

/// Ranges of keys into which a head is cut.
fn ranges(sizes: &Sizes, threads: usize) -> usize {
    let heads = (sizes.batch * sizes.shared).max(1);
    let wanted = if threads == 1 { 1 } else { (2 * threads).div_ceil(heads) };
    // Where the heads themselves are many, cutting them gains nothing.
    let wanted = if heads >= 4 * threads { 1 } else { wanted };
    wanted.min(sizes.keys / SMALLEST_RANGE).max(1)
}

/// Floats of one partial result: sums of values, largest scores, sums of weights.
fn partial_floats(sizes: &Sizes, rows: usize) -> usize {
    rows.saturating_mul(padded(sizes.values) + 2)
}

/// Floats that a task works with: queries and weights of a block.
fn work_floats(sizes: &Sizes, rows: usize) -> usize {
    rows.saturating_mul(padded(sizes.features) + BLOCK)
}

/// Enough for these sizes and all smaller ones, because scratch is planned for the largest.
pub(super) fn scratch_floats(sizes: &Sizes, threads: usize) -> usize {
    let rows = sizes.rows().min(MAX_ROWS);
    // Heads times ranges are at most that, however few heads there are.
    let items = sizes.batch.saturating_mul(sizes.shared).saturating_add(2 * threads);
    items.saturating_mul(partial_floats(sizes, rows).saturating_add(work_floats(sizes, rows)))
}

pub(super) fn run(pool: &Pool, job: &Job<'_>, scratch: &mut [f32]) {
    let sizes = &job.sizes;
    let (ranges, heads) = (ranges(sizes, pool.threads()), sizes.batch * sizes.shared);
    let (partial, work) = (partial_floats(sizes, sizes.rows()), work_floats(sizes, sizes.rows()));
    let visible = job.visible(0, sizes.queries - 1);
    let scratch = Shared::new(scratch.as_mut_ptr());
    let cost = visible.len() * sizes.rows() * (sizes.features + sizes.values) / 16;
    let task = |item: usize| {
        let (head, range) = (item / ranges, item % ranges);
        // Whole blocks, so that blocks begin at the same keys whether these lie in pages or not.
        let cut = |at: usize| match visible.len() * at / ranges {
            all if at == ranges => visible.start + all,
            part => visible.start + part / BLOCK * BLOCK,
        };
        // SAFETY: every item has its own part of the scratch, which was checked to be large enough.
        let (partial, work) = unsafe {
            let first = scratch.get().add(item * (partial + work));
            (first, first.add(partial))
        };
        let keys = cut(range)..cut(range + 1);
        with_float!(job.attention.k.dtype(), T => on(job.path, Few::<T> {
            job,
            head,
            keys,
            state: State::at(partial, sizes),
            work,
            of: std::marker::PhantomData,
        }));
    };
    if cost * heads < 8_000 {
        (0..heads * ranges).for_each(task);
    } else {
        pool.run(heads * ranges, &task);
    }
    for head in 0..heads {
        // SAFETY: all items are done; partial results of one head lie at equal distances.
        unsafe {
            merge(job, head, ranges, scratch.get().add(head * ranges * (partial + work)), partial + work)
        };
    }
}

/// Sums of values, largest scores and sums of weights, a row each.
#[derive(Clone, Copy)]
struct State {
    sums: *mut f32,
    largest: *mut f32,
    weights: *mut f32,
    width: usize,
}

impl State {
    fn at(first: *mut f32, sizes: &Sizes) -> State {
        let (rows, width) = (sizes.rows(), padded(sizes.values));
        let largest = first.wrapping_add(rows * width);
        State { sums: first, largest, weights: largest.wrapping_add(rows), width }
    }
}

/// Adds the partial results of a head up, and writes its rows.
///
/// # Safety
/// `ranges` partial results lie from `first` on, `step` floats apart.
unsafe fn merge(job: &Job<'_>, head: usize, ranges: usize, first: *mut f32, step: usize) {
    let (batch, shared) = (head / job.sizes.shared, head % job.sizes.shared);
    let whole = State::at(first, &job.sizes);
    for row in 0..job.sizes.rows() {
        // SAFETY: the caller's promise; rows are inside.
        unsafe {
            for range in 1..ranges {
                let part = State::at(first.add(range * step), &job.sizes);
                let (a, b) = (whole.largest.add(row).read(), part.largest.add(row).read());
                let largest = if a > b { a } else { b };
                if largest == f32::NEG_INFINITY {
                    continue;
                }
                let (a, b) = ((a - largest).exp(), (b - largest).exp());
                let weights = whole.weights.add(row).read() * a + part.weights.add(row).read() * b;
                whole.weights.add(row).write(weights);
                whole.largest.add(row).write(largest);
                for i in row * whole.width..row * whole.width + job.sizes.values {
                    whole.sums.add(i).write(whole.sums.add(i).read() * a + part.sums.add(i).read() * b);
                }
            }
            let sum = whole.weights.add(row).read();
            let unseen = whole.largest.add(row).read() == f32::NEG_INFINITY && sum == 0.0;
            let (head, query) = job.row(shared, row);
            let factor = if unseen { 0.0 } else { 1.0 / sum };
            job.store(batch, head, query, whole.sums.add(row * whole.width), factor);
        }
    }
}

/// One item: the rows of a shared head against a range of keys.
struct Few<'a, T> {
    job: &'a Job<'a>,
    head: usize,
    keys: Range<usize>,
    state: State,
    work: *mut f32,
    of: std::marker::PhantomData<T>,
}

impl<T: Stored> Kernel for Few<'_, T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Few { job, head, keys, state, work, .. } = self;
        let (sizes, rows) = (&job.sizes, job.sizes.rows());
        let (batch, shared) = (head / sizes.shared, head % sizes.shared);
        let width = padded(sizes.features);
        let (queries, weights) = (work, work.wrapping_add(rows * width));
        let last = sizes.queries - 1;
        // SAFETY: scratch has room as `scratch_floats` counts it; heads, rows and keys are inside their sizes.
        unsafe {
            for row in 0..rows {
                let (head, query) = job.row(shared, row);
                job.load_query(batch, head, query, queries.add(row * width), 1, width);
                state.largest.add(row).write(f32::NEG_INFINITY);
                state.weights.add(row).write(0.0);
            }
            state.sums.write_bytes(0, rows * state.width);
            let (k, v) = (&job.attention.k, &job.attention.v);
            let first = |strides: &[isize]| batch as isize * strides[0] + shared as isize * strides[1];
            let (ks, vs) = (k.strides(), v.strides());
            let mut key = keys.start;
            while key < keys.end {
                let (place, run) = job.place(key);
                let count = run.min(keys.end - key).min(BLOCK);
                let hidden = (0..rows).all(|row| {
                    let (head, query) = job.row(shared, row);
                    job.is_hidden((batch, head, query), key..key + count)
                });
                if hidden {
                    key += count;
                    continue;
                }
                let row = place.row as isize;
                let block = place.keys.cast::<T>().offset(first(ks) + row * ks[2]);
                scores::<S, T>(block, ks[2], count, queries, rows, width, sizes.features, weights);
                if !job.is_open(0, last, &(key..key + count)) {
                    for row in 0..rows {
                        let (head, query) = job.row(shared, row);
                        if job.is_plain((batch, head, query), key..key + count) {
                            continue;
                        }
                        for i in 0..count {
                            let score = weights.add(row * BLOCK + i);
                            score.write(job.masked((batch, head, query), key + i, score.read()));
                        }
                    }
                }
                for row in 0..rows {
                    weigh::<S>(state, row, weights.add(row * BLOCK), count);
                }
                let block = place.values.cast::<T>().offset(first(vs) + row * vs[2]);
                add_values::<S, T>(block, vs[2], count, weights, rows, state, sizes.values);
                key += count;
            }
        }
    }
}

/// Scores of all rows against a block of keys.
///
/// # Safety
/// `count` keys of `features` lie `stride` apart; `rows` queries lie `width` apart.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // pointers and their sizes
unsafe fn scores<S: Simd, T: Stored>(
    keys: *const T,
    stride: isize,
    count: usize,
    queries: *const f32,
    rows: usize,
    width: usize,
    features: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promise; of an incomplete group of four keys the last is read again.
    unsafe {
        for i in (0..count).step_by(4) {
            let key = |n: usize| keys.offset((i + n).min(count - 1) as isize * stride);
            let four = [key(0), key(1), key(2), key(3)];
            let mut row = 0;
            while row < rows {
                let tile = (rows - row).min(TILE);
                let from = queries.add(row * width);
                with_rows!(4, tile, M => {
                    let sums = dots::<S, T, M>(features, from, width, four);
                    for (m, sums) in sums.iter().enumerate() {
                        for (n, &sum) in sums.iter().enumerate().take(count - i) {
                            out.add((row + m) * BLOCK + i + n).write(sum);
                        }
                    }
                });
                row += tile;
            }
        }
    }
}

/// Turns a row's scores into weights relative to the largest score so far, and rescales what came before.
///
/// # Safety
/// `count` scores lie at `scores`; the row is inside the state.
#[inline(always)]
unsafe fn weigh<S: Simd>(state: State, row: usize, scores: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let before = state.largest.add(row).read();
        let mut largest = before;
        for i in 0..count {
            let score = scores.add(i).read();
            largest = if score > largest { score } else { largest };
        }
        if largest == f32::NEG_INFINITY {
            // Nothing to see so far; but a NaN stays one.
            for i in 0..count {
                let score = scores.add(i);
                score.write(if score.read().is_nan() { f32::NAN } else { 0.0 });
                *state.weights.add(row) += score.read();
            }
            return;
        }
        if largest > before {
            let factor = exp_one::<S>(before - largest);
            *state.weights.add(row) *= factor;
            let sums = state.sums.add(row * state.width);
            for at in (0..state.width).step_by(S::LANES) {
                S::store(sums.add(at), S::mul(S::load(sums.add(at)), S::splat(factor)));
            }
            state.largest.add(row).write(largest);
        }
        let (shift, mut sum) = (S::splat(largest), S::splat(0.0));
        let mut i = 0;
        while i + S::LANES <= count {
            let weight = S::exp_negative(S::sub(S::load(scores.add(i)), shift));
            S::store(scores.add(i), weight);
            sum = S::add(sum, weight);
            i += S::LANES;
        }
        let mut total = S::sum(sum);
        while i < count {
            let weight = exp_one::<S>(scores.add(i).read() - largest);
            scores.add(i).write(weight);
            total += weight;
            i += 1;
        }
        *state.weights.add(row) += total;
    }
}

/// Adds a block of values, weighted, to every row's sums.
///
/// # Safety
/// `count` rows of `width` values lie `stride` apart; weights and sums are those of `rows` rows.
#[inline(always)]
unsafe fn add_values<S: Simd, T: Stored>(
    values: *const T,
    stride: isize,
    count: usize,
    weights: *const f32,
    rows: usize,
    state: State,
    width: usize,
) {
    let mut row = 0;
    while row < rows {
        let tile = (rows - row).min(TILE);
        let mut column = 0;
        while column < width {
            let vectors = ((width - column) / S::LANES).min(4);
            // SAFETY: the caller's promise; whole vectors fit, because the width is a multiple of 16.
            unsafe {
                let sums = state.sums.add(row * state.width + column);
                let (values, weights) = (values.add(column), weights.add(row * BLOCK));
                with_rows!(4, tile, M => match vectors {
                    4 => add_tile::<S, T, M, 4>(values, stride, count, weights, sums, state.width),
                    3 => add_tile::<S, T, M, 3>(values, stride, count, weights, sums, state.width),
                    2 => add_tile::<S, T, M, 2>(values, stride, count, weights, sums, state.width),
                    _ => add_tile::<S, T, M, 1>(values, stride, count, weights, sums, state.width),
                });
            }
            column += vectors.max(1) * S::LANES;
        }
        row += tile;
    }
}

/// # Safety
/// As [`add_values`], for `M` rows and `N` vectors.
#[inline(always)]
unsafe fn add_tile<S: Simd, T: Stored, const M: usize, const N: usize>(
    values: *const T,
    stride: isize,
    count: usize,
    weights: *const f32,
    sums: *mut f32,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut tile = [[S::splat(0.0); N]; M];
        for (m, tile) in tile.iter_mut().enumerate() {
            for (n, tile) in tile.iter_mut().enumerate() {
                *tile = S::load(sums.add(m * width + n * S::LANES));
            }
        }
        for key in 0..count {
            let mut factors = [0.0; M];
            let mut unseen = 0;
            for (m, factor) in factors.iter_mut().enumerate() {
                *factor = weights.add(m * BLOCK + key).read();
                unseen += usize::from(*factor == 0.0);
            }
            if unseen == M {
                continue;
            }
            let at = values.offset(key as isize * stride);
            let mut columns = [S::splat(0.0); N];
            for (n, columns) in columns.iter_mut().enumerate() {
                *columns = T::load::<S>(at.add(n * S::LANES));
            }
            for (factor, tile) in factors.iter().zip(&mut tile) {
                // A key that is out of sight must not leak NaN or infinities out of its value.
                if unseen > 0 && *factor == 0.0 {
                    continue;
                }
                let factor = S::splat(*factor);
                for (tile, columns) in tile.iter_mut().zip(columns) {
                    *tile = S::fma(factor, columns, *tile);
                }
            }
        }
        for (m, tile) in tile.iter().enumerate() {
            for (n, &tile) in tile.iter().enumerate() {
                S::store(sums.add(m * width + n * S::LANES), tile);
            }
        }
    }
}
