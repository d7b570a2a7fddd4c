//! `cond`: both branches run, and each result is picked by the condition. Branches only compute, so that the one that is
//! not taken leaves nothing behind; what it costs is its time.

use super::super::error::LowerError;
use super::Maker;
use crate::pt2::argument::{Argument, Name};
use crate::pt2::schema::{Graph, NamedArgument, Node};

/// Condition and branches of a node that takes one of two graphs by a tensor.
pub(super) fn branches(node: &Node) -> Option<(&str, &Graph, &Graph)> {
    if node.target != "torch.ops.higher_order.cond" {
        return None;
    }
    let Argument::Tensor(condition) = &node.inputs.first()?.arg else { return None };
    let mut graphs = Vec::new();
    node.inputs.iter().for_each(|input| input.arg.graphs(&mut |graph| graphs.push(&*graph.graph)));
    match graphs.as_slice() {
        &[then, otherwise] => Some((&condition.name, then, otherwise)),
        _ => None,
    }
}

impl Maker {
    /// Runs both branches and picks.
    pub(super) fn choose(
        &mut self,
        graph: &Graph,
        node: &Node,
        (condition, then, otherwise): (&str, &Graph, &Graph),
        depth: u32,
    ) -> Result<(), LowerError> {
        let taken = self.run_inner(node, then, depth)?;
        let other = self.run_inner(node, otherwise, depth)?;
        let outside = node.gives();
        if taken.len() != outside.len() || other.len() != outside.len() {
            return Err(LowerError::node(node, "its branches give another number of values"));
        }
        let condition = self.scoped(condition);
        for ((taken, other), to) in taken.iter().zip(&other).zip(outside) {
            let mut read = |name: &str| {
                let missing = || LowerError::node(node, "a branch gives a value that is not there");
                self.read(name).ok_or_else(missing)
            };
            let (condition, taken, other) = (read(&condition)?, read(taken)?, read(other)?);
            if !graph.tensor_values.contains_key(to) {
                return Err(LowerError::node(node, "its branches give a number; tensors can be picked"));
            }
            let tensor = |name: &str, value: String| NamedArgument {
                name: name.to_owned(),
                arg: Argument::Tensor(Name { name: value }),
                kind: None,
            };
            let pick = Node {
                target: "torch.ops.aten.where.self".into(),
                inputs: vec![tensor("condition", condition), tensor("self", taken), tensor("other", other)],
                outputs: vec![Argument::Tensor(Name { name: to.to_owned() })],
                metadata: node.metadata.clone(),
                is_hop_single_tensor_return: None,
                name: Some(to.to_owned()),
            };
            let pick = self.with_scoped_outputs(graph, pick, None);
            self.result.nodes.push(pick);
        }
        Ok(())
    }
}
