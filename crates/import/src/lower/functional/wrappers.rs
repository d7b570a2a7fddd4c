//! Graphs inside nodes that only set a mode of torch (`no_grad`, autocast): they run once, in place of the node.

use super::super::error::LowerError;
use super::{Maker, only_name, views};
use crate::pt2::argument::{Argument, OrName};
use crate::pt2::schema::{Graph, NamedArgument, Node};

impl Maker {
    /// Runs a wrapper's graph in place of the wrapper.
    pub(super) fn take_in(
        &mut self,
        graph: &Graph,
        node: &Node,
        inner: &Graph,
        depth: u32,
    ) -> Result<(), LowerError> {
        let inside = self.run_inner(node, inner, depth)?;
        let outside = node.gives();
        if inside.len() != outside.len() {
            return Err(LowerError::node(node, "its graph gives another number of values"));
        }
        for (from, to) in inside.iter().zip(outside) {
            let Some(holds) = self.read(from) else {
                return Err(LowerError::node(node, "its graph gives a value that is not there"));
            };
            let number = self.view_nodes.len();
            self.view_nodes.push(views::identity());
            self.define(graph, to, &holds, Some((from.clone(), number)));
        }
        Ok(())
    }

    /// Runs a graph inside a node over the node's operands; the names of what it gives.
    pub(super) fn run_inner(
        &mut self,
        node: &Node,
        inner: &Graph,
        depth: u32,
    ) -> Result<Vec<String>, LowerError> {
        let operands = operands(node);
        if operands.len() != inner.inputs.len() {
            return Err(LowerError::node(node, "its graph takes another number of operands"));
        }
        let outer = std::mem::take(&mut self.scope);
        self.fresh += 1;
        let within = format!("{outer}{}%", self.fresh);
        for (given, taken) in operands.iter().zip(&inner.inputs) {
            let (Some(given), Some(taken)) = (only_name(given), only_name(taken)) else {
                // A number that was fixed at export: nothing inside names it.
                continue;
            };
            let given = format!("{outer}{given}");
            let Some(holds) = self.read(&given) else {
                return Err(LowerError::node(node, "an operand has no value here"));
            };
            self.scope.clone_from(&within);
            let number = self.view_nodes.len();
            self.view_nodes.push(views::identity());
            self.define(inner, taken, &holds, Some((given, number)));
            self.scope.clone_from(&outer);
        }
        self.scope.clone_from(&within);
        self.graph(inner, depth + 1)?;
        let mut inside = Vec::new();
        inner.outputs.iter().for_each(|output| output.names(&mut |_, name| inside.push(self.scoped(name))));
        self.scope = outer;
        Ok(inside)
    }
}

/// The graph of a node that runs it once, in another mode of torch.
pub(super) fn wrapper(node: &Node) -> Option<&Graph> {
    let name = node.target.strip_prefix("torch.ops.higher_order.")?;
    matches!(
        name,
        "wrap_with_set_grad_enabled" | "wrap_with_autocast" | "wrap" | "tag_activation_checkpoint"
    )
    .then_some(())?;
    let mut found = None;
    node.inputs.iter().for_each(|input| input.arg.graphs(&mut |graph| found = Some(&*graph.graph)));
    found
}

/// What follows the last graph among a node's arguments.
fn operands(node: &Node) -> Vec<Argument> {
    let at = node.inputs.iter().rposition(|input| matches!(input.arg, Argument::Graph(_)));
    let rest = node.inputs.iter().skip(at.map_or(0, |at| at + 1));
    let spread = |input: &NamedArgument| match &input.arg {
        Argument::Tensors(tensors) => tensors.iter().cloned().map(Argument::Tensor).collect(),
        Argument::SymInts(ints) => ints
            .iter()
            .map(|int| match int {
                OrName::Name(name) => Argument::SymInt(OrName::Name(name.clone())),
                OrName::Plain(value) => Argument::Int(*value),
            })
            .collect(),
        other => vec![other.clone()],
    };
    rest.flat_map(spread).collect()
}
