//! What lies under a kernel at some output positions: rows for a product of matrices. Where a tap has channels enough, the product
//! reads them where they lie, by address (an implicit product); else they are copied side by side (im2col). Taps that are neighbours
//! along the last axis are neighbours in memory then, and are copied as one run.

use super::{Axis, Direction, Shape};
use crate::dense::packed::{Origin, Rows};
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

/// Channels of a tap from which on they are read where they lie.
const PIECE: usize = 16;

/// Copies floats. Runs of a few, as a first layer with three channels has them, are not worth a call.
///
/// # Safety
/// `count` floats lie at `from` and fit at `to`, which is elsewhere.
#[inline(always)]
unsafe fn copy(from: *const f32, to: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let eight = |at: usize| {
            to.add(at).cast::<[f32; 8]>().write_unaligned(from.add(at).cast::<[f32; 8]>().read_unaligned());
        };
        if count > 64 {
            return from.copy_to_nonoverlapping(to, count);
        }
        if count < 8 {
            return (0..count).for_each(|at| to.add(at).write(from.add(at).read()));
        }
        (0..count / 8).for_each(|at| eight(at * 8));
        // The last eight once more, rather than what is left one by one.
        eight(count - 8);
    }
}

/// How the rows of a convolution's product come.
pub(super) fn origin(shape: &Shape<'_>) -> Origin {
    match shape.depth() {
        _ if shape.lies_even() => Origin::Dense,
        depth if depth >= PIECE => Origin::Pieces(depth),
        _ => Origin::Copied,
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

    /// The input that a group begins with.
    fn image(&self, batch: usize) -> *const f32 {
        let (shape, depth) = (self.shape, self.shape.depth());
        self.x.get().wrapping_add(batch * shape.pixels() * shape.channels + self.group * depth).cast_const()
    }

    /// Calls `f` for each line of the kernel with its first tap, and where the line of the input lies that it meets.
    #[inline(always)]
    fn each_line(&self, batch: usize, position: [usize; 3], mut f: impl FnMut(usize, Option<*const f32>)) {
        let Spatial { input: [_, height, width], kernel, .. } = self.spatial;
        for deep in 0..kernel[0] {
            for high in 0..kernel[1] {
                let line =
                    self.spatial.meet(0, position[0], deep).zip(self.spatial.meet(1, position[1], high));
                let line = line.map(|(deep, high)| {
                    self.image(batch).wrapping_add((deep * height + high) * width * self.shape.channels)
                });
                f((deep * kernel[1] + high) * kernel[2], line);
            }
        }
    }

    /// Rows of neighbours along the last axis: `[taps][channels of the group]` each.
    ///
    /// # Safety
    /// The positions are inside the output; there is room for the rows.
    unsafe fn copy_line(&self, batch: usize, position: [usize; 3], count: usize, to: *mut f32) {
        let (channels, depth) = (self.shape.channels, self.shape.depth());
        let (inner, last, width) = (self.shape.taps() * depth, self.spatial.kernel[2], self.spatial.input[2]);
        let Axis { stride, padding, dilation } = self.spatial.axes[2];
        let run = dilation == 1 && self.shape.groups == 1;
        self.each_line(batch, position, |tap, line| {
            for index in 0..count {
                let to = to.wrapping_add(index * inner + tap * depth);
                let position = position[2] + index;
                // Taps of the last axis that meet the input: they are neighbours where nothing lies between them.
                let start = (position * stride) as isize - padding as isize;
                let before = (-start).clamp(0, last as isize) as usize;
                let behind = (width as isize - start).clamp(before as isize, last as isize) as usize;
                // SAFETY: what `meet` names is inside the input, and so are the taps between `before` and `behind`; the row has
                // room for all taps.
                unsafe {
                    match line {
                        Some(line) if run => {
                            let from = line.wrapping_offset((start + before as isize) * channels as isize);
                            copy(from, to.add(before * depth), (behind - before) * depth);
                            if behind - before < last {
                                to.write_bytes(0, before * depth);
                                to.add(behind * depth).write_bytes(0, (last - behind) * depth);
                            }
                        }
                        Some(line) => {
                            for tap in 0..last {
                                let to = to.add(tap * depth);
                                match self.spatial.meet(2, position, tap) {
                                    Some(at) => line.add(at * channels).copy_to_nonoverlapping(to, depth),
                                    None => to.write_bytes(0, depth),
                                }
                            }
                        }
                        None => to.write_bytes(0, last * depth),
                    }
                }
            }
        });
    }

    /// One row where the kernel lies the other way round.
    ///
    /// # Safety
    /// As [`Collected::copy_line`], for one row.
    unsafe fn transposed(&self, batch: usize, position: usize, to: *mut f32) {
        let (shape, depth, image) = (self.shape, self.shape.depth(), self.image(batch));
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

    /// Calls `f` with the places of rows: the first row, its batch and position, and how many neighbours along the last axis it has.
    #[inline(always)]
    fn each_run(&self, rows: Range<usize>, mut f: impl FnMut(usize, usize, [usize; 3], usize)) {
        let ([_, high, wide], positions) = (self.spatial.output, self.shape.positions());
        let (mut batch, mut position) = (rows.start / positions, rows.start % positions);
        let mut at = [position / (high * wide), position / wide % high, position % wide];
        let mut row = 0;
        while row < rows.len() {
            let count = (wide - at[2]).min(rows.len() - row);
            f(row, batch, at, count);
            (row, position) = (row + count, position + count);
            // The next line, without a division.
            at = if at[1] + 1 == high { [at[0] + 1, 0, 0] } else { [at[0], at[1] + 1, 0] };
            if position == positions {
                (batch, position, at) = (batch + 1, 0, [0; 3]);
            }
        }
    }
}

impl Rows for Collected<'_> {
    fn origin(&self) -> Origin {
        origin(self.shape)
    }

    fn rows(&self, rows: Range<usize>, scratch: *mut f32) -> (*const f32, usize) {
        let shape = self.shape;
        let inner = shape.taps() * shape.depth();
        if shape.lies_even() {
            return (self.image(0).wrapping_add(rows.start * shape.channels), shape.channels);
        }
        let [_, high, wide] = self.spatial.output;
        self.each_run(rows, |row, batch, at, count| {
            let to = scratch.wrapping_add(row * inner);
            // SAFETY: rows of the output; scratch has room for as many as were asked for.
            unsafe {
                match shape.direction {
                    Direction::Plain => self.copy_line(batch, at, count, to),
                    Direction::Transposed => (0..count).for_each(|index| {
                        let position = (at[0] * high + at[1]) * wide + at[2] + index;
                        self.transposed(batch, position, to.add(index * inner));
                    }),
                }
            }
        });
        (scratch, inner)
    }

    fn pieces(&self, rows: Range<usize>, nothing: *const f32, to: *mut *const f32) {
        let (shape, all) = (self.shape, rows.len());
        let ([_, high, wide], last) = (self.spatial.output, self.spatial.kernel[2]);
        self.each_run(rows, |row, batch, at, count| {
            // SAFETY: there is room for an address of every tap and row.
            let write = |tap: usize, index: usize, from: Option<*const f32>| unsafe {
                to.add(tap * all + row + index).write(from.unwrap_or(nothing));
            };
            match shape.direction {
                Direction::Plain => self.each_line(batch, at, |first, line| {
                    for tap in 0..last {
                        for index in 0..count {
                            let pixel = self.spatial.meet(2, at[2] + index, tap);
                            let from = line.zip(pixel);
                            let from = from.map(|(line, pixel)| line.wrapping_add(pixel * shape.channels));
                            write(first + tap, index, from);
                        }
                    }
                }),
                Direction::Transposed => {
                    for tap in 0..shape.taps() {
                        for index in 0..count {
                            let position = (at[0] * high + at[1]) * wide + at[2] + index;
                            let pixel = shape.meet(position, tap);
                            let from =
                                pixel.map(|pixel| self.image(batch).wrapping_add(pixel * shape.channels));
                            write(tap, index, from);
                        }
                    }
                }
            }
        });
    }
}
