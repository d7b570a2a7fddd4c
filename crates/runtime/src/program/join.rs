//! Joins delegates: those of a method that stand side by side, or with plain operators between them, become one graph,
//! whose inner values never leave the backend. Programs of other exporters have hundreds, each with a handful of nodes.
//!
//! Only what keeps the meaning is joined: each value that flows from one delegate to the next is of a type that both agree
//! on and that the program's own declaration of it cannot refuse, no other value lies where it is kept, nothing jumps in
//! between, and nobody else calls the delegate. Numbers of graphs stay: the joined graph takes the first one's, the others
//! are left empty. Buffers keep their names by [`DelegateGraph::origins`].

mod operators;
mod sizes;

use super::method::{Instruction, Method, ValuePlan};
use super::tensors::TensorPlan;
use super::uses::{Span, Uses};
use crate::Weights;
use crate::backend::{Backend, DelegateGraph, GraphId, ProgramGraphs};
use operators::program_name;
use pteron_ir::{Buffer, Constant, Dim, Graph, Input, Module, Output, Symbol, Type, ValueId, verify_module};
use pteron_tensor::{HostTensor, element_count};
use sizes::{Sizes, substituted};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Values that the delegates of one group write and take at most: each is looked for among them.
const MOST_VALUES: usize = 512;

/// A program whose delegates have been joined.
pub(super) struct Joined {
    pub(super) graphs: ProgramGraphs,
    pub(super) weights: Weights,
    /// By graph: the number of the delegate that it is run as a part of.
    pub(super) parts: HashMap<GraphId, usize>,
}

/// Joins what can be joined, and calls it so in the methods; `None` where nothing can.
pub(super) fn join(
    methods: &mut [Method],
    graphs: &ProgramGraphs,
    weights: &Weights,
    backend: &dyn Backend,
) -> Option<Joined> {
    let calls = count_calls(methods);
    let mut found = Vec::new();
    for method in methods.iter_mut() {
        let uses = Uses::of(method);
        let by_chain =
            (0..method.chains.len()).map(|chain| groups((method, &uses), chain, (graphs, backend), &calls));
        let by_chain: Vec<_> = by_chain.collect();
        for (chain, groups) in method.chains.iter_mut().zip(by_chain) {
            shorten(chain, &groups);
            found.extend(groups);
        }
    }
    if found.is_empty() {
        return None;
    }
    let mut joined = ProgramGraphs { file: graphs.file.clone(), graphs: graphs.graphs.clone() };
    let (mut constants, mut parts) = (HashMap::new(), HashMap::new());
    for group in found {
        let first = group.ids[0];
        let number = graphs.graphs[first.0].delegate;
        tracing::info!(
            method = graphs.graphs[first.0].method,
            delegate = number,
            of = group.ids.len(),
            "delegates joined"
        );
        for &id in &group.ids {
            parts.insert(id, number);
            joined.graphs[id.0].module = Arc::new(Module { init: None, main: Graph::default() });
        }
        joined.graphs[first.0].module = group.module;
        joined.graphs[first.0].origins = group.origins;
        constants.insert(first, (group.constants, group.program));
    }
    let mut taken = Weights::new(graphs.graphs.len());
    for (index, graph) in joined.graphs.iter().enumerate() {
        let id = GraphId(index);
        match constants.get(&id) {
            Some((list, program)) => {
                list.iter().for_each(|(from, name, new)| taken.share(id, new, (weights, *from, name)));
                program.iter().for_each(|(name, tensor)| taken.add_stored(id, name, tensor.clone()));
            }
            None => {
                let names = graph.module.main.constants.iter().map(|constant| &constant.name);
                names.for_each(|name| taken.share(id, name, (weights, id, name)));
            }
        }
    }
    taken.share_program(weights);
    Some(Joined { graphs: joined, weights: taken, parts })
}

/// How often each graph is called.
fn count_calls(methods: &[Method]) -> HashMap<GraphId, usize> {
    let mut calls = HashMap::new();
    for instruction in methods.iter().flat_map(|method| method.chains.iter().flatten()) {
        if let Instruction::Delegate { graph, .. } = instruction {
            *calls.entry(*graph).or_default() += 1;
        }
    }
    calls
}

/// Delegates that became one.
struct Finished {
    /// Their places in the chain, one behind the other.
    places: std::ops::Range<usize>,
    ids: Vec<GraphId>,
    module: Arc<Module>,
    call: Instruction,
    origins: Vec<(usize, String)>,
    /// Whose each constant was, by which name, and its name now.
    constants: Vec<(GraphId, String, String)>,
    /// Constants of the program, by their names now.
    program: Vec<(String, HostTensor)>,
}

fn groups(
    (method, uses): (&Method, &Uses),
    chain: usize,
    (graphs, backend): (&ProgramGraphs, &dyn Backend),
    calls: &HashMap<GraphId, usize>,
) -> Vec<Finished> {
    let steps = &method.chains[chain];
    let targets: HashSet<usize> = steps
        .iter()
        .filter_map(|step| match step {
            Instruction::JumpFalse { to, .. } => Some(*to),
            _ => None,
        })
        .collect();
    let (mut finished, mut open): (Vec<Finished>, Option<Group<'_>>) = (Vec::new(), None);
    for (place, step) in steps.iter().enumerate() {
        if let (Some(group), Instruction::Kernel { operator, inputs, outs }) = (&mut open, step)
            && !targets.contains(&place)
            && group.add_operator(operator.name, inputs, outs, backend).is_some()
        {
            continue;
        }
        if let (Some(group), Instruction::Free { value }) = (&mut open, step)
            && !targets.contains(&place)
            && group.add_free(*value, chain, place).is_some()
        {
            continue;
        }
        let call = match step {
            Instruction::Delegate { graph, inputs, outputs, .. } if calls.get(graph) == Some(&1) => {
                Some(Member { id: *graph, graph: &graphs.graphs[graph.0], inputs, outputs })
            }
            _ => None,
        };
        let goes_on = match (&mut open, &call) {
            (Some(group), Some(call)) if !targets.contains(&place) => group.add(call).is_some(),
            _ => false,
        };
        if !goes_on {
            finished.extend(open.take().and_then(|group| group.finish(chain)));
            open = call.and_then(|call| {
                let mut group = Group::new(method, uses, place);
                group.add(&call).map(|()| group)
            });
        }
    }
    finished.extend(open.and_then(|group| group.finish(chain)));
    finished
}

/// Puts the calls of joined delegates in the place of theirs, and has jumps go where they went.
fn shorten(steps: &mut Vec<Instruction>, groups: &[Finished]) {
    let gone = |place: usize| -> usize {
        let lengths = groups.iter().filter(|group| group.places.start < place);
        lengths.map(|group| group.places.len().min(place - group.places.start) - 1).sum()
    };
    for step in steps.iter_mut() {
        if let Instruction::JumpFalse { to, .. } = step {
            *to -= gone(*to);
        }
    }
    for group in groups.iter().rev() {
        let call = group.call.clone();
        steps.splice(group.places.clone(), [call]);
    }
}

/// A delegate's call.
struct Member<'a> {
    id: GraphId,
    graph: &'a DelegateGraph,
    inputs: &'a [usize],
    outputs: &'a [usize],
}

/// How much a group had.
struct Behind {
    steps: usize,
    values: usize,
    inputs: usize,
    nodes: usize,
    written: usize,
    constants: usize,
    program: usize,
}

/// Delegates that are being joined.
struct Group<'a> {
    method: &'a Method,
    uses: &'a Uses,
    ids: Vec<GraphId>,
    /// Its instructions: the place of the first, and how many there are.
    start: usize,
    steps: usize,
    /// What it was behind its last delegate, where operators follow that.
    behind: Option<Behind>,
    graph: Graph,
    /// By input of the graph: the value that it is given.
    inputs: Vec<usize>,
    /// What was written so far, in order: the value, and what it is in the graph.
    written: Vec<(usize, Output)>,
    origins: Vec<(usize, String)>,
    constants: Vec<(GraphId, String, String)>,
    /// Constants of the program that operators read, with what they are in the graph.
    program: Vec<(usize, ValueId)>,
    /// Names of constants and buffers that are taken.
    names: HashSet<String>,
}

impl<'a> Group<'a> {
    fn new(method: &'a Method, uses: &'a Uses, start: usize) -> Group<'a> {
        Group {
            method,
            uses,
            ids: Vec::new(),
            start,
            steps: 0,
            behind: None,
            graph: Graph::default(),
            inputs: Vec::new(),
            written: Vec::new(),
            origins: Vec::new(),
            constants: Vec::new(),
            program: Vec::new(),
            names: HashSet::new(),
        }
    }

    /// Adds a delegate's graph behind what is there; `None` where that would not keep the meaning, and nothing is changed.
    fn add(&mut self, member: &Member<'_>) -> Option<()> {
        let from = &member.graph.module.main;
        let is_full = self.written.len() + member.outputs.len() > MOST_VALUES
            || self.inputs.len() + member.inputs.len() > MOST_VALUES;
        if is_full || from.has_internal_ops() {
            return None;
        }
        let mut sizes = Sizes { to: &self.graph, from, by: vec![None; from.symbols.len()] };
        let mut values: HashMap<ValueId, ValueId> = HashMap::new();
        for (&value, input) in member.inputs.iter().zip(&from.inputs) {
            if let Some(source) = self.source(value)? {
                sizes.unify(self.graph.ty(source)?, from.ty(input.value)?)?;
                values.insert(input.value, source);
            }
        }
        let number = member.graph.delegate;
        // From here on nothing is refused but what would overflow.
        let by = sizes.by;
        let mut graph = std::mem::take(&mut self.graph);
        let fresh = |graph: &mut Graph, symbol: Symbol| {
            let info = from.symbols.get(symbol)?;
            Some(Dim::symbol(graph.symbols.add(&format!("{}_{number}", info.name), info.min, info.max)))
        };
        let by = (0u32..).zip(by).map(|(at, dim)| dim.or_else(|| fresh(&mut graph, Symbol(at))));
        let by = by.collect::<Option<Vec<Dim>>>();
        self.graph = graph;
        let by = by?;
        let types =
            from.values.iter().map(|value| substituted(&value.ty, &by)).collect::<Option<Vec<Type>>>()?;
        for (at, ty) in (0u32..).zip(types) {
            values.entry(ValueId(at)).or_insert_with(|| self.graph.add_value(ty));
        }
        let new = |value: ValueId| values[&value];
        self.add_boundary(member, &new);
        for node in &from.body.nodes {
            let mut node = node.clone();
            node.for_each_value_mut(&mut |value| *value = new(*value));
            self.graph.body.nodes.push(node);
        }
        for (&value, output) in member.outputs.iter().zip(&from.outputs) {
            let ty = substituted(&output.ty, &by)?;
            self.written.push((value, Output { name: output.name.clone(), value: new(output.value), ty }));
        }
        self.ids.push(member.id);
        self.steps += 1;
        self.behind = None;
        Some(())
    }

    fn mark(&self) -> Behind {
        let Graph { values, inputs, body, constants, .. } = &self.graph;
        Behind {
            steps: self.steps,
            values: values.len(),
            inputs: inputs.len(),
            nodes: body.nodes.len(),
            written: self.written.len(),
            constants: constants.len(),
            program: self.program.len(),
        }
    }

    /// Goes back to what the group was.
    fn cut(&mut self, to: &Behind) {
        self.steps = to.steps;
        self.graph.values.truncate(to.values);
        self.graph.inputs.truncate(to.inputs);
        self.inputs.truncate(to.inputs);
        self.graph.body.nodes.truncate(to.nodes);
        self.graph.constants.drain(to.constants..).for_each(|constant| {
            self.names.remove(&constant.name);
        });
        self.program.truncate(to.program);
        self.written.truncate(to.written);
    }

    /// Inputs that come from outside, constants and buffers of a delegate.
    fn add_boundary(&mut self, member: &Member<'_>, new: &impl Fn(ValueId) -> ValueId) {
        let (from, number) = (&member.graph.module.main, member.graph.delegate);
        for (&value, input) in member.inputs.iter().zip(&from.inputs) {
            let is_inside = self.written.iter().any(|(_, output)| output.value == new(input.value))
                || self.graph.inputs.iter().any(|known| known.value == new(input.value));
            if !is_inside {
                self.graph.inputs.push(Input { name: input.name.clone(), value: new(input.value) });
                self.inputs.push(value);
            }
        }
        let mut named = |name: &str| match self.names.insert(name.to_owned()) {
            true => name.to_owned(),
            false => format!("{name}.{number}"),
        };
        for constant in &from.constants {
            let name = named(&constant.name);
            self.constants.push((member.id, constant.name.clone(), name.clone()));
            self.graph.constants.push(Constant { name, value: new(constant.value) });
        }
        for buffer in &from.buffers {
            let (value, update) = (new(buffer.value), new(buffer.update));
            self.graph.buffers.push(Buffer { name: named(&buffer.name), value, update });
            self.origins.push((number, buffer.name.clone()));
        }
    }

    /// Where in the graph a value is that a delegate reads: `Some(None)` where it comes from outside, `None` where that
    /// cannot be said.
    fn source(&self, value: usize) -> Option<Option<ValueId>> {
        let plan = &self.method.values[value];
        if !matches!(plan, ValuePlan::Tensor(_) | ValuePlan::Value(_)) {
            return None;
        }
        match self.written.iter().rev().find(|(other, _)| self.share_place(value, *other)) {
            Some((other, output)) if *other == value => {
                let given = self.given(output)?;
                let flows = self.graph.ty(output.value) == Some(&given) && self.always_fits(value, &given);
                flows.then_some(Some(output.value))
            }
            // Another value was written over it.
            Some(_) => None,
            None => {
                let known = self.inputs.iter().position(|known| *known == value);
                Some(known.map(|at| self.graph.inputs[at].value))
            }
        }
    }

    /// The type of what an output gives: the sizes that the value has, in the dtype that the file declares.
    fn given(&self, output: &Output) -> Option<Type> {
        let mut ty = self.graph.ty(output.value)?.clone();
        if let (Type::Tensor(ty), Type::Tensor(declared)) = (&mut ty, &output.ty) {
            ty.dtype = declared.dtype;
        }
        Some(ty)
    }

    /// Whether writing one value changes what is read as another.
    fn share_place(&self, a: usize, b: usize) -> bool {
        let plan = |value: usize| Span::of(&self.method.values[value]);
        a == b || plan(a).zip(plan(b)).is_some_and(|(a, b)| a.overlaps(&b))
    }

    /// Whether the program's declaration of a value can never refuse what is of a type.
    fn always_fits(&self, value: usize, ty: &Type) -> bool {
        match (&self.method.values[value], ty) {
            (ValuePlan::Tensor(plan), Type::Tensor(ty)) => {
                let most = ty
                    .shape
                    .iter()
                    .map(|dim| self.graph.symbols.upper(dim).and_then(|most| usize::try_from(most).ok()));
                let fits = match plan.dynamic {
                    false => ty.known_shape().as_ref() == Some(&plan.sizes),
                    true => {
                        let most = most.collect::<Option<Vec<usize>>>().and_then(|most| element_count(&most));
                        ty.shape.len() == plan.sizes.len()
                            && most.is_some_and(|most| {
                                element_count(&plan.sizes).is_some_and(|room| most <= room)
                            })
                    }
                };
                plan.constant.is_none() && plan.dtype == ty.dtype && fits
            }
            (ValuePlan::Value(_), Type::Int(_) | Type::Float | Type::Bool) => true,
            _ => false,
        }
    }

    /// The group as one delegate, if it has become more than it was and the verifier has nothing against it.
    fn finish(mut self, chain: usize) -> Option<Finished> {
        let count = self.ids.len();
        if count < 2 {
            return None;
        }
        // Operators that no delegate follows stay where they are.
        if let Some(behind) = self.behind.take() {
            self.cut(&behind);
        }
        let places = self.start..self.start + self.steps;
        let outputs: Vec<(usize, Output)> = {
            let is_needed = |(value, output): &&(usize, Output)| {
                let is_read = |other: usize| {
                    self.uses.is_read_after(other, chain, &places)
                        || self.uses.jumps && self.inputs.contains(&other)
                };
                self.uses.any_at(*value, is_read)
                    || !self.given(output).is_some_and(|given| self.always_fits(*value, &given))
            };
            self.written.iter().filter(is_needed).cloned().collect()
        };
        let (values, outputs): (Vec<usize>, Vec<Output>) = outputs.into_iter().unzip();
        self.graph.outputs = outputs;
        let module = Module { init: None, main: self.graph };
        if let Err(errors) = verify_module(&module) {
            let problem = errors.first().map(ToString::to_string);
            tracing::info!(method = self.method.name, of = count, problem, "delegates stay apart");
            return None;
        }
        let Instruction::Delegate { number, .. } = self.method.chains[chain][places.start] else {
            return None;
        };
        let call = Instruction::Delegate { number, graph: self.ids[0], inputs: self.inputs, outputs: values };
        let (origins, constants) = (self.origins, self.constants);
        let program = self.program.iter().filter_map(|(value, _)| match &self.method.values[*value] {
            ValuePlan::Tensor(TensorPlan { constant: Some(tensor), .. }) => {
                Some((program_name(*value), tensor.clone()))
            }
            _ => None,
        });
        let (program, module) = (program.collect(), Arc::new(module));
        Some(Finished { places, ids: self.ids, module, call, origins, constants, program })
    }
}
