//! Pooling over the last three axes, and adaptive pooling over any number of them.

use super::call::as_size;
use super::lanes::{self, pick_elements};
use super::pool::Windows;
use super::{Call, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::avg_pool3d.out", 7, avg_pool),
    two("aten::max_pool3d_with_indices.out", 6, |call| {
        let (x, grid) = windows(call, 4, 5)?;
        largest(call, x, &grid)
    }),
    whole("aten::_adaptive_avg_pool2d.out", 2, |call| adaptive_avg_pool(call, 2)),
    whole("aten::adaptive_avg_pool2d.out", 2, |call| adaptive_avg_pool(call, 2)),
    whole("aten::_adaptive_avg_pool3d.out", 2, |call| adaptive_avg_pool(call, 3)),
    whole("aten::adaptive_avg_pool3d.out", 2, |call| adaptive_avg_pool(call, 3)),
    whole("aten::adaptive_avg_pool1d.out", 2, |call| adaptive_avg_pool(call, 1)),
    two("aten::adaptive_max_pool2d.out", 2, |call| adaptive_max_pool(call, 2)),
    two("aten::adaptive_max_pool3d.out", 2, |call| adaptive_max_pool(call, 3)),
];

const fn two(name: &'static str, inputs: usize, kernel: fn(&Call<'_>) -> Results) -> Operator {
    Operator { outs: Outs::Tensors(2), ..whole(name, inputs, kernel) }
}

/// By axis and output position: which input positions are seen, and how many with pads.
struct Grid {
    seen: Vec<Vec<(Vec<usize>, usize)>>,
    sizes: Vec<usize>,
}

impl Grid {
    /// The shape of what comes out.
    fn shape(&self, x: &HostTensor) -> Vec<usize> {
        let lead = &x.shape()[..x.rank() - self.sizes.len()];
        lead.iter().copied().chain(self.seen.iter().map(Vec::len)).collect()
    }

    /// Calls with the element numbers of each window and how many it has with pads, in row-major order.
    fn visit<E>(
        &self,
        x: &HostTensor,
        mut visit: impl FnMut(&[usize], usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let volume: usize = self.sizes.iter().product();
        let planes: usize = x.shape()[..x.rank() - self.sizes.len()].iter().product();
        let points: usize = self.seen.iter().map(Vec::len).product();
        for plane in 0..planes {
            for point in 0..points {
                let (mut places, mut padded, mut left) = (vec![0], 1usize, points);
                for (positions, &size) in self.seen.iter().zip(&self.sizes) {
                    left /= positions.len();
                    let (inside, count) = &positions[point / left % positions.len()];
                    places = places
                        .iter()
                        .flat_map(|place| inside.iter().map(move |at| place * size + at))
                        .collect();
                    padded = padded.saturating_mul(*count);
                }
                places.iter_mut().for_each(|place| *place += plane * volume);
                visit(&places, padded)?;
            }
        }
        Ok(())
    }
}

/// The last axes of a tensor, which has to have them.
fn spatial(x: &HostTensor, axes: usize) -> Result<&[usize], PortableError> {
    match x.rank().checked_sub(axes) {
        Some(lead) => Ok(&x.shape()[lead..]),
        None => invalid(format!("{axes} axes are pooled, and {:?} has fewer", x.shape())),
    }
}

/// One number for each of three axes; nothing stands for `absent`.
fn three(values: Vec<i64>, absent: &[usize]) -> Result<Vec<usize>, PortableError> {
    match values[..] {
        [] => Ok(absent.to_vec()),
        [value] => Ok(vec![as_size(value)?; 3]),
        [_, _, _] => values.into_iter().map(as_size).collect(),
        _ => invalid(format!("{values:?} for three axes")),
    }
}

fn windows<'a>(
    call: &Call<'a>,
    dilation: usize,
    ceil: usize,
) -> Result<(&'a HostTensor, Grid), PortableError> {
    let x = call.tensor(0)?;
    let sizes = spatial(x, 3)?;
    let kernel = three(call.ints(1)?, &[1; 3])?;
    let stride = three(call.ints(2)?, &kernel)?;
    let pad = three(call.ints(3)?, &[0; 3])?;
    // An average has no dilation: its place is the flag's.
    let dilation = if dilation == ceil { vec![1; 3] } else { three(call.ints(dilation)?, &[1; 3])? };
    let ceil = call.bool(ceil)?;
    let windows = (0..3)
        .map(|axis| Windows::new(sizes[axis], kernel[axis], stride[axis], pad[axis], dilation[axis], ceil))
        .collect::<Result<Vec<Windows>, _>>()?;
    let counts = windows.iter().map(|axis| axis.count);
    let lead = &x.shape()[..x.rank() - 3];
    call.admit(&lead.iter().copied().chain(counts.clone()).collect::<Vec<_>>())?;
    call.charge(&lead.iter().copied().chain(counts).chain(kernel).collect::<Vec<_>>())?;
    let seen = windows.iter().map(|axis| {
        (0..axis.count).map(|window| (axis.inside(window).collect(), axis.padded(window))).collect()
    });
    Ok((x, Grid { seen: seen.collect(), sizes: sizes.to_vec() }))
}

/// Windows that share an axis out evenly.
fn adaptive<'a>(call: &Call<'a>, axes: usize) -> Result<(&'a HostTensor, Grid), PortableError> {
    let x = call.tensor(0)?;
    let sizes = spatial(x, axes)?;
    let wanted = match call.ints(1)?[..] {
        [count] => vec![as_size(count)?; axes],
        ref counts if counts.len() == axes => {
            counts.iter().copied().map(as_size).collect::<Result<_, _>>()?
        }
        ref counts => return invalid(format!("{counts:?} for {axes} axes")),
    };
    let lead = &x.shape()[..x.rank() - axes];
    call.admit(&[lead, &wanted].concat())?;
    // Windows that are wider than one element overlap in one at most.
    let seen = wanted.iter().zip(sizes).map(|(count, size)| count.saturating_add(*size));
    call.charge(&lead.iter().copied().chain(seen).collect::<Vec<_>>())?;
    let cut = |index: usize, size: usize| index as u128 * size as u128;
    let seen = wanted.iter().zip(sizes).map(|(&count, &size)| {
        let window = |index: usize| {
            let from = (cut(index, size) / count as u128) as usize;
            let to = cut(index + 1, size).div_ceil(count as u128) as usize;
            ((from..to).collect::<Vec<usize>>(), to - from)
        };
        (0..count).map(window).collect()
    });
    Ok((x, Grid { seen: seen.collect(), sizes: sizes.to_vec() }))
}

/// Means of windows, each divided by what `divisor` says of the elements seen and those with pads.
fn means(call: &Call<'_>, x: &HostTensor, grid: &Grid, divisor: impl Fn(usize, usize) -> f64) -> Results {
    let values = lanes::floats(x);
    let mut means = Vec::new();
    grid.visit(x, |places, padded| {
        let sum: f64 = places.iter().map(|&place| values[place]).sum();
        means.push(sum / divisor(places.len(), padded));
        Ok::<(), PortableError>(())
    })?;
    one(lanes::from_floats(call.out_dtype(), grid.shape(x), means))
}

fn avg_pool(call: &Call<'_>) -> Results {
    let (x, grid) = windows(call, 4, 4)?;
    let (with_pads, fixed) = (call.bool(5)?, call.maybe_float(6)?);
    means(call, x, &grid, |seen, padded| fixed.unwrap_or(if with_pads { padded as f64 } else { seen as f64 }))
}

fn adaptive_avg_pool(call: &Call<'_>, axes: usize) -> Results {
    let (x, grid) = adaptive(call, axes)?;
    means(call, x, &grid, |seen, _| seen as f64)
}

fn adaptive_max_pool(call: &Call<'_>, axes: usize) -> Results {
    let (x, grid) = adaptive(call, axes)?;
    largest(call, x, &grid)
}

/// The first of the largest of each window, and where it lies in its plane; NaN beats every number.
fn largest(call: &Call<'_>, x: &HostTensor, grid: &Grid) -> Results {
    let values = lanes::floats(x);
    let volume: usize = grid.sizes.iter().product();
    let (mut places, mut indices) = (Vec::new(), Vec::new());
    grid.visit(x, |window, _| {
        let best = window.iter().copied().reduce(|best, next| {
            let (old, new) = (values[best], values[next]);
            if new > old || (new.is_nan() && !old.is_nan()) { next } else { best }
        });
        let Some(best) = best else { return invalid("a window lies outside the input") };
        places.push(best);
        indices.push((best % volume) as i64);
        Ok(())
    })?;
    let shape = grid.shape(x);
    let dtype = call.outs.get(1).map_or(DType::I64, |out| out.dtype);
    Ok(vec![
        Value::Tensor(pick_elements(x, shape.clone(), places.into_iter())?),
        Value::Tensor(lanes::from_ints(dtype, shape, indices)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_close, f, i, list, run};
    use crate::Value;

    /// The sine of 0 to 23 as PyTorch has it.
    fn volume(shape: &[usize]) -> Value {
        let numbers: Vec<f32> = (0..24i16).map(|number| f32::from(number).sin()).collect();
        f(shape, &numbers)
    }

    /// Measured with PyTorch 2.15.
    #[test]
    fn volumes_are_pooled_as_torch_does() {
        let x = volume(&[1, 2, 3, 4]);
        let windows = |kernel: &[i64]| [x.clone(), list(kernel), list(&[1, 1, 2])];
        let plain = [0.060422, 0.329413, -0.186664, 0.150758, 0.015504, -0.274514, 0.26259, -0.095859];
        let ceiled = [
            0.181266, 0.658825, 0.395704, -0.279995, 0.150758, 0.399568, 0.023256, -0.274514, -0.259837,
            0.787769, -0.191718, -0.923105,
        ];
        for (ceil, pads, wanted) in
            [(false, true, f(&[1, 1, 4, 2], &plain)), (true, false, f(&[1, 1, 4, 3], &ceiled))]
        {
            let flags = [list(&[0, 1, 1]), Value::Bool(ceil), Value::Bool(pads), Value::None];
            let args: Vec<Value> = windows(&[2, 2, 3]).into_iter().chain(flags).collect();
            check_close("aten::avg_pool3d.out", &args, &[wanted]);
        }
        let rest = [list(&[0, 1, 0]), list(&[1, 1, 1]), Value::Bool(false)];
        let args: Vec<Value> = windows(&[2, 2, 2]).into_iter().chain(rest).collect();
        let largest = [0.841471, 0.990607, 0.841471, 0.990607, 0.989358, 0.656987, 0.989358, -0.008851];
        let wanted = [f(&[1, 1, 4, 2], &largest), i(&[1, 1, 4, 2], &[1, 14, 1, 14, 8, 7, 8, 22])];
        check_close("aten::max_pool3d_with_indices.out", &args, &wanted);
    }

    /// Measured with PyTorch 2.15.
    #[test]
    fn axes_are_shared_out_as_torch_does() {
        let means = [-0.279995, 0.026352, 0.308472, 0.023256, -0.281853, -0.327828];
        let args = [volume(&[1, 2, 3, 4]), list(&[1, 2, 3])];
        check_close("aten::_adaptive_avg_pool3d.out", &args, &[f(&[1, 1, 2, 3], &means)]);
        let largest = [
            0.841471, 0.909297, 0.909297, 0.989358, 0.412118, 0.656987, 0.420167, 0.990607, 0.990607,
            0.912945, 0.836656, 0.149877,
        ];
        let args = [volume(&[2, 3, 4]), list(&[2, 3])];
        let wanted = [f(&[2, 2, 3], &largest), i(&[2, 2, 3], &[1, 2, 2, 8, 9, 7, 1, 2, 2, 8, 9, 7])];
        check_close("aten::adaptive_max_pool2d.out", &args, &wanted);
        let flat = [f(&[3], &[0.0; 3]), list(&[2, 3])];
        assert!(run("aten::adaptive_max_pool2d.out", &flat, &wanted).is_err());
    }
}
