//! A graph cut into pieces: one graph a turn, and how values get from one to the next. Values of the whole are known by slots:
//! what the graph is given, buffers that are kept between the pieces, then what pieces give.
//!
//! A buffer lives in the piece that makes its new contents, where no earlier one reads it: there it is updated like any other.
//! All others are kept by the session's state as the values that the pieces gave, wherever those are.

use super::place::{Side, Turn, most_bytes};
use crate::backend::GraphId;
use pteron_ir::{
    Buffer, Constant, Dim, Graph, Input, Output, Symbol, Symbols, TensorType, Type, ValueId, ValueInfo,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A graph as several.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) pieces: Vec<Piece>,
    /// By output of the graph.
    pub(super) outputs: Vec<usize>,
    /// Buffers that no piece has.
    pub(super) kept: Vec<Kept>,
    pub(super) slots: usize,
    /// Values that go from one side to the other, and the most bytes that they have, where that is bounded.
    pub(super) crossing: (usize, Option<u64>),
}

/// A piece's call.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) side: Side,
    /// Among the graphs of its side.
    pub(super) id: GraphId,
    pub(super) nodes: usize,
    /// By input: the slot that it is taken from.
    pub(super) takes: Vec<usize>,
    /// By output: the slot that it goes to.
    pub(super) gives: Vec<usize>,
    /// Slots that nobody reads any more.
    pub(super) done: Vec<usize>,
}

/// A buffer between the pieces.
#[derive(Debug)]
pub(super) struct Kept {
    /// Its place among the graph's buffers.
    pub(super) buffer: usize,
    /// Where its contents are found.
    pub(super) slot: usize,
    /// Where its new contents are, unless nothing writes it.
    pub(super) update: Option<usize>,
    pub(super) ty: TensorType,
}

/// The graph of a piece.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) side: Side,
    pub(super) graph: Graph,
    /// By buffer: its place among those of the whole.
    pub(super) buffers: Vec<usize>,
}

/// What makes a value.
#[derive(Clone, Copy)]
enum Origin {
    Input(usize),
    Constant(usize),
    Buffer(usize),
    /// A node of a turn, or one whose number every turn can compute; which one.
    Node(Option<usize>, usize),
}

/// Cuts a graph into the turns of its nodes. Pieces are numbered from `next` on, by side.
pub(super) fn cut(
    graph: &Graph,
    turns: &[Turn],
    mut next: impl FnMut(Side) -> GraphId,
) -> (Whole, Vec<Part>) {
    let mut cutter = Cutter::new(graph, turns);
    cutter.keep_buffers();
    let kept: Vec<Kept> = cutter.kept();
    let outputs: Vec<usize> = graph.outputs.iter().map(|output| cutter.output(output)).collect();
    cutter.connect();
    let crossing = cutter.crossing();
    let last = cutter.last_reads(outputs.iter().copied().chain(kept.iter().filter_map(|kept| kept.update)));
    let (mut pieces, mut parts) = (Vec::new(), Vec::new());
    for (number, (side, _)) in turns.iter().enumerate() {
        let (part, takes, gives) = cutter.part(number, *side);
        let done = last.iter().filter(|(_, piece)| **piece == number).map(|(slot, _)| *slot).collect();
        let nodes = part.graph.body.nodes.len();
        pieces.push(Piece { side: *side, id: next(*side), nodes, takes, gives, done });
        parts.push(part);
    }
    (Whole { pieces, outputs, kept, slots: cutter.slots, crossing }, parts)
}

struct Cutter<'g> {
    graph: &'g Graph,
    origins: HashMap<ValueId, Origin>,
    /// By turn: its nodes and those of the numbers that it needs, in order.
    nodes: Vec<BTreeSet<usize>>,
    /// By turn: what it reads and does not make, in order.
    reads: Vec<Vec<ValueId>>,
    known: Vec<HashSet<ValueId>>,
    /// By turn: what it gives, with the slot of each.
    gives: Vec<Vec<(Output, usize)>>,
    /// By buffer: the turn that has it.
    homes: Vec<Option<usize>>,
    /// Values that have a slot as they are.
    slot_of: HashMap<ValueId, usize>,
    slots: usize,
    sides: Vec<Side>,
}

impl<'g> Cutter<'g> {
    fn new(graph: &'g Graph, turns: &[Turn]) -> Cutter<'g> {
        let mut origins = HashMap::new();
        let inputs = graph.inputs.iter().enumerate().map(|(at, input)| (input.value, Origin::Input(at)));
        let constants = graph.constants.iter().enumerate();
        let constants = constants.map(|(at, constant)| (constant.value, Origin::Constant(at)));
        let buffers = graph.buffers.iter().enumerate().map(|(at, one)| (one.value, Origin::Buffer(at)));
        origins.extend(inputs.chain(constants).chain(buffers));
        let mut turn_of = vec![None; graph.body.nodes.len()];
        for (number, (_, nodes)) in turns.iter().enumerate() {
            nodes.iter().for_each(|&node| turn_of[node] = Some(number));
        }
        for (at, (node, turn)) in graph.body.nodes.iter().zip(turn_of).enumerate() {
            origins.extend(node.results.iter().map(|&value| (value, Origin::Node(turn, at))));
        }
        let slot_of = graph.inputs.iter().enumerate().map(|(at, input)| (input.value, at)).collect();
        let mut cutter = Cutter {
            graph,
            origins,
            nodes: vec![BTreeSet::new(); turns.len()],
            reads: vec![Vec::new(); turns.len()],
            known: vec![HashSet::new(); turns.len()],
            gives: vec![Vec::new(); turns.len()],
            homes: vec![None; graph.buffers.len()],
            slot_of,
            slots: graph.inputs.len(),
            sides: turns.iter().map(|(side, _)| *side).collect(),
        };
        for (number, (_, nodes)) in turns.iter().enumerate() {
            nodes.iter().for_each(|&node| cutter.add_node(number, node));
        }
        cutter
    }

    fn add_node(&mut self, turn: usize, node: usize) {
        if self.nodes[turn].insert(node) {
            let mut reads = Vec::new();
            self.graph.body.nodes[node].for_each_capture(&mut |value| reads.push(value));
            reads.into_iter().for_each(|value| self.read(turn, value));
        }
    }

    /// Notes that a turn reads a value; a number that it can compute, it does.
    fn read(&mut self, turn: usize, value: ValueId) {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            match self.origins.get(&value) {
                Some(Origin::Node(None, node)) => {
                    if self.nodes[turn].insert(*node) {
                        self.graph.body.nodes[*node].for_each_capture(&mut |value| left.push(value));
                    }
                }
                Some(Origin::Node(Some(its), _)) if *its == turn => {}
                _ => {
                    if self.known[turn].insert(value) {
                        self.reads[turn].push(value);
                    }
                }
            }
        }
    }

    fn new_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    /// The turn that can give a value.
    fn giver(&self, value: ValueId) -> usize {
        match self.origins.get(&value) {
            Some(Origin::Node(turn, _)) => turn.unwrap_or(0),
            Some(Origin::Buffer(buffer)) => self.homes[*buffer].unwrap_or(0),
            _ => 0,
        }
    }

    /// The slot of a value, which a turn gives where nothing else does.
    fn slot(&mut self, value: ValueId) -> usize {
        if let Some(&slot) = self.slot_of.get(&value) {
            return slot;
        }
        let ty = self.graph.values[value.0 as usize].ty.clone();
        let slot = self.give(Output { name: String::new(), value, ty });
        self.slot_of.insert(value, slot);
        slot
    }

    fn give(&mut self, output: Output) -> usize {
        let (turn, slot) = (self.giver(output.value), self.new_slot());
        self.read(turn, output.value);
        self.gives[turn].push((output, slot));
        slot
    }

    /// The slot of an output of the graph. One that is converted has a slot of its own.
    fn output(&mut self, output: &Output) -> usize {
        let is_converted = match (&output.ty, self.graph.ty(output.value)) {
            (Type::Tensor(declared), Some(Type::Tensor(ty))) => declared.dtype != ty.dtype,
            _ => false,
        };
        if is_converted { self.give(output.clone()) } else { self.slot(output.value) }
    }

    /// Decides which turn has each buffer. The others have slots from here on.
    fn keep_buffers(&mut self) {
        for (at, buffer) in self.graph.buffers.iter().enumerate() {
            let readers = self.known.iter().enumerate().filter(|(_, known)| known.contains(&buffer.value));
            let first = readers.map(|(turn, _)| turn).next();
            let maker = match self.origins.get(&buffer.update) {
                Some(Origin::Node(turn, _)) => *turn,
                _ if buffer.update == buffer.value => Some(first.unwrap_or(0)),
                _ => None,
            };
            self.homes[at] = maker.filter(|&maker| first.is_none_or(|first| maker <= first));
            if let Some(home) = self.homes[at] {
                self.read(home, buffer.value);
            }
        }
        for (at, buffer) in self.graph.buffers.iter().enumerate() {
            if self.homes[at].is_none() {
                let slot = self.new_slot();
                self.slot_of.insert(buffer.value, slot);
            }
        }
    }

    /// The buffers that no turn has.
    fn kept(&mut self) -> Vec<Kept> {
        let graph = self.graph;
        let buffers = graph.buffers.iter().enumerate();
        let kept = buffers.filter_map(|(at, buffer)| {
            let (None, Some(&slot)) = (self.homes[at], self.slot_of.get(&buffer.value)) else { return None };
            let Some(Type::Tensor(ty)) = graph.ty(buffer.value) else { return None };
            let update = (buffer.update != buffer.value).then(|| self.slot(buffer.update));
            Some(Kept { buffer: at, slot, update, ty: ty.clone() })
        });
        kept.collect()
    }

    /// Has all that a turn reads and another makes given a slot.
    fn connect(&mut self) {
        for turn in 0..self.reads.len() {
            for at in 0..self.reads[turn].len() {
                let value = self.reads[turn][at];
                let comes = match self.origins.get(&value) {
                    Some(Origin::Node(..)) => true,
                    Some(Origin::Buffer(buffer)) => self.homes[*buffer] != Some(turn),
                    _ => false,
                };
                if comes {
                    self.slot(value);
                }
            }
        }
    }

    /// Whether a turn takes a value as an input.
    fn is_taken(&self, turn: usize, value: ValueId) -> bool {
        match self.origins.get(&value) {
            Some(Origin::Input(_) | Origin::Node(..)) => true,
            Some(Origin::Buffer(buffer)) => self.homes[*buffer] != Some(turn),
            _ => false,
        }
    }

    /// Values that one side gives and the other takes, and their bytes.
    fn crossing(&self) -> (usize, Option<u64>) {
        let mut values = HashSet::new();
        for (turn, reads) in self.reads.iter().enumerate() {
            values.extend(reads.iter().filter(|&&value| {
                !matches!(self.origins.get(&value), Some(Origin::Input(_)))
                    && self.is_taken(turn, value)
                    && self.sides[self.giver(value)] != self.sides[turn]
            }));
        }
        let bytes = values.iter().map(|&&value| most_bytes(self.graph, value));
        (values.len(), bytes.sum::<Option<u64>>())
    }

    /// By slot: the last turn that reads it, but for those that are read at the end.
    fn last_reads(&self, at_end: impl Iterator<Item = usize>) -> BTreeMap<usize, usize> {
        let mut last = BTreeMap::new();
        for (turn, reads) in self.reads.iter().enumerate() {
            for value in reads.iter().filter(|&&value| self.is_taken(turn, value)) {
                if let Some(&slot) = self.slot_of.get(value) {
                    last.insert(slot, turn);
                }
            }
        }
        for slot in at_end {
            last.remove(&slot);
        }
        last
    }

    /// A turn as a graph of its own, with the slots that it takes and gives.
    fn part(&self, turn: usize, side: Side) -> (Part, Vec<usize>, Vec<usize>) {
        let from = self.graph;
        let mut renumbering = Renumbering { from, values: HashMap::new(), symbols: HashMap::new() };
        let mut graph = Graph { name: from.name.clone(), ..Graph::default() };
        let (mut takes, mut buffers) = (Vec::new(), Vec::new());
        for &value in &self.reads[turn] {
            let new = renumbering.value(&mut graph, value);
            match (self.origins.get(&value), self.slot_of.get(&value)) {
                (Some(&Origin::Constant(at)), _) => {
                    let name = from.constants[at].name.clone();
                    graph.constants.push(Constant { name, value: new });
                }
                (Some(&Origin::Buffer(at)), _) if self.homes[at] == Some(turn) => {
                    let name = from.buffers[at].name.clone();
                    graph.buffers.push(Buffer { name, value: new, update: new });
                    buffers.push(at);
                }
                (origin, Some(&slot)) => {
                    let name = match origin {
                        Some(&Origin::Input(at)) => from.inputs[at].name.clone(),
                        _ => String::new(),
                    };
                    graph.inputs.push(Input { name, value: new });
                    takes.push(slot);
                }
                _ => {}
            }
        }
        for &at in &self.nodes[turn] {
            let mut node = from.body.nodes[at].clone();
            node.for_each_value_mut(&mut |value| *value = renumbering.value(&mut graph, *value));
            graph.body.nodes.push(node);
        }
        for (at, buffer) in buffers.iter().enumerate() {
            graph.buffers[at].update = renumbering.value(&mut graph, from.buffers[*buffer].update);
        }
        let mut gives = Vec::new();
        for (output, slot) in &self.gives[turn] {
            let value = renumbering.value(&mut graph, output.value);
            let ty = renumbering.ty(&mut graph.symbols, &output.ty);
            graph.outputs.push(Output { name: output.name.clone(), value, ty });
            gives.push(*slot);
        }
        (Part { side, graph, buffers }, takes, gives)
    }
}

/// Values and symbols of a piece by those of the whole; what a piece does not name, it does not have.
struct Renumbering<'g> {
    from: &'g Graph,
    values: HashMap<ValueId, ValueId>,
    symbols: HashMap<Symbol, Symbol>,
}

impl Renumbering<'_> {
    fn value(&mut self, graph: &mut Graph, value: ValueId) -> ValueId {
        if let Some(&new) = self.values.get(&value) {
            return new;
        }
        let ty = self.from.ty(value).cloned().unwrap_or(Type::Bool);
        let ty = self.ty(&mut graph.symbols, &ty);
        graph.values.push(ValueInfo { ty });
        let new = ValueId(graph.values.len() as u32 - 1);
        self.values.insert(value, new);
        new
    }

    fn ty(&mut self, symbols: &mut Symbols, ty: &Type) -> Type {
        match ty {
            Type::Tensor(tensor) => {
                let shape = tensor.shape.iter().map(|dim| self.dim(symbols, dim)).collect();
                Type::Tensor(TensorType { dtype: tensor.dtype, shape })
            }
            Type::Int(dim) => Type::Int(self.dim(symbols, dim)),
            other => other.clone(),
        }
    }

    fn dim(&mut self, symbols: &mut Symbols, dim: &Dim) -> Dim {
        let (constant, terms) = dim.parts();
        let sum = terms.iter().try_fold(Dim::known(constant), |sum, &(symbol, factor)| {
            let new = self.symbols.entry(symbol).or_insert_with(|| match self.from.symbols.get(symbol) {
                Some(info) => symbols.add(&info.name, info.min, info.max),
                None => symbols.add("", 0, None),
            });
            sum.add(&Dim::symbol(*new).scale(factor)?)
        });
        // The terms are those of a sum that did not overflow.
        sum.unwrap_or_else(|| symbols.fresh_size(None))
    }
}
