//! Drops values, symbols and constants that a rewrite has left without a meaning, and closes the gaps in their numbers.

use pteron_ir::{Block, Dim, Graph, Op, Ssa, Symbol, Symbols, Type, ValueId};
use std::collections::HashMap;

/// Renumbers values and symbols in their order, without those that nothing defines or names.
pub(crate) fn compact(graph: &mut Graph) {
    let mut read = vec![false; graph.values.len()];
    let mut defined = read.clone();
    let mark = |flags: &mut Vec<bool>, value: ValueId| {
        if let Some(flag) = flags.get_mut(value.0 as usize) {
            *flag = true;
        }
    };
    visit_block(&graph.body, &mut |value, defines| {
        mark(if defines { &mut defined } else { &mut read }, value)
    });
    graph.outputs.iter().for_each(|output| mark(&mut read, output.value));
    graph.buffers.iter().for_each(|buffer| mark(&mut read, buffer.update));
    graph.constants.retain(|constant| read.get(constant.value.0 as usize) == Some(&true));
    graph.inputs.iter().for_each(|input| mark(&mut defined, input.value));
    graph.constants.iter().for_each(|constant| mark(&mut defined, constant.value));
    graph.buffers.iter().for_each(|buffer| mark(&mut defined, buffer.value));

    let mut numbers = HashMap::new();
    let mut values = Vec::new();
    for (at, info) in std::mem::take(&mut graph.values).into_iter().enumerate() {
        // A use without a definition is somebody's mistake, and the verifier's to report.
        if defined[at] || read[at] {
            numbers.insert(ValueId(at as u32), ValueId(values.len() as u32));
            values.push(info);
        }
    }
    graph.values = values;
    let point = |value: &mut ValueId| {
        if let Some(new) = numbers.get(value) {
            *value = *new;
        }
    };
    renumber_block(&mut graph.body, &point);
    graph.inputs.iter_mut().for_each(|input| point(&mut input.value));
    graph.constants.iter_mut().for_each(|constant| point(&mut constant.value));
    for buffer in &mut graph.buffers {
        point(&mut buffer.value);
        point(&mut buffer.update);
    }
    graph.outputs.iter_mut().for_each(|output| point(&mut output.value));
    compact_symbols(graph);
}

fn visit_block(block: &Block, visit: &mut dyn FnMut(ValueId, bool)) {
    block.params.iter().for_each(|value| visit(*value, true));
    for node in &block.nodes {
        node.for_each_operand(|value| visit(value, false));
        node.for_each_block(|block| visit_block(block, &mut *visit));
        node.results.iter().for_each(|value| visit(*value, true));
    }
    block.results.iter().for_each(|value| visit(*value, false));
}

fn renumber_block(block: &mut Block, point: &dyn Fn(&mut ValueId)) {
    block.params.iter_mut().for_each(point);
    for node in &mut block.nodes {
        renumber_op(&mut node.op, point);
        node.results.iter_mut().for_each(point);
    }
    block.results.iter_mut().for_each(point);
}

fn renumber_op(op: &mut Op<Ssa>, point: &dyn Fn(&mut ValueId)) {
    op.for_each_field_mut(|_, mut field| {
        field.for_each_tensor(&mut |value: &mut ValueId| point(value));
        field.for_each_scalar(&mut |value: &mut ValueId| point(value));
    });
    match op {
        Op::If { then_chain_idx, else_chain_idx, .. } => {
            renumber_block(then_chain_idx, point);
            renumber_block(else_chain_idx, point);
        }
        Op::Scan { body_chain_idx, .. } => renumber_block(body_chain_idx, point),
        _ => {}
    }
}

fn compact_symbols(graph: &mut Graph) {
    let mut used = vec![false; graph.symbols.len()];
    let mut mark = |dim: &Dim| {
        for (symbol, _) in dim.parts().1 {
            if let Some(used) = used.get_mut(symbol.0 as usize) {
                *used = true;
            }
        }
    };
    graph.values.iter().for_each(|info| for_each_dim(&info.ty, &mut mark));
    graph.outputs.iter().for_each(|output| for_each_dim(&output.ty, &mut mark));
    if used.iter().all(|used| *used) {
        return;
    }
    let mut symbols = Symbols::default();
    let mut numbers: HashMap<Symbol, Symbol> = HashMap::new();
    for (symbol, info) in graph.symbols.iter().filter(|(symbol, _)| used[symbol.0 as usize]) {
        numbers.insert(symbol, symbols.add(&info.name, info.min, info.max));
    }
    graph.symbols = symbols;
    graph.values.iter_mut().for_each(|info| renumber_type(&mut info.ty, &numbers));
    graph.outputs.iter_mut().for_each(|output| renumber_type(&mut output.ty, &numbers));
}

fn for_each_dim(ty: &Type, visit: &mut dyn FnMut(&Dim)) {
    match ty {
        Type::Tensor(tensor) => tensor.shape.iter().for_each(visit),
        Type::Int(dim) => visit(dim),
        Type::Float | Type::Bool => {}
    }
}

fn renumber_type(ty: &mut Type, numbers: &HashMap<Symbol, Symbol>) {
    let renumber = |dim: &mut Dim| {
        let (constant, terms) = dim.parts();
        let term = |&(symbol, factor): &(Symbol, i64)| {
            Dim::symbol(numbers.get(&symbol).copied().unwrap_or(symbol)).scale(factor)
        };
        let sum = terms.iter().try_fold(Dim::known(constant), |sum, part| sum.add(&term(part)?));
        // The terms are those of a sum that did not overflow.
        if let Some(sum) = sum {
            *dim = sum;
        }
    };
    match ty {
        Type::Tensor(tensor) => tensor.shape.iter_mut().for_each(renumber),
        Type::Int(dim) => renumber(dim),
        Type::Float | Type::Bool => {}
    }
}
