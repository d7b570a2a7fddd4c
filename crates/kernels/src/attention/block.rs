//! One block of keys against a tile of rows, by vectors. The lanes of scores are rows, so that the softmax of a tile
//! needs no sums across a vector; keys and values are converted to f32 once a tile.

use super::many::{ROWS, Work};
use super::{Job, Mask, read, rounded};
use crate::dense::micro::{tile, with_rows};
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::view::View;
use pteron_tensor::DType;

/// What stands for the largest score while there is none; anything added to it is itself.
const LOWEST: f32 = -3e38;

/// A block of rows of one head: where the keys or values begin that it is a part of, batch, shared head and first row.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) data: *const u8,
    pub(super) batch: usize,
    pub(super) shared: usize,
    pub(super) row: usize,
}

/// Where a block of rows of keys or values begins.
pub(super) fn place_of(view: &View<'_>, rows: Rows) -> *const u8 {
    let s = view.strides();
    let first = rows.batch as isize * s[0] + rows.shared as isize * s[1] + rows.row as isize * s[2];
    rows.data.wrapping_offset(first * view.dtype().size() as isize)
}

/// Converts a block of rows of keys or values to f32, padded with zeros. Returns whether all are finite where that is to be looked at,
/// else true.
///
/// # Safety
/// `count` rows from the block's first on are there; `to` has room for as many of `width`.
pub(super) unsafe fn load(
    job: &Job<'_>,
    view: &View<'_>,
    block: Rows,
    (count, look): (usize, bool),
    to: *mut f32,
    width: usize,
) -> bool {
    let (s, features) = (view.strides(), view.sizes()[3]);
    // SAFETY: the caller's promise.
    unsafe {
        if view.has_dense_rows() {
            return with_float!(view.dtype(), T => on(job.path, Load {
                from: place_of(view, block).cast::<T>(),
                stride: s[2],
                count,
                look,
                features,
                to,
                width,
            }));
        }
        let mut finite = true;
        for row in 0..count {
            for feature in 0..width {
                let at = row as isize * s[2] + feature as isize * s[3];
                let value =
                    if feature < features { read(place_of(view, block), view.dtype(), at) } else { 0.0 };
                finite &= !look || value.is_finite();
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
    look: bool,
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
                    if self.look {
                        trace = S::fma(value, zero, trace);
                    }
                    S::store(to.add(at), value);
                    at += S::LANES;
                }
                while at < self.width {
                    let value = if at < self.features { from.add(at).read().to_f32() } else { 0.0 };
                    if self.look {
                        trace = S::fma(S::splat(value), zero, trace);
                    }
                    to.add(at).write(value);
                    at += 1;
                }
            }
            S::sum(trace) == 0.0
        }
    }
}

/// `weights[key][row] = keys[key] . queries[row]`.
pub(super) struct Scores {
    pub(super) work: Work,
    /// Keys of f32 and so many features, dense, so far apart.
    pub(super) keys: *const f32,
    pub(super) stride: usize,
    pub(super) features: usize,
    pub(super) count: usize,
    pub(super) rows: usize,
}

impl Kernel for Scores {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Scores { work, keys: first, stride, features, count, rows } = self;
        let vectors = rows.div_ceil(S::LANES);
        let step = (S::ACCUMULATORS / 3).clamp(1, 8);
        let mut key = 0;
        while key < count {
            let keys = step.min(count - key);
            // SAFETY: keys and rows are inside the work's blocks, whose rows are padded.
            unsafe {
                let a = (first.add(key * stride), stride, features);
                let out = work.weights.add(key * ROWS);
                with_rows!(8, keys, M => match vectors {
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
unsafe fn scores<S: Simd, const M: usize, const N: usize>(
    work: Work,
    (keys, stride, features): (*const f32, usize, usize),
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let sums = tile::<S, f32, M, N>(features, keys, stride, 1, work.queries, ROWS);
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
/// Rows and keys are inside their sizes; `weights` is `[keys][ROWS]`.
pub(super) unsafe fn mask(
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
        if job.is_plain((batch, head, query), key..key + count) {
            continue;
        }
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
pub(super) struct Weigh {
    pub(super) work: Work,
    pub(super) count: usize,
    pub(super) rows: usize,
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
                // Four keys side by side: one after the other, each would wait for the one before.
                let mut most = [before; 4];
                for key in (0..count / 4 * 4).step_by(4) {
                    for (i, most) in most.iter_mut().enumerate() {
                        *most = S::max(S::load(work.weights.add((key + i) * ROWS + row)), *most);
                    }
                }
                for key in count / 4 * 4..count {
                    most[0] = S::max(S::load(work.weights.add(key * ROWS + row)), most[0]);
                }
                let largest = S::max(S::max(most[1], most[0]), S::max(most[3], most[2]));
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
pub(super) struct Values {
    pub(super) work: Work,
    pub(super) count: usize,
    pub(super) rows: usize,
}

impl Kernel for Values {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Values { work, count, rows } = self;
        let step = (S::ACCUMULATORS / 4).clamp(1, 6);
        let mut row = 0;
        while row < rows {
            let height = step.min(rows - row);
            let mut column = 0;
            while column < work.width {
                let vectors = ((work.width - column) / S::LANES).min(4);
                // SAFETY: rows and columns are inside the work's blocks, whose width is padded to whole vectors.
                unsafe {
                    with_rows!(6, height, M => match vectors {
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
unsafe fn values<S: Simd, const M: usize, const N: usize>(
    work: Work,
    count: usize,
    row: usize,
    column: usize,
) {
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
pub(super) unsafe fn add_visible_values(work: Work, count: usize, rows: usize) {
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
