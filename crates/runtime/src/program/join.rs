//! Joins delegates: those of a method that stand side by side, or with plain operators between them, become one graph,
//! whose inner values never leave the backend. Programs of other exporters have hundreds, each with a handful of nodes.
//!
//! Only what keeps the meaning is joined: each value that flows from one delegate to the next is of a type that both agree
//! on and that the program's own declaration of it cannot refuse, no other value lies where it is kept, nothing jumps in
//! between, and nobody else calls the delegate. Numbers of graphs stay: the joined graph takes the first one's, the others
//! are left empty. Buffers keep their names by [`DelegateGraph::origins`]. A buffer of the program that only one group
//! touches becomes one of its graph, where backends write it in place.

mod operators;
mod sizes;
mod written;

use super::buffers::ProgramBuffer;
use super::method::{Instruction, Method, ValuePlan};
use super::tensors::{Place, TensorPlan};
use super::uses::{Span, Uses};
use crate::Weights;
use crate::backend::{Backend, DelegateGraph, GraphId, ProgramGraphs, Scope};
use operators::program_name;
use pteron_ir::{
    Buffer, Constant, Dim, Graph, Input, Module, Node, Output, Symbol, TensorType, Type, ValueId, infer,
    verify_module,
};
use pteron_tensor::{HostTensor, element_count};
use sizes::{Sizes, substituted};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use written::{Held, Written};

/// Values, and constants of the program, that a group takes from outside at most: each is looked for among them.
const MOST_INPUTS: usize = 1024;

/// A program whose delegates have been joined.
pub(super) struct Joined {
    pub(super) graphs: ProgramGraphs,
    pub(super) weights: Weights,
    /// By graph: the number of the delegate that it is run as a part of.
    pub(super) parts: HashMap<GraphId, usize>,
    /// By number of the program's buffer that a graph keeps now: the graph.
    pub(super) kept: HashMap<usize, GraphId>,
}

/// Joins what can be joined, and calls it so in the methods; `None` where nothing can.
pub(super) fn join(
    (methods, buffers): (&mut [Method], &[ProgramBuffer]),
    graphs: &ProgramGraphs,
    weights: &Weights,
    backend: &dyn Backend,
) -> Option<Joined> {
    let calls = count_calls(methods);
    let mut found = Vec::new();
    for method in methods.iter_mut() {
        let uses = Uses::of(method);
        let surroundings = Surroundings { method: &*method, uses: &uses, buffers };
        let by_chain =
            (0..method.chains.len()).map(|chain| groups(&surroundings, chain, (graphs, backend), &calls));
        let by_chain: Vec<_> = by_chain.collect();
        for (chain, groups) in method.chains.iter_mut().zip(by_chain) {
            shorten(chain, &groups);
            for group in groups {
                method.buffers.retain(|(_, buffer)| !group.kept.contains(buffer));
                found.push(group);
            }
        }
    }
    if found.is_empty() {
        return None;
    }
    let mut joined = ProgramGraphs { file: graphs.file.clone(), graphs: graphs.graphs.clone() };
    let (mut constants, mut parts, mut kept) = (HashMap::new(), HashMap::new(), HashMap::new());
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
        kept.extend(group.kept.into_iter().map(|buffer| (buffer, first)));
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
    Some(Joined { graphs: joined, weights: taken, parts, kept })
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
    places: Range<usize>,
    ids: Vec<GraphId>,
    module: Arc<Module>,
    call: Instruction,
    origins: Vec<(Option<usize>, String)>,
    /// Numbers of the program's buffers that are the graph's now.
    kept: Vec<usize>,
    /// Whose each constant was, by which name, and its name now.
    constants: Vec<(GraphId, String, String)>,
    /// Constants of the program, by their names now.
    program: Vec<(String, HostTensor)>,
}

/// Where groups stand.
struct Surroundings<'a> {
    method: &'a Method,
    uses: &'a Uses,
    /// The program's.
    buffers: &'a [ProgramBuffer],
}

fn groups(
    surroundings: &Surroundings<'_>,
    chain: usize,
    (graphs, backend): (&ProgramGraphs, &dyn Backend),
    calls: &HashMap<GraphId, usize>,
) -> Vec<Finished> {
    let steps = &surroundings.method.chains[chain];
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
        if goes_on {
            continue;
        }
        finished.extend(open.take().and_then(|group| group.finish(chain)));
        let mut group = Group::new(surroundings, place);
        let begins = match (call, step) {
            (Some(call), _) => group.add(&call).is_some(),
            (None, Instruction::Kernel { operator, inputs, outs }) => {
                group.add_operator(operator.name, inputs, outs, backend).is_some()
            }
            _ => false,
        };
        open = begins.then_some(group);
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
    buffers: &'a [ProgramBuffer],
    ids: Vec<GraphId>,
    /// The number of its first delegate.
    number: usize,
    /// Its instructions: the place of the first, and how many there are.
    start: usize,
    steps: usize,
    /// What it was behind its last delegate, where operators follow that.
    behind: Option<Behind>,
    graph: Graph,
    /// By input of the graph: the value that it is given.
    inputs: Vec<usize>,
    /// What was written so far.
    written: Written,
    origins: Vec<(Option<usize>, String)>,
    constants: Vec<(GraphId, String, String)>,
    /// Constants of the program that operators read, with what they are in the graph.
    program: Vec<(usize, ValueId)>,
    /// Names of constants and buffers that are taken.
    names: HashSet<String>,
}

impl<'a> Group<'a> {
    fn new(surroundings: &Surroundings<'a>, start: usize) -> Group<'a> {
        let Surroundings { method, uses, buffers } = *surroundings;
        Group {
            method,
            uses,
            buffers,
            ids: Vec::new(),
            number: 0,
            start,
            steps: 0,
            behind: None,
            graph: Graph::default(),
            inputs: Vec::new(),
            written: Written::default(),
            origins: Vec::new(),
            constants: Vec::new(),
            program: Vec::new(),
            names: HashSet::new(),
        }
    }

    /// Adds a delegate's graph behind what is there; `None` where that would not keep the meaning, and nothing is changed but
    /// that the graph may have constants that it does not need.
    fn add(&mut self, member: &Member<'_>) -> Option<()> {
        let from = &member.graph.module.main;
        let is_full = self.inputs.len() + member.inputs.len() > MOST_INPUTS;
        if is_full || from.has_internal_ops() {
            return None;
        }
        let sources = member.inputs.iter().map(|&value| match self.source(value)? {
            Some(source) => Some(Some(source)),
            None => Some(self.fixed_tensor(value)),
        });
        let sources = sources.collect::<Option<Vec<Option<ValueId>>>>()?;
        let mut sizes = Sizes { to: &self.graph, from, by: vec![None; from.symbols.len()] };
        let (mut values, mut known) = (HashMap::new(), HashSet::new());
        for (source, input) in sources.into_iter().zip(&from.inputs) {
            if let Some(source) = source {
                sizes.unify(self.graph.ty(source)?, from.ty(input.value)?)?;
                values.insert(input.value, source);
                known.insert(source);
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
        self.add_boundary(member, &known, &new);
        for node in &from.body.nodes {
            let mut node = node.clone();
            node.for_each_value_mut(&mut |value| *value = new(*value));
            self.refine(&node);
            self.graph.body.nodes.push(node);
        }
        for (&value, output) in member.outputs.iter().zip(&from.outputs) {
            let ty = substituted(&output.ty, &by)?;
            self.write(value, Output { name: output.name.clone(), value: new(output.value), ty });
        }
        if self.ids.is_empty() {
            self.number = number;
        }
        self.ids.push(member.id);
        self.steps += 1;
        self.behind = None;
        Some(())
    }

    /// Gives the results of a node the types that follow from what is known of its operands here: more than the delegate
    /// alone could tell.
    fn refine(&mut self, node: &Node) {
        let mut has_body = false;
        node.for_each_block(|_| has_body = true);
        if has_body {
            return;
        }
        let types = infer(&node.op, &self.graph.values, &mut self.graph.symbols).unwrap_or_default();
        for (result, ty) in node.results.iter().zip(types) {
            if let Some(value) = self.graph.values.get_mut(result.0 as usize) {
                value.ty = ty;
            }
        }
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

    /// Notes that a value is written.
    fn write(&mut self, value: usize, output: Output) {
        self.written.push(value, Span::of(&self.method.values[value]), output);
    }

    /// Inputs that come from outside, constants and buffers of a delegate; `known` are values that the group has already.
    fn add_boundary(
        &mut self,
        member: &Member<'_>,
        known: &HashSet<ValueId>,
        new: &impl Fn(ValueId) -> ValueId,
    ) {
        let (from, number) = (&member.graph.module.main, member.graph.delegate);
        for (&value, input) in member.inputs.iter().zip(&from.inputs) {
            if !known.contains(&new(input.value)) {
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
            self.origins.push((Some(number), buffer.name.clone()));
        }
    }

    /// Where in the graph a value is that a delegate reads: `Some(None)` where it comes from outside, `None` where that
    /// cannot be said.
    fn source(&self, value: usize) -> Option<Option<ValueId>> {
        let plan = &self.method.values[value];
        if !matches!(plan, ValuePlan::Tensor(_) | ValuePlan::Value(_)) {
            return None;
        }
        match self.written.held(value, Span::of(plan)) {
            Held::Written(output) => {
                let given = self.given(output)?;
                let flows = self.graph.ty(output.value) == Some(&given) && self.always_fits(value, &given);
                flows.then_some(Some(output.value))
            }
            Held::Mixed => None,
            Held::Old => {
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
        let kept = self.keep_buffers(chain, &places);
        let values: HashSet<usize> = kept.iter().map(|(value, _)| *value).collect();
        let outputs: Vec<(usize, Output)> = {
            let is_needed = |value: usize, output: &Output, is_there: bool| {
                let is_read = |other: usize| {
                    self.uses.is_read_after(other, chain, &places)
                        || self.uses.jumps && self.inputs.contains(&other)
                };
                is_there && self.uses.any_at(value, is_read)
                    || !self.given(output).is_some_and(|given| self.always_fits(value, &given))
            };
            let written = self.written.all().filter(|(value, ..)| !values.contains(value));
            let needed = written.filter(|(value, output, is_there)| is_needed(*value, output, *is_there));
            needed.map(|(value, output, _)| (value, output.clone())).collect()
        };
        let kept = kept.into_iter().map(|(_, number)| number).collect();
        let (values, outputs): (Vec<usize>, Vec<Output>) = outputs.into_iter().unzip();
        self.graph.outputs = outputs;
        let module = Module { init: None, main: self.graph };
        if let Err(errors) = verify_module(&module) {
            let problem = errors.first().map(ToString::to_string);
            tracing::info!(method = self.method.name, of = count, problem, "delegates stay apart");
            return None;
        }
        let number = self.number;
        let call = Instruction::Delegate { number, graph: self.ids[0], inputs: self.inputs, outputs: values };
        let (origins, constants) = (self.origins, self.constants);
        let program = self.program.iter().filter_map(|(value, _)| match &self.method.values[*value] {
            ValuePlan::Tensor(TensorPlan { constant: Some(tensor), .. }) => {
                Some((program_name(*value), tensor.clone()))
            }
            _ => None,
        });
        let (program, module) = (program.collect(), Arc::new(module));
        Some(Finished { places, ids: self.ids, module, call, origins, kept, constants, program })
    }

    /// Makes buffers of the graph of those of the program that it reads and writes and nobody else touches: the value and the
    /// number of each. New sessions have zeros in them, as those of graphs do.
    fn keep_buffers(&mut self, chain: usize, places: &Range<usize>) -> Vec<(usize, usize)> {
        let mut kept = Vec::new();
        for value in self.inputs.clone() {
            let found = self.own_buffer(value, chain, places);
            let Some((number, update)) = found else { continue };
            let name = &self.buffers[number].id.name;
            if !self.names.insert(name.clone()) {
                continue;
            }
            let at = self.inputs.iter().position(|input| *input == value);
            let Some(at) = at else { continue };
            self.inputs.remove(at);
            let input = self.graph.inputs.remove(at);
            self.graph.buffers.push(Buffer { name: name.clone(), value: input.value, update });
            self.origins.push((None, name.clone()));
            kept.push((value, number));
        }
        kept
    }

    /// The program's buffer that a value is, and what it becomes, where it can be the graph's own.
    fn own_buffer(&self, value: usize, chain: usize, places: &Range<usize>) -> Option<(usize, ValueId)> {
        let ValuePlan::Tensor(plan @ TensorPlan { place: Some(place), dynamic: false, .. }) =
            &self.method.values[value]
        else {
            return None;
        };
        let is_here = |(other, _): &&(Place, usize)| other == place;
        let (_, number) = *self.method.buffers.iter().find(is_here)?;
        let ProgramBuffer { id, initial } = &self.buffers[number];
        let is_method = matches!(&id.scope, Scope::Method(_));
        let is_same = initial.dtype() == plan.dtype && initial.shape() == plan.sizes;
        let is_zero = initial.bytes().iter().all(|byte| *byte == 0);
        let is_shared = self.uses.any_at(value, |other| match other == value {
            true => !self.uses.is_used_only_in(value, chain, places),
            false => self.uses.is_used(other),
        });
        let output = self.written.last(value)?;
        let is_update = self.graph.ty(output.value) == Some(&self.given(output)?)
            && self.given(output)? == Type::Tensor(TensorType::known(plan.dtype, &plan.sizes));
        (is_method && is_same && is_zero && !is_shared && is_update).then_some((number, output.value))
    }
}
