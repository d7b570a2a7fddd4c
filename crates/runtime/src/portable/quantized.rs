//! Numbers as codes: `code = round(x / scale) + zero point`. Computed in f32, as ExecuTorch's kernels do, so that what lies
//! between two codes falls to the same one.

use super::lanes;
use super::walk::axis;
use super::{Call, Kernel, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: &[Operator] = &[
    whole("quantized_decomposed::quantize_per_tensor.out", 6, |call| {
        quantize(call, (&[call.float(1)?], &[call.int(2)?]), |_| 0, 3)
    }),
    whole("quantized_decomposed::quantize_per_tensor.Tensor_out", 6, |call| {
        let (scales, zeros) = parameters(call, 1)?;
        quantize(call, (&scales, &zeros), |_| 0, 3)
    }),
    whole("quantized_decomposed::quantize_per_channel.out", 7, |call| {
        let (scales, zeros) = parameters(call, 1)?;
        quantize(call, (&scales, &zeros), channel(call, 3)?, 4)
    }),
    whole("quantized_decomposed::quantize_per_token.out", 6, |call| {
        let (scales, zeros) = parameters(call, 1)?;
        quantize(call, (&scales, &zeros), token(call)?, 3)
    }),
    whole("quantized_decomposed::dequantize_per_tensor.out", 7, |call| {
        dequantize(call, (&[call.float(1)?], &[call.int(2)?]), |_| 0)
    }),
    whole("quantized_decomposed::dequantize_per_tensor.Tensor_out", 7, |call| {
        let (scales, zeros) = parameters(call, 1)?;
        dequantize(call, (&scales, &zeros), |_| 0)
    }),
    whole("quantized_decomposed::dequantize_per_channel.out", 8, |call| {
        let (scales, zeros) = parameters(call, 1)?;
        dequantize(call, (&scales, &zeros), channel(call, 3)?)
    }),
    whole("quantized_decomposed::dequantize_per_token.out", 7, |call| {
        let (scales, zeros) = parameters(call, 1)?;
        dequantize(call, (&scales, &zeros), token(call)?)
    }),
    pair("quantized_decomposed::choose_qparams.Tensor_out", 5, |call| {
        choose(call, call.tensor(0)?.len(), (call.int(1)?, call.int(2)?), vec![1])
    }),
    pair("quantized_decomposed::choose_qparams_per_token_asymmetric.out", 2, |call| {
        let mut shape = call.tensor(0)?.shape().to_vec();
        let Some(last) = shape.last_mut() else { return invalid("a number has no tokens") };
        let row = std::mem::replace(last, 1);
        choose(call, row, (-128, 127), shape)
    }),
    whole("quantized_decomposed::add.out", 14, add),
    whole("quantized_decomposed::mixed_mm.out", 4, |call| mixed(call, false)),
    whole("quantized_decomposed::mixed_linear.out", 5, |call| mixed(call, true)),
    whole("quantized_decomposed::embedding_byte.out", 6, |call| embedding(call, 8)),
    whole("quantized_decomposed::embedding_byte.dtype_out", 7, |call| embedding(call, 8)),
    whole("quantized_decomposed::embedding_4bit.out", 6, |call| embedding(call, 4)),
    whole("quantized_decomposed::embedding_4bit.dtype_out", 7, |call| embedding(call, 4)),
    whole("quantized_decomposed::embedding_2bit.out", 6, |call| embedding(call, 2)),
    whole("quantized_decomposed::embedding_2bit.dtype_out", 7, |call| embedding(call, 2)),
];

/// A row that gives scales and zero points.
const fn pair(name: &'static str, inputs: usize, kernel: fn(&Call<'_>) -> Results) -> Operator {
    Operator { name, inputs, outs: Outs::Tensors(2), kernel: Kernel::Whole(kernel) }
}

/// Scales and zero points.
type Grid<'a> = (&'a [f64], &'a [i64]);

/// Scales and zero points in two tensors of equal length; zero points that are absent are 0.
fn parameters(call: &Call<'_>, index: usize) -> Result<(Vec<f64>, Vec<i64>), PortableError> {
    let scales = lanes::floats(call.tensor(index)?);
    let zeros = call.maybe_tensor(index + 1)?.map_or_else(|| vec![0; scales.len()], lanes::ints);
    match scales.len() == zeros.len() {
        true => Ok((scales, zeros)),
        false => invalid(format!("{} scales, {} zero points", scales.len(), zeros.len())),
    }
}

/// By element: which slice of an axis it is in.
fn channel(call: &Call<'_>, index: usize) -> Result<impl Fn(usize) -> usize, PortableError> {
    let x = call.tensor(0)?;
    let at = axis(call.int(index)?, x.rank())?;
    let inner: usize = x.shape().iter().skip(at + 1).product();
    let size = x.shape().get(at).copied().unwrap_or(1);
    Ok(move |element| element / inner.max(1) % size.max(1))
}

/// By element: which row of the last axis it is in.
fn token(call: &Call<'_>) -> Result<impl Fn(usize) -> usize, PortableError> {
    let row = call.tensor(0)?.shape().last().copied().unwrap_or(1).max(1);
    Ok(move |element| element / row)
}

/// Refuses a grid that has too few entries for a tensor.
fn check_grid(x: &HostTensor, grid: Grid<'_>, of: &impl Fn(usize) -> usize) -> Result<(), PortableError> {
    let needed = x.len().checked_sub(1).map_or(0, |_| 1 + (0..x.len()).map(of).max().unwrap_or(0));
    match grid.0.len() >= needed {
        true => Ok(()),
        false => invalid(format!("{} scales where {needed} are needed", grid.0.len())),
    }
}

fn code(x: f64, scale: f64, zero: i64, (least, most): (i64, i64)) -> i64 {
    let steps = (1.0 / scale as f32) * x as f32;
    (steps.round_ties_even() as i64).saturating_add(zero).max(least).min(most)
}

fn number(code: i64, scale: f64, zero: i64) -> f64 {
    f64::from(code.saturating_sub(zero) as f32 * scale as f32)
}

fn quantize(call: &Call<'_>, grid: Grid<'_>, of: impl Fn(usize) -> usize, bounds: usize) -> Results {
    let x = call.tensor(0)?;
    check_grid(x, grid, &of)?;
    let bounds = (call.int(bounds)?, call.int(bounds + 1)?);
    let codes = lanes::floats(x).into_iter().enumerate();
    let codes = codes.map(|(at, x)| code(x, grid.0[of(at)], grid.1[of(at)], bounds));
    one(lanes::from_ints(call.out_dtype(), x.shape().to_vec(), codes))
}

fn dequantize(call: &Call<'_>, grid: Grid<'_>, of: impl Fn(usize) -> usize) -> Results {
    let x = call.tensor(0)?;
    check_grid(x, grid, &of)?;
    let numbers = lanes::ints(x).into_iter().enumerate();
    let numbers = numbers.map(|(at, x)| number(x, grid.0[of(at)], grid.1[of(at)]));
    one(lanes::from_floats(call.out_dtype(), x.shape().to_vec(), numbers))
}

/// Below this, scales are cut off: their inverse would be too large for kernels that multiply by it.
const SMALLEST_SCALE: f32 = 6.1e-5;

/// Scales and zero points that hold rows of numbers, and zero among them, between two codes.
fn choose(call: &Call<'_>, row: usize, bounds: (i64, i64), shape: Vec<usize>) -> Results {
    let (least, most) = bounds;
    if least >= most || most.checked_sub(least).is_none() {
        return invalid(format!("codes from {least} to {most}"));
    }
    let x = lanes::floats(call.tensor(0)?);
    let (mut scales, mut zeros) = (Vec::new(), Vec::new());
    for row in x.chunks(row.max(1)) {
        let low = row.iter().copied().fold(0.0, f64::min) as f32;
        let high = row.iter().copied().fold(0.0, f64::max) as f32;
        let (scale, zero) = grid_of(low, high, bounds);
        scales.push(scale);
        zeros.push(zero);
    }
    let scales = lanes::from_floats(DType::F64, shape.clone(), scales)?;
    let zeros = lanes::from_ints(DType::I64, shape, zeros)?;
    Ok(vec![Value::Tensor(scales), Value::Tensor(zeros)])
}

fn grid_of(mut low: f32, mut high: f32, (least, most): (i64, i64)) -> (f64, i64) {
    let (first, last) = (least as f64, most as f64);
    let mut scale = (f64::from(high) - f64::from(low)) / (last - first);
    if scale as f32 == 0.0 || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    if scale < f64::from(SMALLEST_SCALE) {
        let amplifier = SMALLEST_SCALE / scale as f32;
        let span = SMALLEST_SCALE * (most - least) as f32;
        match (low == 0.0, high == 0.0) {
            (true, _) => high = span,
            (_, true) => low = -span,
            _ => (low, high) = (low * amplifier, high * amplifier),
        }
        scale = f64::from(SMALLEST_SCALE);
    }
    // Of the two ends, the one whose terms are smaller gives the better zero point.
    let (from_low, from_high) = (f64::from(low) / scale, f64::from(high) / scale);
    let is_low_better = first.abs() - from_low.abs() < last.abs() - from_high.abs();
    let zero = if is_low_better { first - from_low } else { last - from_high };
    (scale, (zero.clamp(first, last) as f32).round_ties_even() as i64)
}

fn add(call: &Call<'_>) -> Results {
    let (a, b) = (call.tensor(0)?, call.tensor(5)?);
    if a.shape() != b.shape() {
        return invalid(format!("{:?} and {:?} differ", a.shape(), b.shape()));
    }
    let (a_grid, b_grid) = ((call.float(1)?, call.int(2)?), (call.float(6)?, call.int(7)?));
    let (scale, zero, bounds) = (call.float(10)?, call.int(11)?, (call.int(12)?, call.int(13)?));
    let pairs = lanes::ints(a).into_iter().zip(lanes::ints(b));
    let codes = pairs.map(|(a, b)| {
        let sum = number(a, a_grid.0, a_grid.1) as f32 + number(b, b_grid.0, b_grid.1) as f32;
        code(sum.into(), scale, zero, bounds)
    });
    one(lanes::from_ints(call.out_dtype(), a.shape().to_vec(), codes))
}

/// A product with a weight of 8-bit codes: `[in, out]` with a scale for each row, or `[out, in]` with scales for each row or
/// for groups in it.
fn mixed(call: &Call<'_>, is_linear: bool) -> Results {
    let (x, weight, scales) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let (&[rows, inner], &[first, second]) = (x.shape(), weight.shape()) else {
        return invalid("a product of matrices takes matrices");
    };
    let (width, depth) = if is_linear { (first, second) } else { (second, first) };
    let groups = scales.shape().get(1).copied().unwrap_or(1);
    let group = depth.div_ceil(groups.max(1)).max(1);
    if inner != depth || scales.shape().first() != Some(&first) || scales.rank() > 2 || groups == 0 {
        let shapes = (x.shape(), weight.shape(), scales.shape());
        return invalid(format!("shapes {shapes:?} do not meet"));
    }
    call.admit(&[rows, width])?;
    call.charge(&[rows, width, inner])?;
    let (x, weight, scales) = (lanes::floats(x), lanes::floats(weight), lanes::floats(scales));
    let element = |row: usize, column: usize| -> f64 {
        let product = |at: usize| match is_linear {
            true => weight[column * inner + at] * scales[column * groups + at / group],
            false => weight[at * width + column] * scales[at * groups],
        };
        (0..inner).map(|at| x[row * inner + at] * product(at)).sum()
    };
    let elements = (0..rows).flat_map(|row| (0..width).map(move |column| (row, column)));
    let elements = elements.map(|(row, column)| element(row, column));
    one(lanes::from_floats(call.out_dtype(), vec![rows, width], elements))
}

/// Rows of a table of codes, with a scale for each or for groups in it. Fewer than 8 bits are stored with half the range
/// added: of 4, the first of a byte is the high half, of 2, the low quarter.
fn embedding(call: &Call<'_>, bits: usize) -> Results {
    let (weight, scales, indices) = (call.tensor(0)?, call.tensor(1)?, call.tensor(5)?);
    let zeros = call.maybe_tensor(2)?;
    let &[rows, packed] = weight.shape() else { return invalid("a table of embeddings is a matrix") };
    if weight.dtype().size() != 1 || !indices.dtype().is_int() {
        return invalid(format!("{} weights, {} indices", weight.dtype(), indices.dtype()));
    }
    let width = packed.saturating_mul(8 / bits);
    let groups = scales.shape().get(1).copied().unwrap_or(1);
    let is_even = groups > 0 && width.is_multiple_of(groups) && scales.rank() <= 2;
    if !is_even || scales.len() != rows.saturating_mul(groups) {
        return invalid(format!("scales of shape {:?} for {rows} rows of {width}", scales.shape()));
    }
    if zeros.is_some_and(|zeros| zeros.shape() != scales.shape()) {
        return invalid("scales and zero points differ in shape");
    }
    let shape: Vec<usize> = indices.shape().iter().copied().chain([width]).collect();
    call.admit(&shape)?;
    let (size, is_signed) = ((width / groups).max(1), weight.dtype() == DType::I8);
    let bytes = weight.bytes();
    let code = |row: usize, at: usize| -> i32 {
        match (bits, is_signed) {
            (8, true) => i32::from(bytes[row * packed + at] as i8),
            (8, false) => bytes[row * packed + at].into(),
            (4, _) => i32::from(bytes[row * packed + at / 2] >> (4 * (1 - at % 2)) & 15) - 8,
            _ => i32::from(bytes[row * packed + at / 4] >> (2 * (at % 4)) & 3) - 2,
        }
    };
    let mut values = Vec::new();
    for index in lanes::ints(indices) {
        let row = usize::try_from(index).ok().filter(|&row| row < rows);
        let row = row.ok_or(PortableError::Index { index, size: rows })?;
        let own = row * groups..(row + 1) * groups;
        let scales = part(scales, own.clone())?;
        let zeros = zeros.map_or_else(|| Ok(vec![0.0; groups]), |zeros| part(zeros, own))?;
        values.extend((0..width).map(|at| {
            let group = at / size;
            f64::from((code(row, at) as f32 - zeros[group] as f32) * scales[group] as f32)
        }));
    }
    one(lanes::from_floats(call.out_dtype(), shape, values))
}

/// Some elements of a tensor as floats: the table's other rows are not touched.
fn part(tensor: &HostTensor, range: std::ops::Range<usize>) -> Result<Vec<f64>, PortableError> {
    let count = range.len();
    Ok(lanes::floats(&lanes::pick_elements(tensor, vec![count], range)?))
}
