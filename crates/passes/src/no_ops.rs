//! Nodes that give what they were given: conversions to the dtype at hand, shapes at hand, whole slices, sums with
//! zero, products with one, picks of what was only wrapped.

use crate::pattern::axis_of;
use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Graph, Node, Op, Type, ValueId, Verdict};

/// The pass.
pub const PASS: Pass = Pass { name: "no-ops", doc: "removes nodes that give what they were given", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let &[result] = node.results.as_slice() else { return None };
    let given = given(site, node)?;
    if !site.same_type(given, result) {
        return None;
    }
    site.took(PASS.name, node, 1);
    Some(vec![given])
}

/// The value that a node gives back, if it surely does; the caller holds the types against each other.
fn given(site: &Site<'_>, node: &Node) -> Option<ValueId> {
    match &node.op {
        // Elements in the same order under the same shape are the same tensor.
        Op::IdCopy { x }
        | Op::Contiguous { x }
        | Op::AsType { x, .. }
        | Op::Reshape { x, .. }
        | Op::BroadcastTo { x, .. }
        | Op::Tile { x, .. } => Some(*x),
        op @ Op::Squeeze { .. } => site.squeezed(op),
        Op::Transpose { x, perm } => {
            let rank = perm.len();
            let stays = |(at, axis): (usize, &i32)| axis_of(i64::from(*axis), rank) == Some(at);
            perm.iter().enumerate().all(stays).then_some(*x)
        }
        Op::Slice { x, axis, start: IntArg::Literal(0), stop, step: 1 } => {
            is_whole(site, *x, axis, stop).then_some(*x)
        }
        Op::Take { x, index: IndexArg::Literal(0 | -1), axis } => unwrapped(site, *x, *axis),
        Op::Concatenate { tensors, .. } => match tensors.as_slice() {
            [only] => Some(*only),
            _ => None,
        },
        Op::Add { a, b } => neutral(site, *a, *b, 0.0).or_else(|| neutral(site, *b, *a, 0.0)),
        Op::Subtract { a, b } => neutral(site, *a, *b, 0.0),
        Op::Multiply { a, b } => neutral(site, *a, *b, 1.0).or_else(|| neutral(site, *b, *a, 1.0)),
        Op::Divide { a, b } | Op::Power { a, b } => neutral(site, *a, *b, 1.0),
        _ => None,
    }
}

fn neutral(site: &Site<'_>, x: ValueId, other: ValueId, number: f64) -> Option<ValueId> {
    (site.number(other) == Some(number)).then_some(x)
}

/// Whether a slice from 0 to `stop` keeps the whole axis: the stop is its size, or at least the most it can be.
fn is_whole(site: &Site<'_>, x: ValueId, axis: &IntArg<ValueId>, stop: &IntArg<ValueId>) -> bool {
    let (Some(ty), IntArg::Literal(axis)) = (site.tensor(x), axis) else { return false };
    let Some(size) = axis_of(*axis, ty.shape.len()).and_then(|axis| ty.shape.get(axis)) else { return false };
    let symbols = &site.graph().symbols;
    match stop {
        IntArg::Literal(stop) => {
            *stop >= 0 && symbols.at_most(size, &pteron_ir::Dim::known(*stop)) == Verdict::Yes
        }
        IntArg::Value(value) => match site.graph().ty(*value) {
            Some(Type::Int(stop)) => symbols.equal(size, stop) == Verdict::Yes,
            _ => false,
        },
    }
}

/// What was wrapped in an axis of size 1 that is now picked apart.
fn unwrapped(site: &Site<'_>, x: ValueId, axis: i32) -> Option<ValueId> {
    let rank = site.rank(x)?;
    let axis = axis_of(i64::from(axis), rank)?;
    match site.definition(x)? {
        Op::ExpandDims { x, axis: added } if axis_of(i64::from(*added), rank)? == axis => Some(*x),
        // A single element under one axis.
        Op::Reshape { x, .. } if rank == 1 && site.rank(*x) == Some(0) => Some(*x),
        _ => None,
    }
}
