//! Liveness against execution: random graphs of branches and loops inside each other run with random choices, every value
//! is dropped as soon as its life is over, and nothing that was dropped may be read.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use pteron_ir::liveness::{Clock, Liveness, Tick};
use pteron_ir::op::IntArg;
use pteron_ir::{Block, Graph, Node, Op, Output, Ssa, TensorType, Type, ValueId};
use pteron_tensor::DType;

/// Blocks inside each other.
const MOST_DEPTH: usize = 3;

/// Choices out of bytes; 0 when they are used up.
struct Choices<'b>(std::slice::Iter<'b, u8>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % count.max(1)
    }

    fn some_of(&mut self, scope: &[ValueId], most: usize) -> Vec<ValueId> {
        let count = self.below(most + 1);
        (0..count).map(|_| scope[self.below(scope.len())]).collect()
    }
}

fn ty() -> TensorType {
    TensorType::known(DType::F32, &[2])
}

fn values(graph: &mut Graph, count: usize) -> Vec<ValueId> {
    (0..count).map(|_| graph.add_value(Type::Tensor(ty()))).collect()
}

/// A graph whose values have no meaning, only readers.
fn make(choices: &mut Choices<'_>) -> Graph {
    let mut graph = Graph::default();
    let (input, constant) = (graph.add_input("x", Type::Tensor(ty())), graph.add_constant("c", ty()));
    let mut scope = vec![input, constant, graph.add_buffer("b", ty())];
    let body = block(&mut graph, choices, &mut scope, 0);
    for value in choices.some_of(&scope, 3) {
        graph.outputs.push(Output { name: String::new(), value, ty: Type::Tensor(ty()) });
    }
    graph.buffers[0].update = scope[choices.below(scope.len())];
    graph.body = body;
    graph
}

/// The nodes of a block over what is in scope, to which its results are added.
fn block(graph: &mut Graph, choices: &mut Choices<'_>, scope: &mut Vec<ValueId>, depth: usize) -> Block {
    let mut block = Block::default();
    for _ in 0..1 + choices.below(5) {
        let kind = choices.below(if depth < MOST_DEPTH { 5 } else { 3 });
        let op: Op<Ssa> = match kind {
            3 => {
                let given = choices.below(3);
                let mut branch = || nested(graph, choices, scope, depth, 0, given);
                let (then_chain_idx, else_chain_idx) = (branch(), branch());
                Op::If { cond: IntArg::Literal(1), then_chain_idx, else_chain_idx }
            }
            4 => {
                let originals = vec![scope[choices.below(scope.len())]];
                let carry = choices.some_of(scope, 2);
                let (params, given) = (1 + carry.len(), carry.len() + choices.below(2));
                let body_chain_idx = nested(graph, choices, scope, depth, params, given);
                Op::Scan { originals, sliced: (), carry, body_chain_idx, scan_axis: 0 }
            }
            _ => {
                let (a, b) = (scope[choices.below(scope.len())], scope[choices.below(scope.len())]);
                Op::Add { a, b }
            }
        };
        let count = match &op {
            Op::If { then_chain_idx: body, .. } | Op::Scan { body_chain_idx: body, .. } => body.results.len(),
            _ => 1,
        };
        let results = values(graph, count);
        scope.extend(&results);
        block.nodes.push(Node { op, results, place: None });
    }
    block
}

/// A block with so many parameters and results; what it makes leaves the scope with it.
fn nested(
    graph: &mut Graph,
    choices: &mut Choices<'_>,
    scope: &mut Vec<ValueId>,
    depth: usize,
    params: usize,
    results: usize,
) -> Block {
    let outside = scope.len();
    let params = values(graph, params);
    scope.extend(&params);
    let mut made = block(graph, choices, scope, depth + 1);
    made.results = (0..results).map(|_| scope[choices.below(scope.len())]).collect();
    made.params = params;
    scope.truncate(outside);
    made
}

/// When the parts of a block are, on the line of ticks.
struct Timed<'g> {
    block: &'g Block,
    start: Tick,
    end: Tick,
    nodes: Vec<(Tick, Tick, Vec<Timed<'g>>)>,
}

fn timed<'g>(block: &'g Block, clock: &mut Clock, is_nested: bool) -> Timed<'g> {
    let start = if is_nested { clock.tick() } else { Tick::START };
    let mut nodes = Vec::new();
    for node in &block.nodes {
        let (start, mut blocks) = (clock.tick(), Vec::new());
        node.for_each_block(|block| {
            clock.enter();
            blocks.push(timed(block, clock, true));
        });
        let end = if blocks.is_empty() { start } else { clock.tick() };
        nodes.push((start, end, blocks));
    }
    let end = if is_nested { clock.tick() } else { Tick::END };
    Timed { block, start, end, nodes }
}

/// A run in which values are dropped when their lives are over.
struct Run<'r, 'b> {
    liveness: &'r Liveness,
    choices: Choices<'b>,
    held: Vec<bool>,
    reads: usize,
}

impl Run<'_, '_> {
    fn pass(&mut self, now: Tick) {
        for (value, held) in self.held.iter_mut().enumerate() {
            *held &= self.liveness.life(ValueId(value as u32)).to >= now;
        }
    }

    fn set(&mut self, values: &[ValueId]) {
        values.iter().for_each(|value| self.held[value.0 as usize] = true);
    }

    fn read(&mut self, values: &[ValueId], now: Tick) -> Result<(), String> {
        self.pass(now);
        self.reads += values.len();
        match values.iter().find(|value| !self.held[value.0 as usize]) {
            Some(value) => Err(format!("%{} is read at {now:?}, after its life was over", value.0)),
            None => Ok(()),
        }
    }

    fn block(&mut self, timed: &Timed<'_>) -> Result<(), String> {
        for (node, (start, end, blocks)) in timed.block.nodes.iter().zip(&timed.nodes) {
            let mut operands = Vec::new();
            node.for_each_operand(|value| operands.push(value));
            self.read(&operands, *start)?;
            self.set(&node.results);
            let steps = match &node.op {
                Op::If { .. } => usize::from(true),
                Op::Scan { .. } => self.choices.below(4),
                _ => 0,
            };
            for _ in 0..steps {
                let taken = &blocks[self.choices.below(blocks.len())];
                if let Op::Scan { originals, .. } = &node.op {
                    self.read(originals, taken.start)?;
                }
                self.pass(taken.start);
                self.set(&taken.block.params);
                self.block(taken)?;
                self.read(&taken.block.results, taken.end)?;
            }
            // Whoever gives the results has had a place for them all the time.
            self.read(&node.results, *end)?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, rng_seed: RngSeed::Fixed(29), ..ProptestConfig::default() })]

    #[test]
    fn no_life_ends_before_a_read_of_any_execution(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
        let mut choices = Choices(bytes.iter());
        let graph = make(&mut choices);
        let liveness = Liveness::of(&graph);
        let timed = timed(&graph.body, &mut Clock::default(), false);
        let starts: Vec<Tick> = timed.nodes.iter().map(|(start, ..)| *start).collect();
        let mut number = 0;
        for start in starts {
            prop_assert_eq!(liveness.node(number).start, start, "{}", graph);
            number = liveness.node(number).next;
        }
        let mut run = Run { liveness: &liveness, choices, held: vec![false; graph.values.len()], reads: 0 };
        run.set(&[graph.inputs[0].value, graph.constants[0].value, graph.buffers[0].value]);
        let kept = graph.outputs.iter().map(|output| output.value);
        let kept: Vec<ValueId> = kept.chain([graph.buffers[0].update]).collect();
        let done = run.block(&timed).and_then(|()| run.read(&kept, Tick::END));
        prop_assert!(done.is_ok(), "{} in\n{}", done.unwrap_err(), graph);
        prop_assert!(run.reads > 0);
    }
}
