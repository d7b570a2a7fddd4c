//! Products with quantised weights. Weights that are constants are bound to their kernel once, when a plan is made;
//! all plans of a program share them.

use super::{Compiled, Numbered, invalid};
use crate::layout::Layout;
use crate::plan::{Planner, Storage};
use crate::run::Run;
use pteron_ir::{Op, ValueId};
use pteron_kernels::quant::{Precision as Rounding, QuantLinear, QuantParts, QuantWeight, Rows, RowsMut};
use pteron_kernels::copy::copy;
use pteron_kernels::view::ViewMut;
use pteron_runtime::{NodeError, Precision};
use pteron_tensor::HostTensor;
use pteron_tensor::quant::{Mode, Scheme};
use std::sync::Arc;

/// The parts of a quantised weight as a node names them.
#[derive(Clone, Copy)]
struct Fields<'a> {
    w: ValueId,
    scales: ValueId,
    biases: Option<ValueId>,
    group_size: i32,
    bits: i32,
    mode: &'a str,
}

/// A constant operand.
fn constant<'p>(planner: &Planner<'p>, value: ValueId) -> Option<&'p HostTensor> {
    match planner.storage[value.0 as usize] {
        Storage::Constant(index) => planner.prepared.constants.get(index),
        _ => None,
    }
}

/// The weight of a node whose parts are all constants; rows are outputs.
fn weight(planner: &Planner<'_>, fields: Fields<'_>) -> Option<QuantWeight> {
    let (w, scales) = (constant(planner, fields.w)?, constant(planner, fields.scales)?);
    let biases = match fields.biases {
        Some(biases) => Some(constant(planner, biases)?),
        None => None,
    };
    let scheme = Scheme::new(Mode::from_name(fields.mode).ok()?, fields.bits, fields.group_size).ok()?;
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
        biases: biases.map(|biases| (biases.bytes().clone(), biases.dtype())),
        scheme,
        matrices,
        n,
        k,
    })
    .ok()
}

pub(super) fn matmul(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose } = &node.node.op else {
        return None;
    };
    let (&result, &x) = (node.node.results.first()?, x);
    let fields =
        Fields { w: *w, scales: *scales, biases: *biases, group_size: *group_size, bits: *bits, mode };
    if !transpose {
        return None;
    }
    let weight = weight(planner, fields).filter(|weight| weight.matrices() == 1)?;
    let rounding = match planner.precision {
        Precision::Exact => Rounding::Exact,
        Precision::Fast => Rounding::Fast,
    };
    let linear = Arc::new(QuantLinear::new(weight, planner.dtype(x)?, planner.path, rounding).ok()?);
    let (n, k) = (linear.weight().n(), linear.weight().k());
    let rows = planner.most_elements(x)? / k.max(1);
    let prepared = planner.reserve(node.number, linear.input_bytes(rows));
    // Rows that do not lie evenly are put together first.
    let dense = planner.reserve(node.number, planner.types.most_bytes(x)?);
    Some(Compiled::Compute(Box::new(move |run| {
        let rows = run.slot(result).layout.len() / n.max(1);
        if rows == 0 {
            return Ok(());
        }
        // SAFETY: both were reserved for this node, and are asked for once.
        let (prepared, dense) = unsafe { (run.scratch_slice(prepared), run.scratch_slice(dense)) };
        let source = even_rows(run, x, k, dense)?;
        linear.prepare_input(run.pool, source, prepared).map_err(|error| invalid(error.to_string()))?;
        let target = run.target(result)?;
        let bytes = target.len() * target.dtype().size();
        // SAFETY: the result is row-major in storage of its own.
        let out = unsafe { std::slice::from_raw_parts_mut(target.data(), bytes) };
        let out = RowsMut::dense(out, target.dtype(), rows, n).map_err(|error| invalid(error.to_string()))?;
        linear.run(run.pool, prepared, out).map_err(|error| invalid(error.to_string()))
    })))
}

/// All rows of a tensor: where they lie if they lie evenly, else copied to `dense`.
fn even_rows<'r>(
    run: &'r Run<'_>,
    x: ValueId,
    columns: usize,
    dense: &'r mut [u8],
) -> Result<Rows<'r>, NodeError> {
    let view = run.view(x)?;
    let size = view.dtype().size();
    let rows = view.len() / columns.max(1);
    let even = run.slot(x).layout.reshape(&[rows, columns]).filter(|layout| {
        let strides = layout.strides();
        (strides[1] == 1 || columns == 1) && (rows == 1 || strides[0] >= columns as isize)
    });
    let made = match even {
        Some(layout) => {
            let stride = if rows == 1 { columns } else { layout.strides()[0] as usize };
            let bytes = ((rows - 1) * stride + columns) * size;
            // SAFETY: the rows of a view of this run, from the first element of the first to the last of the last.
            let bytes = unsafe { std::slice::from_raw_parts(view.data(), bytes) };
            Rows::new(bytes, view.dtype(), rows, columns, stride)
        }
        None => {
            let flat = Layout::row_major(view.sizes()).ok_or_else(|| invalid("too many axes"))?;
            // SAFETY: the scratch was sized for all elements.
            let target = unsafe {
                ViewMut::from_raw(dense.as_mut_ptr(), view.dtype(), flat.sizes(), flat.strides())
            };
            copy(run.pool, &target, &view);
            Rows::dense(dense, view.dtype(), rows, columns)
        }
    };
    made.map_err(|error| invalid(error.to_string()))
}
