//! Norms over the last axis, Softmax and LogSumExp. Sums run in f64, results are rounded once: MLX rounds the
//! normalised value to the result's dtype before it multiplies by the weight, which only adds an error.

use super::offsets::{Offsets, axis_of};
use super::{Computed, KernelError, Operands, floats};
use pteron_ir::ValueId;
use pteron_tensor::HostTensor;

pub(super) fn rms_norm(operands: &Operands<'_>, x: ValueId, weight: Option<ValueId>, eps: f32) -> Computed {
    let weight = factors(operands.maybe(weight)?)?;
    per_row(operands, x, |row| {
        let square: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
        let scale = 1.0 / (square / row.len() as f64 + f64::from(eps)).sqrt();
        for (j, x) in row.iter_mut().enumerate() {
            *x = (f64::from(*x) * scale * weight.at(j, 1.0)) as f32;
        }
    })
}

pub(super) fn layer_norm(
    operands: &Operands<'_>,
    x: ValueId,
    weight: Option<ValueId>,
    bias: Option<ValueId>,
    eps: f32,
) -> Computed {
    let (weight, bias) = (factors(operands.maybe(weight)?)?, factors(operands.maybe(bias)?)?);
    per_row(operands, x, |row| {
        let count = row.len() as f64;
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        for (j, x) in row.iter_mut().enumerate() {
            *x = ((f64::from(*x) - mean) * scale * weight.at(j, 1.0) + bias.at(j, 0.0)) as f32;
        }
    })
}

/// A row of -inf gives NaN, as everywhere. `precise` asks for what is done here anyway.
pub(super) fn softmax(operands: &Operands<'_>, x: ValueId, axis: i32) -> Computed {
    let x = operands.tensor(x)?;
    let (size, inner) = match x.shape().split_at_checked(axis_of(axis.into(), x.rank())) {
        Some((_, [size, inner @ ..])) => (*size, inner.iter().product()),
        _ => (1, 1), // a tensor of rank 0
    };
    let mut values = floats::all(x)?.into_owned();
    for outer in values.chunks_exact_mut((size * inner).max(1)) {
        for first in 0..inner {
            let line = || (first..outer.len()).step_by(inner);
            let largest = line().fold(f32::NEG_INFINITY, |largest, at| largest.max(outer[at]));
            let weight = |x: f32| f64::from(x - largest).exp();
            let sum: f64 = line().map(|at| weight(outer[at])).sum();
            for at in line() {
                outer[at] = (weight(outer[at]) / sum) as f32;
            }
        }
    }
    floats::rounded(operands.out(), &values)
}

/// No axes means all of them; C++ reduces nothing then, PyTorch everything.
pub(super) fn log_sum_exp(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let x = operands.tensor(x)?;
    let out = operands.out();
    let axes: Vec<usize> =
        axes.unwrap_or_default().iter().map(|&axis| axis_of(axis.into(), x.rank())).collect();
    // Where an element's sum stands: reduced axes have stride 0, the others those of the result.
    let kept = |axis: usize| !axes.is_empty() && !axes.contains(&axis);
    let sizes: Vec<usize> = (0..x.rank()).map(|axis| if kept(axis) { x.shape()[axis] } else { 1 }).collect();
    let values = floats::all(x)?;
    let count = out.shape.iter().product();
    let (mut largest, mut sums) = (vec![f32::NEG_INFINITY; count], vec![0.0f64; count]);
    let mut places = Offsets::broadcast(&sizes, x.shape());
    for &value in values.iter() {
        let largest = &mut largest[places.next_one()];
        *largest = largest.max(value);
    }
    // An infinite largest element is the result; subtracting it would give NaN.
    let shift = |largest: f32| if largest.is_finite() { largest } else { 0.0 };
    for &value in values.iter() {
        let place = places.next_one();
        sums[place] += f64::from(value - shift(largest[place])).exp();
    }
    let result =
        largest.iter().zip(&sums).map(|(&largest, sum)| (sum.ln() + f64::from(shift(largest))) as f32);
    floats::rounded(out, &result.collect::<Vec<_>>())
}

/// Applies `change` to every row of the last axis.
fn per_row(operands: &Operands<'_>, x: ValueId, change: impl Fn(&mut [f32])) -> Computed {
    let x = operands.tensor(x)?;
    let size = x.shape().last().map_or(1, |&size| size);
    let mut values = floats::all(x)?.into_owned();
    values.chunks_exact_mut(size.max(1)).for_each(change);
    floats::rounded(operands.out(), &values)
}

/// A weight or bias by feature.
struct Factors(Option<Vec<f32>>);

fn factors(tensor: Option<&HostTensor>) -> Result<Factors, KernelError> {
    Ok(Factors(tensor.map(|tensor| floats::all(tensor).map(|values| values.into_owned())).transpose()?))
}

impl Factors {
    fn at(&self, feature: usize, absent: f64) -> f64 {
        self.0.as_ref().map_or(absent, |values| values[feature].into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, assert_close, f32s, random, run, v};
    use super::*;
    use pteron_tensor::DType;

    const INF: f32 = f32::INFINITY;

    #[test]
    fn norms_equal_their_formulas() {
        let (x, weight, bias) = (random(1, &[3, 10]), random(2, &[10]), random(3, &[10]));
        let (x64, w, b) = (as_f64(&x), as_f64(&weight), as_f64(&bias));
        let rms = x64.chunks(10).flat_map(|row| {
            let scale = (row.iter().map(|x| x * x).sum::<f64>() / 10.0 + f64::from(1e-5f32)).sqrt();
            row.iter().zip(&w).map(|(x, w)| x / scale * w).collect::<Vec<_>>()
        });
        let got = run(&[&x, &weight], &[(DType::F32, &[3, 10])], |operands| {
            rms_norm(operands, v(0), Some(v(1)), 1e-5)
        });
        assert_close(got, &rms.collect::<Vec<_>>());
        let layer = x64.chunks(10).flat_map(|row| {
            let mean = row.iter().sum::<f64>() / 10.0;
            let deviation =
                (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 10.0 + f64::from(1e-5f32)).sqrt();
            row.iter()
                .zip(w.iter().zip(&b))
                .map(|(x, (w, b))| (x - mean) / deviation * w + b)
                .collect::<Vec<_>>()
        });
        let got = run(&[&x, &weight, &bias], &[(DType::F32, &[3, 10])], |operands| {
            layer_norm(operands, v(0), Some(v(1)), Some(v(2)), 1e-5)
        });
        assert_close(got, &layer.collect::<Vec<_>>());
    }

    #[test]
    fn norms_do_without_weight_and_bias() {
        let x = f32s(&[1, 2], &[3.0, 4.0]);
        let rms = 12.5f64.sqrt();
        let got = run(&[&x], &[(DType::F32, &[1, 2])], |operands| rms_norm(operands, v(0), None, 0.0));
        assert_close(got, &[3.0 / rms, 4.0 / rms]);
        let got =
            run(&[&x], &[(DType::F32, &[1, 2])], |operands| layer_norm(operands, v(0), None, None, 0.0));
        assert_close(got, &[-1.0, 1.0]);
    }

    #[test]
    fn softmax_runs_along_any_axis() {
        let x = random(4, &[2, 3, 4]);
        let x64 = as_f64(&x);
        for axis in [0, 1, 2, -1, -3] {
            let got = run(&[&x], &[(DType::F32, &[2, 3, 4])], |operands| softmax(operands, v(0), axis));
            let (size, inner) = [(2, 12), (3, 4), (4, 1)][axis_of(axis.into(), 3)];
            let same =
                |a: usize, b: usize| a % inner == b % inner && a / (size * inner) == b / (size * inner);
            let sum = |at: usize| {
                (0..24).filter(|&other| same(at, other)).map(|other| x64[other].exp()).sum::<f64>()
            };
            assert_close(got, &(0..24).map(|at| x64[at].exp() / sum(at)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn softmax_at_the_edges() {
        let cases: [(&[usize], Vec<f32>, Vec<f64>); 5] = [
            (&[2], vec![-INF, -INF], vec![f64::NAN; 2]),
            (&[2], vec![-INF, 3.0], vec![0.0, 1.0]),
            (&[2], vec![1e30, 1e30], vec![0.5, 0.5]),
            (&[], vec![7.0], vec![1.0]),
            (&[3, 0], vec![], vec![]),
        ];
        for (shape, x, want) in cases {
            let x = f32s(shape, &x);
            let axis = if shape.is_empty() { -1 } else { shape.len() as i32 - 1 };
            assert_close(run(&[&x], &[(DType::F32, shape)], |operands| softmax(operands, v(0), axis)), &want);
        }
    }

    #[test]
    fn log_sum_exp_over_some_or_all_axes() {
        let x = random(5, &[2, 3, 4]);
        let x64 = as_f64(&x);
        let of = |places: &[usize]| places.iter().map(|&at| x64[at].exp()).sum::<f64>().ln();
        let every = of(&(0..24).collect::<Vec<_>>());
        let outer: Vec<f64> =
            (0..3).map(|j| of(&(0..8).map(|k| k / 4 * 12 + j * 4 + k % 4).collect::<Vec<_>>())).collect();
        type Case<'a> = (Option<&'a [i32]>, &'a [usize], Vec<f64>);
        let cases: [Case<'_>; 4] = [
            (None, &[], vec![every]),
            (Some(&[]), &[1, 1, 1], vec![every]),
            (Some(&[0, -1]), &[3], outer.clone()),
            (Some(&[2, 0]), &[1, 3, 1], outer),
        ];
        for (axes, shape, want) in cases {
            assert_close(
                run(&[&x], &[(DType::F32, shape)], |operands| log_sum_exp(operands, v(0), axes)),
                &want,
            );
        }
    }

    #[test]
    fn log_sum_exp_at_the_edges() {
        let cases = [
            (vec![-INF, -INF], f64::NEG_INFINITY),
            (vec![INF, 1.0], f64::INFINITY),
            (vec![f32::NAN, 1.0], f64::NAN),
            (vec![1000.0, 1000.0], 1000.0 + 2f64.ln()),
            (vec![], f64::NEG_INFINITY),
        ];
        for (x, want) in cases {
            let x = f32s(&[x.len()], &x);
            assert_close(
                run(&[&x], &[(DType::F32, &[])], |operands| log_sum_exp(operands, v(0), None)),
                &[want],
            );
        }
    }
}
