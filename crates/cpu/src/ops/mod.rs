//! From nodes to steps: one arm per op that has a kernel here; everything else is computed by the reference backend.

mod attention;
mod control;
mod convolution;
mod create;
pub(crate) mod elementwise;
mod fallback;
mod index;
mod matmul;
mod numbers;
mod order;
mod projections;
mod quantized;
mod reduce;
mod replace;
pub(crate) mod rope;
mod rows;
mod views;

use crate::plan::chains::is_view;
use crate::plan::lifetimes::Sharing;
use crate::plan::{Planner, RunMemory, Storage, is_tensor, written};
use crate::run::{Kernel, Repeat, Run, Step};
use pteron_ir::{Block, Node, Op, Ssa, ValueId};
use pteron_runtime::{NodeError, reference};
use std::sync::Arc;

/// A node with its number in pre-order.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub(crate) node: Arc<Node>,
    pub(crate) number: usize,
    /// Whether all sizes and numbers are known to the plan, so that its rule has been applied for good.
    pub(crate) is_static: bool,
}

/// The steps of a block. `number` counts nodes in pre-order.
pub(crate) fn steps(planner: &mut Planner<'_>, block: &Block, number: &mut usize) -> Vec<Step> {
    block.nodes.iter().filter_map(|node| step(planner, node, number)).collect()
}

/// The step of a node; `None` when the plan itself has done all there is to do.
fn step(planner: &mut Planner<'_>, node: &Node, number: &mut usize) -> Option<Step> {
    let own = *number;
    *number += 1;
    if let Some(error) = planner.types.refused.get(&own) {
        let error = error.clone();
        let mut skipped = 0;
        node.for_each_block(|block| count(block, &mut skipped));
        *number += skipped;
        let kernel: Kernel = Box::new(move |_| Err(NodeError::from(error.clone())));
        return Some(Step { number: own, repeat: Repeat::Always, kernel });
    }
    let is_static = planner.types.is_static(node);
    let node = Numbered { node: Arc::new(node.clone()), number: own, is_static };
    if numbers_are_known(planner, &node.node) {
        return None;
    }
    if planner.chains.is_inner(own) {
        charge(planner, &node.node);
        return None;
    }
    let kernel = match &node.node.op {
        Op::If { .. } => control::branch(planner, &node, number),
        Op::Scan { .. } => control::scan(planner, &node, number),
        _ => plain(planner, &node),
    };
    let repeat = repeat(planner, &node, &kernel);
    let kernel = match kernel {
        Compiled::View(kernel) | Compiled::Whole(kernel) => kernel,
        Compiled::Compute(kernel) if is_static => {
            charge(planner, &node.node);
            kernel
        }
        Compiled::Compute(kernel) => {
            let node = node.node.clone();
            Box::new(move |run: &mut Run<'_>| {
                run.prepare(&node)?;
                kernel(run)
            })
        }
    };
    Some(Step { number: own, repeat, kernel })
}

/// How a node was compiled.
pub(crate) enum Compiled {
    /// Sets the slots of its results itself and computes nothing.
    View(Kernel),
    /// Computes into results that have their places.
    Compute(Kernel),
    /// Does everything itself, its rule and places included.
    Whole(Kernel),
}

/// Makes the step of a node; `None` where its kernel does not take these types or sizes.
type Builder = fn(&mut Planner<'_>, &Numbered) -> Option<Compiled>;

/// An op without nested blocks.
fn plain(planner: &mut Planner<'_>, node: &Numbered) -> Compiled {
    let compiled = builder(&node.node.op).and_then(|build| build(planner, node));
    compiled.unwrap_or_else(|| fallback::compile(planner, node))
}

/// Whether an op is computed here and not by the reference backend.
pub(crate) fn has_kernel(op: &Op<Ssa>) -> bool {
    matches!(op, Op::If { .. } | Op::Scan { .. }) || builder(op).is_some()
}

/// Who makes the step of an op; `None` where there is no kernel.
fn builder(op: &Op<Ssa>) -> Option<Builder> {
    let build: Builder = match op {
        Op::UpdateAndAttend { .. } => |planner, node| attention::update_and_attend(planner, node),
        op if op.effect() != pteron_ir::Effect::Pure => return None,
        Op::ItemInt { .. }
        | Op::SymSize { .. }
        | Op::AddInt { .. }
        | Op::SubtractInt { .. }
        | Op::MultiplyInt { .. }
        | Op::FloorDivideInt { .. }
        | Op::ModInt { .. } => |_, node| numbers::compile(node),
        Op::IdCopy { .. }
        | Op::ExpandDims { .. }
        | Op::Squeeze { .. }
        | Op::Transpose { .. }
        | Op::Slice { .. }
        | Op::BroadcastTo { .. }
        | Op::Split { .. }
        | Op::Flip { .. }
        | Op::Reshape { .. }
        | Op::Contiguous { .. } => |planner, node| views::compile(planner, node),
        Op::SliceUpdate { .. } => |planner, node| replace::slice_update(planner, node),
        Op::RopeUpdate { .. } => |planner, node| replace::rope_update(planner, node),
        Op::AsType { .. } => |planner, node| match is_view(&node.node, planner.types) {
            true => views::compile(planner, node),
            false => elementwise::compile(planner, node),
        },
        Op::QuantizedMatmul { .. } => |planner, node| quantized::matmul(planner, node),
        Op::Projections { .. } => |planner, node| projections::projections(planner, node),
        Op::GatedProjection { .. } => |planner, node| projections::gated(planner, node),
        Op::Dequantize { .. } => |planner, node| quantized::dequantize(planner, node),
        Op::PackedEmbedding { .. } => |planner, node| quantized::embedding(planner, node),
        Op::Addmm { .. } => |planner, node| matmul::addmm(planner, node),
        Op::Sdpa { .. } => |planner, node| attention::sdpa(planner, node),
        Op::Rope { .. } => |planner, node| rope::compile(planner, node),
        Op::RMSNorm { .. } | Op::AddRmsNorm { .. } | Op::LayerNorm { .. } | Op::Softmax { .. } => {
            |planner, node| rows::compile(planner, node)
        }
        Op::IndexCopy { .. } => |planner, node| index::index_copy(planner, node),
        Op::Take { .. } | Op::TakeAlongAxis { .. } => |planner, node| index::compile(planner, node),
        Op::Full { .. }
        | Op::FullLike { .. }
        | Op::ARange { .. }
        | Op::Concatenate { .. }
        | Op::Stack { .. } => |planner, node| create::compile(planner, node),
        Op::Cumsum { .. } => |planner, node| reduce::running(planner, node),
        Op::Sum { .. }
        | Op::Prod { .. }
        | Op::Mean { .. }
        | Op::Var { .. }
        | Op::Std { .. }
        | Op::Max { .. }
        | Op::Min { .. }
        | Op::Any { .. }
        | Op::All { .. }
        | Op::Argmax { .. }
        | Op::Argmin { .. } => |planner, node| reduce::compile(planner, node),
        Op::Sort { .. } | Op::Argsort { .. } | Op::Partition { .. } | Op::ArgPartition { .. } => {
            |planner, node| order::compile(planner, node)
        }
        // There is nothing to compute.
        Op::Noop {} => |planner, node| Some(fallback::compile(planner, node)),
        op if elementwise::is_elementwise(op) => |planner, node| elementwise::compile(planner, node),
        op if convolution::is_convolution(op) => |planner, node| convolution::compile(planner, node),
        _ => return None,
    };
    Some(build)
}

/// Whether a node only gives numbers that the plan knows.
fn numbers_are_known(planner: &Planner<'_>, node: &Node) -> bool {
    !matches!(node.op, Op::If { .. } | Op::Scan { .. })
        && !node.results.is_empty()
        && node.results.iter().all(|&value| planner.types.known_int(value).is_some())
}

/// Which runs of a session need a step: what makes a view of memory that stays where it is runs once.
fn repeat(planner: &Planner<'_>, node: &Numbered, kernel: &Compiled) -> Repeat {
    // A branch that the first run did not take has set no views.
    if !node.is_static || planner.depth > 0 {
        return Repeat::Always;
    }
    match (kernel, &node.node.op) {
        (Compiled::View(_), _) if node.node.results.iter().all(|&value| is_fixed(planner, value)) => {
            Repeat::Never
        }
        (_, Op::Reshape { x, .. } | Op::Contiguous { x }) if is_fixed(planner, *x) => {
            Repeat::IfCopied(node.node.results[0])
        }
        _ => Repeat::Always,
    }
}

/// Whether a value stays where it is from run to run: inputs and buffers may move, and so may what views them.
fn is_fixed(planner: &Planner<'_>, value: ValueId) -> bool {
    let mut at = value;
    loop {
        let root = planner.lifetimes.root(at);
        let stays = match planner.storage[root.0 as usize] {
            Storage::Arena { .. } => {
                planner.types.sizes(root).is_some() || planner.memory == RunMemory::Planned
            }
            Storage::Constant(_) => true,
            _ => false,
        };
        if !stays {
            return false;
        }
        match planner.lifetimes.life(root).sharing {
            Sharing::MaybeView(source) => at = source,
            _ => return true,
        }
    }
}

/// Adds the work of a node whose sizes are known to that of the plan.
fn charge(planner: &mut Planner<'_>, node: &Node) {
    let mut shapes: Vec<(ValueId, Vec<usize>)> = Vec::new();
    node.for_each_operand(|value| {
        if is_tensor(planner.types, value) {
            shapes.push((value, planner.types.sizes(value).unwrap_or_default()));
        }
    });
    let shape_of = |value: ValueId| {
        shapes.iter().find(|(known, _)| *known == value).map_or(&[][..], |(_, sizes)| sizes.as_slice())
    };
    let work = reference::work(node, &shape_of, written(planner.types, &node.results));
    planner.work = planner.work.saturating_add(work).saturating_add(1);
}

fn count(block: &Block, nodes: &mut usize) {
    for node in &block.nodes {
        *nodes += 1;
        node.for_each_block(|block| count(block, nodes));
    }
}
