//! Sums of products. MLX's CPU code sums quantised products of 16-bit floats in 16 bits, and has products of picked
//! matrices in f32 alone; there such ops are computed in f32 and rounded once, as its GPUs do.

use super::index::batch_indices;
use super::{Lowered, Operands};
use crate::calls::Call;
use crate::error::MlxError;
use crate::ffi::{Array, Attributes};
use pteron_ir::ValueId;
use pteron_ir::op::IntArg;
use pteron_tensor::{DType, Scalar};

pub(super) fn addmm(
    on: &Operands<'_>,
    mat1: ValueId,
    mat2: ValueId,
    bias: Option<ValueId>,
    alpha: f32,
    beta: f32,
) -> Lowered {
    let nothing = sums_nothing(on, mat1)?;
    // Without a bias the format's runtime does not look at alpha.
    let Some(bias) = bias else {
        return if nothing { on.full(Scalar::Int(0), on.out()) } else { on.binary(Call::Matmul, mat1, mat2) };
    };
    let (a, b, c) = (on.array(mat1)?, on.array(mat2)?, on.array(bias)?);
    if on.ty(mat1)?.shape.len() >= 2 && on.ty(mat2)?.shape.len() >= 2 && !nothing {
        let floats = [alpha.into(), beta.into()];
        return on.mlx.with(
            Call::Addmm,
            &[Some(c), Some(a), Some(b)],
            Attributes { floats: &floats, ..Attributes::default() },
        );
    }
    let dtype = on.out().dtype;
    let scaled = |x: &Array, by: f32| {
        on.mlx.one(Call::Multiply, &[x, &on.constant(Scalar::Float(by.into()), dtype)?], &[])
    };
    let product = if nothing {
        on.full(Scalar::Int(0), on.out())?
    } else {
        on.mlx.one(Call::Matmul, &[&on.cast(a, dtype)?, &on.cast(b, dtype)?], &[])?
    };
    on.mlx.one(Call::Add, &[&scaled(&product, alpha)?, &scaled(c, beta)?], &[])
}

/// Whether a product sums over no elements: MLX asks its BLAS all the same, which ends the process.
fn sums_nothing(on: &Operands<'_>, a: ValueId) -> Result<bool, MlxError> {
    Ok(on.ty(a)?.count() == 0)
}

/// Stride, padding and dilation of a convolution by axis; `extra` makes it a transposed one.
pub(super) struct Axes<'a> {
    pub(super) stride: &'a [i32],
    pub(super) padding: &'a [i32],
    pub(super) dilation: &'a [i32],
    pub(super) extra: Option<&'a [i32]>,
}

pub(super) fn conv(on: &Operands<'_>, x: ValueId, w: ValueId, axes: &Axes<'_>, groups: i32) -> Lowered {
    let dtype = on.out().dtype;
    if sums_nothing(on, x)? || sums_nothing(on, w)? {
        return on.full(Scalar::Int(0), on.out());
    }
    let weights = &on.ty(w)?.shape;
    let (x, w) = (on.cast(on.array(x)?, dtype)?, on.cast(on.array(w)?, dtype)?);
    let (call, extra, padding) = match axes.extra {
        None => (Call::Conv, Default::default(), axes.padding.to_vec()),
        // MLX pads by what the kernel reaches less this padding, and refuses what is less than nothing: the rest is
        // cut off afterwards.
        Some(extra) => {
            let reach =
                axes.dilation.iter().zip(&weights[1..]).map(|(&step, &size)| step * (size as i32 - 1));
            let padding = axes.padding.iter().zip(reach).map(|(&padding, reach)| padding.min(reach));
            (Call::ConvTranspose, extra, padding.collect())
        }
    };
    let lists = [axes.stride, &padding, axes.dilation, extra];
    let ints: Vec<i64> =
        [groups].iter().chain(lists.iter().copied().flatten()).map(|&value| value.into()).collect();
    let whole = on.mlx.one(call, &[&x, &w], &ints)?;
    let rest: Vec<i64> =
        axes.padding.iter().zip(&padding).map(|(&all, &done)| i64::from(all - done)).collect();
    if rest.iter().all(|&rest| rest == 0) {
        return Ok(whole);
    }
    let starts: Vec<i64> = [0].into_iter().chain(rest).chain([0]).collect();
    let stops = starts.iter().zip(on.out().ints()).map(|(start, size)| start + size);
    let bounds: Vec<i64> = starts.iter().copied().chain(stops).chain(vec![1; starts.len()]).collect();
    on.mlx.one(Call::Slice, &[&whole], &bounds)
}

/// Whether indices are promised to be sorted; a flag beside the graph wins.
pub(super) fn sorted(
    on: &Operands<'_>,
    declared: bool,
    flag: Option<&IntArg<ValueId>>,
) -> Result<bool, MlxError> {
    flag.map_or(Ok(declared), |flag| Ok(on.int(flag)? != 0))
}

/// All axes but the last two.
fn batch(shape: &[usize]) -> &[usize] {
    &shape[..shape.len().saturating_sub(2)]
}

pub(super) fn gather_mm(
    on: &mut Operands<'_>,
    a: ValueId,
    b: ValueId,
    (lhs, rhs): (Option<ValueId>, Option<ValueId>),
    sorted: bool,
) -> Lowered {
    let lhs = batch_indices(on, lhs, batch(&on.ty(a)?.shape))?;
    let rhs = batch_indices(on, rhs, batch(&on.ty(b)?.shape))?;
    if sums_nothing(on, a)? {
        return on.full(Scalar::Int(0), on.out());
    }
    let dtype = if on.on_cpu() { DType::F32 } else { on.out().dtype };
    let (a, b) = (on.cast(on.array(a)?, dtype)?, on.cast(on.array(b)?, dtype)?);
    let arrays = [Some(&a), Some(&b), lhs.as_ref(), rhs.as_ref()];
    on.mlx.with(Call::GatherMm, &arrays, Attributes { ints: &[sorted.into()], ..Attributes::default() })
}

/// The fields of a quantised weight.
pub(super) struct Quantized<'a> {
    pub(super) w: ValueId,
    pub(super) scales: ValueId,
    pub(super) biases: Option<ValueId>,
    pub(super) mode: &'a str,
}

impl Quantized<'_> {
    /// The operands of a product in the dtype to compute in: `x`, scales, biases.
    fn operands(&self, on: &Operands<'_>, x: ValueId) -> Result<(Array, Array, Option<Array>), MlxError> {
        let dtype = if on.on_cpu() { DType::F32 } else { on.out().dtype };
        let (scales, biases) = self.parameters(on, dtype)?;
        Ok((on.cast(on.array(x)?, dtype)?, scales, biases))
    }

    /// Scales and biases in the dtype to compute in. Scales of the fp modes are codes and stay what they are.
    fn parameters(&self, on: &Operands<'_>, dtype: DType) -> Result<(Array, Option<Array>), MlxError> {
        let float = |value: ValueId| match on.ty(value)?.dtype.is_float() {
            true => on.cast(on.array(value)?, dtype),
            false => on.array(value)?.share(),
        };
        Ok((float(self.scales)?, self.biases.map(float).transpose()?))
    }
}

/// In f32, rounded once: MLX computes in the dtype of affine scales, whatever dtype is asked for, and makes the scales
/// of the fp modes in the dtype of the result, where 2^-127 is 0 in f16.
pub(super) fn dequantize(
    on: &Operands<'_>,
    weights: &Quantized<'_>,
    global_scale: Option<ValueId>,
    group_size: i32,
    bits: i32,
) -> Lowered {
    // MLX wants rows, also where there is but one.
    let whole = |value: ValueId, array: &Array| match on.ty(value)?.shape.as_slice() {
        &[columns] => on.reshape(array, &[1, columns]),
        _ => array.share(),
    };
    let (scales, biases) = weights.parameters(on, DType::F32)?;
    let scales = whole(weights.scales, &scales)?;
    let biases = match (weights.biases, biases) {
        (Some(value), Some(array)) => Some(whole(value, &array)?),
        _ => None,
    };
    let packed = whole(weights.w, on.array(weights.w)?)?;
    let global = global_scale.map(|scale| on.cast(on.array(scale)?, DType::F32)).transpose()?;
    let arrays = [Some(&packed), Some(&scales), biases.as_ref(), global.as_ref()];
    let ints = [group_size.into(), bits.into(), DType::F32.code().into()];
    on.mlx.with(
        Call::Dequantize,
        &arrays,
        Attributes { ints: &ints, text: weights.mode, ..Attributes::default() },
    )
}

pub(super) fn quantized_matmul(
    on: &Operands<'_>,
    x: ValueId,
    weights: &Quantized<'_>,
    transpose: bool,
    group_size: i32,
    bits: i32,
) -> Lowered {
    if !has_products(weights.mode, group_size) {
        let matrix = matrix(on, weights, transpose, group_size, bits)?;
        return on.mlx.one(Call::Matmul, &[&on.cast(on.array(x)?, DType::F32)?, &matrix], &[]);
    }
    let (x, scales, biases) = weights.operands(on, x)?;
    let arrays = [Some(&x), Some(on.array(weights.w)?), Some(&scales), biases.as_ref()];
    let ints = [transpose.into(), group_size.into(), bits.into()];
    on.mlx.with(
        Call::QuantizedMatmul,
        &arrays,
        Attributes { ints: &ints, text: weights.mode, ..Attributes::default() },
    )
}

/// Whether MLX multiplies with weights in such groups; others it only says no to when it computes.
fn has_products(mode: &str, group_size: i32) -> bool {
    mode != "affine" || matches!(group_size, 32 | 64 | 128)
}

/// The numbers of weights as the right operand of a product, in f32.
fn matrix(
    on: &Operands<'_>,
    weights: &Quantized<'_>,
    transpose: bool,
    group_size: i32,
    bits: i32,
) -> Lowered {
    let rows = dequantize(on, weights, None, group_size, bits)?;
    if !transpose {
        return Ok(rows);
    }
    let mut axes: Vec<i64> = (0..on.ty(weights.w)?.shape.len() as i64).collect();
    if let [.., row, column] = axes.as_mut_slice() {
        std::mem::swap(row, column);
    }
    on.mlx.one(Call::Transpose, &[&rows], &axes)
}

/// How the weights of a [`gather_qmm`] are stored, and whether its indices are sorted.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) transpose: bool,
    pub(super) group_size: i32,
    pub(super) bits: i32,
    pub(super) sorted: bool,
}

pub(super) fn gather_qmm(
    on: &mut Operands<'_>,
    x: ValueId,
    weights: &Quantized<'_>,
    (lhs, rhs): (Option<ValueId>, Option<ValueId>),
    form: Form,
) -> Lowered {
    let lhs = batch_indices(on, lhs, batch(&on.ty(x)?.shape))?;
    let rhs = batch_indices(on, rhs, batch(&on.ty(weights.w)?.shape))?;
    let Form { transpose, group_size, bits, sorted } = form;
    if !has_products(weights.mode, group_size) {
        let matrix = matrix(on, weights, transpose, group_size, bits)?;
        let x = on.cast(on.array(x)?, DType::F32)?;
        let arrays = [Some(&x), Some(&matrix), lhs.as_ref(), rhs.as_ref()];
        let ints = [sorted.into()];
        return on.mlx.with(Call::GatherMm, &arrays, Attributes { ints: &ints, ..Attributes::default() });
    }
    let (x, scales, biases) = weights.operands(on, x)?;
    let ints = [transpose.into(), group_size.into(), bits.into(), sorted.into()];
    let arrays =
        [Some(&x), Some(on.array(weights.w)?), Some(&scales), biases.as_ref(), lhs.as_ref(), rhs.as_ref()];
    on.mlx.with(
        Call::GatherQmm,
        &arrays,
        Attributes { ints: &ints, text: weights.mode, ..Attributes::default() },
    )
}
