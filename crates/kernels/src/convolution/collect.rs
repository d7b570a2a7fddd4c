//! What lies under a kernel at some output positions, side by side: rows for a product of matrices. Taps that are neighbours along
//! the last axis are neighbours in memory, and are copied as one run.

use super::{Axis, Direction, Shape};
use crate::dense::packed::Rows;
use crate::split::Shared;
use std::ops::Range;

/// Three axes of a convolution; those that it lacks come first and have size 1.
#[derive(Clone, Copy)]
pub(super) struct Spatial {
    pub(super) input: [usize; 3],
    pub(super) kernel: [usize; 3],
    pub(super) output: [usize; 3],
    pub(super) axes: [Axis; 3],
}

impl Spatial {
    pub(super) fn of(shape: &Shape<'_>) -> Spatial {
        let lead = 3 - shape.axes.len();
        let size =
            |list: &[usize]| std::array::from_fn(|axis| if axis < lead { 1 } else { list[axis - lead] });
        let plain = Axis { stride: 1, padding: 0, dilation: 1 };
        Spatial {
            input: size(shape.input),
            kernel: size(shape.kernel),
            output: size(shape.output),
            axes: std::array::from_fn(|axis| if axis < lead { plain } else { shape.axes[axis - lead] }),
        }
    }

    /// Where an axis' tap meets the input, if it does.
    #[inline(always)]
    pub(super) fn meet(&self, axis: usize, output: usize, tap: usize) -> Option<usize> {
        let Axis { stride, padding, dilation } = self.axes[axis];
        let at = (output * stride + tap * dilation).checked_sub(padding)?;
        (at < self.input[axis]).then_some(at)
    }
}

/// Copies floats. Runs of a few, as a first layer with three channels has them, are not worth a call.
///
/// # Safety
/// `count` floats lie at `from` and fit at `to`, which is elsewhere.
#[inline(always)]
unsafe fn copy(from: *const f32, to: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if count > 64 {
            return from.copy_to_nonoverlapping(to, count);
        }
        let mut at = 0;
        while at + 8 <= count {
            to.add(at).cast::<[f32; 8]>().write_unaligned(from.add(at).cast::<[f32; 8]>().read_unaligned());
            at += 8;
        }
        while at < count {
            to.add(at).write(from.add(at).read());
            at += 1;
        }
    }
}

/// The rows of one group of channels, in f32.
pub(super) struct Collected<'a> {
    shape: &'a Shape<'a>,
    spatial: Spatial,
    x: Shared<f32>,
    group: usize,
}

impl<'a> Collected<'a> {
    /// `x` holds the whole input.
    pub(super) fn new(shape: &'a Shape<'a>, x: *const f32, group: usize) -> Collected<'a> {
        Collected { shape, spatial: Spatial::of(shape), x: Shared::new(x.cast_mut()), group }
    }

    /// One row: `[taps][channels of the group]`.
    ///
    /// # Safety
    /// The position is inside the output; there is room for a row.
    unsafe fn row(&self, batch: usize, position: [usize; 3], to: *mut f32) {
        let Collected { shape, spatial, .. } = self;
        let (channels, depth) = (shape.channels, shape.depth());
        let [_, height, width] = spatial.input;
        let last = spatial.kernel[2];
        let image = self.x.get().wrapping_add(batch * shape.pixels() * channels + self.group * depth);
        // Taps of the last axis that meet the input: they are neighbours where nothing lies between them.
        let Axis { stride, padding, dilation } = spatial.axes[2];
        let start = (position[2] * stride) as isize - padding as isize;
        let before = (-start).clamp(0, last as isize) as usize;
        let behind = (width as isize - start).clamp(before as isize, last as isize) as usize;
        let run = dilation == 1 && shape.groups == 1;
        let mut to = to;
        for deep in 0..spatial.kernel[0] {
            for high in 0..spatial.kernel[1] {
                let line = spatial.meet(0, position[0], deep).zip(spatial.meet(1, position[1], high));
                // SAFETY: what `meet` names is inside the input, and so are the taps between `before` and `behind`; the row has
                // room for all taps.
                unsafe {
                    match line {
                        Some((deep, high)) if run => {
                            let line = image.wrapping_add((deep * height + high) * width * channels);
                            let from = line.wrapping_offset((start + before as isize) * channels as isize);
                            copy(from, to.add(before * depth), (behind - before) * depth);
                            if behind - before < last {
                                to.write_bytes(0, before * depth);
                                to.add(behind * depth).write_bytes(0, (last - behind) * depth);
                            }
                        }
                        Some((deep, high)) => {
                            let line = image.wrapping_add((deep * height + high) * width * channels);
                            for tap in 0..last {
                                let to = to.add(tap * depth);
                                match spatial.meet(2, position[2], tap) {
                                    Some(at) => line.add(at * channels).copy_to_nonoverlapping(to, depth),
                                    None => to.write_bytes(0, depth),
                                }
                            }
                        }
                        None => to.write_bytes(0, last * depth),
                    }
                }
                to = to.wrapping_add(last * depth);
            }
        }
    }

    /// One row where the kernel lies the other way round.
    ///
    /// # Safety
    /// As [`Collected::row`].
    unsafe fn transposed(&self, batch: usize, position: usize, to: *mut f32) {
        let (shape, depth) = (self.shape, self.shape.depth());
        let image = self.x.get().wrapping_add(batch * shape.pixels() * shape.channels + self.group * depth);
        for tap in 0..shape.taps() {
            // SAFETY: what `meet` names is inside the input; the row has room for all taps.
            unsafe {
                let to = to.add(tap * depth);
                match shape.meet(position, tap) {
                    Some(at) => image.add(at * shape.channels).copy_to_nonoverlapping(to, depth),
                    None => to.write_bytes(0, depth),
                }
            }
        }
    }
}

impl Rows for Collected<'_> {
    fn rows(&self, rows: Range<usize>, scratch: *mut f32) -> (*const f32, usize) {
        let shape = self.shape;
        let (inner, positions) = (shape.taps() * shape.depth(), shape.positions());
        if shape.lies_even() {
            let first = self.x.get().wrapping_add(rows.start * shape.channels + self.group * shape.depth());
            return (first, shape.channels);
        }
        let [_, high, wide] = self.spatial.output;
        let (mut batch, mut position) = (rows.start / positions, rows.start % positions);
        let mut at = [position / (high * wide), position / wide % high, position % wide];
        for index in 0..rows.len() {
            // SAFETY: a row of the output; scratch has room for as many as were asked for.
            unsafe {
                let to = scratch.add(index * inner);
                match shape.direction {
                    Direction::Plain => self.row(batch, at, to),
                    Direction::Transposed => self.transposed(batch, position, to),
                }
            }
            // The next place, without a division.
            position += 1;
            at[2] += 1;
            if at[2] == wide {
                (at[1], at[2]) = (at[1] + 1, 0);
            }
            if at[1] == high {
                (at[0], at[1]) = (at[0] + 1, 0);
            }
            if position == positions {
                (batch, position, at) = (batch + 1, 0, [0; 3]);
            }
        }
        (scratch, inner)
    }

    fn are_collected(&self) -> bool {
        !self.shape.lies_even()
    }
}
