//! Sorting along an axis: stable, NaN as the largest number, as in PyTorch.

use super::call::as_size;
use super::lanes::{self, Lanes, pick_elements};
use super::walk::{around, axis, axis_mask, groups};
use super::{Call, Operator, Outs, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::{DType, HostTensor};
use std::cmp::Ordering;

pub(super) const TABLE: &[Operator] = &[
    Operator { outs: Outs::Tensors(2), ..whole("aten::topk.values", 5, topk) },
    Operator { outs: Outs::Tensors(2), ..whole("aten::sort.values", 3, |call| sort(call, 1)) },
    Operator { outs: Outs::Tensors(2), ..whole("aten::sort.values_stable", 4, |call| sort(call, 2)) },
    whole("aten::median.out", 1, |call| median(call, None, false).map(|mut both| both.drain(..1).collect())),
    Operator {
        outs: Outs::Tensors(2),
        ..whole("aten::median.dim_values", 3, |call| median(call, Some(call.int(1)?), call.bool(2)?))
    },
    whole("aten::argsort.stable_out", 4, |call| sort(call, 2).map(|mut both| both.split_off(1))),
    whole("aten::isin.Tensor_Tensor_out", 4, isin),
    whole("aten::bucketize.Tensor_out", 4, bucketize),
];

fn compare(values: &Lanes, a: usize, b: usize) -> Ordering {
    match values {
        Lanes::Int(values) => values[a].cmp(&values[b]),
        Lanes::Float(values) => {
            let (a, b) = (values[a], values[b]);
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
    }
}

/// The first `kept` of every line along an axis, in order: values and their indices.
fn ordered(x: &HostTensor, at: usize, descending: bool, kept: usize) -> Results {
    let (outer, size, inner) = around(x, at);
    let values = lanes::lanes(x);
    let mut order = vec![0usize; outer * kept * inner];
    for block in 0..outer {
        for lane in 0..inner {
            let place = |index: usize| (block * size + index) * inner + lane;
            let mut line: Vec<usize> = (0..size).collect();
            line.sort_by(|&a, &b| match descending {
                true => compare(&values, place(b), place(a)),
                false => compare(&values, place(a), place(b)),
            });
            for (rank, &index) in line.iter().take(kept).enumerate() {
                order[(block * kept + rank) * inner + lane] = index;
            }
        }
    }
    let mut shape = x.shape().to_vec();
    if let Some(dim) = shape.get_mut(at) {
        *dim = kept;
    }
    let places = order.iter().enumerate().map(|(number, &index)| {
        let (block, lane) = (number / (kept * inner), number % inner);
        (block * size + index) * inner + lane
    });
    let sorted = pick_elements(x, shape.clone(), places)?;
    let indices = lanes::from_ints(DType::I64, shape, order.iter().map(|&index| index as i64))?;
    Ok(vec![Value::Tensor(sorted), Value::Tensor(indices)])
}

fn sort(call: &Call<'_>, first: usize) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(first)?, x.rank())?;
    ordered(x, at, call.bool(first + 1)?, around(x, at).1)
}

fn topk(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let (kept, at) = (as_size(call.int(1)?)?, axis(call.int(2)?, x.rank())?);
    if kept > around(x, at).1 {
        return invalid(format!("{kept} of {:?} along axis {at}", x.shape()));
    }
    ordered(x, at, call.bool(3)?, kept)
}

/// The lower one of those in the middle along an axis, or of all: its value and its index; where there is a NaN, that.
fn median(call: &Call<'_>, along: Option<i64>, keep: bool) -> Results {
    let x = call.tensor(0)?;
    let axes: Vec<i64> = along.into_iter().collect();
    let groups = groups(x.shape(), &axis_mask(&axes, x.rank())?, keep);
    let values = lanes::lanes(x);
    let (mut places, mut indices) = (Vec::new(), Vec::new());
    for start in groups.starts.clone() {
        let mut line: Vec<(usize, usize)> = groups.members.iter().map(|at| start + at).enumerate().collect();
        line.sort_by(|a, b| compare(&values, a.1, b.1));
        let is_nan = |place: usize| matches!(&values, Lanes::Float(values) if values[place].is_nan());
        let middle = line
            .iter()
            .find(|(_, place)| is_nan(*place))
            .or_else(|| line.get(line.len().saturating_sub(1) / 2));
        let Some(&(index, place)) = middle else { return invalid("nothing lies in the middle of nothing") };
        places.push(place);
        indices.push(index as i64);
    }
    let indices = lanes::from_ints(DType::I64, groups.shape.clone(), indices)?;
    let middle = pick_elements(x, groups.shape, places.into_iter())?;
    Ok(vec![Value::Tensor(middle), Value::Tensor(indices)])
}

/// Whether each element is among others.
fn isin(call: &Call<'_>) -> Results {
    let (x, others) = (call.tensor(0)?, lanes::floats(call.tensor(1)?));
    let invert = call.bool(3)?;
    let found = lanes::floats(x).into_iter().map(|value| others.contains(&value) != invert);
    one(lanes::from_bools(x.shape().to_vec(), found.collect::<Vec<_>>()))
}

/// Between which boundaries each element falls.
fn bucketize(call: &Call<'_>) -> Results {
    let (x, boundaries) = (call.tensor(0)?, lanes::floats(call.tensor(1)?));
    let right = call.bool(3)?;
    let bucket = |value: f64| match right {
        true => boundaries.partition_point(|&bound| bound <= value),
        false => boundaries.partition_point(|&bound| bound < value),
    };
    let buckets: Vec<i64> = lanes::floats(x).into_iter().map(|value| bucket(value) as i64).collect();
    one(lanes::from_ints(call.out_dtype(), x.shape().to_vec(), buckets))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_close, f, i};
    use crate::Value;

    #[test]
    fn the_middle_is_the_lower_one_of_two() {
        let x = f(&[2, 4], &[3.0, 1.0, 2.0, 2.0, f32::NAN, 5.0, 4.0, 1.0]);
        let wanted = [f(&[2], &[2.0, f32::NAN]), i(&[2], &[2, 0])];
        check_close("aten::median.dim_values", &[x, Value::Int(1), Value::Bool(false)], &wanted);
        check_close("aten::median.out", &[f(&[3], &[7.0, 1.0, 3.0])], &[f(&[], &[3.0])]);
    }
}
