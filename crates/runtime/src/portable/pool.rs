//! Pooling and resampling over the last two axes.

use super::call::as_size;
use super::lanes::{self, pick_elements};
use super::{Call, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::avg_pool2d.out", 7, avg_pool),
    Operator { outs: Outs::Tensors(2), ..whole("aten::max_pool2d_with_indices.out", 6, max_pool) },
    whole("aten::max_pool2d_with_indices_backward.grad_input", 8, max_pool_backward),
    whole("aten::upsample_nearest2d.vec_out", 3, |call| nearest(call, target(call, 1, 2)?)),
    whole("aten::upsample_nearest2d.out", 4, |call| {
        nearest(call, scaled_target(call, 1, [call.maybe_float(2)?, call.maybe_float(3)?])?)
    }),
    whole("aten::upsample_bilinear2d.vec_out", 4, |call| bilinear(call, target(call, 1, 3)?, call.bool(2)?)),
    whole("aten::upsample_bilinear2d.out", 5, |call| {
        bilinear(call, scaled_target(call, 1, [call.maybe_float(3)?, call.maybe_float(4)?])?, call.bool(2)?)
    }),
];

/// Batches of planes, and the shape of the axes before them.
struct Planes<'a> {
    lead: &'a [usize],
    count: usize,
    rows: usize,
    columns: usize,
}

fn planes(x: &HostTensor) -> Result<Planes<'_>, PortableError> {
    let &[ref lead @ .., rows, columns] = x.shape() else { return invalid("a plane has two axes") };
    Ok(Planes { lead, count: lead.iter().product(), rows, columns })
}

/// One number for both axes, or one each; nothing stands for `absent`.
fn both(values: Vec<i64>, absent: [usize; 2]) -> Result<[usize; 2], PortableError> {
    match values[..] {
        [] => Ok(absent),
        [value] => Ok([as_size(value)?; 2]),
        [rows, columns] => Ok([as_size(rows)?, as_size(columns)?]),
        _ => invalid(format!("{values:?} for two axes")),
    }
}

/// Windows along one axis.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    size: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    pub(super) count: usize,
}

impl Windows {
    pub(super) fn new(
        size: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
        dilation: usize,
        ceil: bool,
    ) -> Result<Windows, PortableError> {
        if kernel == 0 || stride == 0 || dilation == 0 || pad > kernel / 2 {
            return invalid(format!(
                "a window of {kernel} by {stride} with pad {pad} and dilation {dilation}"
            ));
        }
        let reach = (kernel - 1).checked_mul(dilation).and_then(|reach| reach.checked_add(1));
        let Some(room) = reach.and_then(|reach| (size + 2 * pad).checked_sub(reach)) else {
            return invalid(format!("a window of {kernel} does not fit {size} elements"));
        };
        let mut count = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
        // The last window must begin inside the input or its left pad.
        if ceil && (count - 1).saturating_mul(stride) >= size + pad {
            count -= 1;
        }
        Ok(Windows { size, kernel, stride, pad, dilation, count })
    }

    /// Input positions of a window: only those inside, however large the kernel.
    pub(super) fn inside(self, window: usize) -> impl Iterator<Item = usize> + Clone {
        let start = window * self.stride;
        let first = self.pad.saturating_sub(start).div_ceil(self.dilation);
        let end = (self.size + self.pad).saturating_sub(start).div_ceil(self.dilation).min(self.kernel);
        (first..end).map(move |index| start + index * self.dilation - self.pad)
    }

    /// Elements of a window, counting pads but not what lies beyond them.
    pub(super) fn padded(self, window: usize) -> usize {
        let start = window * self.stride;
        start.saturating_add(self.kernel).min(self.size + 2 * self.pad).saturating_sub(start)
    }
}

/// Windows whose kernel, stride and pad are a call's arguments from `first` on.
fn windows_of(
    call: &Call<'_>,
    x: &Planes<'_>,
    first: usize,
    dilation: [usize; 2],
    ceil: bool,
) -> Result<([Windows; 2], [usize; 2]), PortableError> {
    let kernel = both(call.ints(first)?, [1, 1])?;
    let stride = both(call.ints(first + 1)?, kernel)?;
    let pad = both(call.ints(first + 2)?, [0, 0])?;
    let windows = [
        Windows::new(x.rows, kernel[0], stride[0], pad[0], dilation[0], ceil)?,
        Windows::new(x.columns, kernel[1], stride[1], pad[1], dilation[1], ceil)?,
    ];
    Ok((windows, kernel))
}

fn windows(
    call: &Call<'_>,
    x: &Planes<'_>,
    dilation: [usize; 2],
    ceil: bool,
) -> Result<[Windows; 2], PortableError> {
    let (windows, kernel) = windows_of(call, x, 1, dilation, ceil)?;
    call.admit(&[x.count, windows[0].count, windows[1].count])?;
    call.charge(&[x.count, windows[0].count, windows[1].count, kernel[0], kernel[1]])?;
    Ok(windows)
}

fn avg_pool(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let plane = planes(x)?;
    let [down, across] = windows(call, &plane, [1, 1], call.bool(4)?)?;
    let (with_pads, divisor) = (call.bool(5)?, call.maybe_float(6)?);
    let values = lanes::floats(x);
    let mut means = Vec::new();
    for number in 0..plane.count {
        let at = number * plane.rows * plane.columns;
        for (row, column) in
            (0..down.count).flat_map(|row| (0..across.count).map(move |column| (row, column)))
        {
            let places =
                down.inside(row).flat_map(|y| across.inside(column).map(move |x| y * plane.columns + x));
            let (sum, count) =
                places.fold((0.0, 0usize), |(sum, count), place| (sum + values[at + place], count + 1));
            let size = if with_pads { down.padded(row) * across.padded(column) } else { count };
            means.push(sum / divisor.unwrap_or(size as f64));
        }
    }
    let shape = [plane.lead, &[down.count, across.count]].concat();
    one(lanes::from_floats(call.out_dtype(), shape, means))
}

fn max_pool(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let plane = planes(x)?;
    let [down, across] = windows(call, &plane, both(call.ints(4)?, [1, 1])?, call.bool(5)?)?;
    let values = lanes::floats(x);
    let (mut places, mut indices) = (Vec::new(), Vec::new());
    for number in 0..plane.count {
        let at = number * plane.rows * plane.columns;
        for (row, column) in
            (0..down.count).flat_map(|row| (0..across.count).map(move |column| (row, column)))
        {
            let window =
                down.inside(row).flat_map(|y| across.inside(column).map(move |x| y * plane.columns + x));
            // The first of the largest; NaN beats every number.
            let best = window.reduce(|best, next| {
                let (old, new) = (values[at + best], values[at + next]);
                if new > old || (new.is_nan() && !old.is_nan()) { next } else { best }
            });
            let Some(best) = best else { return invalid("a window lies outside the input") };
            places.push(at + best);
            indices.push(best as i64);
        }
    }
    let shape = [plane.lead, &[down.count, across.count]].concat();
    Ok(vec![
        Value::Tensor(pick_elements(x, shape.clone(), places.into_iter())?),
        Value::Tensor(lanes::from_ints(DType::I64, shape, indices)?),
    ])
}

/// The gradient of each window's result goes to where the largest element was.
fn max_pool_backward(call: &Call<'_>) -> Results {
    let (gradient, x, indices) = (call.tensor(0)?, call.tensor(1)?, call.tensor(7)?);
    let plane = planes(x)?;
    let ([down, across], _) = windows_of(call, &plane, 2, both(call.ints(5)?, [1, 1])?, call.bool(6)?)?;
    let shape = [plane.lead, &[down.count, across.count]].concat();
    if gradient.shape() != shape || indices.shape() != shape {
        return invalid(format!(
            "gradients of {:?} at places of {:?} for {shape:?}",
            gradient.shape(),
            indices.shape()
        ));
    }
    call.admit(x.shape())?;
    let size = plane.rows * plane.columns;
    let mut out = vec![0.0; x.len()];
    let given = lanes::floats(gradient).into_iter().zip(lanes::ints(indices));
    for (number, (value, index)) in given.enumerate() {
        let place = usize::try_from(index).ok().filter(|place| *place < size);
        let place = place.ok_or(PortableError::Index { index, size })?;
        out[number / (down.count * across.count) * size + place] += value;
    }
    one(lanes::from_floats(call.out_dtype(), x.shape().to_vec(), out))
}

/// Sizes after resampling, and the factor by which source positions are found where one is given.
struct Target {
    sizes: [usize; 2],
    scales: [Option<f64>; 2],
}

fn target(call: &Call<'_>, sizes: usize, scales: usize) -> Result<Target, PortableError> {
    let plane = planes(call.tensor(0)?)?;
    if let [rows, columns] = call.ints(sizes)?[..] {
        return Ok(Target { sizes: [as_size(rows)?, as_size(columns)?], scales: [None; 2] });
    }
    let [down, across] = call.floats(scales)?[..] else {
        return invalid("neither sizes nor factors for two axes");
    };
    let size = |size: usize, factor: f64| (size as f64 * factor) as usize;
    Ok(Target {
        sizes: [size(plane.rows, down), size(plane.columns, across)],
        scales: [Some(down), Some(across)],
    })
}

fn scaled_target(call: &Call<'_>, sizes: usize, scales: [Option<f64>; 2]) -> Result<Target, PortableError> {
    Ok(Target { sizes: both(call.ints(sizes)?, [1, 1])?, scales })
}

/// Source steps per target step.
fn ratio(from: usize, to: usize, scale: Option<f64>) -> f64 {
    match scale {
        Some(scale) if scale > 0.0 => 1.0 / scale,
        _ => from as f64 / to as f64,
    }
}

fn nearest(call: &Call<'_>, target: Target) -> Results {
    let x = call.tensor(0)?;
    let plane = planes(x)?;
    let [rows, columns] = target.sizes;
    call.admit(&[plane.count, rows, columns])?;
    let source =
        |index: usize, ratio: f64, size: usize| ((index as f64 * ratio) as usize).min(size.saturating_sub(1));
    let (down, across) =
        (ratio(plane.rows, rows, target.scales[0]), ratio(plane.columns, columns, target.scales[1]));
    let places = (0..plane.count).flat_map(|number| {
        let plane = &plane;
        (0..rows).flat_map(move |row| {
            let line = (number * plane.rows + source(row, down, plane.rows)) * plane.columns;
            (0..columns).map(move |column| line + source(column, across, plane.columns))
        })
    });
    one(pick_elements(x, [plane.lead, &[rows, columns]].concat(), places))
}

fn bilinear(call: &Call<'_>, target: Target, corners: bool) -> Results {
    let x = call.tensor(0)?;
    let plane = planes(x)?;
    call.admit(&[plane.count, target.sizes[0], target.sizes[1]])?;
    if x.is_empty() {
        return invalid("an empty plane cannot be resampled");
    }
    let values = lanes::floats(x);
    // For each target position: the source before it, the one after it, and the weight of the latter.
    let weights = |from: usize, to: usize, scale: Option<f64>| -> Vec<(usize, usize, f64)> {
        let last = from.saturating_sub(1);
        (0..to)
            .map(|index| {
                let place = match corners {
                    true if to > 1 => index as f64 * last as f64 / (to - 1) as f64,
                    true => 0.0,
                    false => ((index as f64 + 0.5) * ratio(from, to, scale) - 0.5).max(0.0),
                };
                let low = (place as usize).min(last);
                (low, (low + 1).min(last), (place - low as f64).clamp(0.0, 1.0))
            })
            .collect()
    };
    let down = weights(plane.rows, target.sizes[0], target.scales[0]);
    let across = weights(plane.columns, target.sizes[1], target.scales[1]);
    let mut mixed = Vec::new();
    for number in 0..plane.count {
        let at = |row: usize, column: usize| values[(number * plane.rows + row) * plane.columns + column];
        for &(top, bottom, lower) in &down {
            for &(left, right, further) in &across {
                let upper_line = at(top, left) * (1.0 - further) + at(top, right) * further;
                let lower_line = at(bottom, left) * (1.0 - further) + at(bottom, right) * further;
                mixed.push(upper_line * (1.0 - lower) + lower_line * lower);
            }
        }
    }
    one(lanes::from_floats(call.out_dtype(), [plane.lead, &target.sizes].concat(), mixed))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_close, f, i, list, run};
    use crate::Value;

    /// Measured with PyTorch 2.15.
    #[test]
    fn gradients_go_where_the_largest_was() {
        let ones = |count: usize| list(&vec![1; count]);
        let x = f(&[1, 3, 3], &[1.0, 5.0, 2.0, 5.0, 4.0, 3.0, 0.0, 9.0, 8.0]);
        let pool = |places: [i64; 4]| {
            let given = f(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
            let windows = [list(&[2, 2]), ones(2), list(&[0, 0]), ones(2), Value::Bool(false)];
            [vec![given, x.clone()], windows.to_vec(), vec![i(&[1, 2, 2], &places)]].concat()
        };
        let name = "aten::max_pool2d_with_indices_backward.grad_input";
        let wanted = f(&[1, 3, 3], &[0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 0.0]);
        check_close(name, &pool([1, 1, 7, 7]), std::slice::from_ref(&wanted));
        assert!(run(name, &pool([1, 1, 7, 9]), std::slice::from_ref(&wanted)).is_err());
        assert!(run(name, &pool([1, 1, 7, -1]), &[wanted]).is_err());
    }
}
