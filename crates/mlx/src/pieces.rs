//! Which parts of a graph MLX can trace once and replay. Numbers that only the data tell (a position that an op reads back,
//! and what is computed from it) and tensors whose sizes depend on them change from run to run; the nodes that touch them are
//! walked each time, and what lies between two of them is a piece. A graph without such a node is one piece.

use crate::machine::is_view;
use pteron_ir::op::ResultKind;
use pteron_ir::{Block, Graph, Node, Op, Symbol, Type, ValueId};
use pteron_runtime::reference::BlockLife;
use std::collections::HashSet;
use std::ops::Range;

/// Nodes that compute, below which a piece is walked: a call of a compiled function costs as much as some ops.
const LEAST_NODES: usize = 4;

/// Nodes in a row that a compiled function stands for.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Of the graph's body.
    pub(crate) nodes: Range<usize>,
    /// What the nodes read that others make: first what never changes its type, constants and buffers.
    pub(crate) takes: Vec<ValueId>,
    /// How many of those never do.
    pub(crate) fixed: usize,
    /// What others read of the nodes' results.
    pub(crate) gives: Vec<ValueId>,
}

/// The pieces of a graph, in order.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) pieces: Vec<Piece>,
    /// The op that keeps the graph from being one piece.
    pub(crate) split_by: Option<&'static str>,
}

impl Pieces {
    pub(crate) fn of(graph: &Graph, life: &BlockLife) -> Pieces {
        let (mut survey, cutter) = (Survey::new(graph), Cutter::new(graph, life));
        let mut pieces = Pieces::default();
        let (mut begin, count) = (0, graph.body.nodes.len());
        for (index, node) in graph.body.nodes.iter().enumerate() {
            if survey.varies(node) {
                pieces.split_by.get_or_insert(node.op.spec().name);
                pieces.pieces.extend(cutter.piece(begin..index));
                begin = index + 1;
            }
        }
        pieces.pieces.extend(cutter.piece(begin..count));
        pieces
    }
}

/// What varies from run to run under the same sizes of inputs.
struct Survey<'g> {
    graph: &'g Graph,
    /// Symbols that the sizes of inputs settle.
    settled: HashSet<Symbol>,
    varying: HashSet<ValueId>,
}

impl<'g> Survey<'g> {
    fn new(graph: &'g Graph) -> Survey<'g> {
        let (mut settled, mut varying) = (HashSet::new(), HashSet::new());
        for input in &graph.inputs {
            match graph.ty(input.value) {
                Some(Type::Tensor(tensor)) => {
                    let symbols = tensor.shape.iter().flat_map(|dim| dim.parts().1);
                    settled.extend(symbols.map(|&(symbol, _)| symbol));
                }
                _ => {
                    varying.insert(input.value);
                }
            }
        }
        Survey { graph, settled, varying }
    }

    /// Whether a node must be walked each time; remembers which of its results vary.
    fn varies(&mut self, node: &Node) -> bool {
        let mut varies = reads_back(node);
        for_each_read(node, &mut |value| varies |= self.varying.contains(&value));
        node.for_each_block(|block| varies |= any_reads_back(block));
        if varies {
            for &value in &node.results {
                if !self.is_settled(value) {
                    self.varying.insert(value);
                }
            }
        }
        varies
    }

    /// Whether the type alone says that a value is the same in every run, its elements apart.
    fn is_settled(&self, value: ValueId) -> bool {
        match self.graph.ty(value) {
            Some(Type::Tensor(tensor)) => tensor
                .shape
                .iter()
                .all(|dim| dim.parts().1.iter().all(|(symbol, _)| self.settled.contains(symbol))),
            Some(Type::Int(dim)) => dim.as_known().is_some(),
            _ => false,
        }
    }
}

/// Whether an op needs a number that only the data tell.
fn reads_back(node: &Node) -> bool {
    matches!(node.op, Op::ItemInt { .. } | Op::UpdateAndAttend { .. })
}

fn any_reads_back(block: &Block) -> bool {
    block.nodes.iter().any(|node| {
        let mut found = reads_back(node);
        node.for_each_block(|block| found |= any_reads_back(block));
        found
    })
}

/// Every value that a node and the blocks in it read, the blocks' own ones included.
fn for_each_read(node: &Node, visit: &mut dyn FnMut(ValueId)) {
    node.for_each_operand(&mut *visit);
    node.for_each_block(|block| {
        block.nodes.iter().for_each(|node| for_each_read(node, visit));
        block.results.iter().for_each(|&value| visit(value));
    });
}

/// Cuts ranges of nodes out of a graph.
struct Cutter<'g> {
    graph: &'g Graph,
    life: &'g BlockLife,
    /// Values whose type never changes: constants and buffers.
    fixed: HashSet<ValueId>,
}

impl<'g> Cutter<'g> {
    fn new(graph: &'g Graph, life: &'g BlockLife) -> Cutter<'g> {
        let constants = graph.constants.iter().map(|constant| constant.value);
        let fixed = constants.chain(graph.buffers.iter().map(|buffer| buffer.value)).collect();
        Cutter { graph, life, fixed }
    }

    /// The piece of a range of nodes; `None` where it is not worth a call.
    fn piece(&self, range: Range<usize>) -> Option<Piece> {
        let is_whole = range.len() == self.graph.body.nodes.len();
        let nodes = &self.graph.body.nodes[range.clone()];
        if nodes.is_empty() || !is_whole && nodes.iter().filter(|node| computes(node)).count() < LEAST_NODES {
            return None;
        }
        let mut known = HashSet::new();
        nodes.iter().for_each(|node| define(node, &mut known));
        let mut outside = Vec::new();
        for node in nodes {
            for_each_read(node, &mut |value| {
                if known.insert(value) {
                    outside.push(value);
                }
            });
        }
        let is_fixed = |value: &ValueId| self.fixed.contains(value);
        let (mut takes, others): (Vec<_>, Vec<_>) = outside.into_iter().partition(is_fixed);
        let fixed = takes.len();
        takes.extend(others);
        let dead: HashSet<&ValueId> = self.life.dying[range.clone()].iter().flatten().collect();
        let results = nodes.iter().flat_map(|node| &node.results);
        let gives = results.filter(|value| !dead.contains(value)).copied().collect();
        Some(Piece { nodes: range, takes, fixed, gives })
    }
}

/// Whether a node makes a tensor that is no view.
fn computes(node: &Node) -> bool {
    let kind = node.op.spec().result.kind;
    matches!(kind, ResultKind::Tensor | ResultKind::Tensors | ResultKind::Yielded) && !is_view(&node.op)
}

/// What a node and the blocks in it make.
fn define(node: &Node, defined: &mut HashSet<ValueId>) {
    defined.extend(&node.results);
    node.for_each_block(|block| {
        defined.extend(&block.params);
        block.nodes.iter().for_each(|node| define(node, defined));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_ir::parse_graph;

    /// A range of nodes, with how many values they take and give.
    type Shown = (Range<usize>, usize, usize);

    fn pieces(text: &str) -> (Vec<Shown>, Option<&'static str>) {
        let graph = parse_graph(text).unwrap();
        let found = Pieces::of(&graph, &BlockLife::of(&graph));
        let shown = |piece: &Piece| (piece.nodes.clone(), piece.takes.len(), piece.gives.len());
        (found.pieces.iter().map(shown).collect(), found.split_by)
    }

    #[test]
    fn a_graph_that_reads_nothing_back_is_one_piece() {
        let text = r#"
graph "forward"
  symbol s0 in 1..=8
  input %0 "x": f32[s0, 2]
  constant %1 "w": f32[2]
{
  %2: int(s0) = sym_size(a=%0, dim=0)
  %3: f32[s0, 2] = add(a=%0, b=%1)
  %4: f32[2, s0] = reshape(x=%3, shape=[2, %2])
}
output %4 "out": f32[2, s0]
"#;
        assert_eq!(pieces(text), (vec![(0..3, 2, 1)], None));
    }

    #[test]
    fn what_depends_on_a_position_is_walked_and_the_rest_is_not() {
        let text = include_str!("../tests/graphs/keeper.pir");
        assert_eq!(pieces(text), (vec![(0..4, 2, 1), (9..13, 2, 1)], Some("ItemInt")));
    }
}
