//! When the values of a graph are needed: from where each is made to where it is last read, on one line through a graph
//! and its nested blocks. Whoever frees memory, shares places or hands out slots asks here.
//!
//! A node has a tick on that line when it starts, a block one at its start and one at its end, and a node with blocks one
//! more behind them. Three rules make the line hold for branches and loops:
//!
//! - what a block gives is read at the block's end, behind its last node;
//! - what a loop's body reads from outside, the next step reads again: it lives until the loop is left, and so does what
//!   the loop slices;
//! - what a branch or a loop gives is there from the start of its node, because bodies may write it.

use crate::graph::{Block, Graph, Node, ValueId};
use crate::op::Op;

/// A moment of a run, in execution order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u32);

impl Tick {
    /// Before the first node.
    pub const START: Tick = Tick(0);
    /// After everything.
    pub const END: Tick = Tick(u32::MAX);
}

/// Counts ticks and blocks. Whoever walks the same graph in the order in which [`Liveness`] does (a node, its blocks, what is
/// behind them) gets the same numbers.
#[derive(Debug, Default)]
pub struct Clock {
    now: u32,
    blocks: u32,
}

impl Clock {
    /// The next tick.
    pub fn tick(&mut self) -> Tick {
        self.now += 1;
        Tick(self.now)
    }

    /// The number of the block that is entered now; the graph's own is 0.
    pub fn enter(&mut self) -> u32 {
        self.blocks += 1;
        self.blocks
    }
}

/// Who sets a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definer {
    /// Nothing that was met.
    Nobody,
    /// It is there before the graph runs.
    Outside,
    /// It is a parameter of a block.
    Param,
    /// A node gives it.
    Node,
}

/// The life of one value.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Who sets it.
    pub definer: Definer,
    /// The block of its definition, numbered as by [`Clock::enter`].
    pub block: u32,
    /// When it is made: when the node that gives it starts.
    pub from: Tick,
    /// When it is last read; where nothing reads it, when its node or the start of its block is over.
    pub to: Tick,
    /// How many loops are around its definition.
    loops: usize,
}

/// When a node runs.
#[derive(Clone, Copy, Debug)]
pub struct NodeTicks {
    /// When it starts, and reads what it reads.
    pub start: Tick,
    /// When all of its blocks have run; its start where it has none.
    pub end: Tick,
    /// The number of the first node behind it and its nested ones.
    pub next: usize,
}

/// What is wrong with a graph that was not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LivenessError {
    /// A value is used that nothing in reach has set.
    Undefined {
        /// Which value.
        value: ValueId,
        /// What uses it.
        user: String,
    },
    /// A value is set twice.
    Redefined {
        /// Which value.
        value: ValueId,
        /// What sets it again.
        definer: String,
    },
}

/// The lives of all values of a graph.
#[derive(Debug)]
pub struct Liveness {
    lives: Vec<Life>,
    nodes: Vec<NodeTicks>,
}

impl Liveness {
    /// Of a graph that the verifier has passed: inputs, constants and buffers are there from the start, outputs and the new
    /// contents of buffers are read at the end.
    pub fn of(graph: &Graph) -> Liveness {
        let inputs = graph.inputs.iter().map(|input| input.value);
        let constants = graph.constants.iter().map(|constant| constant.value);
        let given = inputs.chain(constants).chain(graph.buffers.iter().map(|buffer| buffer.value));
        let outputs = graph.outputs.iter().map(|output| ("an output", output.value));
        let updates = graph.buffers.iter().map(|buffer| ("an update", buffer.update));
        walk(graph, given, outputs.chain(updates)).0
    }

    /// Of any graph, with another border: what is there at the start, and what is read at the end, with a word for who does.
    pub fn between<'a>(
        graph: &Graph,
        given: impl IntoIterator<Item = ValueId>,
        kept: impl IntoIterator<Item = (&'a str, ValueId)>,
    ) -> Result<Liveness, LivenessError> {
        match walk(graph, given, kept) {
            (liveness, None) => Ok(liveness),
            (_, Some(error)) => Err(error),
        }
    }

    /// The life of a value; that of one which nothing sets where the graph has no such value.
    pub fn life(&self, value: ValueId) -> Life {
        self.lives.get(value.0 as usize).copied().unwrap_or(UNKNOWN)
    }

    /// When a node runs, by its number in pre-order.
    pub fn node(&self, number: usize) -> NodeTicks {
        self.nodes[number]
    }

    /// Whether a node right in that block gives a value.
    pub fn is_made_in(&self, value: ValueId, block: u32) -> bool {
        let life = self.life(value);
        life.definer == Definer::Node && life.block == block
    }
}

const UNKNOWN: Life =
    Life { definer: Definer::Nobody, block: 0, from: Tick::START, to: Tick::START, loops: 0 };

/// The lives, and the first thing that is wrong.
fn walk<'a>(
    graph: &Graph,
    given: impl IntoIterator<Item = ValueId>,
    kept: impl IntoIterator<Item = (&'a str, ValueId)>,
) -> (Liveness, Option<LivenessError>) {
    let mut walk = Walk {
        liveness: Liveness { lives: vec![UNKNOWN; graph.values.len()], nodes: Vec::new() },
        clock: Clock::default(),
        open: vec![true],
        loops: Vec::new(),
        error: None,
    };
    for value in given {
        walk.define("the boundary", value, Definer::Outside, 0, Tick::START);
    }
    walk.nodes(&graph.body, 0);
    for (user, value) in kept {
        walk.read(user, value, Tick::END);
    }
    (walk.liveness, walk.error)
}

struct Walk {
    liveness: Liveness,
    clock: Clock,
    /// By block: whether the current node is in it.
    open: Vec<bool>,
    /// By loop around the current node: values from outside it that its body reads.
    loops: Vec<Vec<ValueId>>,
    error: Option<LivenessError>,
}

impl Walk {
    fn define(&mut self, definer: &str, value: ValueId, by: Definer, block: u32, now: Tick) {
        let loops = self.loops.len();
        let error = match self.liveness.lives.get_mut(value.0 as usize) {
            Some(life) if life.definer == Definer::Nobody => {
                *life = Life { definer: by, block, from: now, to: now, loops };
                return;
            }
            Some(_) => LivenessError::Redefined { value, definer: definer.to_owned() },
            None => LivenessError::Undefined { value, user: definer.to_owned() },
        };
        self.error.get_or_insert(error);
    }

    fn read(&mut self, user: &str, value: ValueId, now: Tick) {
        let open = &self.open;
        let life = self.liveness.lives.get_mut(value.0 as usize).filter(|life| {
            life.definer != Definer::Nobody && open.get(life.block as usize).copied().unwrap_or(false)
        });
        let Some(life) = life else {
            self.error.get_or_insert_with(|| LivenessError::Undefined { value, user: user.to_owned() });
            return;
        };
        life.to = life.to.max(now);
        // To be read once more where the outermost loop that it came into is left.
        if let Some(reads) = self.loops.get_mut(life.loops) {
            reads.push(value);
        }
    }

    fn nodes(&mut self, block: &Block, number: u32) {
        block.nodes.iter().for_each(|node| self.node(node, number));
    }

    fn node(&mut self, node: &Node, block: u32) {
        let name = node.op.spec().text;
        let (own, start) = (self.liveness.nodes.len(), self.clock.tick());
        self.liveness.nodes.push(NodeTicks { start, end: start, next: own + 1 });
        let mut end = start;
        match &node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                node.for_each_operand(|value| self.read(name, value, start));
                self.body(name, then_chain_idx);
                self.body(name, else_chain_idx);
                end = self.clock.tick();
            }
            Op::Scan { originals, carry, body_chain_idx, .. } => {
                carry.iter().for_each(|&value| self.read(name, value, start));
                self.loops.push(Vec::new());
                self.body(name, body_chain_idx);
                end = self.clock.tick();
                let reads = self.loops.pop().unwrap_or_default();
                reads.iter().for_each(|&value| self.read(name, value, end));
                // Every step slices them anew.
                originals.iter().for_each(|&value| self.read(name, value, end));
            }
            _ => node.for_each_operand(|value| self.read(name, value, start)),
        }
        self.liveness.nodes[own] = NodeTicks { start, end, next: self.liveness.nodes.len() };
        for &value in &node.results {
            self.define(name, value, Definer::Node, block, start);
            if let Some(life) = self.liveness.lives.get_mut(value.0 as usize) {
                life.to = life.to.max(end);
            }
        }
    }

    fn body(&mut self, name: &str, body: &Block) {
        let number = self.clock.enter();
        self.open.push(true);
        let start = self.clock.tick();
        body.params.iter().for_each(|&param| self.define(name, param, Definer::Param, number, start));
        self.nodes(body, number);
        let end = self.clock.tick();
        body.results.iter().for_each(|&value| self.read(name, value, end));
        self.open[number as usize] = false;
    }
}
