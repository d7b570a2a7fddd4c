//! One filter a channel: the lanes are channels, and each output is a sum over taps.

use super::Shape;
use crate::path::Path;
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::split::{Shared, in_parts};
use crate::view::{View, ViewMut};

/// The most taps whose places are kept in a list; of more, they are found again for each group of channels.
const LISTED: usize = 64;

pub(super) fn run(
    pool: &Pool,
    path: Path,
    out: &ViewMut<'_>,
    x: &View<'_>,
    w: &View<'_>,
    shape: &Shape<'_>,
    scratch: &mut [u8],
) {
    let (taps, channels) = (shape.taps(), shape.channels);
    // Weights by tap, so that the channels of one lie side by side.
    let weights = scratch.as_mut_ptr().cast::<f32>();
    with_float!(w.dtype(), W => for channel in 0..channels {
        for tap in 0..taps {
            // SAFETY: the weight is inside the tensor; scratch has room for all of them and is aligned.
            unsafe {
                let weight = w.data().cast::<W>().add(channel * taps + tap).read().to_f32();
                weights.add(tap * channels + channel).write(weight);
            }
        }
    });
    let weights = Shared::new(weights);
    with_float!(x.dtype(), X => with_float!(out.dtype(), O => {
        in_parts(pool, shape.batch * shape.positions(), 1, taps * (channels / 16 + 2), &|range| {
            for row in range {
                // SAFETY: the row is inside the output, and is this task's.
                unsafe {
                    on(path, Position {
                        x: x.data().cast::<X>(),
                        out: out.data().cast::<O>().add(row * channels),
                        weights: weights.get().cast_const(),
                        shape,
                        row,
                    });
                }
            }
        });
    }));
}

struct Position<'a, X, O> {
    x: *const X,
    out: *mut O,
    weights: *const f32,
    shape: &'a Shape<'a>,
    row: usize,
}

impl<X: Stored, O: Stored> Kernel for Position<'_, X, O> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Position { x, out, weights, shape, row } = self;
        let (taps, channels) = (shape.taps(), shape.channels);
        let (batch, position) = (row / shape.positions(), row % shape.positions());
        let mut places = [None; LISTED];
        for (tap, place) in places.iter_mut().enumerate().take(taps) {
            *place = shape.meet(position, tap);
        }
        let place = |tap: usize| if tap < LISTED { places[tap] } else { shape.meet(position, tap) };
        // SAFETY: positions that `meet` names are inside the input; channels are inside all three.
        unsafe {
            let image = x.add(batch * shape.pixels() * channels);
            let mut channel = 0;
            while channel + S::LANES <= channels {
                let mut sum = S::splat(0.0);
                for tap in 0..taps {
                    if let Some(at) = place(tap) {
                        let weight = S::load(weights.add(tap * channels + channel));
                        sum = S::fma(X::load::<S>(image.add(at * channels + channel)), weight, sum);
                    }
                }
                O::store::<S>(out.add(channel), sum);
                channel += S::LANES;
            }
            while channel < channels {
                let mut sum = 0.0;
                for tap in 0..taps {
                    if let Some(at) = place(tap) {
                        let weight = weights.add(tap * channels + channel).read();
                        sum += image.add(at * channels + channel).read().to_f32() * weight;
                    }
                }
                out.add(channel).write(O::from_f32(sum));
                channel += 1;
            }
        }
    }
}
