//! Operators that join elements along axes, and running sums.

use super::call::as_float;
use super::lanes::{self, Lanes};
use super::walk::{Groups, around, axis, axis_mask, groups};
use super::{Call, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::sum.IntList_out", 4, |call| sum(call, call.ints(1)?, call.bool(2)?)),
    whole("aten::sum.out", 2, |call| sum(call, Vec::new(), false)),
    whole("aten::mean.out", 4, |call| mean(call, call.ints(1)?, call.bool(2)?)),
    whole("aten::mean.dtype_out", 2, |call| mean(call, Vec::new(), false)),
    whole("aten::prod.int_out", 4, |call| product(call, vec![call.int(1)?], call.bool(2)?)),
    whole("aten::prod.out", 2, |call| product(call, Vec::new(), false)),
    whole("aten::amax.out", 3, |call| extreme(call, call.ints(1)?, call.bool(2)?, true)),
    whole("aten::amin.out", 3, |call| extreme(call, call.ints(1)?, call.bool(2)?, false)),
    whole("aten::max.unary_out", 1, |call| extreme(call, Vec::new(), false, true)),
    whole("aten::min.unary_out", 1, |call| extreme(call, Vec::new(), false, false)),
    whole("aten::any.all_out", 1, |call| truth(call, Vec::new(), false, true)),
    whole("aten::any.out", 3, |call| truth(call, vec![call.int(1)?], call.bool(2)?, true)),
    whole("aten::any.dims_out", 3, |call| truth(call, call.ints(1)?, call.bool(2)?, true)),
    whole("aten::all.all_out", 1, |call| truth(call, Vec::new(), false, false)),
    whole("aten::all.out", 3, |call| truth(call, vec![call.int(1)?], call.bool(2)?, false)),
    whole("aten::all.dims_out", 3, |call| truth(call, call.ints(1)?, call.bool(2)?, false)),
    whole("aten::allclose.out", 6, all_close),
    whole("aten::argmax.out", 3, |call| argument(call, true)),
    whole("aten::argmin.out", 3, |call| argument(call, false)),
    Operator { outs: Outs::Tensors(2), ..whole("aten::max.dim_max", 3, |call| with_index(call, true)) },
    Operator { outs: Outs::Tensors(2), ..whole("aten::min.dim_min", 3, |call| with_index(call, false)) },
    whole("aten::logsumexp.out", 3, log_sum_exp),
    whole("aten::var.out", 4, |call| {
        one(variance(call, call.ints(1)?, f64::from(u8::from(call.bool(2)?)), call.bool(3)?, false)?)
    }),
    whole("aten::var.correction_out", 4, |call| one(corrected(call, false)?)),
    whole("aten::std.correction_out", 4, |call| one(corrected(call, true)?)),
    Operator { outs: Outs::Tensors(2), ..whole("aten::var_mean.correction_out", 4, variance_and_mean) },
    whole("aten::linalg_vector_norm.out", 5, vector_norm),
    whole("aten::count_nonzero.out", 2, count_nonzero),
    whole("aten::cumsum.out", 3, |call| running(call, i64::wrapping_add, |a, b| a + b)),
    whole("aten::cumprod.out", 3, |call| running(call, i64::wrapping_mul, |a, b| a * b)),
];

/// Whether all elements of two tensors are as near as tolerances ask; infinities are near themselves only.
fn all_close(call: &Call<'_>) -> Results {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return invalid(format!("{} {:?} beside {} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape()));
    }
    let (relative, absolute) = (call.maybe_float(2)?.unwrap_or(1e-5), call.maybe_float(3)?.unwrap_or(1e-8));
    let is_nan_equal = call.bool(4)?;
    let is_close = |(a, b): (f64, f64)| {
        let is_near = a.is_finite() && b.is_finite() && (a - b).abs() <= absolute + (relative * b).abs();
        a == b || is_near || (is_nan_equal && a.is_nan() && b.is_nan())
    };
    let close = lanes::floats(a).into_iter().zip(lanes::floats(b)).all(is_close);
    let shape = call.outs.first().map_or(Vec::new(), |out| vec![1; out.sizes.len()]);
    one(lanes::from_bools(shape, [close]))
}

fn grouped<'a>(call: &Call<'a>, axes: &[i64], keep: bool) -> Result<(&'a HostTensor, Groups), PortableError> {
    let x = call.tensor(0)?;
    Ok((x, groups(x.shape(), &axis_mask(axes, x.rank())?, keep)))
}

/// One number for each group of floats.
fn fold_floats(
    call: &Call<'_>,
    axes: &[i64],
    keep: bool,
    join: impl Fn(&mut dyn Iterator<Item = f64>) -> f64,
) -> Results {
    let (x, groups) = grouped(call, axes, keep)?;
    let values = lanes::floats(x);
    let folded =
        groups.starts.map(|start| join(&mut groups.members.iter().map(|member| values[start + member])));
    one(lanes::from_floats(call.out_dtype(), groups.shape.clone(), folded.collect::<Vec<_>>()))
}

/// One number for each group, in integers where both sides are.
fn fold(
    call: &Call<'_>,
    axes: &[i64],
    keep: bool,
    (zero, int): (i64, fn(i64, i64) -> i64),
    (start, float): (f64, fn(f64, f64) -> f64),
) -> Results {
    let (x, groups) = grouped(call, axes, keep)?;
    match lanes::lanes(x) {
        Lanes::Int(values) if !call.out_dtype().is_float() => {
            let join =
                |at: usize| groups.members.iter().fold(zero, |sum, member| int(sum, values[at + member]));
            let folded: Vec<i64> = groups.starts.clone().map(join).collect();
            one(lanes::from_ints(call.out_dtype(), groups.shape, folded))
        }
        _ => fold_floats(call, axes, keep, |values| values.fold(start, float)),
    }
}

fn sum(call: &Call<'_>, axes: Vec<i64>, keep: bool) -> Results {
    fold(call, &axes, keep, (0, i64::wrapping_add), (0.0, |a, b| a + b))
}

fn product(call: &Call<'_>, axes: Vec<i64>, keep: bool) -> Results {
    fold(call, &axes, keep, (1, i64::wrapping_mul), (1.0, |a, b| a * b))
}

fn mean(call: &Call<'_>, axes: Vec<i64>, keep: bool) -> Results {
    let (_, groups) = grouped(call, &axes, keep)?;
    let count = groups.members.len() as f64;
    fold_floats(call, &axes, keep, |values| values.sum::<f64>() / count)
}

/// The first place of the largest (or smallest) element; NaN beats every number.
fn best(values: &Lanes, places: impl Iterator<Item = usize>, largest: bool) -> Option<usize> {
    let beats = |a: usize, b: usize| match values {
        Lanes::Int(values) if largest => values[a] > values[b],
        Lanes::Int(values) => values[a] < values[b],
        Lanes::Float(values) => match (values[a], values[b]) {
            (_, b) if b.is_nan() => false,
            (a, _) if a.is_nan() => true,
            (a, b) if largest => a > b,
            (a, b) => a < b,
        },
    };
    places.reduce(|kept, next| if beats(next, kept) { next } else { kept })
}

/// The shape that is left, and for each group where its extreme lies: the member's number and the element's.
type Extremes = (Vec<usize>, Vec<(usize, usize)>);

/// The extreme of each group.
fn extremes(call: &Call<'_>, axes: &[i64], keep: bool, largest: bool) -> Result<Extremes, PortableError> {
    let (x, groups) = grouped(call, axes, keep)?;
    if groups.members.is_empty() && groups.starts.clone().next().is_some() {
        return invalid(format!("nothing to choose from along the reduced axes of {:?}", x.shape()));
    }
    let values = lanes::lanes(x);
    let mut found = Vec::new();
    for start in groups.starts.clone() {
        let members = &groups.members;
        // A group is not empty here, so there is always a best one.
        let place = best(&values, members.iter().map(|member| start + member), largest).unwrap_or(start);
        let number = members.iter().position(|member| start + member == place).unwrap_or(0);
        found.push((number, place));
    }
    Ok((groups.shape, found))
}

fn extreme(call: &Call<'_>, axes: Vec<i64>, keep: bool, largest: bool) -> Results {
    let (shape, found) = extremes(call, &axes, keep, largest)?;
    one(lanes::pick_elements(call.tensor(0)?, shape, found.into_iter().map(|(_, place)| place)))
}

/// Index of the extreme along one axis, or in the flattened tensor.
fn argument(call: &Call<'_>, largest: bool) -> Results {
    let axes: Vec<i64> = call.maybe_int(1)?.into_iter().collect();
    let (shape, found) = extremes(call, &axes, call.bool(2)?, largest)?;
    one(lanes::from_ints(DType::I64, shape, found.into_iter().map(|(number, _)| number as i64)))
}

fn with_index(call: &Call<'_>, largest: bool) -> Results {
    let (shape, found) = extremes(call, &[call.int(1)?], call.bool(2)?, largest)?;
    let values = lanes::pick_elements(call.tensor(0)?, shape.clone(), found.iter().map(|&(_, place)| place))?;
    let indices = lanes::from_ints(DType::I64, shape, found.iter().map(|&(number, _)| number as i64))?;
    Ok(vec![Value::Tensor(values), Value::Tensor(indices)])
}

fn truth(call: &Call<'_>, axes: Vec<i64>, keep: bool, any: bool) -> Results {
    let (x, groups) = grouped(call, &axes, keep)?;
    let truths = lanes::truths(x);
    let join = |start: usize| {
        let mut members = groups.members.iter().map(|member| truths[start + member]);
        if any { members.any(|truth| truth) } else { members.all(|truth| truth) }
    };
    let joined: Vec<bool> = groups.starts.clone().map(join).collect();
    one(lanes::from_bools(groups.shape, joined))
}

fn count_nonzero(call: &Call<'_>) -> Results {
    let axes: Vec<i64> = call.maybe_int(1)?.into_iter().collect();
    let (x, groups) = grouped(call, &axes, false)?;
    let truths = lanes::truths(x);
    let count = |start: usize| groups.members.iter().filter(|&&member| truths[start + member]).count() as i64;
    let counts: Vec<i64> = groups.starts.clone().map(count).collect();
    one(lanes::from_ints(DType::I64, groups.shape, counts))
}

fn log_sum_exp(call: &Call<'_>) -> Results {
    let (x, groups) = grouped(call, &call.ints(1)?, call.bool(2)?)?;
    let values = lanes::floats(x);
    let join = |start: usize| {
        let members = || groups.members.iter().map(|member| values[start + member]);
        let high = members().fold(f64::NEG_INFINITY, f64::max);
        // An infinite maximum would give inf - inf.
        let base = if high.is_finite() { high } else { 0.0 };
        members().map(|value| (value - base).exp()).sum::<f64>().ln() + base
    };
    let joined: Vec<f64> = groups.starts.clone().map(join).collect();
    one(lanes::from_floats(call.out_dtype(), groups.shape, joined))
}

fn correction(call: &Call<'_>) -> Result<f64, PortableError> {
    Ok(call.maybe_scalar(2)?.map_or(1.0, as_float))
}

fn corrected(
    call: &Call<'_>,
    root: bool,
) -> Result<Result<HostTensor, pteron_tensor::TensorError>, PortableError> {
    variance(call, call.ints(1)?, correction(call)?, call.bool(3)?, root)
}

fn variance(
    call: &Call<'_>,
    axes: Vec<i64>,
    correction: f64,
    keep: bool,
    root: bool,
) -> Result<Result<HostTensor, pteron_tensor::TensorError>, PortableError> {
    let (x, groups) = grouped(call, &axes, keep)?;
    let values = lanes::floats(x);
    let count = groups.members.len() as f64;
    let join = |start: usize| {
        let members = || groups.members.iter().map(|member| values[start + member]);
        let mean = members().sum::<f64>() / count;
        let spread = members().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        let variance = spread / (count - correction).max(0.0);
        if root { variance.sqrt() } else { variance }
    };
    let joined: Vec<f64> = groups.starts.clone().map(join).collect();
    Ok(lanes::from_floats(call.out_dtype(), groups.shape, joined))
}

fn variance_and_mean(call: &Call<'_>) -> Results {
    let variance = corrected(call, false)??;
    let mean = mean(call, call.ints(1)?, call.bool(3)?)?;
    Ok([Value::Tensor(variance)].into_iter().chain(mean).collect())
}

fn vector_norm(call: &Call<'_>) -> Results {
    let order = call.float(1)?;
    fold_floats(call, &call.ints(2)?, call.bool(3)?, |values| {
        let values = values.map(f64::abs);
        match order {
            f64::INFINITY => values.fold(0.0, f64::max),
            f64::NEG_INFINITY => values.fold(f64::INFINITY, f64::min),
            0.0 => values.filter(|&value| value != 0.0).count() as f64,
            1.0 => values.sum(),
            2.0 => values.map(|value| value * value).sum::<f64>().sqrt(),
            _ => values.map(|value| value.powf(order)).sum::<f64>().powf(1.0 / order),
        }
    })
}

/// A running fold along one axis.
fn running(call: &Call<'_>, int: fn(i64, i64) -> i64, float: fn(f64, f64) -> f64) -> Results {
    fn scan<T: Copy>(values: &mut [T], (outer, size, inner): (usize, usize, usize), op: impl Fn(T, T) -> T) {
        for block in 0..outer {
            for step in 1..size {
                for lane in 0..inner {
                    let at = (block * size + step) * inner + lane;
                    values[at] = op(values[at - inner], values[at]);
                }
            }
        }
    }
    let x = call.tensor(0)?;
    let extent = around(x, axis(call.int(1)?, x.rank())?);
    let shape = x.shape().to_vec();
    one(match lanes::lanes(x) {
        Lanes::Int(mut values) if !call.out_dtype().is_float() => {
            scan(&mut values, extent, int);
            lanes::from_ints(call.out_dtype(), shape, values)
        }
        values => {
            let mut values = values.into_floats();
            scan(&mut values, extent, float);
            lanes::from_floats(call.out_dtype(), shape, values)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{b, check_close, f, run};
    use crate::Value;

    #[test]
    fn tensors_are_close_as_torch_has_it() {
        let near = |a: &[f32], b: &[f32], nan: bool| {
            let args = [f(&[a.len()], a), f(&[b.len()], b), Value::Float(0.1), Value::Float(0.5)];
            [&args[..], &[Value::Bool(nan), Value::Bool(false)]].concat()
        };
        let infinite = f32::INFINITY;
        let cases: [(&[f32], &[f32], bool, bool); 6] = [
            (&[1.0, 10.0], &[1.5, 11.5], false, true),
            (&[1.0, 10.0], &[1.5, 12.0], false, false),
            (&[infinite, -infinite], &[infinite, -infinite], false, true),
            (&[infinite], &[1.0], false, false),
            (&[f32::NAN], &[f32::NAN], false, false),
            (&[f32::NAN], &[f32::NAN], true, true),
        ];
        for (a, c, nan, wanted) in cases {
            check_close("aten::allclose.out", &near(a, c, nan), &[b(&[1], &[wanted])]);
        }
        assert!(run("aten::allclose.out", &near(&[1.0], &[1.0, 1.0], false), &[b(&[1], &[true])]).is_err());
    }
}
