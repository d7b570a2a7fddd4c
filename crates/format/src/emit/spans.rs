//! From where to where each value lives, on one line through a graph and its nested blocks.
//!
//! Every node has a position, every block two (its start and its end), and a node with blocks one more behind
//! them. A value that a loop's body takes from outside lives to the end of that loop, since the next step reads
//! it again; what a branch or a loop gives has its slot from the start of the node, because bodies write it.

use pteron_ir::{Block, Graph, Node, Op, ValueId};

use super::EmitError;
use super::boundary::Edge;

/// A moment on the line.
pub(super) type Position = u32;

/// After everything.
pub(super) const END: Position = Position::MAX;

/// Who sets a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Definer {
    Nobody,
    /// It is there before the graph runs.
    Outside,
    Param,
    Node,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    definer: Definer,
    /// The block of its definition, in the order in which blocks are met; the graph's own is 0.
    block: u32,
    /// How many loops are around its definition.
    loops: usize,
    first: Position,
    last: Position,
}

/// The span of every value of a graph.
#[derive(Debug)]
pub(super) struct Spans(Vec<Span>);

impl Spans {
    /// Spans of a graph between what it finds and what it leaves.
    pub(super) fn of(graph: &Graph, edge: &Edge) -> Result<Spans, EmitError> {
        let unknown = Span { definer: Definer::Nobody, block: 0, loops: 0, first: 0, last: 0 };
        let mut walk = Walk {
            graph,
            spans: vec![unknown; graph.values.len()],
            clock: Clock::default(),
            open: vec![true],
            loops: Vec::new(),
        };
        for &(value, _) in &edge.given {
            walk.define("the boundary", value, Definer::Outside, 0, 0)?;
        }
        walk.nodes(&graph.body, 0)?;
        for &(value, _) in &edge.outputs {
            // An output that is there from the start is copied at the start.
            if walk.span("an output", value)?.definer == Definer::Node {
                walk.read("an output", value, END)?;
            }
        }
        for home in edge.homes.iter().filter(|home| home.old != Some(home.new)) {
            walk.read("an update", home.new, END)?;
        }
        Ok(Spans(walk.spans))
    }

    /// The value's first moment: when the node that gives it starts.
    pub(super) fn first(&self, value: ValueId) -> Position {
        self.0.get(value.0 as usize).map_or(0, |span| span.first)
    }

    /// Its last use.
    pub(super) fn last(&self, value: ValueId) -> Position {
        self.0.get(value.0 as usize).map_or(0, |span| span.last)
    }

    /// Whether a node right in that block gives it.
    pub(super) fn is_made_in(&self, value: ValueId, block: u32) -> bool {
        let span = self.0.get(value.0 as usize);
        span.is_some_and(|span| span.definer == Definer::Node && span.block == block)
    }
}

/// Counts positions and blocks; whoever walks the same graph in the same order gets the same numbers.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now: Position,
    blocks: u32,
}

impl Clock {
    /// The next position.
    pub(super) fn tick(&mut self) -> Position {
        self.now += 1;
        self.now
    }

    /// The number of the block that is entered now.
    pub(super) fn enter(&mut self) -> u32 {
        self.blocks += 1;
        self.blocks
    }
}

/// A loop around the current node.
struct Loop {
    /// Values from outside it that its body reads.
    reads: Vec<ValueId>,
}

struct Walk<'g> {
    graph: &'g Graph,
    spans: Vec<Span>,
    clock: Clock,
    /// By block: whether the current node is in it.
    open: Vec<bool>,
    loops: Vec<Loop>,
}

impl Walk<'_> {
    fn span(&mut self, user: &str, value: ValueId) -> Result<&mut Span, EmitError> {
        let graph = self.graph;
        let open = &self.open;
        let span = self.spans.get_mut(value.0 as usize).filter(|span| {
            span.definer != Definer::Nobody && open.get(span.block as usize).copied().unwrap_or(false)
        });
        span.ok_or_else(|| EmitError::Undefined { graph: graph.name.clone(), value, user: user.to_owned() })
    }

    fn define(
        &mut self,
        definer: &str,
        value: ValueId,
        by: Definer,
        block: u32,
        now: Position,
    ) -> Result<(), EmitError> {
        let (graph, loops) = (self.graph, self.loops.len());
        match self.spans.get_mut(value.0 as usize) {
            Some(span) if span.definer == Definer::Nobody => {
                *span = Span { definer: by, block, loops, first: now, last: now };
                Ok(())
            }
            Some(_) => {
                let definer = definer.to_owned();
                Err(EmitError::Redefined { graph: graph.name.clone(), value, definer })
            }
            None => Err(EmitError::Undefined { graph: graph.name.clone(), value, user: definer.to_owned() }),
        }
    }

    fn read(&mut self, user: &str, value: ValueId, now: Position) -> Result<(), EmitError> {
        let around = self.loops.len();
        let span = self.span(user, value)?;
        span.last = span.last.max(now);
        let outermost = span.loops;
        if outermost < around
            && let Some(outermost) = self.loops.get_mut(outermost)
        {
            outermost.reads.push(value);
        }
        Ok(())
    }

    fn read_all(&mut self, user: &str, values: &[ValueId], now: Position) -> Result<(), EmitError> {
        values.iter().try_for_each(|&value| self.read(user, value, now))
    }

    fn nodes(&mut self, block: &Block, number: u32) -> Result<(), EmitError> {
        block.nodes.iter().try_for_each(|node| self.node(node, number))
    }

    fn node(&mut self, node: &Node, block: u32) -> Result<(), EmitError> {
        let name = node.op.spec().text;
        let start = self.clock.tick();
        match &node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                self.operands(node, start)?;
                for body in [then_chain_idx, else_chain_idx] {
                    self.body(name, body)?;
                }
            }
            Op::Scan { originals, carry, body_chain_idx, .. } => {
                self.read_all(name, carry, start)?;
                self.loops.push(Loop { reads: Vec::new() });
                self.body(name, body_chain_idx)?;
                let end = self.clock.tick();
                let reads = self.loops.pop().map(|closed| closed.reads).unwrap_or_default();
                self.read_all(name, &reads, end)?;
                // Every step slices them anew.
                self.read_all(name, originals, end)?;
                return self.define_results(node, block, start, end);
            }
            _ => {
                self.operands(node, start)?;
                return self.define_results(node, block, start, start);
            }
        }
        let end = self.clock.tick();
        self.define_results(node, block, start, end)
    }

    fn operands(&mut self, node: &Node, now: Position) -> Result<(), EmitError> {
        let mut operands = Vec::new();
        node.for_each_operand(|value| operands.push(value));
        self.read_all(node.op.spec().text, &operands, now)
    }

    /// Results live from the start of their node at least to its end.
    fn define_results(
        &mut self,
        node: &Node,
        block: u32,
        start: Position,
        end: Position,
    ) -> Result<(), EmitError> {
        for &value in &node.results {
            self.define(node.op.spec().text, value, Definer::Node, block, start)?;
            self.spans[value.0 as usize].last = end;
        }
        Ok(())
    }

    fn body(&mut self, name: &str, body: &Block) -> Result<(), EmitError> {
        let number = self.clock.enter();
        self.open.push(true);
        let start = self.clock.tick();
        for &param in &body.params {
            self.define(name, param, Definer::Param, number, start)?;
        }
        self.nodes(body, number)?;
        let end = self.clock.tick();
        self.read_all(name, &body.results, end)?;
        self.open[number as usize] = false;
        Ok(())
    }
}
