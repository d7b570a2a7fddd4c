//! Rotary position embedding. Angles are f32 products, as in MLX and in the models that were exported; their
//! sines and cosines are exact, where MLX's CPU code rounds them to the dtype of `x`.

use super::{Computed, KernelError, Operands, floats};
use pteron_ir::ValueId;
use pteron_ir::op::OffsetArg;
use pteron_tensor::{HostTensor, Scalar};

/// The op's fields besides `x`.
pub(super) struct RopeFields<'a> {
    pub(super) dims: i32,
    pub(super) offset: &'a OffsetArg<ValueId, ValueId>,
    pub(super) freqs: Option<ValueId>,
    pub(super) traditional: bool,
    pub(super) base: f32,
    pub(super) scale: f32,
}

pub(super) fn rope(operands: &Operands<'_>, x: ValueId, fields: &RopeFields<'_>) -> Computed {
    let x = operands.tensor(x)?;
    let &[batch, .., length, features] = x.shape() else {
        return Err(KernelError::Invalid("positions and features need an axis each".into()));
    };
    let offsets = match fields.offset {
        OffsetArg::Tensor(tensor) => floats::indices(operands.tensor(*tensor)?)?,
        OffsetArg::Value(value) => match operands.scalar(*value)? {
            Scalar::Int(offset) => vec![offset],
            other => return Err(KernelError::Invalid(format!("offset {other:?} is not an integer"))),
        },
    };
    let dims = usize::try_from(fields.dims).unwrap_or(0).min(features);
    let inverse = inverse_periods(operands.maybe(fields.freqs)?, dims, fields.base)?;
    let mut values = floats::all(x)?.into_owned();
    let per_batch = values.len() / batch.max(1);
    for (index, values) in values.chunks_exact_mut(per_batch.max(1)).enumerate() {
        // One offset for all, or one a batch row.
        let offset = offsets.get(index).or(offsets.first()).copied().unwrap_or(0);
        let turns = turns(offset, length, fields.scale, &inverse);
        for (row, values) in values.chunks_exact_mut(features).enumerate() {
            let turns = &turns[row % length * inverse.len()..][..inverse.len()];
            for (i, (sin, cos)) in turns.iter().enumerate() {
                let (first, second) =
                    if fields.traditional { (2 * i, 2 * i + 1) } else { (i, i + inverse.len()) };
                let (a, b) = (f64::from(values[first]), f64::from(values[second]));
                values[first] = (a * cos - b * sin) as f32;
                values[second] = (a * sin + b * cos) as f32;
            }
        }
    }
    floats::rounded(operands.out(), &values)
}

/// Sine and cosine of every position and pair.
fn turns(offset: i64, length: usize, scale: f32, inverse: &[f32]) -> Vec<(f64, f64)> {
    let positions = (0..length).map(|t| (offset.wrapping_add(t as i64)) as f32 * scale);
    positions
        .flat_map(|position| inverse.iter().map(move |inverse| f64::from(position * inverse).sin_cos()))
        .collect()
}

/// Radians that a pair of features turns by per position. `freqs` are periods in spite of their name.
fn inverse_periods(freqs: Option<&HostTensor>, dims: usize, base: f32) -> Result<Vec<f32>, KernelError> {
    let pairs = dims / 2;
    match freqs {
        Some(freqs) => Ok(floats::all(freqs)?.iter().take(pairs).map(|period| 1.0 / period).collect()),
        None => {
            let of = |i: usize| f64::from(base).powf(-2.0 * i as f64 / dims as f64) as f32;
            Ok((0..pairs).map(of).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, f32s, int, random, run_data, v};
    use super::super::{Datum, KernelError};
    use super::*;
    use pteron_tensor::DType;

    const PLAIN: RopeFields<'_> = RopeFields {
        dims: 4,
        offset: &OffsetArg::Value(ValueId(1)),
        freqs: None,
        traditional: false,
        base: 10000.0,
        scale: 1.0,
    };

    fn rotated(x: &HostTensor, others: Vec<Datum>, fields: &RopeFields<'_>) -> Result<Vec<f64>, KernelError> {
        let data = [vec![Datum::Tensor(x.clone())], others].concat();
        run_data(data, &[(DType::F32, x.shape())], |operands| rope(operands, v(0), fields))
            .map(|out| as_f64(&out))
    }

    /// Measured with mlx 0.32.4.
    #[test]
    fn pairs_turn_as_in_mlx() {
        let ones = f32s(&[1, 1, 1, 8], &[1.0; 8]);
        let apart = [-1.1311, 0.9696, -0.8489, 1.0295, 1.0, 1.0, 1.0, 1.0];
        let beside = [-1.1311, -0.8489, 0.9696, 1.0295, 1.0, 1.0, 1.0, 1.0];
        for (traditional, want) in [(false, apart), (true, beside)] {
            let got = rotated(&ones, vec![int(3)], &RopeFields { traditional, ..PLAIN }).unwrap();
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 1e-4, "{got}, not {want}");
            }
        }
    }

    #[test]
    fn periods_replace_the_base_and_positions_count_along_the_second_last_axis() {
        let x = random(1, &[2, 3, 5, 6]);
        let periods = f32s(&[2], &[1.0, 8.0]);
        let offsets = HostTensor::from_slice(vec![2], &[7i32, 100]).unwrap();
        let fields = RopeFields { offset: &OffsetArg::Tensor(v(1)), freqs: Some(v(2)), scale: 0.5, ..PLAIN };
        let got = rotated(&x, vec![Datum::Tensor(offsets), Datum::Tensor(periods)], &fields).unwrap();
        let x = as_f64(&x);
        for (at, got) in got.iter().enumerate() {
            let (row, feature) = (at / 6, at % 6);
            let position = (row % 5) as f64 + if row < 15 { 7.0 } else { 100.0 };
            let (sin, cos) = (position * 0.5 / [1.0, 8.0][feature % 2]).sin_cos();
            let want = match feature {
                0 | 1 => x[at] * cos - x[at + 2] * sin,
                2 | 3 => x[at - 2] * sin + x[at] * cos,
                _ => x[at],
            };
            assert!((got - want).abs() < 1e-5, "element {at}: {got}, not {want}");
        }
    }
}
