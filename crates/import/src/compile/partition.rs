//! Which nodes run together: parts for delegates, as few as can be, with portable operators between them.
//!
//! Everything portable that can run does; then everything for the delegate that can run makes one part; and so on.
//! Taking all that is ready at each turn gives the fewest turns, and what depends only on earlier turns makes a part
//! convex.

use crate::lower::functional::{Functional, has_effect};
use std::collections::HashMap;

/// One turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nodes of one delegate, in order.
    Delegate(Vec<usize>),
    /// One node by a portable kernel.
    Portable(usize),
}

/// Orders the nodes; `delegated` says which of them a delegate computes.
pub(super) fn partition(functional: &Functional, delegated: &[bool]) -> Vec<Step> {
    let waiting_for = dependencies(functional);
    let mut done = vec![false; functional.nodes.len()];
    let mut steps = Vec::new();
    while done.iter().any(|done| !done) {
        let before = done.iter().filter(|done| **done).count();
        for node in turn(&waiting_for, &mut done, |node| !delegated[node]) {
            steps.push(Step::Portable(node));
        }
        let together = turn(&waiting_for, &mut done, |node| delegated[node]);
        if !together.is_empty() {
            steps.push(Step::Delegate(together));
        }
        if done.iter().filter(|done| **done).count() == before {
            // Nodes use only what stands before them, so that the first that is left is always ready.
            break;
        }
    }
    steps
}

/// All nodes of a kind that can run, in order; nodes stand after what they need.
fn turn(waiting_for: &[Vec<usize>], done: &mut [bool], wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut taken = Vec::new();
    for node in 0..done.len() {
        if !done[node] && wanted(node) && waiting_for[node].iter().all(|&before| done[before]) {
            done[node] = true;
            taken.push(node);
        }
    }
    taken
}

/// For each node the nodes that it needs; those with an effect keep their order.
fn dependencies(functional: &Functional) -> Vec<Vec<usize>> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    let mut last_effect = None;
    let mut all = Vec::with_capacity(functional.nodes.len());
    for (number, node) in functional.nodes.iter().enumerate() {
        let mut needed: Vec<usize> =
            node.reads().iter().filter_map(|name| makers.get(name).copied()).collect();
        if has_effect(&node.target) {
            needed.extend(last_effect.replace(number));
        }
        needed.sort_unstable();
        needed.dedup();
        all.push(needed);
        makers.extend(node.gives().into_iter().map(|name| (name, number)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pt2::argument::{Argument, Name};
    use crate::pt2::schema::{NamedArgument, Node};

    fn node(output: &str, inputs: &[&str]) -> Node {
        let name = |name: &&str| Name { name: (*name).to_owned() };
        let arg = Argument::Tensors(inputs.iter().map(name).collect());
        Node {
            target: "torch.ops.aten.any.op".into(),
            inputs: vec![NamedArgument { name: "tensors".into(), arg, kind: None }],
            outputs: vec![Argument::Tensor(name(&output))],
            ..Node::default()
        }
    }

    #[test]
    fn what_can_run_together_does() {
        // a and c are for the delegate, b is not; d needs c alone, so that it joins the first part.
        let nodes = vec![
            node("a", &["x"]),
            node("b", &["a"]),
            node("c", &["x"]),
            node("d", &["c"]),
            node("e", &["b", "d"]),
        ];
        let functional = Functional { nodes, ..Functional::default() };
        let steps = partition(&functional, &[true, false, true, true, true]);
        assert_eq!(steps, [Step::Delegate(vec![0, 2, 3]), Step::Portable(1), Step::Delegate(vec![4])]);
    }
}
