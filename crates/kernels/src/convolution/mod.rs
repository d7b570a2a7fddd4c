//! Convolutions over one to three axes, plain and transposed, channels last. The inputs under the kernel are collected
//! into rows for a block of output positions, and the rest is a product of matrices; a kernel of one tap needs no
//! collecting, and one filter a channel (depthwise) is summed directly, channels being lanes. Filters of f32 that are known
//! beforehand are packed for that once ([`packed`]), and the product reads inputs where they lie if a tap has channels enough.

mod collect;
mod depthwise;
pub mod packed;
#[cfg(test)]
mod tests;

use crate::dense::{self, Product};
use crate::epilogue::Epilogue;
use crate::path::Path;
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::Stored;
use crate::split::{Shared, in_parts};
use crate::view::{View, ViewMut};

/// The most axes that a kernel runs over.
const MAX_AXES: usize = 3;
/// About how many bytes of collected inputs are multiplied at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Stride, padding and dilation of one axis; a stride is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct Axis {
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
}

/// Which way the kernel is laid over the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Output `o` and tap `t` meet input `o * stride + t * dilation - padding`.
    Plain,
    /// Input `i` and tap `t` meet output `i * stride + t * dilation - padding`.
    Transposed,
}

/// Sizes and settings of one convolution.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Independent inputs.
    pub batch: usize,
    /// Of the input, without batch and channels.
    pub input: &'a [usize],
    /// Of the kernel.
    pub kernel: &'a [usize],
    /// Of the output; where a transposed one is longer than the taps reach, its end is zeros.
    pub output: &'a [usize],
    /// Settings, an axis each.
    pub axes: &'a [Axis],
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Groups of channels that do not see each other; divides both.
    pub groups: usize,
    /// Which way the kernel is laid.
    pub direction: Direction,
}

impl Shape<'_> {
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    fn positions(&self) -> usize {
        self.output.iter().product()
    }

    fn pixels(&self) -> usize {
        self.input.iter().product()
    }

    /// Channels of a group.
    fn depth(&self) -> usize {
        self.channels / self.groups
    }

    /// Whether every channel has filters of its own, and one tap each step.
    fn is_depthwise(&self) -> bool {
        self.depth() == 1 && self.filters == self.groups
    }

    /// Whether outputs are inputs at the same place.
    fn is_pointwise(&self) -> bool {
        self.lies_even() && self.groups == 1
    }

    /// Whether the rows of the product are inputs as they lie.
    fn lies_even(&self) -> bool {
        let plain = self.axes.iter().all(|axis| axis.stride == 1 && axis.padding == 0);
        self.taps() == 1 && plain && self.input == self.output
    }

    /// Output positions that are collected together.
    fn block(&self) -> usize {
        // Enough rows to share each weight, whatever their length.
        let bytes = (self.taps() * self.depth() * 4).max(1);
        (BLOCK_BYTES / bytes).max(64).min((self.batch * self.positions()).max(1))
    }

    /// The input position that a tap meets at an output position, if there is one.
    fn meet(&self, position: usize, tap: usize) -> Option<usize> {
        let (mut position, mut tap, mut step, mut source) = (position, tap, 1, 0);
        for axis in (0..self.axes.len()).rev() {
            let (o, t) = (position % self.output[axis], tap % self.kernel[axis]);
            (position, tap) = (position / self.output[axis], tap / self.kernel[axis]);
            let Axis { stride, padding, dilation } = self.axes[axis];
            let at = match self.direction {
                Direction::Plain => (o * stride + t * dilation).checked_sub(padding)?,
                Direction::Transposed => {
                    let at = (o + padding).checked_sub(t * dilation)?;
                    if !at.is_multiple_of(stride) {
                        return None;
                    }
                    at / stride
                }
            };
            if at >= self.input[axis] {
                return None;
            }
            source += at * step;
            step *= self.input[axis];
        }
        Some(source)
    }

    fn check(&self) {
        let axes = self.axes.len();
        assert!((1..=MAX_AXES).contains(&axes), "one to three axes");
        assert!(self.input.len() == axes && self.kernel.len() == axes && self.output.len() == axes);
        assert!(
            self.groups > 0
                && self.channels.is_multiple_of(self.groups)
                && self.filters.is_multiple_of(self.groups)
        );
        assert!(self.axes.iter().all(|axis| axis.stride > 0), "a stride is at least 1");
        // Places are computed from these without further checks.
        let tensors = [
            (self.input, self.batch, self.channels),
            (self.kernel, self.filters, self.channels / self.groups),
            (self.output, self.batch, self.filters),
        ];
        for (sizes, outer, inner) in tensors {
            let count = [outer, inner].iter().chain(sizes).try_fold(1usize, |n, &size| n.checked_mul(size));
            assert!(count.is_some(), "more elements than can be counted");
        }
    }
}

/// Bytes of scratch that a convolution needs.
pub fn scratch_bytes(shape: &Shape<'_>, threads: usize) -> usize {
    let inner = shape.taps() * shape.depth();
    if shape.is_depthwise() {
        // As they lie, converted, and by tap.
        return (shape.taps() * shape.filters).saturating_mul(8).saturating_add(64);
    }
    let rows = if shape.is_pointwise() { shape.batch * shape.positions() } else { shape.block() };
    let collected = if shape.is_pointwise() { 0 } else { rows.saturating_mul(inner).saturating_mul(4) };
    let columns = shape.filters / shape.groups;
    collected.saturating_add(dense::scratch_bytes(rows, inner, columns, threads)).saturating_add(64)
}

/// Convolves `x` of [batch, input.., channels] with `w` of [filters, kernel.., channels / groups] into `out` of
/// [batch, output.., filters]. All are contiguous floats of at most 32 bits; the output has the dtype of `x` or f32.
///
/// # Panics
/// When tensors do not fit the shape, are not contiguous, or scratch is smaller than [`scratch_bytes`].
pub fn convolution(
    pool: &Pool,
    path: Path,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    w: &View<'_>,
    shape: &Shape<'_>,
    scratch: &mut [u8],
) {
    shape.check();
    let (taps, depth) = (shape.taps(), shape.depth());
    assert_eq!(x.len(), shape.batch * shape.pixels() * shape.channels);
    assert_eq!(w.len(), shape.filters * taps * depth);
    assert_eq!(out.len(), shape.batch * shape.positions() * shape.filters);
    assert!(x.is_contiguous() && w.is_contiguous() && out.is_contiguous());
    assert!(scratch.len() >= scratch_bytes(shape, pool.threads()), "scratch is too small");
    if out.is_empty() {
        return;
    }
    let skip = scratch.as_ptr().align_offset(64);
    let scratch = &mut scratch[skip..];
    if shape.is_depthwise() {
        let weights = by_tap(w, taps, scratch);
        return depthwise::run(pool, path, out, x, weights, shape, &Epilogue::default());
    }
    let (rows, inner) = (shape.batch * shape.positions(), taps * depth);
    let columns = shape.filters / shape.groups;
    let block = if shape.is_pointwise() { rows } else { shape.block() };
    let size = x.dtype().size();
    let (collected, rest) = scratch.split_at_mut(if shape.is_pointwise() { 0 } else { block * inner * 4 });
    for first in (0..rows).step_by(block) {
        let count = block.min(rows - first);
        for group in 0..shape.groups {
            let left = if shape.is_pointwise() {
                x.data()
            } else {
                collect(pool, x, shape, first..first + count, group, collected.as_mut_ptr());
                collected.as_ptr()
            };
            let (a_sizes, a_strides) = ([count, inner], [inner as isize, 1]);
            let (b_sizes, b_strides) = ([inner, columns], [1, inner as isize]);
            let (out_sizes, out_strides) = ([count, columns], [shape.filters as isize, 1]);
            let to = (first * shape.filters + group * columns) * out.dtype().size();
            let from = group * columns * inner * w.dtype().size();
            debug_assert!(left == x.data() || count * inner * size <= collected.len());
            // SAFETY: rows, filters and columns are inside the tensors and the collected block, which are contiguous; the
            // product reads the collected block and writes the output alone.
            let (a, b, mut to) = unsafe {
                (
                    View::from_raw(left, x.dtype(), &a_sizes, &a_strides),
                    View::from_raw(w.data().add(from), w.dtype(), &b_sizes, &b_strides),
                    ViewMut::from_raw(out.data().add(to), out.dtype(), &out_sizes, &out_strides),
                )
            };
            dense::product(pool, path, &mut to, &Product::new(a, b), rest);
        }
    }
}

/// The filters of a depthwise convolution by tap, as f32.
fn by_tap<'s>(w: &View<'_>, taps: usize, scratch: &'s mut [u8]) -> &'s [f32] {
    // SAFETY: any bytes are floats; what is not aligned is left out.
    let (_, floats, _) = unsafe { scratch.align_to_mut::<f32>() };
    let (by_channel, by_tap) = floats[..2 * w.len()].split_at_mut(w.len());
    with_float!(w.dtype(), W => for (at, weight) in by_channel.iter_mut().enumerate() {
        // SAFETY: an element of a contiguous tensor.
        *weight = unsafe { w.data().cast::<W>().add(at).read() }.to_f32();
    });
    depthwise::by_tap(by_channel, taps, by_tap);
    by_tap
}

/// Collects what lies under the kernel at each output position: rows of `[taps][channels of the group]`, zero where there
/// is no input.
fn collect(
    pool: &Pool,
    x: &View<'_>,
    shape: &Shape<'_>,
    rows: std::ops::Range<usize>,
    group: usize,
    to: *mut u8,
) {
    let (taps, depth, size) = (shape.taps(), shape.depth(), x.dtype().size());
    let to = Shared::new(to);
    in_parts(pool, rows.len(), 1, taps * (depth * size / 16 + 4), &|range| {
        for row in range {
            let (batch, position) =
                ((rows.start + row) / shape.positions(), (rows.start + row) % shape.positions());
            for tap in 0..taps {
                // SAFETY: the row is inside the block, and is this task's; a position that `meet` names is inside the input.
                unsafe {
                    let to = to.get().add((row * taps + tap) * depth * size);
                    match shape.meet(position, tap) {
                        Some(at) => {
                            let from = (batch * shape.pixels() + at) * shape.channels + group * depth;
                            x.data().add(from * size).copy_to_nonoverlapping(to, depth * size);
                        }
                        // All bits 0 is 0 in every float.
                        None => to.write_bytes(0, depth * size),
                    }
                }
            }
        }
    });
}
