//! Products of one tensor with several quantised weights, in one parallel region.

use super::lowering::{Compiled, Numbered, Planner};
use super::quantized::{Fields, bound, even_rows, prepared_input, rows_of};
use crate::fault::invalid;
use crate::run::Run;
use pteron_ir::op::Activation;
use pteron_ir::{Op, ValueId};
use pteron_kernels::elementwise::{BinaryOp, Chain, ChainBuilder, UnaryOp};
use pteron_kernels::path::Path;
use pteron_kernels::quant::{Joined, MOST_JOINED, QuantLinear, RowsMut, run_joined, run_paired};
use pteron_kernels::view::{View, ViewMut};
use pteron_runtime::NodeError;
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

/// One of the weights, bound to its kernel.
struct Part {
    linear: Arc<QuantLinear>,
    /// Where the activations lie in the form that it wants, and whether this node brings them into it.
    prepared: usize,
    prepares: bool,
}

/// All weights of a node and the tensor that they multiply.
struct Parts {
    x: ValueId,
    parts: Vec<Part>,
    /// Room for rows of the tensor that do not lie evenly.
    dense: usize,
}

impl Parts {
    fn plan(planner: &mut Planner<'_>, node: &Numbered, x: ValueId, fields: &[Fields<'_>]) -> Option<Parts> {
        if fields.is_empty() || fields.len() > MOST_JOINED {
            return None;
        }
        let dtype = planner.dtype(x)?;
        let linears =
            fields.iter().map(|&fields| bound(planner, fields, dtype)).collect::<Option<Vec<_>>>()?;
        let k = linears[0].weight().k();
        if linears.iter().any(|linear| linear.weight().k() != k) {
            return None;
        }
        let rows = planner.most_elements(x)? / k.max(1);
        let dense = planner.reserve(node.number, planner.types.most_bytes(x)?);
        let mut parts: Vec<Part> = Vec::with_capacity(linears.len());
        for linear in linears {
            let same = parts.iter().find(|part| part.linear.input_layout() == linear.input_layout());
            let (prepared, prepares) = match same {
                Some(part) => (part.prepared, false),
                None => prepared_input(planner, node, x, &linear, rows),
            };
            parts.push(Part { linear, prepared, prepares });
        }
        planner.lower.bound.insert(node.number);
        Some(Parts { x, parts, dense })
    }

    /// Brings the tensor into the forms that the weights want.
    fn prepare(&self, run: &Run<'_>) -> Result<(), NodeError> {
        for part in self.parts.iter().filter(|part| part.prepares) {
            let (mut prepared, mut dense) = (run.lend(part.prepared)?, run.lend(self.dense)?);
            let source = even_rows(run, self.x, part.linear.weight().k(), &mut dense)?;
            let done = part.linear.prepare_input(run.pool, source, &mut prepared);
            done.map_err(|error| invalid(error.to_string()))?;
        }
        Ok(())
    }

    /// One product, after [`Parts::prepare`].
    fn joined<'r>(&'r self, run: &'r Run<'_>, at: usize, out: RowsMut<'r>) -> Joined<'r> {
        let part = &self.parts[at];
        let (data, bytes) = run.scratch(part.prepared);
        let prepared = match data.is_null() || bytes == 0 {
            true => &[][..],
            // SAFETY: the arena holds these bytes, and nobody writes them before the node has run.
            false => unsafe { std::slice::from_raw_parts(data, bytes) },
        };
        Joined { linear: &part.linear, prepared, out }
    }

    fn columns(&self, at: usize) -> usize {
        self.parts[at].linear.weight().n()
    }
}

pub(super) fn projections(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::Projections { x, w, scales, biases, group_size, bits, mode } = &node.node.op else { return None };
    let fields = fields_of((w, scales, biases), *group_size, *bits, mode)?;
    let parts = Parts::plan(planner, node, *x, &fields)?;
    let results = node.node.results.clone();
    if results.len() != parts.parts.len() {
        return None;
    }
    Some(Compiled::Compute(Box::new(move |run| {
        if results.iter().all(|&result| run.slot(result).layout.is_empty()) {
            return Ok(());
        }
        parts.prepare(run)?;
        let mut joined = [const { None }; MOST_JOINED];
        for (at, (&result, joined)) in results.iter().zip(&mut joined).enumerate() {
            *joined = Some(parts.joined(run, at, rows_of(run, result, parts.columns(at))?));
        }
        run_joined(run.pool, joined.into_iter().flatten()).map_err(|error| invalid(error.to_string()))
    })))
}

pub(super) fn gated(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::GatedProjection { x, w, scales, biases, group_size, bits, mode, activation } = &node.node.op
    else {
        return None;
    };
    let &result = node.node.results.first()?;
    let dtype = planner.dtype(result)?;
    let chain = gate_chain(Activation::from_name(activation)?, dtype, planner.lower.path)?;
    let fields = fields_of((w, scales, biases), *group_size, *bits, mode)?;
    let parts = Parts::plan(planner, node, *x, &fields)?;
    let n = parts.columns(0);
    if parts.parts.len() != 2 || parts.columns(1) != n {
        return None;
    }
    let bytes = planner.types.most_bytes(result)?;
    let scratch = [planner.reserve(node.number, bytes), planner.reserve(node.number, bytes)];
    Some(Compiled::Compute(Box::new(move |run| {
        let elements = run.slot(result).layout.len();
        if elements == 0 {
            return Ok(());
        }
        parts.prepare(run)?;
        let rows = elements / n;
        let out = run.target(result)?.data();
        let [gate, up] = scratch.map(|number| run.scratch(number));
        let needed = elements * dtype.size();
        if gate.1 < needed || up.1 < needed {
            return Err(invalid("more rows than planned"));
        }
        let product = |at: usize, data: *mut u8| {
            // SAFETY: reserved for this node, and long enough.
            let bytes = unsafe { std::slice::from_raw_parts_mut(data, needed) };
            let rows = RowsMut::dense(bytes, dtype, rows, n).map_err(|error| invalid(error.to_string()))?;
            Ok::<_, NodeError>(parts.joined(run, at, rows))
        };
        let products = [product(0, gate.0)?, product(1, up.0)?];
        let memory = Memory { out, gate: gate.0, up: up.0 };
        run_paired(run.pool, products, &|columns| match columns {
            // SAFETY: both products have these columns now, and each task has its own.
            Some(columns) => unsafe {
                memory.with(dtype, rows, n, columns, |out, in_| chain.run_alone(out, in_))
            },
            // SAFETY: both products are whole.
            None => unsafe { memory.with(dtype, rows, n, 0..n, |out, in_| chain.run(run.pool, out, in_)) },
        })
        .map_err(|error| invalid(error.to_string()))
    })))
}

/// The weights of a node, one by one.
fn fields_of<'a>(
    (w, scales, biases): (&[ValueId], &[ValueId], &[ValueId]),
    group_size: i32,
    bits: i32,
    mode: &'a str,
) -> Option<Vec<Fields<'a>>> {
    let fits = w.len() == scales.len() && (biases.is_empty() || biases.len() == w.len());
    let fields = |at: usize| Fields {
        w: w[at],
        scales: scales[at],
        biases: biases.get(at).copied(),
        group_size,
        bits,
        mode,
    };
    fits.then(|| (0..w.len()).map(fields).collect())
}

/// `activation(gate) * up`, rounded where the plain ops round.
fn gate_chain(activation: Activation, dtype: DType, path: Path) -> Option<Chain> {
    let mut chain = ChainBuilder::new(path);
    let (gate, up) = (chain.input(dtype)?, chain.input(dtype)?);
    let active = match activation {
        Activation::Silu => chain.unary(UnaryOp::Silu, gate)?,
        Activation::Gelu => chain.unary(UnaryOp::Gelu, gate)?,
        Activation::GeluTanh => chain.unary(UnaryOp::GeluTanh, gate)?,
        Activation::SigmoidProduct => {
            let part = chain.unary(UnaryOp::Sigmoid, gate)?;
            chain.binary(BinaryOp::Multiply, gate, part)?
        }
    };
    let product = chain.binary(BinaryOp::Multiply, active, up)?;
    chain.finish(product)
}

/// Where both products and their result lie, row-major and of the same sizes.
#[derive(Clone, Copy)]
struct Memory {
    out: *mut u8,
    gate: *const u8,
    up: *const u8,
}

// SAFETY: addresses and nothing more; using them takes `unsafe` and the promise that tasks keep to their columns.
unsafe impl Sync for Memory {}

impl Memory {
    /// Some columns of all three.
    ///
    /// # Safety
    /// `rows * n` elements lie at each, the columns exist, and nobody else uses those of the result or writes the others.
    unsafe fn with(
        &self,
        dtype: DType,
        rows: usize,
        n: usize,
        columns: Range<usize>,
        then: impl FnOnce(&mut ViewMut<'_>, &[View<'_>]),
    ) {
        let (sizes, strides) = ([rows, columns.len()], [n as isize, 1]);
        let first = columns.start * dtype.size();
        // SAFETY: the caller's promise.
        unsafe {
            let operand = |data: *const u8| View::from_raw(data.add(first), dtype, &sizes, &strides);
            let mut out = ViewMut::from_raw(self.out.add(first), dtype, &sizes, &strides);
            then(&mut out, &[operand(self.gate), operand(self.up)]);
        }
    }
}
