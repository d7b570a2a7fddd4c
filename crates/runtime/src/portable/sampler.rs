//! Resampling at places that are given as data (`grid_sampler_2d`) and resampling that averages what it shrinks
//! (antialiased bilinear).

use super::call::as_size;
use super::lanes;
use super::{Call, Operator, Results, invalid, one, whole};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::grid_sampler_2d.out", 5, grid_sample),
    whole("aten::_upsample_bilinear2d_aa.out", 5, |call| {
        shrink(call, [call.maybe_float(3)?, call.maybe_float(4)?])
    }),
    whole("aten::_upsample_bilinear2d_aa.vec_out", 4, |call| {
        let factors = call.floats(3)?;
        shrink(call, [factors.first().copied(), factors.get(1).copied()])
    }),
];

/// What is read outside the plane.
#[derive(Clone, Copy)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// One axis of a plane that is sampled.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    outside: Outside,
    corners: bool,
}

impl Axis {
    /// The position of a coordinate between -1 and 1, in elements.
    fn position(self, coordinate: f64) -> f64 {
        match self.corners {
            true => (coordinate + 1.0) / 2.0 * (self.size as f64 - 1.0),
            false => ((coordinate + 1.0) * self.size as f64 - 1.0) / 2.0,
        }
    }

    /// A position brought to where something can be read; what is not a number lies outside.
    fn inside(self, position: f64) -> f64 {
        let last = self.size as f64 - 1.0;
        let moved = match self.outside {
            Outside::Zeros => position,
            // As C has it: of NaN, the lower bound.
            Outside::Border => position.max(0.0).min(last),
            Outside::Reflection => {
                let (low, high) = if self.corners { (0.0, last) } else { (-0.5, last + 0.5) };
                reflect(position, low, high).max(0.0).min(last)
            }
        };
        if moved.abs() < f64::from(i32::MAX) { moved } else { -100.0 }
    }

    /// The element at a whole position, if there is one.
    fn element(self, position: f64) -> Option<usize> {
        (position >= 0.0 && position < self.size as f64).then_some(position as usize)
    }
}

/// A position folded back at both borders as often as it takes.
fn reflect(position: f64, low: f64, high: f64) -> f64 {
    let span = high - low;
    if span <= 0.0 {
        return 0.0;
    }
    let beyond = (position - low).abs();
    let rest = beyond % span;
    if (beyond / span).floor() % 2.0 == 0.0 { rest + low } else { span - rest + low }
}

/// Elements of an axis and their weights for a position.
fn taps(axis: Axis, mode: i64, coordinate: f64) -> Vec<(Option<usize>, f64)> {
    let position = axis.position(coordinate);
    match mode {
        0 => {
            let position = axis.inside(position);
            let (low, further) = (position.floor(), position - position.floor());
            vec![(axis.element(low), 1.0 - further), (axis.element(low + 1.0), further)]
        }
        1 => vec![(axis.element(axis.inside(position).round_ties_even()), 1.0)],
        _ => {
            let low = position.floor();
            let weights = cubic(position - low);
            let taps = weights.into_iter().zip(-1i8..);
            taps.map(|(weight, step)| (axis.element(axis.inside(low + f64::from(step))), weight)).collect()
        }
    }
}

/// Weights of the four elements around a position, by PyTorch's cubic (a = -0.75).
fn cubic(t: f64) -> [f64; 4] {
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

fn grid_sample(call: &Call<'_>) -> Results {
    let (x, grid, mode) = (call.tensor(0)?, call.tensor(1)?, call.int(2)?);
    let outside = match call.int(3)? {
        0 => Outside::Zeros,
        1 => Outside::Border,
        2 => Outside::Reflection,
        other => return invalid(format!("padding mode {other}; 0 to 2 are known")),
    };
    if !(0..=2).contains(&mode) {
        return invalid(format!("interpolation mode {mode}; 0 to 2 are known"));
    }
    let corners = call.bool(4)?;
    let (&[batch, channels, rows, columns], &[grids, down, across, 2]) = (x.shape(), grid.shape()) else {
        return invalid(format!("{:?} sampled by a grid of {:?}", x.shape(), grid.shape()));
    };
    if grids != batch {
        return invalid(format!("{batch} images and {grids} grids"));
    }
    let shape = vec![batch, channels, down, across];
    call.admit(&shape)?;
    call.charge(&[batch, channels, down, across, 16])?;
    let (values, places) = (lanes::floats(x), lanes::floats(grid));
    let [vertical, horizontal] = [rows, columns].map(|size| Axis { size, outside, corners });
    let mut out = vec![0.0; batch * channels * down * across];
    let points = down * across;
    for (number, place) in places.chunks_exact(2).enumerate() {
        let (image, point) = (number / points, number % points);
        let (xs, ys) = (taps(horizontal, mode, place[0]), taps(vertical, mode, place[1]));
        for channel in 0..channels {
            let plane = image * channels + channel;
            let mut sum = 0.0;
            for &(row, upright) in &ys {
                for &(column, level) in &xs {
                    if let (Some(row), Some(column)) = (row, column) {
                        sum += upright * level * values[(plane * rows + row) * columns + column];
                    }
                }
            }
            out[plane * points + point] = sum;
        }
    }
    one(lanes::from_floats(call.out_dtype(), shape, out))
}

/// The first element and the weights of those that follow, for each target position of an axis.
fn averages(from: usize, to: usize, corners: bool, factor: Option<f64>) -> Vec<(usize, Vec<f64>)> {
    let step = match (corners, factor) {
        (true, _) if to > 1 => (from as f64 - 1.0) / (to as f64 - 1.0),
        (true, _) => 0.0,
        (false, Some(factor)) if factor > 0.0 => 1.0 / factor,
        (false, _) => from as f64 / to as f64,
    };
    let reach = step.max(1.0);
    let span = |index: usize| {
        let centre = step * (index as f64 + 0.5);
        // Casts saturate, so that bounds lie in the axis whatever the factor is.
        let first = ((centre - reach + 0.5).max(0.0) as usize).min(from - 1);
        let end = ((centre + reach + 0.5).max(0.0) as usize).clamp(first + 1, from);
        let weight = |place: usize| (1.0 - ((place as f64 - centre + 0.5) / reach).abs()).max(0.0);
        let mut weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        if sum != 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        (first, weights)
    };
    (0..to).map(span).collect()
}

fn shrink(call: &Call<'_>, factors: [Option<f64>; 2]) -> Results {
    let (x, corners) = (call.tensor(0)?, call.bool(2)?);
    let &[ref lead @ .., rows, columns] = x.shape() else { return invalid("a plane has two axes") };
    let planes: usize = lead.iter().product();
    let sizes = match call.ints(1)?[..] {
        [down, across] => [as_size(down)?, as_size(across)?],
        [] => match factors {
            [Some(down), Some(across)] => [(rows as f64 * down) as usize, (columns as f64 * across) as usize],
            _ => return invalid("neither sizes nor factors for two axes"),
        },
        _ => return invalid("sizes that are not for two axes"),
    };
    let shape = [lead, &sizes].concat();
    call.admit(&shape)?;
    if x.is_empty() {
        return invalid("an empty plane cannot be resampled");
    }
    // An output may look at every element of its plane.
    call.charge(&[planes, sizes[0], columns, rows])?;
    call.charge(&[planes, sizes[0], sizes[1], columns])?;
    let down = averages(rows, sizes[0], corners, factors[0]);
    let across = averages(columns, sizes[1], corners, factors[1]);
    let values = lanes::floats(x);
    let mut out = Vec::with_capacity(planes * sizes[0] * sizes[1]);
    for plane in values.chunks_exact(rows * columns) {
        for (top, weights) in &down {
            let mut line = vec![0.0; columns];
            for (row, weight) in plane.chunks_exact(columns).skip(*top).zip(weights) {
                line.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
            }
            out.extend(across.iter().map(|(left, weights)| -> f64 {
                line[*left..].iter().zip(weights).map(|(value, weight)| value * weight).sum()
            }));
        }
    }
    one(lanes::from_floats(call.out_dtype(), shape, out))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_close, f, list, run};
    use crate::Value;

    /// Measured with PyTorch 2.15: mode, padding, corners, what it gives.
    #[test]
    fn planes_are_sampled_as_torch_does() {
        let image = f(&[1, 1, 2, 3], &[1.0, -2.0, 6.0, 4.0, -5.0, 12.0]);
        let grid = f(&[1, 1, 3, 2], &[-1.2, -0.4, 0.3, 0.9, 2.7, -1.6]);
        let cases: [(i64, i64, bool, [f32; 3]); 18] = [
            (0, 0, false, [0.26, 1.59, 0.0]),
            (0, 0, true, [1.52, 0.114999, 0.0]),
            (0, 1, false, [1.3, 2.649999, 6.0]),
            (0, 1, true, [1.9, 0.114999, 6.0]),
            (0, 2, false, [1.3, 2.649999, 1.3]),
            (0, 2, true, [0.94, 0.114999, 0.46]),
            (1, 0, false, [0.0, -5.0, 0.0]),
            (1, 0, true, [1.0, -5.0, 0.0]),
            (1, 1, false, [1.0, -5.0, 6.0]),
            (1, 1, true, [1.0, -5.0, 6.0]),
            (1, 2, false, [1.0, -5.0, 1.0]),
            (1, 2, true, [1.0, -5.0, 1.0]),
            (2, 0, false, [0.32438, 1.703902, 0.0]),
            (2, 0, true, [2.28155, -0.670928, -0.173148]),
            (2, 1, false, [1.329809, 1.667199, 6.000001]),
            (2, 1, true, [2.285705, -1.204022, 5.338504]),
            (2, 2, false, [1.665041, 1.694685, 1.370404]),
            (2, 2, true, [1.065667, -0.440742, 0.453196]),
        ];
        for (mode, padding, corners, wanted) in cases {
            let args =
                [image.clone(), grid.clone(), Value::Int(mode), Value::Int(padding), Value::Bool(corners)];
            check_close("aten::grid_sampler_2d.out", &args, &[f(&[1, 1, 1, 3], &wanted)]);
        }
        let out = [f(&[1, 1, 1, 3], &[0.0; 3])];
        let strange = [image.clone(), grid, Value::Int(3), Value::Int(0), Value::Bool(false)];
        assert!(run("aten::grid_sampler_2d.out", &strange, &out).is_err());
        let nowhere = f(&[1, 1, 3, 2], &[f32::NAN, 0.0, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38]);
        for mode in 0..3 {
            let args = [image.clone(), nowhere.clone(), Value::Int(mode), Value::Int(2), Value::Bool(true)];
            assert!(run("aten::grid_sampler_2d.out", &args, &out).is_ok());
        }
    }

    /// Measured with PyTorch 2.15.
    #[test]
    fn what_is_shrunk_is_averaged_as_torch_does() {
        let plane = [1.0, 5.0, 2.0, 8.0, 3.0, 4.0, -1.0, 7.0, 0.0, 6.0, 2.0, 2.0, 9.0, -3.0, 1.0];
        let plane = f(&[1, 1, 3, 5], &plane);
        let grown = [
            1.0, 3.285714, 4.142857, 2.0, 6.285715, 5.857142, 3.0, 2.875, 1.946429, 2.357143, 5.125,
            3.607142, 3.803571, 4.875, 3.25, 1.464286, 2.303572, 7.75, 1.410713, 1.125, 4.125, 2.0, 2.0,
            4.000001, 9.0, 0.42857, -1.285714, 1.0,
        ];
        let cases: [([i64; 2], bool, &[f32]); 3] = [
            ([2, 3], false, &[2.392857, 3.875, 4.5, 1.946429, 4.361112, 0.839285]),
            ([2, 3], true, &[2.632653, 3.803571, 3.75, 2.821429, 2.78125, 1.125]),
            ([4, 7], false, &grown),
        ];
        for (sizes, corners, wanted) in cases {
            let args = [plane.clone(), list(&sizes), Value::Bool(corners), Value::None, Value::None];
            let wanted = f(&[1, 1, sizes[0] as usize, sizes[1] as usize], wanted);
            check_close("aten::_upsample_bilinear2d_aa.out", &args, &[wanted]);
        }
        // Factors that are nonsense give numbers, whatever they are.
        let args =
            [plane, list(&[2, 3]), Value::Bool(false), Value::Float(1e-300), Value::Float(f64::INFINITY)];
        assert!(run("aten::_upsample_bilinear2d_aa.out", &args, &[f(&[1, 1, 2, 3], &[0.0; 6])]).is_ok());
    }
}
