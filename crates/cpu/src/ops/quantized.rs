//! Products with quantised weights. A weight that is a constant is bound to its kernel once, when the first plan is made;
//! all plans of a program share it.

use super::index::is_index;
use super::lowering::{Compiled, Numbered, Planner, constant};
use crate::constants::{Bound, LinearKey};
use crate::fault::{invalid, out_of_range};
use crate::joint::Joint;
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
use std::marker::PhantomData;
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

/// A product with a weight that is bound to its kernel.
struct Matmul {
    x: ValueId,
    result: ValueId,
    linear: Bound,
    /// Where activations lie in the form that the kernel wants, and whether this node brings them into it.
    prepared: usize,
    prepares: bool,
    /// Room for rows that do not lie evenly.
    dense: usize,
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
    let linear = bound(planner, fields, planner.dtype(x)?).filter(is_one_matrix)?;
    let rows = planner.most_elements(x)? / linear.alone.weight().k().max(1);
    let (prepared, prepares) = prepared_input(planner, node, x, &linear.alone, rows);
    let dense = planner.reserve(node.number, planner.types.most_bytes(x)?);
    planner.lower.bound.insert(node.number);
    let matmul = Arc::new(Matmul { x, result, linear, prepared, prepares, dense });
    let joint = matmul.clone();
    Some(Compiled::Joint(
        Box::new(move |run| matmul.alone(run, matmul.prepares)),
        Box::new(move |lanes| joint.together(lanes)),
    ))
}

impl Matmul {
    fn alone(&self, run: &Run<'_>, prepares: bool) -> Result<(), NodeError> {
        let linear = &self.linear.alone;
        let weight = linear.weight();
        if run.slot(self.result).layout.is_empty() {
            return Ok(());
        }
        let mut prepared = run.lend(self.prepared)?;
        if prepares {
            let mut dense = run.lend(self.dense)?;
            let source = even_rows(run, self.x, weight.k(), &mut dense)?.rows()?;
            let done = linear.prepare_input(run.pool, source, &mut prepared);
            done.map_err(|error| invalid(error.to_string()))?;
        }
        let out = rows_of(run, self.result, weight.n())?;
        linear.run(run.pool, &prepared, out).map_err(|error| invalid(error.to_string()))
    }

    fn together(&self, lanes: &mut Joint<'_, '_>) -> Result<(), NodeError> {
        let linear = &self.linear.together;
        let (n, k) = (linear.weight().n(), linear.weight().k());
        let rows = |run: &Run<'_>| run.slot(self.result).layout.len() / n.max(1);
        let most = most_rows(lanes, rows, [&self.linear]);
        lanes.by_rows(most, rows, |part, batch| {
            if let Some(run) = part.only() {
                return self.alone(run, true);
            }
            let (pool, bytes) = (part.first().pool, linear.input_bytes(part.rows));
            let (sources, targets, mut pieces) = batch.begin([bytes]);
            for run in part.runs() {
                list_sources(run, self.x, k, self.dense, sources)?;
                list_targets(run, self.result, n, targets)?;
            }
            let prepared = pieces.next(bytes);
            // SAFETY: rows of the lanes' own values, which nobody writes while the step runs.
            let from = unsafe { Rows::listed(sources, part.first().dtype(self.x)?, k) };
            // SAFETY: rows of the lanes' own results, which only this step touches.
            let to = unsafe { RowsMut::listed(targets, part.first().dtype(self.result)?, n) };
            let done = from.and_then(|from| linear.prepare_input(pool, from, prepared));
            done.and_then(|()| linear.run(pool, prepared, to?)).map_err(|error| invalid(error.to_string()))
        })
    }
}

/// The most rows of several lanes that products take together. Where lanes may not change each other's numbers, rows that a
/// run alone would give to matrix tiles or panels stay alone: the kernels that are left for all of them give others.
pub(super) fn most_rows<'b>(
    lanes: &Joint<'_, '_>,
    rows: impl Fn(&Run<'_>) -> usize,
    linears: impl IntoIterator<Item = &'b Bound> + Clone,
) -> usize {
    let same = |bound: &Bound, rows| !bound.together.is_invariant() || bound.alone.is_invariant_for(rows);
    let joins = lanes.runs().all(|run| linears.clone().into_iter().all(|bound| same(bound, rows(run))));
    if joins { usize::MAX } else { 1 }
}

/// Whether a weight is one matrix, and not those of several experts.
pub(super) fn is_one_matrix(bound: &Bound) -> bool {
    bound.alone.weight().matrices() == 1
}

/// The weight of a node bound to its kernel, the same for all plans of a program.
pub(super) fn bound(planner: &Planner<'_>, fields: Fields<'_>, input: DType) -> Option<Bound> {
    let key = LinearKey { parts: (fields.w, fields.scales, fields.biases), scheme: fields.scheme()?, input };
    let mut linears = planner.lower.prepared.linears.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bound) = linears.get(&key) {
        return Some(bound.clone());
    }
    let weight = weight(planner, fields)?;
    let rounding = match planner.lower.precision {
        Precision::Fast if weight.matrix_bytes() >= LEAST_ROUNDED_BYTES => Rounding::Fast,
        _ => Rounding::Exact,
    };
    let alone = QuantLinear::new(weight, input, planner.lower.path, rounding).ok()?;
    let alone = if planner.lower.arranges { arranged(planner, fields, alone)? } else { Arc::new(alone) };
    // Rows of one run may be those of several sessions.
    let alone = match planner.lower.invariant_rows {
        true => Arc::new(QuantLinear::clone(&alone).invariant()),
        false => alone,
    };
    let together = match planner.lower.invariant {
        true => Arc::new(QuantLinear::clone(&alone).invariant()),
        false => alone.clone(),
    };
    let bound = Bound { alone, together };
    linears.insert(key, bound.clone());
    Some(bound)
}

/// A weight in the order of its kernel, made once for all graphs of a program. What it was made of is rarely looked at again.
fn arranged(planner: &Planner<'_>, fields: Fields<'_>, linear: QuantLinear) -> Option<Arc<QuantLinear>> {
    let (w, scales) = (constant(planner, fields.w)?.bytes(), constant(planner, fields.scales)?.bytes());
    let (at, scheme) = ((w.as_ptr() as usize, scales.as_ptr() as usize), fields.scheme()?);
    let key = (at.0, at.1, scheme, linear.input_layout().dtype());
    let program = &planner.lower.prepared.arranged;
    let mut known = program.linears.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(linear) = known.get(&key) {
        return Some(linear.clone());
    }
    let linear = Arc::new(linear.arranged());
    if !linear.reads_files() {
        program.give_back(w);
        program.give_back(scales);
    }
    known.insert(key, linear.clone());
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

/// All rows of a tensor, at even distances.
#[derive(Clone, Copy)]
pub(super) struct EvenRows<'r> {
    data: *mut u8,
    dtype: DType,
    rows: usize,
    columns: usize,
    stride: usize,
    memory: PhantomData<&'r [u8]>,
}

impl<'r> EvenRows<'r> {
    pub(super) fn rows(self) -> Result<Rows<'r>, NodeError> {
        // SAFETY: the rows of a view of this run, or a copy; what lies between them may be another value's.
        let rows = unsafe { Rows::from_raw(self.data, self.dtype, self.rows, self.columns, self.stride) };
        rows.map_err(|error| invalid(error.to_string()))
    }

    /// How many there are.
    pub(super) fn len(self) -> usize {
        self.rows
    }

    /// The bytes of one.
    pub(super) fn row(self, row: usize) -> Result<&'r [u8], NodeError> {
        if row >= self.rows {
            return Err(invalid("a row that is not there"));
        }
        let size = self.dtype.size();
        // SAFETY: the row of a view of this run, or of a copy, which nobody writes while the step runs.
        Ok(unsafe {
            std::slice::from_raw_parts(self.data.add(row * self.stride * size), self.columns * size)
        })
    }

    /// Where each begins.
    fn starts(self) -> impl Iterator<Item = *mut u8> {
        let step = self.stride * self.dtype.size();
        (0..self.rows).map(move |row| self.data.wrapping_add(row * step))
    }
}

/// All rows of a tensor: where they lie if they lie evenly, else copied to `dense`.
pub(super) fn even_rows<'r>(
    run: &'r Run<'_>,
    x: ValueId,
    columns: usize,
    dense: &'r mut [u8],
) -> Result<EvenRows<'r>, NodeError> {
    let view = run.view(x)?;
    let rows = view.len() / columns.max(1);
    let even = |data: *mut u8, stride| {
        Ok(EvenRows { data, dtype: view.dtype(), rows, columns, stride, memory: PhantomData })
    };
    if rows == 0 {
        return even(dense.as_mut_ptr(), columns);
    }
    let layout = run.slot(x).layout.reshape(&[rows, columns]).filter(|layout| {
        let strides = layout.strides();
        (strides[1] == 1 || columns == 1) && (rows == 1 || strides[0] >= columns as isize)
    });
    if let Some(layout) = layout {
        return even(view.data().cast_mut(), if rows == 1 { columns } else { layout.strides()[0] as usize });
    }
    let flat = Layout::row_major(view.sizes()).ok_or_else(|| invalid("too many axes"))?;
    if dense.len() < view.len() * view.dtype().size() {
        return Err(invalid("more rows than planned"));
    }
    // SAFETY: there is room for all elements.
    let mut target =
        unsafe { ViewMut::from_raw(dense.as_mut_ptr(), view.dtype(), flat.sizes(), flat.strides()) };
    copy(run.pool, &mut target, &view);
    even(dense.as_mut_ptr(), columns)
}

/// Adds where the rows of a lane's value begin; those that do not lie evenly are copied to its scratch, where they stay
/// while the step runs.
pub(super) fn list_sources(
    run: &Run<'_>,
    x: ValueId,
    columns: usize,
    dense: usize,
    list: &mut Vec<*mut u8>,
) -> Result<(), NodeError> {
    let mut dense = run.lend(dense)?;
    list.extend(even_rows(run, x, columns, &mut dense)?.starts());
    Ok(())
}

/// Adds where the rows of a lane's result begin, which is row-major in storage of its own.
pub(super) fn list_targets(
    run: &Run<'_>,
    result: ValueId,
    columns: usize,
    list: &mut Vec<*mut u8>,
) -> Result<(), NodeError> {
    let target = run.target(result)?;
    let step = columns * target.dtype().size();
    let rows = target.len() / columns.max(1);
    list.extend((0..rows).map(|row| target.data().wrapping_add(row * step)));
    Ok(())
}
