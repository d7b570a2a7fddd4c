//! Ops that fold axes or run along one.

use super::shape::axis_of;
use super::{Lowered, Operands};
use crate::calls::Call;
use crate::ffi::Array;
use pteron_ir::ValueId;

/// A fold over axes; none listed means all. `array` is `x` in the dtype to fold in. Sizes of 1 are put back, or not,
/// when the result gets its shape.
pub(super) fn fold(
    on: &Operands<'_>,
    call: Call,
    array: Array,
    x: ValueId,
    axes: Option<&[i32]>,
    attributes: &[i64],
) -> Lowered {
    let rank = on.ty(x)?.shape.len();
    // MLX has no axes in a scalar to fold.
    let array = if rank == 0 { on.reshape(&array, &[1])? } else { array };
    let listed = axes.filter(|axes| !axes.is_empty() && rank > 0);
    let axes: Vec<i64> = match listed {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis.into(), rank) as i64).collect(),
        None => (0..rank.max(1) as i64).collect(),
    };
    let keep_dims = [0];
    let ints: Vec<i64> = keep_dims.iter().chain(attributes).copied().chain(axes).collect();
    on.mlx.one(call, &[&array], &ints)
}

/// A function along one axis; a scalar counts as one element along it.
pub(super) fn along(
    on: &Operands<'_>,
    call: Call,
    array: &Array,
    x: ValueId,
    axis: i32,
    attributes: &[i64],
) -> Lowered {
    let rank = on.ty(x)?.shape.len();
    let lifted = if rank == 0 { Some(on.reshape(array, &[1])?) } else { None };
    let axis = if rank == 0 { 0 } else { axis_of(axis.into(), rank) as i64 };
    let ints: Vec<i64> = [axis].iter().chain(attributes).copied().collect();
    on.mlx.one(call, &[lifted.as_ref().unwrap_or(array)], &ints)
}
