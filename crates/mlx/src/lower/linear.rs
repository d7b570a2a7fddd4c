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
    /// The float operands in the dtype to compute in: `x`, scales, biases. Scales of the fp modes are codes.
    fn operands(&self, on: &Operands<'_>, x: ValueId) -> Result<(Array, Array, Option<Array>), MlxError> {
        let dtype = if on.on_cpu() { DType::F32 } else { on.out().dtype };
        let float = |value: ValueId| match on.ty(value)?.dtype.is_float() {
            true => on.cast(on.array(value)?, dtype),
            false => on.array(value)?.share(),
        };
        Ok((float(x)?, float(self.scales)?, self.biases.map(float).transpose()?))
    }
}

pub(super) fn quantized_matmul(
    on: &Operands<'_>,
    x: ValueId,
    weights: &Quantized<'_>,
    transpose: bool,
    group_size: i32,
    bits: i32,
) -> Lowered {
    let (x, scales, biases) = weights.operands(on, x)?;
    let arrays = [Some(&x), Some(on.array(weights.w)?), Some(&scales), biases.as_ref()];
    let ints = [transpose.into(), group_size.into(), bits.into()];
    on.mlx.with(
        Call::QuantizedMatmul,
        &arrays,
        Attributes { ints: &ints, text: weights.mode, ..Attributes::default() },
    )
}

/// `form` is transpose, group size, bits, sorted.
pub(super) fn gather_qmm(
    on: &mut Operands<'_>,
    x: ValueId,
    weights: &Quantized<'_>,
    (lhs, rhs): (Option<ValueId>, Option<ValueId>),
    form: &[i64],
) -> Lowered {
    let lhs = batch_indices(on, lhs, batch(&on.ty(x)?.shape))?;
    let rhs = batch_indices(on, rhs, batch(&on.ty(weights.w)?.shape))?;
    let (x, scales, biases) = weights.operands(on, x)?;
    let arrays =
        [Some(&x), Some(on.array(weights.w)?), Some(&scales), biases.as_ref(), lhs.as_ref(), rhs.as_ref()];
    on.mlx.with(
        Call::GatherQmm,
        &arrays,
        Attributes { ints: form, text: weights.mode, ..Attributes::default() },
    )
}
