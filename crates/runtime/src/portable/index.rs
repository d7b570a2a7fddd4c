//! Operators that pick or place elements by index tensors and masks. Indices may be negative once around; any
//! other one outside is an error.

use super::call::as_size;
use super::lanes::{self, Lanes, pick_elements};
use super::shape::{slice_range, wrap_index};
use super::walk::{Walk, around, axis, broadcast_shape, row_major};
use super::{Call, Kernel, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::reference::interpret::extent;
use pteron_tensor::{DType, HostTensor, TensorError};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::gather.out", 4, gather),
    whole("aten::scatter.src_out", 4, |call| scatter(call, call.tensor(3)?.clone(), Place::Replace)),
    whole("aten::scatter.value_out", 4, scatter_value),
    whole("aten::scatter_add.out", 4, |call| scatter(call, call.tensor(3)?.clone(), Place::Add)),
    whole("aten::index.Tensor_out", 2, index),
    whole("aten::index_put.out", 4, index_put),
    whole("aten::_index_put_impl.out", 5, index_put),
    Operator { name: "aten::index_put_", inputs: 4, outs: Outs::First, kernel: Kernel::Whole(index_put) },
    whole("aten::index_select.out", 3, rows),
    whole("aten::index_copy.out", 4, |call| place_rows(call, Place::Replace, 1.0)),
    whole("aten::index_add.out", 5, |call| place_rows(call, Place::Add, call.float(4)?)),
    whole("aten::index_fill.int_Scalar_out", 4, index_fill),
    whole("aten::take.out", 2, take),
    whole("aten::embedding.out", 5, embedding),
    whole("aten::masked_select.out", 2, masked_select),
    whole("aten::masked_scatter.out", 3, masked_scatter),
    whole("aten::nonzero.out", 1, nonzero),
    whole("aten::select_scatter.out", 4, select_scatter),
    whole("aten::slice_scatter.out", 6, slice_scatter),
    whole("aten::repeat_interleave.Tensor_out", 2, repeat_interleave),
];

/// What happens to the element that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Replace,
    Add,
}

fn indices(tensor: &HostTensor) -> Result<Vec<i64>, PortableError> {
    if tensor.dtype().is_int() {
        Ok(lanes::ints(tensor))
    } else {
        invalid(format!("{} cannot index", tensor.dtype()))
    }
}

/// `x` with elements of `from` placed at element numbers, in order: of equal ones the last wins.
fn placed(
    x: &HostTensor,
    from: &HostTensor,
    places: impl Iterator<Item = (usize, usize)>,
    how: Place,
) -> Result<HostTensor, TensorError> {
    let from = lanes::cast(from, x.dtype())?;
    if how == Place::Replace {
        let mut out = x.clone();
        let size = x.dtype().size();
        let source = from.bytes().clone();
        let target = out.bytes_mut();
        for (to, at) in places {
            target[to * size..][..size].copy_from_slice(&source[at * size..][..size]);
        }
        return Ok(out);
    }
    let sum = match (lanes::lanes(x), lanes::lanes(&from)) {
        (Lanes::Int(mut x), Lanes::Int(from)) => {
            places.for_each(|(to, at)| x[to] = x[to].wrapping_add(from[at]));
            Lanes::Int(x)
        }
        (x, from) => {
            let (mut x, from) = (x.into_floats(), from.into_floats());
            places.for_each(|(to, at)| x[to] += from[at]);
            Lanes::Float(x)
        }
    };
    lanes::from_lanes(x.dtype(), x.shape().to_vec(), sum)
}

/// For every element of an index tensor, the number of the element of `x` that it names along `at`.
fn along(x: &HostTensor, at: usize, index: &HostTensor) -> Result<Vec<usize>, PortableError> {
    let values = indices(index)?;
    if x.rank() == 0 || index.rank() == 0 {
        let size = x.len();
        return values.into_iter().map(|value| wrap_index(value, size)).collect();
    }
    let fits = index.rank() == x.rank()
        && index.shape().iter().zip(x.shape()).enumerate().all(|(axis, (&i, &x))| axis == at || i <= x);
    if !fits {
        return invalid(format!("an index of shape {:?} for {:?}", index.shape(), x.shape()));
    }
    let mut strides = row_major(x.shape());
    let step = strides[at] as usize;
    // The named axis counts by the index's value instead of its place.
    strides[at] = 0;
    let base = Walk::new(index.shape(), &strides, 0);
    base.zip(values).map(|(base, value)| Ok(base + wrap_index(value, x.shape()[at])? * step)).collect()
}

fn gather(call: &Call<'_>) -> Results {
    let (x, index) = (call.tensor(0)?, call.tensor(2)?);
    let places = along(x, axis(call.int(1)?, x.rank())?, index)?;
    call.admit(index.shape())?;
    one(pick_elements(x, index.shape().to_vec(), places.into_iter()))
}

fn scatter_value(call: &Call<'_>) -> Results {
    let (x, index) = (call.tensor(0)?, call.tensor(2)?);
    scatter(call, lanes::filled(x.dtype(), index.shape().to_vec(), call.scalar(3)?)?, Place::Replace)
}

fn scatter(call: &Call<'_>, source: HostTensor, how: Place) -> Results {
    let (x, index) = (call.tensor(0)?, call.tensor(2)?);
    let places = along(x, axis(call.int(1)?, x.rank())?, index)?;
    let fits = source.rank() == index.rank() && index.shape().iter().zip(source.shape()).all(|(i, s)| i <= s);
    if !fits {
        return invalid(format!("a source of shape {:?} for indices {:?}", source.shape(), index.shape()));
    }
    let from = Walk::new(index.shape(), &row_major(source.shape()), 0);
    one(placed(x, &source, places.into_iter().zip(from), how))
}

/// Where `x[indices]` reads: the result's shape, and the element number of each of its elements.
fn indexed(
    call: &Call<'_>,
    x: &HostTensor,
    given: &[Option<&HostTensor>],
) -> Result<(Vec<usize>, Vec<usize>), PortableError> {
    // A mask stands for the indices of its true elements, one list for each of its axes.
    let mut by_axis: Vec<Option<HostTensor>> = Vec::new();
    for index in given {
        match index {
            Some(mask) if matches!(mask.dtype(), DType::Bool | DType::U8) => {
                let at = by_axis.len();
                if x.shape().get(at..at + mask.rank()) != Some(mask.shape()) {
                    return invalid(format!("a mask of shape {:?} for {:?}", mask.shape(), x.shape()));
                }
                by_axis.extend(true_places(mask)?.into_iter().map(Some));
            }
            other => by_axis.push(other.cloned()),
        }
    }
    if by_axis.len() > x.rank() {
        return invalid(format!("{} indices for rank {}", by_axis.len(), x.rank()));
    }
    by_axis.resize(x.rank(), None);
    let mut shape: Vec<usize> = Vec::new();
    for index in by_axis.iter().flatten() {
        shape = broadcast_shape(&shape, index.shape())?;
    }
    bound(call, &shape)?;
    let strides = row_major(x.shape());
    let mut offsets = vec![0usize; pteron_tensor::element_count(&shape).unwrap_or(0)];
    for (at, index) in by_axis.iter().enumerate() {
        let Some(index) = index else { continue };
        let values = indices(index)?;
        for (offset, place) in offsets.iter_mut().zip(Walk::broadcast(index.shape(), &shape)) {
            *offset += wrap_index(values[place], x.shape()[at])? * strides[at] as usize;
        }
    }
    // Indexed axes that stand side by side are replaced where they stand, else they come first.
    let used: Vec<usize> = (0..x.rank()).filter(|&at| by_axis[at].is_some()).collect();
    let adjacent = used.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let lead = match used.first() {
        Some(&first) if adjacent => first,
        _ => 0,
    };
    let free: Vec<usize> = (0..x.rank()).filter(|&at| by_axis[at].is_none()).collect();
    let (before, after) = free.split_at(free.iter().take_while(|&&at| at < lead).count());
    let part = |axes: &[usize]| -> (Vec<usize>, Vec<isize>) {
        axes.iter().map(|&at| (x.shape()[at], strides[at])).unzip()
    };
    let ((outer, outer_strides), (inner, inner_strides)) = (part(before), part(after));
    let full = [outer.as_slice(), &shape, &inner].concat();
    bound(call, &full)?;
    let inner_places: Vec<usize> = Walk::new(&inner, &inner_strides, 0).collect();
    let places = Walk::new(&outer, &outer_strides, 0).flat_map(|outer| {
        let inner_places = &inner_places;
        offsets.iter().flat_map(move |offset| inner_places.iter().map(move |inner| outer + offset + inner))
    });
    Ok((full, places.collect()))
}

/// Refuses a list of places that is too long to make; it may be longer than what is written when places repeat.
fn bound(call: &Call<'_>, shape: &[usize]) -> Result<(), PortableError> {
    const MOST_PLACES: u64 = 1 << 28;
    call.charge(shape)?;
    match extent(shape) {
        places if places <= MOST_PLACES => Ok(()),
        places => invalid(format!("{places} places are indexed")),
    }
}

fn index(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let (shape, places) = indexed(call, x, &call.maybe_tensors(1)?)?;
    one(pick_elements(x, shape, places.into_iter()))
}

fn index_put(call: &Call<'_>) -> Results {
    let (x, values) = (call.tensor(0)?, call.tensor(2)?);
    let (shape, places) = indexed(call, x, &call.maybe_tensors(1)?)?;
    if broadcast_shape(values.shape(), &shape)? != shape {
        return invalid(format!("values of shape {:?} for {shape:?} places", values.shape()));
    }
    let how = if call.bool(3)? { Place::Add } else { Place::Replace };
    one(placed(x, values, places.into_iter().zip(Walk::broadcast(values.shape(), &shape)), how))
}

/// Slices of one axis by a list of indices.
fn rows(call: &Call<'_>) -> Results {
    let (x, index) = (call.tensor(0)?, call.tensor(2)?);
    let at = axis(call.int(1)?, x.rank())?;
    let (outer, size, inner) = around(x, at);
    let picked = indices(index)?.into_iter().map(|value| wrap_index(value, size));
    let picked = picked.collect::<Result<Vec<_>, _>>()?;
    let mut shape = x.shape().to_vec();
    if let Some(dim) = shape.get_mut(at) {
        *dim = picked.len();
    }
    call.admit(&shape)?;
    let places = (0..outer).flat_map(|block| {
        let picked = &picked;
        picked.iter().flat_map(move |row| (0..inner).map(move |lane| (block * size + row) * inner + lane))
    });
    one(pick_elements(x, shape, places))
}

/// Rows of `source` placed along one axis by a list of indices.
fn place_rows(call: &Call<'_>, how: Place, factor: f64) -> Results {
    let (x, index, source) = (call.tensor(0)?, call.tensor(2)?, call.tensor(3)?);
    let at = axis(call.int(1)?, x.rank())?;
    let (outer, size, inner) = around(x, at);
    let picked = indices(index)?.into_iter().map(|value| wrap_index(value, size));
    let picked = picked.collect::<Result<Vec<_>, _>>()?;
    if source.len() != outer * picked.len() * inner {
        return invalid(format!(
            "{:?} does not fill {} rows of {:?}",
            source.shape(),
            picked.len(),
            x.shape()
        ));
    }
    let source = match factor == 1.0 {
        true => source.clone(),
        false => {
            let scaled = lanes::floats(source).into_iter().map(|value| value * factor);
            lanes::from_floats(source.dtype(), source.shape().to_vec(), scaled)?
        }
    };
    let places = (0..outer).flat_map(|block| {
        let picked = &picked;
        picked.iter().flat_map(move |row| (0..inner).map(move |lane| (block * size + row) * inner + lane))
    });
    one(placed(x, &source, places.zip(0..), how))
}

fn index_fill(call: &Call<'_>) -> Results {
    let (x, index) = (call.tensor(0)?, call.tensor(2)?);
    let at = axis(call.int(1)?, x.rank())?;
    let mut shape = x.shape().to_vec();
    if let Some(dim) = shape.get_mut(at) {
        *dim = index.len();
    }
    call.admit(&shape)?;
    let source = lanes::filled(x.dtype(), shape, call.scalar(3)?)?;
    let args = [call.args[0].clone(), call.args[1].clone(), call.args[2].clone(), source.into()];
    place_rows(&Call { args: &args, ..*call }, Place::Replace, 1.0)
}

fn take(call: &Call<'_>) -> Results {
    let (x, index) = (call.tensor(0)?, call.tensor(1)?);
    let places = indices(index)?.into_iter().map(|value| wrap_index(value, x.len()));
    one(pick_elements(x, index.shape().to_vec(), places.collect::<Result<Vec<_>, _>>()?.into_iter()))
}

fn embedding(call: &Call<'_>) -> Results {
    let (weight, index) = (call.tensor(0)?, call.tensor(1)?);
    let &[count, width] = weight.shape() else { return invalid("embeddings are a matrix") };
    let picked = indices(index)?.into_iter().map(|value| match usize::try_from(value) {
        Ok(row) if row < count => Ok(row),
        _ => Err(PortableError::Index { index: value, size: count }),
    });
    let picked = picked.collect::<Result<Vec<_>, _>>()?;
    let shape = [index.shape(), &[width]].concat();
    call.admit(&shape)?;
    one(pick_elements(
        weight,
        shape,
        picked.into_iter().flat_map(|row| (0..width).map(move |lane| row * width + lane)),
    ))
}

/// One index tensor for each axis, naming the elements that are not zero.
fn true_places(mask: &HostTensor) -> Result<Vec<HostTensor>, PortableError> {
    let found: Vec<usize> = (0..).zip(lanes::truths(mask)).filter(|pair| pair.1).map(|pair| pair.0).collect();
    let strides = row_major(mask.shape());
    let axes = mask.shape().iter().zip(strides).map(|(&dim, stride)| {
        let coordinate = |&place: &usize| (place / stride as usize % dim) as i64;
        lanes::from_ints(DType::I64, vec![found.len()], found.iter().map(coordinate))
    });
    Ok(axes.collect::<Result<Vec<_>, _>>()?)
}

fn nonzero(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let axes = true_places(x)?;
    let count = lanes::truths(x).into_iter().filter(|&truth| truth).count();
    let columns: Vec<Vec<i64>> = axes.iter().map(lanes::ints).collect();
    let values = (0..count).flat_map(|row| columns.iter().map(move |column| column[row]));
    one(lanes::from_ints(DType::I64, vec![count, x.rank()], values.collect::<Vec<_>>()))
}

fn masked_select(call: &Call<'_>) -> Results {
    let (x, mask) = (call.tensor(0)?, call.tensor(1)?);
    let shape = broadcast_shape(x.shape(), mask.shape())?;
    call.charge(&shape)?;
    let truths = lanes::truths(mask);
    let places = Walk::broadcast(x.shape(), &shape).zip(Walk::broadcast(mask.shape(), &shape));
    let places: Vec<usize> = places.filter(|&(_, at)| truths[at]).map(|(place, _)| place).collect();
    one(pick_elements(x, vec![places.len()], places.into_iter()))
}

fn masked_scatter(call: &Call<'_>) -> Results {
    let (x, mask, source) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let shape = broadcast_shape(x.shape(), mask.shape())?;
    call.admit(&shape)?;
    let spread = pick_elements(x, shape.clone(), Walk::broadcast(x.shape(), &shape))?;
    let truths = lanes::truths(mask);
    let at = Walk::broadcast(mask.shape(), &shape);
    let places: Vec<usize> = (0..).zip(at).filter(|&(_, at)| truths[at]).map(|pair| pair.0).collect();
    if places.len() > source.len() {
        return invalid(format!("{} elements for {} places", source.len(), places.len()));
    }
    one(placed(&spread, source, places.into_iter().zip(0..), Place::Replace))
}

/// Element numbers of `start`, `start + step`, ... of one axis, in order.
fn strip(
    x: &HostTensor,
    at: usize,
    (start, step, length): (usize, usize, usize),
) -> impl Iterator<Item = usize> {
    let (outer, size, inner) = around(x, at);
    (0..outer).flat_map(move |block| {
        (0..length).flat_map(move |index| {
            (0..inner).map(move |lane| (block * size + start + index * step) * inner + lane)
        })
    })
}

fn select_scatter(call: &Call<'_>) -> Results {
    let (x, source) = (call.tensor(0)?, call.tensor(1)?);
    let at = axis(call.int(2)?, x.rank())?;
    let size = x.shape().get(at).copied().unwrap_or(1);
    let index = wrap_index(call.int(3)?, size)?;
    if source.len() * size != x.len() {
        return invalid(format!("{:?} is no slice of {:?}", source.shape(), x.shape()));
    }
    one(placed(x, source, strip(x, at, (index, 1, 1)).zip(0..), Place::Replace))
}

fn slice_scatter(call: &Call<'_>) -> Results {
    let (x, source) = (call.tensor(0)?, call.tensor(1)?);
    let at = axis(call.int(2)?, x.rank())?;
    let size = x.shape().get(at).copied().unwrap_or(1);
    let step = call.maybe_int(5)?.unwrap_or(1);
    let (start, length) = slice_range(size, call.maybe_int(3)?, call.maybe_int(4)?, step)?;
    let mut shape = x.shape().to_vec();
    if let Some(dim) = shape.get_mut(at) {
        *dim = length;
    }
    if broadcast_shape(source.shape(), &shape)? != shape {
        return invalid(format!("{:?} is no slice of {:?}: {shape:?} is", source.shape(), x.shape()));
    }
    let places = strip(x, at, (start, as_size(step)?, length)).zip(Walk::broadcast(source.shape(), &shape));
    one(placed(x, source, places, Place::Replace))
}

/// Index `i` as often as `repeats[i]` says.
fn repeat_interleave(call: &Call<'_>) -> Results {
    let repeats = indices(call.tensor(0)?)?;
    let total = repeats.iter().try_fold(0usize, |sum, &times| sum.checked_add(usize::try_from(times).ok()?));
    // What is written has its bound already; this only keeps the list from growing beyond it.
    let bound = call.outs.first().and_then(|out| pteron_tensor::element_count(&out.sizes));
    let Some(total) = total.filter(|&total| bound.is_none_or(|bound| total <= bound)) else {
        return invalid("repeats are negative or more than the result holds");
    };
    let values = (0..).zip(repeats).flat_map(|(index, times)| std::iter::repeat_n(index, times as usize));
    one(lanes::from_ints(call.out_dtype(), vec![total], values))
}
