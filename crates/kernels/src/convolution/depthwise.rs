//! One filter a channel: the lanes are channels, and each output is a sum over taps. Three taps along a line, as nearly all models
//! have them, are summed for several neighbouring outputs at once, which share most of what they read.

use super::collect::Spatial;
use super::{Direction, Shape};
use crate::epilogue::Epilogue;
use crate::path::Path;
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::split::{Shared, in_parts};
use crate::view::{View, ViewMut};
use std::ops::Range;

/// Neighbouring outputs that are summed together.
const OUTPUTS: usize = 4;
/// Channels of a task at least.
const CHANNELS: usize = 64;

/// Filters by channel become filters by tap.
pub(super) fn by_tap(filters: &[f32], taps: usize, to: &mut [f32]) {
    let channels = filters.len() / taps.max(1);
    for (channel, filter) in filters.chunks_exact(taps.max(1)).enumerate() {
        for (tap, &weight) in filter.iter().enumerate() {
            to[tap * channels + channel] = weight;
        }
    }
}

/// Sums with weights by tap. Only outputs of f32 have an epilogue.
pub(super) fn run(
    pool: &Pool,
    path: Path,
    out: &ViewMut<'_>,
    x: &View<'_>,
    weights: &[f32],
    shape: &Shape<'_>,
    epilogue: &Epilogue<'_>,
) {
    assert!(epilogue.is_none() || out.dtype() == pteron_tensor::DType::F32, "an epilogue is for f32");
    let (taps, channels, spatial) = (shape.taps(), shape.channels, Spatial::of(shape));
    let [deep, high, wide] = spatial.output;
    let lines = shape.batch * deep * high;
    // Channels are cut too where there are few lines for the threads.
    let parts = (4 * pool.threads()).div_ceil(lines.max(1)).min(channels / CHANNELS).max(1);
    let (to, from) = (Shared::new(out.data()), Shared::new(x.data().cast_mut()));
    let cost = wide * taps * (channels / parts / 16 + 2) / 2;
    in_parts(pool, lines * parts, 1, cost, &|range| {
        for item in range {
            let (line, part) = (item / parts, item % parts);
            let at = |part: usize| (channels * part / parts).next_multiple_of(16).min(channels);
            let channels = at(part)..at(part + 1);
            with_float!(x.dtype(), X => with_float!(out.dtype(), O => on(path, Line::<X, O> {
                x: from.get().cast_const().cast(),
                out: to.get().cast(),
                weights,
                shape,
                spatial: &spatial,
                line,
                channels: channels.clone(),
                epilogue,
            })));
            if let Some(then) = epilogue.then {
                then(line * wide..(line + 1) * wide, channels);
            }
        }
    });
}

/// The outputs of one line, some channels of them.
struct Line<'a, X, O> {
    x: *const X,
    out: *mut O,
    weights: &'a [f32],
    shape: &'a Shape<'a>,
    spatial: &'a Spatial,
    /// Counts lines of all inputs.
    line: usize,
    channels: Range<usize>,
    epilogue: &'a Epilogue<'a>,
}

impl<X: Stored, O: Stored> Kernel for Line<'_, X, O> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Spatial { output: [deep, high, wide], input, kernel, axes } = *self.spatial;
        let (batch, place) = (self.line / (deep * high), [self.line / high % deep, self.line % high]);
        // SAFETY: lines, positions and channels are inside, as whoever made this kernel says.
        unsafe {
            let image = self.x.add(batch * self.shape.pixels() * self.shape.channels);
            let stride = axes[2].stride;
            // Other dtypes are rare, and each combination would be code of its own.
            let is_f32 = const { size_of::<X>() == 4 && size_of::<O>() == 4 };
            let plain =
                is_f32 && self.shape.direction == Direction::Plain && axes[2].dilation == 1 && stride <= 2;
            let three = kernel[0] == 1 && kernel[1] <= 3 && kernel[2] == 3 && input[2] >= 3;
            let layer = self.spatial.meet(0, place[0], 0);
            let (Some(layer), true) = (layer, plain && three) else {
                return self.positions::<S>(image, batch, 0..wide, self.channels.clone());
            };
            // Outputs whose three taps all meet the input.
            let first = axes[2].padding.div_ceil(stride).min(wide);
            let last = ((input[2] - 3 + axes[2].padding) / stride + 1).clamp(first, wide);
            let whole = self.channels.start..self.channels.start + self.channels.len() / S::LANES * S::LANES;
            self.positions::<S>(image, batch, 0..first, whole.clone());
            self.positions::<S>(image, batch, last..wide, whole.clone());
            self.positions::<S>(image, batch, 0..wide, whole.end..self.channels.end);
            // The taps of the axis before it that meet the input are neighbours.
            let mut lines = [(std::ptr::null(), 0); 3];
            let mut count = 0;
            for tap in 0..kernel[1] {
                if let Some(at) = self.spatial.meet(1, place[1], tap) {
                    let line = (layer * input[1] + at) * input[2];
                    lines[count] = (image.add(line * self.shape.channels), tap);
                    count += 1;
                }
            }
            let lines = &lines[..count];
            match (count, stride) {
                (3, 1) => self.three::<S, 3, 1>(lines, first..last, whole),
                (3, _) => self.three::<S, 3, 2>(lines, first..last, whole),
                (2, 1) => self.three::<S, 2, 1>(lines, first..last, whole),
                (2, _) => self.three::<S, 2, 2>(lines, first..last, whole),
                (1, 1) => self.three::<S, 1, 1>(lines, first..last, whole),
                (1, _) => self.three::<S, 1, 2>(lines, first..last, whole),
                _ => self.positions::<S>(image, batch, first..last, whole),
            }
        }
    }
}

impl<X: Stored, O: Stored> Line<'_, X, O> {
    /// Outputs whose taps all meet the input, of `R` lines of three.
    ///
    /// # Safety
    /// They and the channels are inside, which are whole vectors; the instruction set is there.
    #[inline(always)]
    unsafe fn three<S: Simd, const R: usize, const STRIDE: usize>(
        &self,
        lines: &[(*const X, usize)],
        positions: Range<usize>,
        channels: Range<usize>,
    ) {
        let mut at = positions.start;
        // SAFETY: the caller's promise.
        unsafe {
            while at + OUTPUTS <= positions.end {
                self.some::<S, R, STRIDE, OUTPUTS>(lines, at, channels.clone());
                at += OUTPUTS;
            }
            while at < positions.end {
                self.some::<S, R, STRIDE, 1>(lines, at, channels.clone());
                at += 1;
            }
        }
    }

    /// `N` neighbours of them.
    ///
    /// # Safety
    /// As [`Line::three`].
    #[inline(always)]
    unsafe fn some<S: Simd, const R: usize, const STRIDE: usize, const N: usize>(
        &self,
        lines: &[(*const X, usize)],
        position: usize,
        channels: Range<usize>,
    ) {
        let (all, padding) = (self.shape.channels, self.spatial.axes[2].padding);
        // SAFETY: the caller's promise.
        unsafe {
            let start = (position * STRIDE - padding) * all;
            let mut sources = [std::ptr::null(); R];
            let mut weights = [std::ptr::null(); R];
            for r in 0..R {
                let (line, tap) = *lines.get_unchecked(r);
                sources[r] = line.add(start);
                weights[r] = self.weights.as_ptr().add(tap * 3 * all);
            }
            for channel in channels.step_by(S::LANES) {
                let mut sums = [S::splat(0.0); N];
                for r in 0..R {
                    let mut taps = [S::splat(0.0); 3];
                    for (tap, weight) in taps.iter_mut().enumerate() {
                        *weight = S::load(weights[r].add(tap * all + channel));
                    }
                    for pixel in 0..(N - 1) * STRIDE + 3 {
                        let value = X::load::<S>(sources[r].add(pixel * all + channel));
                        for (n, sum) in sums.iter_mut().enumerate() {
                            if pixel >= n * STRIDE && pixel - n * STRIDE < 3 {
                                *sum = S::fma(value, taps[pixel - n * STRIDE], *sum);
                            }
                        }
                    }
                }
                for (n, sum) in sums.into_iter().enumerate() {
                    self.store::<S>(sum, position + n, channel);
                }
            }
        }
    }

    /// Any outputs and channels.
    ///
    /// # Safety
    /// They are inside; the instruction set is there.
    #[inline(always)]
    unsafe fn positions<S: Simd>(
        &self,
        image: *const X,
        batch: usize,
        positions: Range<usize>,
        channels: Range<usize>,
    ) {
        let (shape, taps, all) = (self.shape, self.shape.taps(), self.shape.channels);
        for position in positions.clone().filter(|_| !channels.is_empty()) {
            let lines = self.line - batch * self.spatial.output[0] * self.spatial.output[1];
            let output = lines * self.spatial.output[2] + position;
            let mut channel = channels.start;
            // SAFETY: what `meet` names is inside the input; channels are inside all three.
            unsafe {
                while channel + 4 * S::LANES <= channels.end {
                    let mut sums = [S::splat(0.0); 4];
                    for tap in 0..taps {
                        let Some(at) = shape.meet(output, tap) else { continue };
                        let from = image.add(at * all + channel);
                        let weight = self.weights.as_ptr().add(tap * all + channel);
                        for (n, sum) in sums.iter_mut().enumerate() {
                            let value = X::load::<S>(from.add(n * S::LANES));
                            *sum = S::fma(value, S::load(weight.add(n * S::LANES)), *sum);
                        }
                    }
                    for (n, sum) in sums.into_iter().enumerate() {
                        self.store::<S>(sum, position, channel + n * S::LANES);
                    }
                    channel += 4 * S::LANES;
                }
                while channel + S::LANES <= channels.end {
                    let mut sum = S::splat(0.0);
                    for tap in 0..taps {
                        if let Some(at) = shape.meet(output, tap) {
                            let weight = S::load(self.weights.as_ptr().add(tap * all + channel));
                            sum = S::fma(X::load::<S>(image.add(at * all + channel)), weight, sum);
                        }
                    }
                    self.store::<S>(sum, position, channel);
                    channel += S::LANES;
                }
                while channel < channels.end {
                    let mut sum = 0.0;
                    for tap in 0..taps {
                        if let Some(at) = shape.meet(output, tap) {
                            let weight = self.weights[tap * all + channel];
                            sum += image.add(at * all + channel).read().to_f32() * weight;
                        }
                    }
                    let to = (self.line * self.spatial.output[2] + position) * all + channel;
                    let value = self.epilogue.apply_one(sum, channel, to);
                    self.out.add(to).write(O::from_f32(value));
                    channel += 1;
                }
            }
        }
    }

    /// Writes a vector of an output.
    ///
    /// # Safety
    /// It is inside the output, and nobody else writes it.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, sum: S::F, position: usize, channel: usize) {
        let at = (self.line * self.spatial.output[2] + position) * self.shape.channels + channel;
        // SAFETY: the caller's promise.
        unsafe {
            let value = self.epilogue.apply::<S>(sum, channel, at, S::LANES);
            O::store::<S>(self.out.add(at), value);
        }
    }
}
