//! The lowering that a plan is made with: a step is a node, and what the plan decided about it. Dispatches are made when a
//! call's numbers are known, by a walk over the steps.

use crate::dispatch::BINDING_ALIGNMENT as ALIGNMENT;
use pteron_ir::{Graph, Node, Op, RuleError, Ssa, ValueId};
use pteron_plan::{
    Join, Lower, Made, Numbered, Options, Plan, PlanError, Planner, RunMemory, Sharing, Types,
};
use std::collections::HashMap;
use std::sync::Arc;

/// A node of a plan.
#[derive(Clone)]
pub enum StepNode {
    /// One that runs.
    Run {
        /// The node.
        node: Arc<Node>,
        /// Whether its result is an operand that it changes in place.
        in_place: bool,
        /// Memory of the plan for what lies between the ops that a fused one stands for.
        scratch: Option<usize>,
    },
    /// One that its rule refuses: a run that reaches it fails so.
    Refused(RuleError),
}

/// A graph planned for the sizes of its inputs.
pub struct Planned {
    /// Where everything lies.
    pub plan: Plan,
    /// In order.
    pub steps: Vec<StepNode>,
    /// By value: the steps that read it, and how often it is read in all, outputs and buffers included.
    pub(crate) readers: Vec<(Vec<usize>, usize)>,
}

struct Nodes;

impl Planned {
    /// Plans a graph for inputs of these shapes; inputs without one are numbers.
    pub fn new(
        graph: &Graph,
        shapes: &[Option<&[usize]>],
        (tensor_bytes, live_bytes): (u64, u64),
    ) -> Result<Planned, PlanError> {
        let options = Options { memory: RunMemory::Planned, alignment: ALIGNMENT, tensor_bytes, live_bytes };
        let Made { plan, steps, .. } = pteron_plan::make(graph, shapes, Nodes, &options)?;
        let mut readers = vec![(Vec::new(), 0); graph.values.len()];
        for (at, step) in steps.iter().enumerate() {
            if let StepNode::Run { node, .. } = step {
                node.for_each_operand(|value| {
                    let (steps, count) = &mut readers[value.0 as usize];
                    steps.push(at);
                    *count += 1;
                });
            }
        }
        let outputs = graph.outputs.iter().map(|output| output.value);
        for value in outputs.chain(graph.buffers.iter().map(|buffer| buffer.update)) {
            readers[value.0 as usize].1 += 1;
        }
        Ok(Planned { plan, steps, readers })
    }

    /// The node of a step.
    pub fn node(&self, step: usize) -> Option<&Arc<Node>> {
        match self.steps.get(step)? {
            StepNode::Run { node, .. } => Some(node),
            StepNode::Refused(_) => None,
        }
    }

    /// Whether one step alone reads a value, once.
    pub(crate) fn is_read_once(&self, value: ValueId) -> bool {
        self.readers[value.0 as usize].1 == 1
    }
}

/// Nothing runs inside another step yet.
impl Join for Nodes {
    fn is_elementwise(&self, _: &Op<Ssa>) -> bool {
        false
    }

    fn can_join(&self, _: &Types, _: &Node, _: &HashMap<ValueId, &Node>) -> bool {
        false
    }
}

impl Lower for Nodes {
    type Step = StepNode;

    fn step(planner: &mut Planner<'_, Nodes>, node: &Numbered, _: Vec<Vec<StepNode>>) -> StepNode {
        let result = node.node.results.first();
        let sharing = result.map(|&value| planner.lifetimes.life(value).sharing);
        let in_place = matches!(sharing, Some(Sharing::InPlace(_)));
        // Two products of a gate; keys that are turned before they are written.
        let bytes = match &node.node.op {
            Op::GatedProjection { .. } => result
                .and_then(|&value| Some(2 * planner.types.most_bytes(value)?.next_multiple_of(ALIGNMENT))),
            Op::RopeUpdate { x, .. } => planner.types.most_bytes(*x),
            _ => None,
        };
        let scratch = bytes.map(|bytes| planner.reserve(node.number, bytes));
        StepNode::Run { node: node.node.clone(), in_place, scratch }
    }

    fn refused(_: usize, error: &RuleError) -> StepNode {
        StepNode::Refused(error.clone())
    }

    fn joined(_: &mut Planner<'_, Nodes>, _: &Node) {}
}
