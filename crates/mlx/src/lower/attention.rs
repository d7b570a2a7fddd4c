//! Positions and attention, through MLX's `fast` functions. Its CPU build has plain ops in their place, which round sines
//! and scores to 16 bits where the GPU kernels keep f32; there both are computed in f32 and rounded once.

use super::{Lowered, Operands};
use crate::calls::{Call, Mlx};
use crate::error::MlxError;
use crate::ffi::{Array, Attributes, DeviceKind};
use pteron_ir::ValueId;
use pteron_ir::op::OffsetArg;
use pteron_tensor::{DType, Scalar};

pub(super) fn rope(
    on: &Operands<'_>,
    x: ValueId,
    offset: &OffsetArg<ValueId, ValueId>,
    freqs: Option<ValueId>,
    ints: &[i64],
    floats: &[f64],
) -> Lowered {
    let offset = match offset {
        OffsetArg::Value(value) => on.constant(on.values.scalar(*value)?, DType::I32)?,
        OffsetArg::Tensor(tensor) => {
            let count = on.ty(*tensor)?.count();
            let offset = on.cast(on.array(*tensor)?, DType::I32)?;
            // One for all rows, or one a row.
            on.reshape(&offset, if count == 1 { &[] } else { std::slice::from_ref(&count) })?
        }
    };
    let freqs = freqs.map(|freqs| on.cast(on.array(freqs)?, DType::F32)).transpose()?;
    let x = if on.on_cpu() { on.widened(x)? } else { on.array(x)?.share()? };
    let arrays = [Some(&x), Some(&offset), freqs.as_ref()];
    on.mlx.with(Call::Rope, &arrays, Attributes { ints, floats, ..Attributes::default() })
}

/// A query that may see no key gives zeros, as in PyTorch and in MLX's Metal kernels; its CPU code gives the mean of
/// all values, or NaN.
pub(super) fn sdpa(
    on: &Operands<'_>,
    (q, k, v): (ValueId, ValueId, ValueId),
    mask: Option<ValueId>,
    causal: bool,
    scale: f32,
) -> Lowered {
    let dtype = compute_dtype(&on.mlx, on.out().dtype);
    let (queries, keys) = (on.ty(q)?.shape[2], on.ty(k)?.shape[2]);
    let mask_dtype = mask.map(|mask| Ok::<DType, MlxError>(on.ty(mask)?.dtype)).transpose()?;
    if keys == 0 || on.ty(q)?.count() == 0 {
        return on.full(Scalar::Int(0), on.out());
    }
    let (mask, visible) = match (mask, mask_dtype) {
        (Some(mask), Some(DType::Bool)) => {
            let mask = on.array(mask)?.share()?;
            let visible = mask.share()?;
            (Some(mask), Some(visible))
        }
        // Added in the dtype of the queries.
        (Some(mask), _) => {
            let mask = on.cast(&on.cast(on.array(mask)?, on.ty(q)?.dtype)?, dtype)?;
            let nothing = on.constant(Scalar::Float(f64::NEG_INFINITY), dtype)?;
            let visible = on.mlx.one(Call::NotEqual, &[&mask, &nothing], &[])?;
            (Some(mask), Some(visible))
        }
        // The first queries of more than there are keys see none.
        (None, _) if causal && queries > keys => {
            let ints = [queries as i64, keys as i64, keys as i64 - queries as i64, DType::Bool.code().into()];
            let mask = on.mlx.one(Call::Tri, &[], &ints)?;
            let visible = mask.share()?;
            (Some(mask), Some(visible))
        }
        (None, _) => (None, None),
    };
    let operands =
        [on.cast(on.array(q)?, dtype)?, on.cast(on.array(k)?, dtype)?, on.cast(on.array(v)?, dtype)?];
    let causal = causal && mask.is_none();
    let out = attend(&on.mlx, &operands, mask.as_ref(), causal, scale)?;
    let Some(visible) = visible else { return Ok(out) };
    let rank = visible.ty().map_or(0, |(_, shape)| shape.len());
    if rank == 0 {
        let zero = on.constant(Scalar::Int(0), dtype)?;
        return on.mlx.one(Call::Where, &[&visible, &out, &zero], &[]);
    }
    let seen = on.mlx.one(Call::Any, &[&visible], &[0, rank as i64 - 1])?;
    let (_, mut shape) = seen.ty().ok_or(MlxError::DType)?;
    shape.push(1);
    let seen = on.reshape(&seen, &shape)?;
    on.mlx.one(Call::Where, &[&seen, &out, &on.constant(Scalar::Int(0), dtype)?], &[])
}

/// What attention with a result of `dtype` is computed in.
pub(crate) fn compute_dtype(mlx: &Mlx, dtype: DType) -> DType {
    if mlx.device.kind == DeviceKind::Cpu { DType::F32 } else { dtype }
}

/// Attention of q, k, v in one dtype.
pub(crate) fn attend(
    mlx: &Mlx,
    [q, k, v]: &[Array; 3],
    mask: Option<&Array>,
    causal: bool,
    scale: f32,
) -> Lowered {
    let text = if causal { "causal" } else { "" };
    mlx.with(
        Call::Attention,
        &[Some(q), Some(k), Some(v), mask],
        Attributes { floats: &[scale.into()], text, ..Attributes::default() },
    )
}
