//! Activations into the form for lanes.
//!
//! Decoding waits for this before every product, so that it must be quick even for one row.

#[cfg(target_arch = "x86_64")]
mod avx512;

use super::layout::{INPUT_GROUP, InputLayout, LaneLayout, Numbers};
use super::rows::Rows;
use crate::path::Path;
use crate::pool::Pool;
use std::ops::Range;

/// The largest block of any lane layout.
const LARGEST_BLOCK: usize = 128;

/// Values that are worth a task of their own.
const TASK_VALUES: usize = 8192;

/// Prepares all rows; `to` has the layout's row bytes for each.
pub(super) fn lane_rows(layout: &InputLayout, path: Path, pool: &Pool, x: &Rows<'_>, to: &mut [u8]) {
    if layout.k == 0 {
        return;
    }
    let row_bytes = layout.lane_row_bytes();
    let rows = Parts::new(to, row_bytes);
    let per_task = TASK_VALUES.div_ceil(layout.k);
    pool.run(x.rows().div_ceil(per_task), &|task| {
        for row in task * per_task..x.rows().min((task + 1) * per_task) {
            // SAFETY: each row is prepared by one task.
            let to = unsafe { rows.part(row) };
            // SAFETY: the path was checked when the linear was made.
            unsafe { prepare_row(layout, path, x, row, to) };
        }
    });
}

/// A slice in parts of equal length, of which each thread takes its own.
pub(super) struct Parts {
    data: *mut u8,
    len: usize,
    part: usize,
}

// SAFETY: a place and nothing more; using it takes `unsafe` and the promise that nobody else has the part.
unsafe impl Sync for Parts {}

impl Parts {
    pub(super) fn new(bytes: &mut [u8], part: usize) -> Parts {
        Parts { data: bytes.as_mut_ptr(), len: bytes.len(), part }
    }

    /// One part.
    ///
    /// # Safety
    /// The slice is still borrowed, and nobody else has this part now.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part(&self, index: usize) -> &mut [u8] {
        let range: Range<usize> = index * self.part..(index + 1) * self.part;
        assert!(range.end <= self.len, "part {index} of {} bytes lies outside {}", self.part, self.len);
        // SAFETY: inside the slice, and the caller promises that it is nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

/// Prepares one row with the path's instructions.
///
/// # Safety
/// The machine has what the path says.
unsafe fn prepare_row(layout: &InputLayout, path: Path, x: &Rows<'_>, row: usize, to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        match path {
            Path::Avx512Bw | Path::Avx512 | Path::Amx if layout.lanes.numbers != Numbers::F32 => {
                return avx512::quantised_row(layout, x, row, to);
            }
            Path::Avx512Bw | Path::Avx512 | Path::Amx => return avx512::lane_row(layout, x, row, to),
            Path::Avx2 | Path::AvxVnni => return lane_row_avx2(layout, x, row, to),
            _ => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = path;
    lane_row(layout, x, row, to);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn lane_row_avx2(layout: &InputLayout, x: &Rows<'_>, row: usize, to: &mut [u8]) {
    lane_row(layout, x, row, to);
}

/// Prepares one row; `to` has the layout's row bytes. Inlined into functions that enable a path's
/// instructions.
#[inline(always)]
fn lane_row(layout: &InputLayout, x: &Rows<'_>, row: usize, to: &mut [u8]) {
    let lanes = layout.lanes;
    let (blocks, sums) = to.split_at_mut(layout.lane_sums_at());
    let sums: &mut [f32] = bytemuck::cast_slice_mut(sums);
    sums.fill(0.0);
    let mut values = [0.0; LARGEST_BLOCK];
    let values = &mut values[..lanes.block()];
    let mut quants = [0i8; LARGEST_BLOCK];
    for (block, to) in blocks.chunks_exact_mut(lanes.block_bytes()).enumerate() {
        let first = block * lanes.block();
        let len = lanes.block().min(layout.k - first);
        x.read(row, first, &mut values[..len]);
        values[len..].fill(0.0);
        if lanes.numbers == Numbers::F32 {
            add_sums(&mut sums[..layout.k / layout.summed()], first, layout.summed(), values);
            arrange_floats(lanes, values, bytemuck::cast_slice_mut(to));
            continue;
        }
        let (bytes, rest) = to.split_at_mut(lanes.block());
        let rest: &mut [f32] = bytemuck::cast_slice_mut(rest);
        let (scales, starts) = rest.split_at_mut(lanes.lanes);
        let quants = &mut quants[..lanes.block()];
        let groups = values.chunks_mut(INPUT_GROUP).zip(quants.chunks_mut(INPUT_GROUP));
        for ((values, quants), scales) in groups.zip(scales.chunks_mut(INPUT_GROUP / lanes.per_lane)) {
            let scale = quantise(values, quants);
            scales.fill(scale);
            // What the product really multiplies; the sums of the groups must be of the same numbers.
            values.iter_mut().zip(quants).for_each(|(value, quant)| *value = scale * f32::from(*quant));
        }
        add_sums(&mut sums[..layout.k / layout.summed()], first, layout.summed(), values);
        arrange_bytes(lanes, quants, bytes);
        let Numbers::Int8Shifted { by } = lanes.numbers else { continue };
        for (start, quants) in starts.iter_mut().zip(quants.chunks(lanes.per_lane)) {
            let sum: i32 = quants.iter().map(|&quant| i32::from(quant)).sum();
            *start = f32::from_bits((-i32::from(by) * sum).cast_unsigned());
        }
    }
    if layout.sum_factor() != 1.0 {
        sums.iter_mut().for_each(|sum| *sum *= layout.sum_factor());
    }
}

/// Rounds values to multiples of their largest magnitude's 127th part, which is returned; NaN where one is
/// not finite.
#[inline(always)]
fn quantise(values: &[f32], quants: &mut [i8]) -> f32 {
    // Magnitudes order as their bits do, and NaN above all; integers have a vector instruction for it.
    let largest = values.iter().map(|value| value.abs().to_bits()).max().unwrap_or(0);
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        quants.fill(0);
        return f32::NAN;
    }
    // Below this, the reciprocal overflows; such values do not count beside any others.
    let inverse = if largest < 1e-35 { 0.0 } else { 127.0 / largest };
    for (quant, value) in quants.iter_mut().zip(values) {
        let rounded = (value * inverse).round_ties_even();
        // SAFETY: at most the largest magnitude, which is finite, times what makes 127 of it. Vectors have an
        // instruction for this, and none for a conversion that looks at what does not fit.
        *quant = unsafe { rounded.to_int_unchecked::<i32>() } as i8;
    }
    largest / 127.0
}

#[inline(always)]
fn add_sums(sums: &mut [f32], first: usize, group: usize, values: &[f32]) {
    // Groups are powers of two from 16 on, and blocks are multiples of 16.
    for (i, part) in values.chunks(16).enumerate() {
        if let Some(sum) = sums.get_mut((first + 16 * i) / group) {
            // In four lanes: one after another, each addition would wait for the one before.
            let mut lanes = [0.0f32; 4];
            for four in part.as_chunks::<4>().0 {
                lanes.iter_mut().zip(four).for_each(|(lane, value)| *lane += value);
            }
            *sum += lanes.iter().sum::<f32>();
        }
    }
}

/// Plane `p` holds value `p` of every lane.
#[inline(always)]
fn arrange_floats(lanes: LaneLayout, values: &[f32], to: &mut [f32]) {
    for (plane, to) in to.chunks_exact_mut(lanes.lanes).enumerate() {
        for (to, values) in to.iter_mut().zip(values.chunks_exact(lanes.per_lane)) {
            *to = values[plane];
        }
    }
}

/// Four bytes a lane in each plane. With eight values a lane, the first plane holds the even ones, which are
/// low nibbles, and the second the odd ones.
#[inline(always)]
fn arrange_bytes(lanes: LaneLayout, quants: &[i8], to: &mut [u8]) {
    let planes = lanes.per_lane / 4;
    for (plane, to) in to.chunks_exact_mut(4 * lanes.lanes).enumerate() {
        for (to, quants) in to.chunks_exact_mut(4).zip(quants.chunks_exact(lanes.per_lane)) {
            for (i, to) in to.iter_mut().enumerate() {
                *to = quants[i * planes + plane].cast_unsigned();
            }
        }
    }
}
