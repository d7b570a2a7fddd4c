//! From nodes to steps: one arm per op that has a kernel here; everything else is computed by the reference backend.

mod attend;
mod attention;
mod behind;
mod control;
mod convolution;
mod create;
mod delta;
mod elementwise;
mod experts;
mod fallback;
mod gated;
mod index;
mod lowering;
mod matmul;
mod numbers;
mod order;
mod projections;
mod quantized;
mod reduce;
mod replace;
mod rope;
mod rows;
mod views;

use crate::fault::of_plan;
use crate::memory::ALIGNMENT;
use crate::run::Run;
use crate::step::{JointStep, Kernel, Planned, Repeat, Step};
use lowering::{Compiled, Numbered, Planner};
use pteron_format::Limits;
use pteron_ir::{Graph, Node, Op, RuleError, Ssa, ValueId};
use pteron_plan::{Join, Lower, Made, Options, RunMemory, Sharing, Storage, Types, make};
use pteron_runtime::{NodeError, reference};
use std::collections::{HashMap, HashSet};

pub(crate) use lowering::{Lowering, Numerics};

/// Plans a graph for inputs of these shapes; inputs without one are numbers.
pub(crate) fn plan(
    graph: &Graph,
    shapes: &[Option<&[usize]>],
    lowering: Lowering,
    memory: RunMemory,
    limits: &Limits,
) -> pteron_runtime::Result<Planned> {
    let options = Options {
        memory,
        alignment: ALIGNMENT,
        tensor_bytes: limits.tensor_bytes,
        live_bytes: limits.live_bytes,
    };
    let Made { plan, steps, lower } = make(graph, shapes, lowering.read(graph), &options).map_err(of_plan)?;
    Ok(Planned { plan, steps, read: read_constants(graph, &lower.bound), work: lower.work })
}

impl Join for Lowering {
    fn is_elementwise(&self, op: &Op<Ssa>) -> bool {
        elementwise::is_elementwise(op)
    }

    fn can_begin(&self, types: &Types, node: &Node) -> bool {
        behind::can_begin(self, types, node)
    }

    fn can_join(&self, types: &Types, node: &Node, inner: &HashMap<ValueId, &Node>) -> bool {
        behind::fits(types, node, inner) && elementwise::fuse(node, inner, types, self.path).is_some()
    }
}

impl Lower for Lowering {
    type Step = Step;

    fn step(planner: &mut Planner<'_>, node: &Numbered, blocks: Vec<Vec<Step>>) -> Step {
        let kernel = match &node.node.op {
            Op::If { .. } => control::branch(node, blocks),
            Op::Scan { .. } => control::scan(planner, node, blocks),
            _ => plain(planner, node),
        };
        let repeat = repeat(planner, node, &kernel);
        let (kernel, joint) = match kernel {
            Compiled::View(kernel) | Compiled::Whole(kernel) => (kernel, None),
            Compiled::Compute(kernel) => (placed(planner, node, kernel), None),
            Compiled::Joint(kernel, joint) => {
                let unplaced = (!node.is_static).then(|| node.node.clone());
                // What is inside a branch or a loop is a matter of each lane.
                let joint = (planner.depth == 0).then_some(JointStep { unplaced, kernel: joint });
                (placed(planner, node, kernel), joint)
            }
        };
        let groups = planner.groups;
        let begins = groups.inner(node.number).and_then(behind::begun).map(|node| Box::new(node.clone()));
        Step { number: node.number, repeat, kernel, begins, joint }
    }

    fn refused(number: usize, error: &RuleError) -> Step {
        let error = error.clone();
        let kernel: Kernel = Box::new(move |_| Err(NodeError::from(error.clone())));
        Step { number, repeat: Repeat::Always, kernel, begins: None, joint: None }
    }

    fn joined(planner: &mut Planner<'_>, node: &Node) {
        charge(planner, node);
    }
}

/// A kernel that finds its results in their places.
fn placed(planner: &mut Planner<'_>, node: &Numbered, kernel: Kernel) -> Kernel {
    if node.is_static {
        charge(planner, &node.node);
        return kernel;
    }
    let node = node.node.clone();
    Box::new(move |run: &mut Run<'_>| {
        run.prepare(&node)?;
        kernel(run)
    })
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
        Op::UpdateAndAttend { .. } => |planner, node| attend::update_and_attend(planner, node),
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
        Op::AsType { .. } => |planner, node| match planner.types.is_renaming(&node.node) {
            true => views::compile(planner, node),
            false => elementwise::compile(planner, node),
        },
        Op::QuantizedMatmul { .. } => |planner, node| quantized::matmul(planner, node),
        Op::Projections { .. } => |planner, node| projections::projections(planner, node),
        Op::GatedProjection { .. } => |planner, node| gated::gated(planner, node),
        Op::Dequantize { .. } => |planner, node| quantized::dequantize(planner, node),
        Op::PackedEmbedding { .. } => |planner, node| quantized::embedding(planner, node),
        Op::Addmm { .. } => |planner, node| matmul::addmm(planner, node),
        Op::GatherMm { .. } => |planner, node| experts::gather_mm(planner, node),
        Op::GatherQmm { .. } => |planner, node| experts::gather_qmm(planner, node),
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
        | Op::Pad { .. }
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
        op if elementwise::is_elementwise(op) => |planner, node| behind::compile(planner, node),
        op if delta::is_delta(op) => |planner, node| delta::compile(planner, node),
        op if convolution::is_convolution(op) => |planner, node| convolution::compile(planner, node),
        _ => return None,
    };
    Some(build)
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
        if planner.types.tensor(value).is_some() {
            shapes.push((value, planner.types.sizes(value).unwrap_or_default()));
        }
    });
    let shape_of = |value: ValueId| {
        shapes.iter().find(|(known, _)| *known == value).map_or(&[][..], |(_, sizes)| sizes.as_slice())
    };
    let extents = node.results.iter().filter_map(|&value| planner.types.sizes(value));
    let written = extents.map(|sizes| reference::extent(&sizes)).fold(0u64, u64::saturating_add);
    let work = reference::work(node, &shape_of, written);
    planner.lower.work = planner.lower.work.saturating_add(work).saturating_add(1);
}

/// Which constants are read by more than products that hold them as biases.
fn read_constants(graph: &Graph, bound: &HashSet<usize>) -> Vec<bool> {
    let mut read: HashSet<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    read.extend(graph.buffers.iter().map(|buffer| buffer.update));
    let mut number = 0;
    graph.for_each_node(|node, _| {
        let unread = match &node.op {
            _ if !bound.contains(&number) => &[][..],
            Op::QuantizedMatmul { biases, .. } | Op::PackedEmbedding { biases, .. } => biases.as_slice(),
            Op::Projections { biases, .. } | Op::GatedProjection { biases, .. } => biases,
            _ => &[],
        };
        node.for_each_operand(|value| {
            if !unread.contains(&value) {
                read.insert(value);
            }
        });
        node.for_each_block(|block| read.extend(&block.results));
        number += 1;
    });
    graph.constants.iter().map(|constant| read.contains(&constant.value)).collect()
}
