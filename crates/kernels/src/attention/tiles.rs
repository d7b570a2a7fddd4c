//! The products of a tile of rows on matrix tiles, for keys, values and queries of bf16. Keys are multiplied as they lie;
//! values are packed into pairs of keys, and weights are rounded to bf16, as the dtype of the program allows. What lies
//! between, the softmax, is that of `many`.

use super::many::{BLOCK, ROWS, Work};
use super::{Job, Sizes};
use crate::amx::Configured;
use crate::path::Path;
use crate::simd::{Avx512, Simd, transpose_16};
use pteron_tensor::DType;
use std::arch::x86_64::{_mm512_loadu_ps, _mm512_setzero_ps};

/// Whether the job can run on tiles.
pub(super) fn fits(job: &Job<'_>) -> bool {
    let attention = job.attention;
    let bf16 = [attention.q.dtype(), attention.k.dtype()].iter().all(|&dtype| dtype == DType::BF16);
    let dense = attention.q.has_dense_rows() && attention.k.has_dense_rows() && attention.v.has_dense_rows();
    let Sizes { features, values, .. } = job.sizes;
    let whole = features > 0 && features.is_multiple_of(32) && values.is_multiple_of(16);
    job.path == Path::Amx && job.path.is_available() && bf16 && dense && whole && attention.k.strides()[2] > 0
}

/// Packs queries into pairs of features, `[features / 2][ROWS]`; rows behind the last are zeros.
///
/// # Safety
/// Rows are inside the job; the work has room.
pub(super) unsafe fn pack_queries(
    job: &Job<'_>,
    (batch, shared): (usize, usize),
    (first, rows): (usize, usize),
    work: Work,
) {
    let q = &job.attention.q;
    let s = q.strides();
    let to = work.queries.cast::<u32>();
    // SAFETY: the caller's promise; a pair of bf16 is read as its two halves.
    unsafe {
        to.write_bytes(0, work.features / 2 * ROWS);
        for i in 0..rows {
            let (head, query) = job.row(shared, first + i);
            let at = batch as isize * s[0] + head as isize * s[1] + query as isize * s[2];
            let from = q.data().cast::<u16>().offset(at);
            for pair in 0..job.sizes.features / 2 {
                let value =
                    u32::from(from.add(2 * pair).read()) | u32::from(from.add(2 * pair + 1).read()) << 16;
                to.add(pair * ROWS + i).write(value);
            }
        }
    }
}

/// `weights[key][row] = scale * keys[key] . queries[row]` for a block of keys.
///
/// # Safety
/// `count` keys lie `stride` elements apart; queries are packed; AVX-512 is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn scores(
    tiles: &Configured,
    job: &Job<'_>,
    keys: *const u16,
    stride: usize,
    count: usize,
    rows: usize,
    work: Work,
) {
    // SAFETY: the caller's promise. A tile reads 16 keys; an incomplete one reads copies, zeros behind the last.
    unsafe {
        let (mut keys, mut stride) = (keys, stride);
        if !count.is_multiple_of(16) {
            let copies = work.keys.cast::<u16>();
            copies.write_bytes(0, count.next_multiple_of(16) * work.features);
            for key in 0..count {
                keys.add(key * stride)
                    .copy_to_nonoverlapping(copies.add(key * work.features), job.sizes.features);
            }
            (keys, stride) = (copies.cast_const(), work.features);
        }
        let queries = work.queries.cast_const().cast::<u8>();
        for key in (0..count).step_by(16) {
            tiles.zero::<0>();
            tiles.zero::<1>();
            tiles.zero::<2>();
            for feature in (0..job.sizes.features).step_by(32) {
                tiles.load::<6>(keys.add(key * stride + feature).cast(), stride * 2);
                let pairs = queries.add(feature / 2 * ROWS * 4);
                tiles.load::<3>(pairs, ROWS * 4);
                tiles.multiply_bf16::<0, 6, 3>();
                if rows > 16 {
                    tiles.load::<4>(pairs.add(64), ROWS * 4);
                    tiles.multiply_bf16::<1, 6, 4>();
                }
                if rows > 32 {
                    tiles.load::<5>(pairs.add(128), ROWS * 4);
                    tiles.multiply_bf16::<2, 6, 5>();
                }
            }
            let to = work.weights.add(key * ROWS).cast::<u8>();
            tiles.store::<0>(to, ROWS * 4);
            tiles.store::<1>(to.add(64), ROWS * 4);
            tiles.store::<2>(to.add(128), ROWS * 4);
        }
        let scale = Avx512::splat(job.attention.scale);
        for at in (0..count * ROWS).step_by(16) {
            let score = work.weights.add(at);
            Avx512::store(score, Avx512::mul(Avx512::load(score), scale));
        }
    }
}

/// Packs a block of values into pairs of keys, `[BLOCK / 2][width]`, zeros behind the last. Returns whether all are finite.
///
/// # Safety
/// `count` rows of values lie `stride` elements apart; AVX-512 is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack_values(values: *const u16, stride: isize, count: usize, work: Work) -> bool {
    const EXPONENT: u16 = 0x7f80;
    let width = work.width;
    let mut finite = true;
    for pair in 0..BLOCK / 2 {
        // SAFETY: the caller's promise; the work has room for whole blocks.
        unsafe {
            let to = std::slice::from_raw_parts_mut(work.values.cast::<u32>().add(pair * width), width);
            let row = |key: usize| std::slice::from_raw_parts(values.offset(key as isize * stride), width);
            if 2 * pair >= count {
                to.fill(0);
                continue;
            }
            let first = row(2 * pair);
            if 2 * pair + 1 == count {
                for (to, &a) in to.iter_mut().zip(first) {
                    finite &= a & EXPONENT != EXPONENT;
                    *to = u32::from(a);
                }
                continue;
            }
            for ((to, &a), &b) in to.iter_mut().zip(first).zip(row(2 * pair + 1)) {
                finite &= (a & EXPONENT != EXPONENT) & (b & EXPONENT != EXPONENT);
                *to = u32::from(a) | u32::from(b) << 16;
            }
        }
    }
    finite
}

/// `sums[row] = sums[row] * factors[row] + weights[row] . values`, the weights rounded to bf16.
///
/// # Safety
/// Values are packed, weights are those of `count` keys; AVX-512 is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn add_values(tiles: &Configured, count: usize, rows: usize, work: Work) {
    let width = work.width;
    let height = rows.div_ceil(16);
    // SAFETY: the caller's promise; blocks are whole, padded with zeros.
    unsafe {
        let terms = count.next_multiple_of(32);
        work.weights.add(count * ROWS).write_bytes(0, (terms - count) * ROWS);
        for row in (0..16 * height).step_by(16) {
            for key in (0..terms).step_by(16) {
                transpose(work, row, key);
            }
        }
        for row in 0..rows {
            let factor = Avx512::splat(work.factors.add(row).read());
            for column in (0..width).step_by(16) {
                let sum = work.sums.add(row * width + column);
                Avx512::store(sum, Avx512::mul(Avx512::load(sum), factor));
            }
        }
        let rounded = work.rounded.cast_const().cast::<u8>();
        for column in (0..width).step_by(16) {
            let sums = work.sums.add(column).cast::<u8>();
            let tall = 16 * width * 4;
            tiles.load::<0>(sums, width * 4);
            if height > 1 {
                tiles.load::<1>(sums.add(tall), width * 4);
            }
            if height > 2 {
                tiles.load::<2>(sums.add(2 * tall), width * 4);
            }
            for key in (0..terms).step_by(32) {
                let pairs = work.values.cast::<u32>().add(key / 2 * width + column);
                tiles.load::<6>(pairs.cast(), width * 4);
                let weights = rounded.add(key * 2);
                tiles.load::<3>(weights, BLOCK * 2);
                tiles.multiply_bf16::<0, 3, 6>();
                if height > 1 {
                    tiles.load::<4>(weights.add(16 * BLOCK * 2), BLOCK * 2);
                    tiles.multiply_bf16::<1, 4, 6>();
                }
                if height > 2 {
                    tiles.load::<5>(weights.add(32 * BLOCK * 2), BLOCK * 2);
                    tiles.multiply_bf16::<2, 5, 6>();
                }
            }
            tiles.store::<0>(sums, width * 4);
            if height > 1 {
                tiles.store::<1>(sums.add(tall), width * 4);
            }
            if height > 2 {
                tiles.store::<2>(sums.add(2 * tall), width * 4);
            }
        }
    }
}

/// Sixteen keys of sixteen rows: `rounded[row][key] = weights[key][row]`.
///
/// # Safety
/// Rows and keys are inside the work's blocks; AVX-512 is there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn transpose(work: Work, row: usize, key: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut r = [_mm512_setzero_ps(); 16];
        for (i, r) in r.iter_mut().enumerate() {
            *r = _mm512_loadu_ps(work.weights.add((key + i) * ROWS + row));
        }
        for (i, values) in transpose_16(r).into_iter().enumerate() {
            Avx512::store_bf16(work.rounded.add((row + i) * BLOCK + key).cast(), values);
        }
    }
}
