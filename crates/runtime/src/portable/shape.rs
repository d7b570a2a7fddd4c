//! Operators that only move elements: views, copies, slices, joins, permutations. Blind to the dtype.

use super::call::as_size;
use super::lanes::{self, pick_elements};
use super::walk::{Walk, around, axis, row_major};
use super::{Call, Kernel, Operator, Outs, PortableError, Results, invalid, one, whole};
use pteron_tensor::{HostTensor, element_count};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::alias_copy.out", 1, same),
    whole("aten::clone.out", 2, same),
    whole("aten::detach_copy.out", 1, same),
    whole("aten::lift_fresh_copy.out", 1, same),
    whole("aten::_to_copy.out", 3, same),
    whole("dim_order_ops::_clone_dim_order.out", 3, same),
    whole("dim_order_ops::_to_dim_order_copy.out", 3, same),
    whole("et_copy::_h2d_copy.out", 1, same),
    whole("llama::fallback.out", 1, same),
    whole("et_copy::_d2h_copy.out", 1, same),
    whole("aten::copy.out", 3, copy),
    Operator { name: "aten::copy_", inputs: 3, outs: Outs::First, kernel: Kernel::Whole(copy) },
    whole("aten::view_copy.out", 2, view),
    whole("aten::_unsafe_view.out", 2, view),
    whole("executorch_prim::et_view.default", 2, view),
    whole("aten::squeeze_copy.out", 1, |call| squeeze(call, None)),
    whole("aten::squeeze_copy.dim_out", 2, |call| squeeze(call, Some(vec![call.int(1)?]))),
    whole("aten::squeeze_copy.dims_out", 2, |call| squeeze(call, Some(call.ints(1)?))),
    whole("aten::unsqueeze_copy.out", 2, unsqueeze),
    whole("aten::expand_copy.out", 3, expand),
    whole("aten::permute_copy.out", 2, |call| permuted(call.tensor(0)?, &call.ints(1)?)),
    whole("aten::transpose_copy.int_out", 3, transpose),
    whole("aten::t_copy.out", 1, |call| match call.tensor(0)?.rank() {
        2 => permuted(call.tensor(0)?, &[1, 0]),
        0 | 1 => same(call),
        rank => invalid(format!("only matrices are transposed, not rank {rank}")),
    }),
    whole("aten::slice_copy.Tensor_out", 5, slice),
    whole("aten::narrow_copy.out", 4, narrow),
    whole("aten::select_copy.int_out", 3, select),
    whole("aten::as_strided_copy.out", 4, as_strided),
    whole("aten::diagonal_copy.out", 4, diagonal),
    whole("aten::unfold_copy.out", 4, unfold),
    whole("aten::flip.out", 2, flip),
    whole("aten::roll.out", 3, roll),
];

/// The tensor itself; whoever writes it converts it to the declared dtype.
pub(super) fn same(call: &Call<'_>) -> Results {
    one(Ok(call.tensor(0)?.clone()))
}

/// `src` in the shape of `self`.
fn copy(call: &Call<'_>) -> Results {
    let (to, from) = (call.tensor(0)?, call.tensor(1)?);
    one(Ok(lanes::cast(&spread(from, to.shape())?, to.dtype())?))
}

fn spread(x: &HostTensor, shape: &[usize]) -> Result<HostTensor, PortableError> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    let fits = x.rank() <= shape.len()
        && x.shape().iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
    if !fits {
        return invalid(format!("{:?} does not broadcast to {shape:?}", x.shape()));
    }
    Ok(pick_elements(x, shape.to_vec(), Walk::broadcast(x.shape(), shape))?)
}

/// Sizes of which one may be -1.
fn resolve(sizes: &[i64], count: usize) -> Result<Vec<usize>, PortableError> {
    let known: usize = sizes
        .iter()
        .filter(|&&size| size != -1)
        .try_fold(1usize, |product, &size| product.checked_mul(as_size(size).ok()?))
        .ok_or_else(|| PortableError::Invalid(format!("{sizes:?} is not a shape")))?;
    let open = sizes.iter().filter(|&&size| size == -1).count();
    let fits = match open {
        0 => known == count,
        1 => known != 0 && count.is_multiple_of(known),
        _ => false,
    };
    if !fits {
        return invalid(format!("{count} elements do not fill {sizes:?}"));
    }
    sizes.iter().map(|&size| if size == -1 { Ok(count / known) } else { as_size(size) }).collect()
}

fn view(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let shape = resolve(&call.ints(1)?, x.len())?;
    one(x.clone().reshaped(shape))
}

fn squeeze(call: &Call<'_>, dims: Option<Vec<i64>>) -> Results {
    let x = call.tensor(0)?;
    let mut drop = vec![dims.is_none(); x.rank()];
    for dim in dims.unwrap_or_default() {
        let at = axis(dim, x.rank())?;
        if let Some(slot) = drop.get_mut(at) {
            *slot = true;
        }
    }
    let kept = x.shape().iter().zip(drop).filter(|&(&dim, drop)| !(drop && dim == 1));
    let shape = kept.map(|(&dim, _)| dim).collect();
    one(x.clone().reshaped(shape))
}

fn unsqueeze(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let mut shape = x.shape().to_vec();
    shape.insert(axis(call.int(1)?, x.rank() + 1)?, 1);
    one(x.clone().reshaped(shape))
}

fn expand(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let sizes = call.ints(1)?;
    let lead = sizes.len().saturating_sub(x.rank());
    let kept = |index: usize| index.checked_sub(lead).and_then(|at| x.shape().get(at));
    let sizes = sizes.iter().enumerate().map(|(index, &size)| match (size, kept(index)) {
        (-1, Some(&dim)) => Ok(dim),
        _ => as_size(size),
    });
    let shape = sizes.collect::<Result<Vec<_>, _>>()?;
    call.admit(&shape)?;
    one(Ok(spread(x, &shape)?))
}

pub(super) fn permuted(x: &HostTensor, dims: &[i64]) -> Results {
    let order = dims.iter().map(|&dim| axis(dim, x.rank())).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..x.rank()) {
        return invalid(format!("{dims:?} does not permute {} axes", x.rank()));
    }
    let strides = row_major(x.shape());
    let shape: Vec<usize> = order.iter().map(|&axis| x.shape()[axis]).collect();
    let strides: Vec<isize> = order.iter().map(|&axis| strides[axis]).collect();
    one(pick_elements(x, shape.clone(), Walk::new(&shape, &strides, 0)))
}

fn transpose(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    if x.rank() == 0 {
        return same(call);
    }
    let (a, b) = (axis(call.int(1)?, x.rank())?, axis(call.int(2)?, x.rank())?);
    let mut dims: Vec<i64> = (0..x.rank() as i64).collect();
    dims.swap(a, b);
    permuted(x, &dims)
}

/// Start and length of a Python slice with a positive step.
pub(super) fn slice_range(
    size: usize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<(usize, usize), PortableError> {
    if step < 1 {
        return invalid(format!("a slice cannot have a step of {step}"));
    }
    let clamp = |value: i64| {
        let value = if value < 0 { value.saturating_add(size as i64) } else { value };
        value.clamp(0, size as i64)
    };
    let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(i64::MAX)));
    let length = if end > start { (end - start - 1) / step + 1 } else { 0 };
    Ok((start as usize, length as usize))
}

/// Elements `start`, `start + step`, ... of one axis.
pub(super) fn strided_along(x: &HostTensor, at: usize, start: usize, step: usize, length: usize) -> Results {
    let mut shape = x.shape().to_vec();
    let mut strides = row_major(&shape);
    if shape.is_empty() {
        return invalid("a tensor of rank 0 has no axis to cut");
    }
    shape[at] = length;
    let offset = start as isize * strides[at];
    strides[at] = strides[at].saturating_mul(step as isize);
    one(pick_elements(x, shape.clone(), Walk::new(&shape, &strides, offset)))
}

fn slice(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(1)?, x.rank())?;
    let step = call.maybe_int(4)?.unwrap_or(1);
    let size = x.shape().get(at).copied().unwrap_or(1);
    let (start, length) = slice_range(size, call.maybe_int(2)?, call.maybe_int(3)?, step)?;
    strided_along(x, at, start, step as usize, length)
}

fn narrow(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(1)?, x.rank())?;
    let size = x.shape().get(at).copied().unwrap_or(1);
    let start = call.int(2)?;
    let start = if start < 0 { start.saturating_add(size as i64) } else { start };
    let (start, length) = (as_size(start)?, as_size(call.int(3)?)?);
    if start.checked_add(length).is_none_or(|end| end > size) {
        return invalid(format!("{length} elements from {start} on are not inside an axis of size {size}"));
    }
    strided_along(x, at, start, 1, length)
}

/// An index into an axis, counted from the end when negative.
pub(super) fn wrap_index(index: i64, size: usize) -> Result<usize, PortableError> {
    let wrapped = if index < 0 { index.saturating_add(size as i64) } else { index };
    match usize::try_from(wrapped) {
        Ok(at) if at < size => Ok(at),
        _ => Err(PortableError::Index { index, size }),
    }
}

fn select(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(1)?, x.rank())?;
    if x.rank() == 0 {
        return invalid("a tensor of rank 0 has no axis to select from");
    }
    let index = wrap_index(call.int(2)?, x.shape()[at])?;
    let (mut shape, mut strides) = (x.shape().to_vec(), row_major(x.shape()));
    let offset = index as isize * strides[at];
    shape.remove(at);
    strides.remove(at);
    one(pick_elements(x, shape.clone(), Walk::new(&shape, &strides, offset)))
}

/// A view by strides, if all of it lies inside the tensor.
fn strided(call: &Call<'_>, shape: Vec<usize>, strides: Vec<isize>, offset: isize) -> Results {
    let x = call.tensor(0)?;
    call.admit(&shape)?;
    if element_count(&shape) != Some(0) {
        let reach = |forward: bool| {
            shape.iter().zip(&strides).try_fold(offset, |at, (&dim, &stride)| match (stride > 0) == forward {
                true => at.checked_add(stride.checked_mul(isize::try_from(dim).ok()? - 1)?),
                false => Some(at),
            })
        };
        let inside = |at: Option<isize>| at.is_some_and(|at| at >= 0 && (at as usize) < x.len());
        if !inside(reach(true)) || !inside(reach(false)) {
            return invalid(format!("strides {strides:?} leave a tensor of {} elements", x.len()));
        }
    }
    one(pick_elements(x, shape.clone(), Walk::new(&shape, &strides, offset)))
}

fn as_strided(call: &Call<'_>) -> Results {
    let shape = call.sizes(1)?;
    let strides: Vec<isize> = call.ints(2)?.into_iter().map(|stride| stride as isize).collect();
    if shape.len() != strides.len() {
        return invalid(format!("{} strides for {} sizes", strides.len(), shape.len()));
    }
    strided(call, shape, strides, call.maybe_int(3)?.unwrap_or(0) as isize)
}

fn diagonal(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let (a, b) = (axis(call.int(2)?, x.rank())?, axis(call.int(3)?, x.rank())?);
    if a == b || x.rank() < 2 {
        return invalid("a diagonal needs two different axes");
    }
    let offset = call.int(1)?;
    let (rows, columns) = (x.shape()[a] as i64, x.shape()[b] as i64);
    let length = if offset >= 0 {
        rows.min(columns.saturating_sub(offset))
    } else {
        rows.saturating_add(offset).min(columns)
    };
    let length = length.max(0) as usize;
    let all = row_major(x.shape());
    let start = if length == 0 {
        0
    } else if offset >= 0 {
        offset as isize * all[b]
    } else {
        -offset as isize * all[a]
    };
    let kept = (0..x.rank()).filter(|&axis| axis != a && axis != b);
    let (mut shape, mut strides): (Vec<usize>, Vec<isize>) =
        kept.map(|axis| (x.shape()[axis], all[axis])).unzip();
    shape.push(length);
    strides.push(all[a] + all[b]);
    strided(call, shape, strides, start)
}

fn unfold(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(1)?, x.rank())?;
    let (size, step) = (as_size(call.int(2)?)?, as_size(call.int(3)?)?);
    let length = x.shape().get(at).copied().unwrap_or(1);
    if x.rank() == 0 || step == 0 || size > length {
        return invalid(format!("windows of {size} by {step} do not fit an axis of size {length}"));
    }
    let (mut shape, mut strides) = (x.shape().to_vec(), row_major(x.shape()));
    shape[at] = (length - size) / step + 1;
    shape.push(size);
    strides.push(strides[at]);
    strides[at] = strides[at].saturating_mul(step as isize);
    strided(call, shape, strides, 0)
}

fn flip(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let (shape, mut strides) = (x.shape().to_vec(), row_major(x.shape()));
    let mut offset = 0;
    for dim in call.ints(1)? {
        let at = axis(dim, x.rank())?;
        if at < x.rank() && shape[at] > 0 && strides[at] > 0 {
            offset += strides[at] * (shape[at] as isize - 1);
            strides[at] = -strides[at];
        }
    }
    one(pick_elements(x, shape.clone(), Walk::new(&shape, &strides, offset)))
}

fn roll(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let (shifts, dims) = (call.ints(1)?, call.ints(2)?);
    // Without axes the flattened tensor is rolled.
    let mut rolled = if dims.is_empty() { x.clone().reshaped(vec![x.len()])? } else { x.clone() };
    let dims = if dims.is_empty() { vec![0] } else { dims };
    if shifts.len() != dims.len() {
        return invalid(format!("{} shifts for {} axes", shifts.len(), dims.len()));
    }
    for (shift, dim) in shifts.into_iter().zip(dims) {
        let at = axis(dim, rolled.rank())?;
        let (outer, size, inner) = around(&rolled, at);
        if size == 0 {
            continue;
        }
        let back = size - shift.rem_euclid(size as i64) as usize;
        let places = (0..outer).flat_map(move |block| {
            (0..size).flat_map(move |index| {
                (0..inner).map(move |lane| (block * size + (index + back) % size) * inner + lane)
            })
        });
        rolled = pick_elements(&rolled, rolled.shape().to_vec(), places)?;
    }
    one(rolled.reshaped(x.shape().to_vec()))
}
