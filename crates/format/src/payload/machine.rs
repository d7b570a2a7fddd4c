//! The oracle of `lift` and `emit`: runs payloads slot by slot, as ExecuTorch does, and graphs value by value,
//! over made-up numbers. An op gives a hash of itself and its operands, so two programs agree on all numbers
//! only if they compute the same from the same.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use pteron_ir::op::{IntArg, World};
use pteron_ir::{Block, Graph, Module, Op, Ssa, ValueId};

use super::translate::{Translate, translate};
use super::{ChainId, Payload, Slot, SlotVariant, Tid, Vid, Wire};

/// Steps of every loop.
const STEPS: u64 = 3;

/// What a run leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) outputs: Vec<u64>,
    pub(crate) buffers: Vec<u64>,
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The world in which operands are numbers.
#[derive(Clone, Debug, PartialEq)]
struct Numbers;

impl World for Numbers {
    type Tensor = u64;
    type Scalar = u64;
    type Body = ();
    type LoopSlots = ();
}

/// The results of an op that is not control flow.
fn compute(op: &Op<Numbers>, results: usize) -> Vec<u64> {
    match op {
        Op::IdCopy { x } => vec![*x],
        Op::AddInt { a: IntArg::Value(a), b: IntArg::Literal(0) } => vec![*a],
        op => (0..results).map(|index| hash((format!("{op:?}"), index))).collect(),
    }
}

fn holds(cond: IntArg<u64>) -> bool {
    match cond {
        IntArg::Literal(literal) => literal != 0,
        IntArg::Value(value) => value % 2 == 1,
    }
}

fn slice(original: u64, axis: i32, step: u64) -> u64 {
    hash(("slice", original, axis, step))
}

fn stack(steps: &[u64], axis: i32) -> u64 {
    hash(("stack", steps, axis))
}

fn constant(name: &str) -> u64 {
    hash(("constant", name))
}

fn input(index: usize, seed: u64) -> u64 {
    hash(("input", index, seed))
}

/// Runs a payload: the init chain on the constants, then the main chain.
pub(crate) fn run_payload(payload: &Payload, seed: u64) -> Outcome {
    let mut machine = SlotMachine { payload, slots: HashMap::new() };
    let constants = payload.num_constant_tensors;
    for named in &payload.named_slots {
        if let Some(Slot::Tensor(tid)) = named.slot.as_ref().map(SlotVariant::slot)
            && tid.0 < constants
        {
            machine.slots.insert(Slot::Tensor(tid), constant(&named.name));
        }
    }
    if let Some(init) = payload.init_chain_idx {
        machine.chain(init);
        machine.slots.retain(|slot, _| matches!(slot, Slot::Tensor(tid) if tid.0 < constants));
    }
    for (index, variant) in payload.input_map.iter().enumerate() {
        machine.slots.insert(variant.slot(), input(index, seed));
    }
    let first = constants + payload.num_input_tensors + payload.num_output_tensors;
    let buffers: Vec<Slot> =
        (0..payload.num_mutable_buffer_tensors).map(|index| Slot::Tensor(Tid(first + index))).collect();
    for (index, &slot) in buffers.iter().enumerate() {
        machine.slots.insert(slot, hash(("buffer", index)));
    }
    machine.chain(payload.main_chain_idx);
    Outcome {
        outputs: payload.output_map.iter().map(|variant| machine.get(variant.slot())).collect(),
        buffers: buffers.into_iter().map(|slot| machine.get(slot)).collect(),
    }
}

struct SlotMachine<'p> {
    payload: &'p Payload,
    slots: HashMap<Slot, u64>,
}

impl Translate<Wire, Numbers> for SlotMachine<'_> {
    type Error = &'static str;

    fn tensor(&mut self, tid: Tid) -> Result<u64, &'static str> {
        Ok(self.get(Slot::Tensor(tid)))
    }

    fn scalar(&mut self, vid: Vid) -> Result<u64, &'static str> {
        Ok(self.get(Slot::Value(vid)))
    }

    fn unknown(&self, field: &'static str) -> &'static str {
        field
    }
}

impl SlotMachine<'_> {
    /// An unset slot gives 0, which no hash is: a program that reads one is told apart from one that does not.
    fn get(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).copied().unwrap_or(0)
    }

    fn chain(&mut self, chain: ChainId) {
        for instruction in &self.payload.instruction_chains[chain.0 as usize].instructions {
            let results = &instruction.results;
            match &instruction.op {
                Op::If { cond, then_chain_idx, else_chain_idx } => {
                    let cond = match cond {
                        IntArg::Literal(literal) => IntArg::Literal(*literal),
                        IntArg::Value(vid) => IntArg::Value(self.get(Slot::Value(*vid))),
                    };
                    self.chain(if holds(cond) { *then_chain_idx } else { *else_chain_idx });
                }
                Op::Scan { originals, sliced, body_chain_idx, scan_axis, .. } => {
                    let mut collected = vec![Vec::new(); results.len()];
                    for step in 0..STEPS {
                        for (&original, &to) in originals.iter().zip(sliced) {
                            let original = self.get(Slot::Tensor(original));
                            self.slots.insert(Slot::Tensor(to), slice(original, *scan_axis, step));
                        }
                        self.chain(*body_chain_idx);
                        for (collected, &from) in collected.iter_mut().zip(results) {
                            collected.push(self.get(from));
                        }
                    }
                    for (collected, &to) in collected.iter().zip(results) {
                        self.slots.insert(to, stack(collected, *scan_axis));
                    }
                }
                op => {
                    let op = translate(op, self).expect("only control flow has bodies");
                    for (number, &slot) in compute(&op, results.len()).into_iter().zip(results) {
                        self.slots.insert(slot, number);
                    }
                }
            }
        }
    }
}

/// Runs a module: the init graph on the constants, then the main graph.
pub(crate) fn run_module(module: &Module, seed: u64) -> Outcome {
    let mut derived = HashMap::new();
    if let Some(init) = &module.init {
        let mut machine = ValueMachine::new(init, &derived);
        machine.nodes(&init.body);
        derived =
            init.outputs.iter().map(|output| (output.name.clone(), machine.get(output.value))).collect();
    }
    let main = &module.main;
    let mut machine = ValueMachine::new(main, &derived);
    for (index, one) in main.inputs.iter().enumerate() {
        machine.numbers.insert(one.value, input(index, seed));
    }
    for (index, buffer) in main.buffers.iter().enumerate() {
        machine.numbers.insert(buffer.value, hash(("buffer", index)));
    }
    machine.nodes(&main.body);
    Outcome {
        outputs: main.outputs.iter().map(|output| machine.get(output.value)).collect(),
        buffers: main.buffers.iter().map(|buffer| machine.get(buffer.update)).collect(),
    }
}

struct ValueMachine {
    numbers: HashMap<ValueId, u64>,
}

impl Translate<Ssa, Numbers> for ValueMachine {
    type Error = &'static str;

    fn tensor(&mut self, value: ValueId) -> Result<u64, &'static str> {
        Ok(self.get(value))
    }

    fn scalar(&mut self, value: ValueId) -> Result<u64, &'static str> {
        Ok(self.get(value))
    }

    fn unknown(&self, field: &'static str) -> &'static str {
        field
    }
}

impl ValueMachine {
    fn new(graph: &Graph, derived: &HashMap<String, u64>) -> ValueMachine {
        let number = |name: &String| derived.get(name).copied().unwrap_or_else(|| constant(name));
        let constants = graph.constants.iter().map(|one| (one.value, number(&one.name)));
        ValueMachine { numbers: constants.collect() }
    }

    fn get(&self, value: ValueId) -> u64 {
        self.numbers[&value]
    }

    fn all(&self, values: &[ValueId]) -> Vec<u64> {
        values.iter().map(|&value| self.get(value)).collect()
    }

    fn set_all(&mut self, values: &[ValueId], numbers: Vec<u64>) {
        assert_eq!(values.len(), numbers.len());
        self.numbers.extend(values.iter().copied().zip(numbers));
    }

    fn nodes(&mut self, block: &Block) {
        for node in &block.nodes {
            let results = match &node.op {
                Op::If { cond, then_chain_idx, else_chain_idx } => {
                    let cond = match cond {
                        IntArg::Literal(literal) => IntArg::Literal(*literal),
                        IntArg::Value(value) => IntArg::Value(self.get(*value)),
                    };
                    let body = if holds(cond) { then_chain_idx } else { else_chain_idx };
                    self.nodes(body);
                    self.all(&body.results)
                }
                Op::Scan { originals, carry, body_chain_idx: body, scan_axis, .. } => {
                    let outputs = node.results.len() - carry.len();
                    let mut carried = self.all(carry);
                    let mut collected = vec![Vec::new(); outputs];
                    for step in 0..STEPS {
                        let originals = self.all(originals).into_iter();
                        let mut params: Vec<u64> =
                            originals.map(|original| slice(original, *scan_axis, step)).collect();
                        params.extend(&carried);
                        self.set_all(&body.params, params);
                        self.nodes(body);
                        let mut given = self.all(&body.results);
                        carried = given.split_off(outputs);
                        for (collected, number) in collected.iter_mut().zip(given) {
                            collected.push(number);
                        }
                    }
                    let mut results: Vec<u64> =
                        collected.iter().map(|steps| stack(steps, *scan_axis)).collect();
                    results.extend(carried);
                    results
                }
                op => {
                    let op = translate(op, self).expect("only control flow has bodies");
                    compute(&op, node.results.len())
                }
            };
            self.set_all(&node.results, results);
        }
    }
}
