//! Integers that are known: numbers stand where the types tell them, and of several integers that are the same
//! expression of sizes the first one serves all.

use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::op::{FieldMut, FloatArg, IndexArg, IntArg};
use pteron_ir::{Block, Effect, Graph, Node, Op, Ssa, Type, ValueId};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass =
    Pass { name: "sizes", doc: "computes sizes once and writes known ones as numbers", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
    let known = graph.values.iter().enumerate().filter_map(|(at, info)| match &info.ty {
        Type::Int(dim) => Some((ValueId(at as u32), dim.as_known()?)),
        _ => None,
    });
    let known: HashMap<ValueId, i64> = known.collect();
    if !known.is_empty() {
        write_numbers(&mut graph.body, &known);
    }
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let &[result] = node.results.as_slice() else { return None };
    if node.op.effect() != Effect::Pure {
        return None;
    }
    let Some(Type::Int(dim)) = site.graph().ty(result) else { return None };
    // What is known needs no value at all; see `write_numbers`.
    if dim.as_known().is_some() {
        return None;
    }
    let first = site.int_of(&dim.clone())?;
    site.took(PASS.name, node, 1);
    Some(vec![first])
}

fn write_numbers(block: &mut Block, known: &HashMap<ValueId, i64>) {
    for node in &mut block.nodes {
        write_numbers_of(&mut node.op, known);
        match &mut node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                write_numbers(then_chain_idx, known);
                write_numbers(else_chain_idx, known);
            }
            Op::Scan { body_chain_idx, .. } => write_numbers(body_chain_idx, known),
            _ => {}
        }
    }
}

fn write_numbers_of(op: &mut Op<Ssa>, known: &HashMap<ValueId, i64>) {
    let int = |arg: &mut IntArg<ValueId>| {
        if let IntArg::Value(value) = arg
            && let Some(number) = known.get(value)
        {
            *arg = IntArg::Literal(*number);
        }
    };
    op.for_each_field_mut(|_, field| match field {
        FieldMut::Int(arg) => int(arg),
        FieldMut::MaybeInt(Some(arg)) => int(arg),
        FieldMut::Ints(args) => args.iter_mut().for_each(int),
        FieldMut::MaybeInts(Some(args)) => args.iter_mut().for_each(int),
        FieldMut::Float(arg) => {
            if let FloatArg::Value(value) = arg
                && let Some(number) = known.get(value)
            {
                *arg = FloatArg::Literal(*number as f64);
            }
        }
        FieldMut::Index(arg) => {
            if let IndexArg::Value(value) = arg
                && let Some(number) = known.get(value)
            {
                *arg = IndexArg::Literal(*number);
            }
        }
        _ => {}
    });
}
