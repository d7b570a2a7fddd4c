//! Plans against execution, without a device: random graphs of views, updates, branches and loops run over memory that
//! holds no numbers, only which value was last written there. What a node reads must be what it is named for, whatever
//! shares its place; buffers must end with what the graph says; and no step may touch what the plan does not list.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use pteron_ir::op::IntArg;
use pteron_ir::{Block, Builder, Graph, Node, Op, Output, RuleError, Ssa, TensorType, Type, ValueId};
use pteron_plan::{Access, Join, Lower, Made, Numbered, Options, Plan, Planner, RunMemory, Sharing, Storage};
use pteron_plan::{Types, barriers, make};
use pteron_tensor::DType;
use std::collections::{BTreeMap, HashMap};

/// Blocks inside each other.
const MOST_DEPTH: usize = 2;
/// What nobody has written, or what was spoiled.
const NOTHING: u32 = 0;

/// Choices out of bytes; 0 when they are used up.
struct Choices<'b>(std::slice::Iter<'b, u8>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % count.max(1)
    }

    fn one_of(&mut self, scope: &[ValueId]) -> ValueId {
        scope[self.below(scope.len())]
    }
}

fn ty(shape: &[usize]) -> TensorType {
    TensorType::known(DType::F32, shape)
}

/// A graph over tensors of one shape.
fn graph(choices: &mut Choices<'_>) -> Graph {
    let mut graph = Graph::default();
    let square = ty(&[2, 2]);
    let mut scope =
        vec![graph.add_input("x", Type::Tensor(square.clone())), graph.add_constant("c", square.clone())];
    scope.extend(["b", "d"].map(|name| graph.add_buffer(name, square.clone())));
    let mut builder = Builder::new(graph);
    nodes(&mut builder, choices, &mut scope, 0);
    let mut graph = builder.finish();
    for _ in 0..choices.below(3) {
        let value = choices.one_of(&scope);
        graph.outputs.push(Output { name: String::new(), value, ty: Type::Tensor(square.clone()) });
    }
    for buffer in 0..2 {
        graph.buffers[buffer].update = choices.one_of(&scope);
    }
    graph
}

fn nodes(builder: &mut Builder, choices: &mut Choices<'_>, scope: &mut Vec<ValueId>, depth: usize) {
    for _ in 0..1 + choices.below(6) {
        let x = choices.one_of(scope);
        let op: Op<Ssa> = match choices.below(if depth < MOST_DEPTH { 9 } else { 7 }) {
            0 | 1 => match choices.below(3) {
                0 => {
                    let mat2 = choices.one_of(scope);
                    Op::Addmm { mat1: x, mat2, bias: None, alpha: 1.0, beta: 1.0 }
                }
                _ => Op::Add { a: x, b: choices.one_of(scope) },
            },
            2 => Op::Transpose { x, perm: vec![1, 0] },
            3 => Op::Contiguous { x },
            4..=6 => {
                let (axis, start, stop) = (IntArg::Literal(0), IntArg::Literal(0), IntArg::Literal(2));
                Op::SliceUpdate { dst: x, update: choices.one_of(scope), axis, start, stop, step: 1 }
            }
            7 => {
                let then_chain_idx = body(builder, choices, scope, depth, vec![], 1);
                let else_chain_idx = body(builder, choices, scope, depth, vec![], 1);
                Op::If { cond: IntArg::Literal(1), then_chain_idx, else_chain_idx }
            }
            _ => {
                let carry: Vec<ValueId> = (0..1 + choices.below(2)).map(|_| choices.one_of(scope)).collect();
                let mut params = vec![Type::Tensor(ty(&[2]))];
                params.extend(carry.iter().map(|_| Type::Tensor(ty(&[2, 2]))));
                let given = carry.len() + choices.below(2);
                let body_chain_idx = body(builder, choices, scope, depth, params, given);
                Op::Scan { originals: vec![x], sliced: (), carry, body_chain_idx, scan_axis: 0 }
            }
        };
        let results = builder.append(op, None).expect("shapes that fit");
        // What a loop stacks has another shape, and stands before the rest; nobody reads it.
        let is_square = |value: &ValueId| builder.graph().ty(*value) == Some(&Type::Tensor(ty(&[2, 2])));
        scope.extend(results.into_iter().filter(is_square));
    }
}

/// A nested block that gives so many values; the first parameter of a loop is a slice.
fn body(
    builder: &mut Builder,
    choices: &mut Choices<'_>,
    scope: &mut Vec<ValueId>,
    depth: usize,
    params: Vec<Type>,
    results: usize,
) -> Block {
    let outside = scope.len();
    let params = builder.open_block(params);
    if let [slice, carried @ ..] = params.as_slice() {
        let shape = vec![IntArg::Literal(2), IntArg::Literal(2)];
        scope.extend(builder.append(Op::BroadcastTo { x: *slice, shape }, None).expect("shapes that fit"));
        scope.extend(carried);
    }
    nodes(builder, choices, scope, depth + 1);
    let given = (0..results).map(|_| choices.one_of(scope)).collect();
    scope.truncate(outside);
    builder.close_block(given)
}

/// What a run does for a node: enough of it to know what is touched.
struct Step {
    node: Node,
    /// Nodes that run inside of it.
    inner: Vec<Node>,
    blocks: Vec<Vec<Step>>,
    sharing: Vec<Sharing>,
    scratch: Vec<usize>,
}

struct Symbolic;

impl Join for Symbolic {
    fn is_elementwise(&self, op: &Op<Ssa>) -> bool {
        matches!(op, Op::Add { .. })
    }

    fn can_begin(&self, _: &Types, node: &Node) -> bool {
        matches!(node.op, Op::Addmm { .. })
    }

    fn can_join(&self, _: &Types, _: &Node, inner: &HashMap<ValueId, &Node>) -> bool {
        let products = inner.values().filter(|node| matches!(node.op, Op::Addmm { .. })).count();
        assert!(products < 2, "one product begins a group");
        inner.len() < 3
    }
}

impl Lower for Symbolic {
    type Step = Step;

    fn step(planner: &mut Planner<'_, Symbolic>, node: &Numbered, blocks: Vec<Vec<Step>>) -> Step {
        let inner = planner.groups.inner(node.number);
        let inner = inner.map(|inner| inner.values().map(|&node| node.clone()).collect()).unwrap_or_default();
        let sharing = node.node.results.iter().map(|&value| planner.lifetimes.life(value).sharing).collect();
        // What a loop carries waits there while its next step is prepared.
        let until = planner.lifetimes.behind(node.number);
        let pieces = match &node.node.op {
            Op::Scan { carry, .. } => carry.len(),
            _ => 1,
        };
        let scratch = (0..pieces).map(|_| planner.reserve_until(node.number, until, 16)).collect();
        Step { node: (*node.node).clone(), inner, blocks, sharing, scratch }
    }

    fn refused(_: usize, error: &RuleError) -> Step {
        panic!("{error}")
    }

    fn joined(_: &mut Planner<'_, Symbolic>, _: &Node) {}
}

/// Where a value lies, and what must be found there.
#[derive(Clone, Copy)]
struct Slot {
    place: Storage,
    mark: u32,
}

struct Run<'r, 'b> {
    plan: &'r Plan,
    choices: Choices<'b>,
    slots: BTreeMap<ValueId, Slot>,
    arena: Vec<u32>,
    /// All other places.
    others: Vec<(Storage, u32)>,
    marks: u32,
    touched: Access,
}

impl Run<'_, '_> {
    fn fill(&mut self, place: Storage, mark: u32) {
        match place {
            Storage::Arena { offset, bytes } => self.arena[offset..offset + bytes].fill(mark),
            _ => {
                self.others.retain(|(known, _)| *known != place);
                self.others.push((place, mark));
            }
        }
    }

    fn holds(&self, place: Storage, mark: u32) -> bool {
        match place {
            Storage::Arena { offset, bytes } => {
                self.arena[offset..offset + bytes].iter().all(|&at| at == mark)
            }
            _ => self.others.contains(&(place, mark)),
        }
    }

    /// Writes a value that nobody has seen before.
    fn write(&mut self, value: ValueId, place: Storage) {
        self.marks += 1;
        let slot = Slot { place, mark: self.marks };
        self.fill(slot.place, slot.mark);
        self.slots.insert(value, slot);
        self.touched.writes.push(place);
    }

    fn make(&mut self, value: ValueId) {
        self.write(value, self.plan.storage_of(value));
    }

    fn read(&mut self, value: ValueId) -> Result<(), String> {
        let slot = self.slots.get(&value).copied().ok_or(format!("%{} was never made", value.0))?;
        self.touched.reads.push(slot.place);
        match self.holds(slot.place, slot.mark) {
            true => Ok(()),
            false => Err(format!("%{} is not in {:?} any more", value.0, slot.place)),
        }
    }

    fn copy(&mut self, to: ValueId, from: ValueId) -> Result<(), String> {
        self.read(from)?;
        self.make(to);
        Ok(())
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let results = &step.node.results;
        match &step.node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                let taken = self.choices.below(2);
                self.steps(&step.blocks[taken])?;
                let given = &[then_chain_idx, else_chain_idx][taken].results;
                results.iter().zip(given).try_for_each(|(&to, &from)| self.copy(to, from))
            }
            Op::Scan { originals, carry, body_chain_idx: body, .. } => {
                let (slice, params) = (body.params[0], &body.params[1..]);
                let (stacked, finals) = results.split_at(results.len() - carry.len());
                let (given, next) = body.results.split_at(stacked.len());
                params.iter().zip(carry).try_for_each(|(&to, &from)| self.copy(to, from))?;
                for _ in 0..1 + self.choices.below(3) {
                    self.read(originals[0])?;
                    self.slots.insert(slice, self.slots[&originals[0]]);
                    self.steps(&step.blocks[0])?;
                    stacked.iter().zip(given).try_for_each(|(&to, &from)| self.copy(to, from))?;
                    // All that is carried is put aside before any of it is placed.
                    let mut aside = vec![];
                    for (&value, &scratch) in next.iter().zip(&step.scratch) {
                        self.read(value)?;
                        aside.push(self.use_scratch(scratch));
                    }
                    for (&param, slot) in params.iter().zip(aside) {
                        if !self.holds(slot.place, slot.mark) {
                            return Err(format!("what is carried to %{} was overwritten", param.0));
                        }
                        self.make(param);
                    }
                }
                finals.iter().zip(params).try_for_each(|(&to, &from)| self.copy(to, from))
            }
            _ => self.plain(step),
        }
    }

    fn use_scratch(&mut self, number: usize) -> Slot {
        self.marks += 1;
        let slot = Slot { place: self.plan.scratch(number), mark: self.marks };
        self.fill(slot.place, slot.mark);
        self.touched.writes.push(slot.place);
        slot
    }

    fn plain(&mut self, step: &Step) -> Result<(), String> {
        let (result, sharing) = (step.node.results[0], step.sharing[0]);
        if let Sharing::View(source) = sharing {
            self.slots.insert(result, self.slots[&source]);
            return Ok(());
        }
        if let (Sharing::MaybeView(source), 0) = (sharing, self.choices.below(2)) {
            self.slots.insert(result, self.slots[&source]);
            return Ok(());
        }
        let mut operands = vec![];
        for node in step.inner.iter().chain([&step.node]) {
            node.for_each_operand(|value| operands.push(value));
        }
        operands.retain(|value| !step.inner.iter().any(|node| node.results.contains(value)));
        operands.iter().try_for_each(|&value| self.read(value))?;
        self.use_scratch(step.scratch[0]);
        // It lies apart from them.
        operands.iter().try_for_each(|&value| self.read(value))?;
        match sharing {
            Sharing::InPlace(target) => self.write(result, self.slots[&target].place),
            _ => self.make(result),
        }
        Ok(())
    }
}

/// Plans and runs a graph; what is wrong with the plan.
fn check(graph: &Graph, choices: Choices<'_>, memory: RunMemory) -> Result<(), String> {
    let options = Options { memory, alignment: 8, tensor_bytes: 1 << 20, live_bytes: 1 << 20 };
    let shapes: [Option<&[usize]>; 1] = [Some(&[2, 2])];
    let Made { plan, steps, .. } =
        make(graph, &shapes, Symbolic, &options).map_err(|error| error.to_string())?;
    let (slots, others, touched) = Default::default();
    let arena = vec![NOTHING; plan.arena_bytes];
    let mut run = Run { plan: &plan, choices, slots, arena, others, marks: NOTHING, touched };
    let given = graph.inputs.iter().map(|input| input.value).chain(graph.constants.iter().map(|it| it.value));
    given.chain(graph.buffers.iter().map(|buffer| buffer.value)).for_each(|value| run.make(value));
    for (index, step) in steps.iter().enumerate() {
        run.touched = Access::default();
        run.step(step)?;
        let listed = &plan.accesses[index];
        let is_listed = |place: &&Storage| listed.writes.contains(place);
        // What a step has written itself, it may read as well.
        let is_read = |place: &&Storage| is_listed(place) || listed.reads.contains(place);
        if let Some(place) = run.touched.writes.iter().find(|place| !is_listed(place)) {
            return Err(format!("step {index} writes {place:?}, which is not listed"));
        }
        if let Some(place) = run.touched.reads.iter().find(|place| !is_read(place)) {
            return Err(format!("step {index} reads {place:?}, which is not listed"));
        }
        for &dead in plan.deaths.get(index).into_iter().flatten() {
            run.fill(Storage::Heap(dead), NOTHING);
        }
    }
    let waits = barriers(&plan.accesses);
    for (at, later) in plan.accesses.iter().enumerate() {
        let first = (0..=at).rev().find(|&at| waits[at]).unwrap_or(0);
        if let Some(earlier) = plan.accesses[first..at].iter().position(|earlier| earlier.holds_up(later)) {
            return Err(format!("step {at} does not wait for {}", first + earlier));
        }
    }
    graph.outputs.iter().try_for_each(|output| run.read(output.value))?;
    for (index, buffer) in graph.buffers.iter().enumerate() {
        run.read(buffer.update)?;
        let is_written = plan.writes.iter().any(|write| write.buffer == index);
        if !is_written && run.slots[&buffer.update].place != Storage::Buffer(index) {
            return Err(format!("buffer {index} does not hold %{}", buffer.update.0));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, rng_seed: RngSeed::Fixed(29), ..ProptestConfig::default() })]

    #[test]
    fn every_read_finds_what_it_is_named_for(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut choices = Choices(bytes.iter());
        let graph = graph(&mut choices);
        prop_assert_eq!(pteron_ir::verify(&graph), Ok(()), "{}", graph);
        for memory in [RunMemory::Planned, RunMemory::Separate] {
            let done = check(&graph, Choices(choices.0.clone()), memory);
            prop_assert!(done.is_ok(), "{} with {memory:?} in\n{graph}", done.unwrap_err());
        }
    }
}
