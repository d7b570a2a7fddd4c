//! Products with quantised weights. A weight that is a constant is bound to its kernel once, when the first plan is made;
//! all plans of a program share it.

use super::index::is_index;
use super::lowering::{Compiled, Numbered, Planner};
use crate::constants::LinearKey;
use crate::fault::{invalid, out_of_range};
use crate::run::Run;
use pteron_ir::{Op, ValueId};
use pteron_kernels::copy::copy;
use pteron_kernels::index::for_each_position;
use pteron_kernels::quant::{
    Biases, Precision as Rounding, QuantLinear, QuantParts, QuantWeight, Rows, RowsMut,
};
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::{Layout, Storage};
use pteron_runtime::{NodeError, Precision};
use pteron_tensor::quant::{Mode, Scheme};
use pteron_tensor::{DType, HostTensor};
use std::sync::{Arc, PoisonError};

/// Weights smaller than this stay in the nearest cache, where rounding activations to 8 bits gains nothing.
const LEAST_ROUNDED_BYTES: usize = 32 << 10;

/// The parts of a quantised weight as a node names them.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) w: ValueId,
    pub(super) scales: ValueId,
    pub(super) biases: Option<ValueId>,
    pub(super) group_size: i32,
    pub(super) bits: i32,
    pub(super) mode: &'a str,
}

impl Fields<'_> {
    /// How codes and scales lie; `None` where there is no such scheme.
    fn scheme(&self) -> Option<Scheme> {
        Scheme::new(Mode::from_name(self.mode).ok()?, self.bits, self.group_size).ok()
    }
}

/// A constant operand.
fn constant<'p>(planner: &'p Planner<'_>, value: ValueId) -> Option<&'p HostTensor> {
    match planner.storage[value.0 as usize] {
        Storage::Constant(index) => planner.lower.prepared.constants.get(index),
        _ => None,
    }
}

/// The weight of a node whose parts are all constants; rows are outputs.
fn weight(planner: &Planner<'_>, fields: Fields<'_>) -> Option<QuantWeight> {
    let (w, scales) = (constant(planner, fields.w)?, constant(planner, fields.scales)?);
    let scheme = fields.scheme()?;
    let biases = match fields.biases {
        Some(biases) if are_centred(planner, biases, scales, scheme) => Biases::Centre,
        Some(biases) => {
            let biases = constant(planner, biases)?;
            Biases::Each(biases.bytes().clone(), biases.dtype())
        }
        None => Biases::None,
    };
    let (n, words) = match *w.shape() {
        [.., n, words] => (n, words),
        _ => return None,
    };
    let matrices = w.shape()[..w.rank() - 2].iter().product();
    let k = words.checked_mul(32)? / scheme.bits() as usize;
    QuantWeight::new(QuantParts {
        codes: w.bytes().clone(),
        scales: scales.bytes().clone(),
        scale_dtype: scales.dtype(),
        biases,
        scheme,
        matrices,
        n,
        k,
    })
    .ok()
}

/// Whether biases are known to be what they are where codes count from the middle, without a look at them.
fn are_centred(planner: &Planner<'_>, biases: ValueId, scales: &HostTensor, scheme: Scheme) -> bool {
    let Storage::Constant(index) = planner.storage[biases.0 as usize] else { return false };
    planner.lower.prepared.constants.multiple(index).is_some_and(|multiple| {
        let of = &multiple.of;
        let is_same = of.bytes().as_ptr() == scales.bytes().as_ptr() && of.shape() == scales.shape();
        is_same && scheme.mode() == Mode::Affine && multiple.factor == -((1u32 << (scheme.bits() - 1)) as f32)
    })
}

pub(super) fn matmul(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose } = &node.node.op
    else {
        return None;
    };
    let (&result, &x) = (node.node.results.first()?, x);
    let fields =
        Fields { w: *w, scales: *scales, biases: *biases, group_size: *group_size, bits: *bits, mode };
    if !transpose {
        return None;
    }
    let linear = bound(planner, fields, planner.dtype(x)?)?;
    let (n, k) = (linear.weight().n(), linear.weight().k());
    let rows = planner.most_elements(x)? / k.max(1);
    let (prepared, prepares) = prepared_input(planner, node, x, &linear, rows);
    // Rows that do not lie evenly are put together first.
    let dense = planner.reserve(node.number, planner.types.most_bytes(x)?);
    planner.lower.bound.insert(node.number);
    Some(Compiled::Compute(Box::new(move |run| {
        let rows = run.slot(result).layout.len() / n.max(1);
        if rows == 0 {
            return Ok(());
        }
        let mut prepared = run.lend(prepared)?;
        if prepares {
            let mut dense = run.lend(dense)?;
            let source = even_rows(run, x, k, &mut dense)?;
            let done = linear.prepare_input(run.pool, source, &mut prepared);
            done.map_err(|error| invalid(error.to_string()))?;
        }
        let out = rows_of(run, result, n)?;
        linear.run(run.pool, &prepared, out).map_err(|error| invalid(error.to_string()))
    })))
}

/// The weight of a node bound to its kernel, the same for all plans of a program.
pub(super) fn bound(planner: &Planner<'_>, fields: Fields<'_>, input: DType) -> Option<Arc<QuantLinear>> {
    let key = LinearKey { parts: (fields.w, fields.scales, fields.biases), scheme: fields.scheme()?, input };
    let mut linears = planner.lower.prepared.linears.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(linear) = linears.get(&key) {
        return Some(linear.clone());
    }
    let weight = weight(planner, fields).filter(|weight| weight.matrices() == 1)?;
    let rounding = match planner.lower.precision {
        Precision::Fast if weight.matrix_bytes() >= LEAST_ROUNDED_BYTES => Rounding::Fast,
        _ => Rounding::Exact,
    };
    let linear = Arc::new(QuantLinear::new(weight, input, planner.lower.path, rounding).ok()?);
    linears.insert(key, linear.clone());
    Some(linear)
}

/// Room for the activations of a product in the form that its kernel wants, and whether this node fills it. Projections
/// that share an input (queries, keys and values; gate and up) share that form: the first one makes it.
pub(super) fn prepared_input(
    planner: &mut Planner<'_>,
    node: &Numbered,
    x: ValueId,
    linear: &QuantLinear,
    rows: usize,
) -> (usize, bool) {
    let layout = linear.input_layout();
    // What is made in a branch may not be there for others.
    if planner.depth > 0 {
        return (planner.reserve(node.number, linear.input_bytes(rows)), true);
    }
    let known = planner.lower.inputs.iter().find(|(value, of, _)| *value == x && *of == layout);
    if let Some(&(_, _, scratch)) = known {
        planner.reuse(node.number, scratch);
        return (scratch, false);
    }
    let last = planner.lifetimes.life(x).to;
    let scratch = planner.reserve_until(node.number, last, linear.input_bytes(rows));
    planner.lower.inputs.push((x, layout, scratch));
    (scratch, true)
}

/// The numbers of a whole weight.
pub(super) fn dequantize(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::Dequantize { w, scales, biases, group_size, bits, mode, global_scale: None, .. } = &node.node.op
    else {
        return None;
    };
    let &result = node.node.results.first()?;
    let fields =
        Fields { w: *w, scales: *scales, biases: *biases, group_size: *group_size, bits: *bits, mode };
    if !is_narrow_float(planner, result) {
        return None;
    }
    let weight = weight(planner, fields)?;
    let columns = weight.k();
    Some(Compiled::Compute(Box::new(move |run| {
        let out = rows_of(run, result, columns)?;
        weight.dequantise(run.pool, 1.0, out).map_err(|error| invalid(error.to_string()))
    })))
}

/// The numbers of the rows that an index tensor picks.
pub(super) fn embedding(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::PackedEmbedding { w, scales, biases, indices, group_size, bits, mode, .. } = &node.node.op else {
        return None;
    };
    let (&result, &indices) = (node.node.results.first()?, indices);
    let fields =
        Fields { w: *w, scales: *scales, biases: *biases, group_size: *group_size, bits: *bits, mode };
    if !is_index(planner, indices) || !is_narrow_float(planner, result) {
        return None;
    }
    let weight = weight(planner, fields).filter(|weight| weight.matrices() == 1)?;
    let (columns, count) = (weight.k(), weight.n());
    let numbers = planner.most_elements(indices)?.checked_mul(size_of::<usize>())?;
    let numbers = planner.reserve(node.number, numbers);
    planner.lower.bound.insert(node.number);
    Some(Compiled::Compute(Box::new(move |run| {
        let mut numbers = run.lend(numbers)?;
        let rows = row_numbers(&run.view(indices)?, count, bytemuck::cast_slice_mut(&mut numbers))?;
        let out = rows_of(run, result, columns)?;
        weight.gather(run.pool, rows, out).map_err(|error| invalid(error.to_string()))
    })))
}

/// Whether a value holds floats that kernels write.
fn is_narrow_float(planner: &Planner<'_>, value: ValueId) -> bool {
    planner.dtype(value).is_some_and(|dtype| dtype.is_float() && dtype.size() <= 4)
}

/// The rows that indices name, counted from the end where they are negative, in memory that has room for all of them.
fn row_numbers<'r>(
    indices: &View<'_>,
    count: usize,
    room: &'r mut [usize],
) -> Result<&'r [usize], NodeError> {
    let rows = room.get_mut(..indices.len()).ok_or_else(|| invalid("more indices than planned"))?;
    let mut places = rows.iter_mut();
    for_each_position(indices, count, |row| {
        if let Some(place) = places.next() {
            *place = row;
        }
    })
    .map_err(|error| out_of_range(&error))?;
    Ok(rows)
}

/// A result as rows to write.
pub(super) fn rows_of<'r>(
    run: &'r Run<'_>,
    result: ValueId,
    columns: usize,
) -> Result<RowsMut<'r>, NodeError> {
    let target = run.target(result)?;
    let bytes = target.len() * target.dtype().size();
    // SAFETY: the result is row-major in storage of its own.
    let out = unsafe { std::slice::from_raw_parts_mut(target.data(), bytes) };
    let rows = target.len() / columns.max(1);
    RowsMut::dense(out, target.dtype(), rows, columns).map_err(|error| invalid(error.to_string()))
}

/// All rows of a tensor: where they lie if they lie evenly, else copied to `dense`.
pub(super) fn even_rows<'r>(
    run: &'r Run<'_>,
    x: ValueId,
    columns: usize,
    dense: &'r mut [u8],
) -> Result<Rows<'r>, NodeError> {
    let view = run.view(x)?;
    let rows = view.len() / columns.max(1);
    if rows == 0 {
        return Rows::dense(&[], view.dtype(), 0, columns).map_err(|error| invalid(error.to_string()));
    }
    let even = run.slot(x).layout.reshape(&[rows, columns]).filter(|layout| {
        let strides = layout.strides();
        (strides[1] == 1 || columns == 1) && (rows == 1 || strides[0] >= columns as isize)
    });
    let made = match even {
        Some(layout) => {
            let stride = if rows == 1 { columns } else { layout.strides()[0] as usize };
            // SAFETY: the rows of a view of this run; what lies between them may be another value's.
            unsafe { Rows::from_raw(view.data(), view.dtype(), rows, columns, stride) }
        }
        None => {
            let flat = Layout::row_major(view.sizes()).ok_or_else(|| invalid("too many axes"))?;
            // SAFETY: the scratch was sized for all elements.
            let mut target =
                unsafe { ViewMut::from_raw(dense.as_mut_ptr(), view.dtype(), flat.sizes(), flat.strides()) };
            copy(run.pool, &mut target, &view);
            Rows::dense(dense, view.dtype(), rows, columns)
        }
    };
    made.map_err(|error| invalid(error.to_string()))
}
