//! The lowering that a plan is made with: a step is a node, and what the plan decided about it. Dispatches are made when a
//! call's numbers are known, by a walk over the steps.

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
}

struct Nodes;

impl Planned {
    /// Plans a graph for inputs of these shapes; inputs without one are numbers.
    pub fn new(
        graph: &Graph,
        shapes: &[Option<&[usize]>],
        (tensor_bytes, live_bytes): (u64, u64),
    ) -> Result<Planned, PlanError> {
        let alignment = crate::dispatch::BINDING_ALIGNMENT;
        let options = Options { memory: RunMemory::Planned, alignment, tensor_bytes, live_bytes };
        let Made { plan, steps, .. } = pteron_plan::make(graph, shapes, Nodes, &options)?;
        Ok(Planned { plan, steps })
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
        StepNode::Run { node: node.node.clone(), in_place: matches!(sharing, Some(Sharing::InPlace(_))) }
    }

    fn refused(_: usize, error: &RuleError) -> StepNode {
        StepNode::Refused(error.clone())
    }

    fn joined(_: &mut Planner<'_, Nodes>, _: &Node) {}
}
