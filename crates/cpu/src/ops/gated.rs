//! The gated projection: two products of one tensor with quantised weights, and what becomes of each pair of their elements
//! while it is in the nearest cache.

use super::lowering::{Compiled, Numbered, Planner};
use super::projections::{Parts, fields_of};
use super::quantized::{list_sources, list_targets};
use crate::fault::invalid;
use crate::joint::Joint;
use crate::run::Run;
use pteron_ir::op::Activation;
use pteron_ir::{Op, ValueId};
use pteron_kernels::elementwise::{BinaryOp, Chain, ChainBuilder, UnaryOp};
use pteron_kernels::path::Path;
use pteron_kernels::quant::{Joined, RowsMut, run_paired};
use pteron_kernels::view::{View, ViewMut};
use pteron_runtime::NodeError;
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

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
    let gated = Arc::new(Gated { parts, result, dtype, n, chain, scratch });
    let joint = gated.clone();
    Some(Compiled::Joint(
        Box::new(move |run| gated.alone(run, false)),
        Box::new(move |lanes| joint.together(lanes)),
    ))
}

/// Two products, and what becomes of each pair of their elements.
struct Gated {
    parts: Parts,
    result: ValueId,
    dtype: DType,
    n: usize,
    chain: Chain,
    /// Room for both products.
    scratch: [usize; 2],
}

impl Gated {
    fn alone(&self, run: &Run<'_>, all: bool) -> Result<(), NodeError> {
        let &Gated { ref parts, result, dtype, n, ref chain, scratch } = self;
        let elements = run.slot(result).layout.len();
        if elements == 0 {
            return Ok(());
        }
        parts.prepare(run, all)?;
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
    }

    fn together(&self, lanes: &mut Joint<'_, '_>) -> Result<(), NodeError> {
        let &Gated { ref parts, result, dtype, n, ref chain, .. } = self;
        let most = parts.most_rows(lanes);
        lanes.by_rows(
            most,
            |run| parts.rows(run),
            |part, batch| {
                if let Some(run) = part.only() {
                    return self.alone(run, true);
                }
                let (pool, rows) = (part.first().pool, part.rows);
                if rows == 0 || n == 0 {
                    return Ok(());
                }
                let product = rows * n * dtype.size();
                let bytes = (0..2).map(|at| parts.prepared_bytes(at, rows)).chain([product; 2]);
                let (sources, targets, mut pieces) = batch.begin(bytes);
                for run in part.runs() {
                    list_sources(run, parts.x, parts.inner(), parts.dense, sources)?;
                    list_targets(run, result, n, targets)?;
                }
                if (sources.len(), targets.len()) != (rows, rows) {
                    return Err(invalid("more rows than planned"));
                }
                let dtype_of_x = part.first().dtype(parts.x)?;
                let prepared = parts.prepare_together(pool, sources, dtype_of_x, &mut pieces);
                let prepared = prepared.map_err(|error| invalid(error.to_string()))?;
                let [gate, up] = [pieces.next(product), pieces.next(product)].map(<[u8]>::as_mut_ptr);
                let mut joined = [const { None }; 2];
                for (at, (data, joined)) in [gate, up].into_iter().zip(&mut joined).enumerate() {
                    // SAFETY: a piece of as many bytes, of this step alone.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(data, product) };
                    let out = RowsMut::dense(bytes, dtype, rows, n);
                    let out = out.map_err(|error| invalid(error.to_string()))?;
                    *joined = Some(Joined {
                        linear: &parts.parts[at].linear.together,
                        prepared: prepared[at],
                        out,
                    });
                }
                let [Some(first), Some(second)] = joined else { return Ok(()) };
                let step = n * dtype.size();
                let rows_of = Shared { targets, gate, up };
                let row = |at: usize, columns: Range<usize>| {
                    let memory = rows_of.row(at, step);
                    // SAFETY: both products have these columns of the row now, and no other task has.
                    unsafe { memory.with(dtype, 1, n, columns, |out, in_| chain.run_alone(out, in_)) };
                };
                run_paired(pool, [first, second], &|columns| match columns {
                    Some(columns) => (0..rows).for_each(|at| row(at, columns.clone())),
                    None => pool.run(rows, &|at| row(at, 0..n)),
                })
                .map_err(|error| invalid(error.to_string()))
            },
        )
    }
}

/// Rows of two products, and where the rows of their results lie.
struct Shared<'b> {
    targets: &'b [*mut u8],
    gate: *const u8,
    up: *const u8,
}

// SAFETY: addresses and nothing more; using them takes `unsafe` and the promise that tasks keep to their columns.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    /// One row of all three; rows of the products lie `step` bytes apart.
    fn row(&self, at: usize, step: usize) -> Memory {
        Memory {
            out: self.targets[at],
            gate: self.gate.wrapping_add(at * step),
            up: self.up.wrapping_add(at * step),
        }
    }
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
