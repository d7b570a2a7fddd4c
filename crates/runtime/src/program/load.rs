//! From files to a program: reads and lifts every delegate, gathers constants, has init graphs run, asks the
//! backend about every op, and plans every method. Whatever can be refused is refused here, not in mid-run.

use super::arguments;
use super::buffers::{Buffers, shares_arena, used};
use super::choice::Choice;
use super::files::Files;
use super::init;
use super::join;
use super::metadata;
use super::method::{Method, Source, ValuePlan, operator_name};
use super::tensors::TensorPlan;
use super::{BufferInfo, DelegateInfo, Fallback, Inner, MethodInfo, Options};
use crate::backend::{
    Backend, BufferId, DelegateGraph, GraphId, LoadMode, LoadOptions, Loaded, ProgramGraphs, Scope, Support,
};
use crate::error::UnsupportedOp;
use crate::fallback::WithFallback;
use crate::reference::Reference;
use crate::reference::interpret::show_place;
use crate::registry::Target;
use crate::{Error, Result, VerifiedGraphs, VerifiedProgram, Weights};
use indexmap::IndexMap;
use pteron_format::pte::{DataLocation, ExecutionPlan};
use pteron_format::{Argument, Constant, DELEGATE_IDS, Limits, delegate_arguments, lift_delegate};
use pteron_ir::text::Printer;
use pteron_ir::{Graph, Module, Op, Type};
use pteron_tensor::HostTensor;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// A delegate as it was read.
struct Delegate {
    id: String,
    module: Arc<Module>,
    data: Arc<IndexMap<String, Constant>>,
    payload_bytes: u64,
}

pub(super) fn load(choice: &Choice, files: &Files, mode: LoadMode, options: &Options) -> Result<Inner> {
    let limits = &options.limits;
    let plans: Vec<&ExecutionPlan> = files.pte.program.execution_plan.iter().collect();
    let (constant, planned): (Vec<&ExecutionPlan>, Vec<&ExecutionPlan>) =
        plans.into_iter().partition(|plan| metadata::is_constant(plan));
    check_names(files, &planned)?;

    let mut graphs = Vec::new();
    let mut by_method: Vec<Vec<(GraphId, Delegate)>> = Vec::new();
    let mut known = HashMap::new();
    for plan in &planned {
        let mut delegates = Vec::new();
        for number in 0..plan.delegates.len() {
            let delegate = read_delegate(files, plan, number, &mut known, limits)?;
            let id = GraphId(graphs.len());
            let method = plan.name.to_string();
            let graph = DelegateGraph::new(method, number, delegate.module.clone());
            graphs.push(DelegateGraph { data: delegate.data.clone(), ..graph });
            delegates.push((id, delegate));
        }
        by_method.push(delegates);
    }
    let graphs = VerifiedGraphs::new(ProgramGraphs { file: files.name.clone(), graphs })?;

    let target = choice.target.clone();
    // Whoever was not named runs a program whole, or leaves it to the next.
    let behind = if choice.has_next { None } else { options.registry.fallback(&target) };
    let fallbacks = plan_ops(&graphs, &target, behind.as_ref())?;
    let mut weights = gather_weights(files, &graphs)?;
    init::run_all(&graphs, &mut weights, limits)?;

    let mut buffers = Buffers::default();
    let shared = shares_arena(&planned);
    let (mut methods, mut infos) = (Vec::new(), Vec::new());
    for (plan, delegates) in planned.iter().zip(by_method) {
        let modules: Vec<_> = delegates.iter().map(|(id, delegate)| (*id, delegate.module.clone())).collect();
        let source = Source { file: &files.name, plan, delegates: &modules };
        let method = plan_method(files, &source, shared, &mut buffers, limits)?;
        for (number, value) in method.values.iter().enumerate() {
            if let ValuePlan::Tensor(TensorPlan { constant: Some(tensor), .. }) = value {
                weights.add_program(format!("{}:{number}", method.name), tensor.clone());
            }
        }
        let arguments = arguments::Arguments { method: &method, used: &used(&method), graphs: &graphs };
        let info = MethodInfo {
            name: method.name.clone(),
            inputs: arguments.inputs(),
            outputs: arguments.outputs(),
            portable: count_operators(plan),
            delegates: delegates
                .into_iter()
                .map(|(id, delegate)| DelegateInfo {
                    graph: id,
                    id: delegate.id,
                    ops: count_ops(&delegate.module),
                    module: delegate.module,
                    payload_bytes: delegate.payload_bytes,
                    fallbacks: fallbacks.by_graph.get(&id).cloned().unwrap_or_default(),
                    joined: None,
                    pieces: None,
                })
                .collect(),
        };
        methods.push(method);
        infos.push(info);
    }

    let metadata = metadata::read(files, &constant, limits)?;
    let cache_layers = metadata::cache_layers(&metadata, &graphs);
    let cache_spec = metadata::cache_spec(&metadata, cache_layers.as_ref(), metadata::context(&metadata));
    let weights = Arc::new(weights);
    let load_options = LoadOptions {
        limits: limits.clone(),
        precision: options.precision,
        mode,
        batch_invariant: options.batch_invariant,
    };
    let joined = match options.keeps_delegates {
        true => None,
        false => join::join((&mut methods, &buffers.list), &graphs, &weights, target.backend.as_ref()),
    };
    let buffer_infos = list_buffers(&graphs, &buffers);
    let mut kept = HashMap::new();
    let verified = match joined {
        Some(joined) => {
            for delegate in infos.iter_mut().flat_map(|info| &mut info.delegates) {
                delegate.joined = joined.parts.get(&delegate.graph).copied();
            }
            kept = hand_over(&mut buffers, &mut methods, &joined);
            VerifiedProgram::new(VerifiedGraphs::new(joined.graphs)?, Arc::new(joined.weights))?
        }
        None => VerifiedProgram::new(graphs.clone(), weights.clone())?,
    };
    let loaded = match behind.filter(|_| fallbacks.is_divided) {
        Some(behind) => {
            load_divided(WithFallback::new(target.clone(), behind), &verified, &load_options, &mut infos)?
        }
        // Most programs have nothing to divide, and are not looked at once more.
        None => target.backend.load(target.device.id, &verified, &load_options)?,
    };
    let needs_cache = graphs.graphs.iter().any(|graph| writes_cache(&graph.module.main));
    Ok(Inner {
        name: files.name.clone(),
        limits: limits.clone(),
        target,
        loaded,
        mode,
        weights,
        flat: methods.iter().map(|_| OnceLock::new()).collect(),
        methods,
        infos,
        metadata,
        cache_layers,
        cache_spec,
        files: files.mapped.clone(),
        needs_cache,
        buffer_infos,
        program_buffers: buffers.list,
        kept,
    })
}

/// Takes those of the program's buffers off its list that joined graphs keep; says which graph keeps each.
fn hand_over(
    buffers: &mut Buffers,
    methods: &mut [Method],
    joined: &join::Joined,
) -> HashMap<BufferId, Arc<Module>> {
    let (mut kept, mut numbers, mut left) = (HashMap::new(), HashMap::new(), Vec::new());
    for (number, buffer) in std::mem::take(&mut buffers.list).into_iter().enumerate() {
        match joined.kept.get(&number) {
            Some(graph) => drop(kept.insert(buffer.id, joined.graphs.graphs[graph.0].module.clone())),
            None => {
                numbers.insert(number, left.len());
                left.push(buffer);
            }
        }
    }
    buffers.list = left;
    for (_, number) in methods.iter_mut().flat_map(|method| &mut method.buffers) {
        *number = numbers[&*number];
    }
    kept
}

/// Two methods of one name could not be told apart.
fn check_names(files: &Files, plans: &[&ExecutionPlan]) -> Result<()> {
    let mut seen = HashSet::new();
    match plans.iter().find(|plan| !seen.insert(plan.name.to_string())) {
        Some(plan) => Err(Error::Program {
            file: files.name.clone(),
            place: format!("method `{}`", &*plan.name),
            problem: "another method has the same name".into(),
        }),
        None => Ok(()),
    }
}

/// Payloads by where they lie and what they are called with.
type Known = HashMap<(DataLocation, u32, Vec<Argument>), (Arc<Module>, Arc<IndexMap<String, Constant>>)>;

/// Decodes and lifts a payload; one that several delegates share is lifted once.
fn read_delegate(
    files: &Files,
    plan: &ExecutionPlan,
    number: usize,
    known: &mut Known,
    limits: &Limits,
) -> Result<Delegate> {
    let table = &plan.delegates[number];
    if !DELEGATE_IDS.contains(&&*table.id) {
        return Err(Error::ForeignDelegate {
            file: files.name.clone(),
            method: plan.name.to_string(),
            index: number,
            id: table.id.to_string(),
        });
    }
    let problem = |problem: String| Error::Program {
        file: files.name.clone(),
        place: format!("method `{}`, delegate {number}", &*plan.name),
        problem,
    };
    let bytes = files.pte.payload(table).ok_or_else(|| problem("there is no payload".into()))?;
    let (id, payload_bytes) = (table.id.to_string(), bytes.len() as u64);
    // Delegates that compute the same may share their bytes and still be called with other sizes.
    let arguments = || delegate_arguments(plan, number);
    let key = table.processed.as_ref().map(|at| (at.location, at.index, arguments()));
    if let Some((module, data)) = key.as_ref().and_then(|key| known.get(key)) {
        return Ok(Delegate { id, module: module.clone(), data: data.clone(), payload_bytes });
    }
    let lifted =
        lift_delegate(&files.pte, plan, number, limits).map_err(|error| problem(error.to_string()))?;
    let (module, data) = (Arc::new(lifted.module), Arc::new(lifted.data));
    if let Some(key) = key {
        known.insert(key, (module.clone(), data.clone()));
    }
    Ok(Delegate { id, module, data, payload_bytes })
}

/// What the chosen backend does not run itself.
#[derive(Default)]
struct Fallbacks {
    by_graph: HashMap<GraphId, IndexMap<&'static str, Fallback>>,
    /// Whether graphs have to be cut for it.
    is_divided: bool,
}

/// Asks the backend about every node. What it leaves to the reference, and what the one behind it runs, is noted; what
/// nobody runs is an error now. Init graphs are the reference's.
fn plan_ops(graphs: &ProgramGraphs, target: &Target, behind: Option<&Target>) -> Result<Fallbacks> {
    let reference = Reference::default();
    let mut fallbacks = Fallbacks::default();
    for (index, graph) in graphs.graphs.iter().enumerate() {
        let module = &graph.module;
        let init = module.init.iter().map(|init| (init, &reference as &dyn Backend, None));
        for (part, asked, behind) in init.chain([(&module.main, target.backend.as_ref(), behind)]) {
            let mut refused = None;
            part.for_each_node(|node, _| {
                let runs = |backend: &dyn Backend| {
                    !matches!(backend.supports(&node.op, &part.values), Support::No(_))
                };
                let (backend, lack) = match asked.supports(&node.op, &part.values) {
                    Support::Native => return,
                    Support::Fallback(lack) if runs(&reference) => (reference.name(), lack),
                    Support::Fallback(lack) | Support::No(lack) => match behind {
                        Some(behind) if runs(behind.backend.as_ref()) => {
                            fallbacks.is_divided = true;
                            (behind.name(), lack)
                        }
                        _ => {
                            refused.get_or_insert((node, lack));
                            return;
                        }
                    },
                };
                let ops = fallbacks.by_graph.entry(GraphId(index)).or_default();
                ops.entry(node.op.spec().name).or_insert(Fallback { backend, lack, nodes: 0 }).nodes += 1;
            });
            if let Some((node, reason)) = refused {
                return Err(Error::UnsupportedOp(Box::new(UnsupportedOp {
                    file: graphs.file.clone(),
                    method: graph.method.clone(),
                    delegate: graph.delegate,
                    place: show_place(node),
                    backend: target.name().to_owned(),
                    op: Printer::new(part).node(node).to_string(),
                    reason,
                })));
            }
        }
    }
    Ok(fallbacks)
}

/// Loads a program that two backends run, and notes what runs where.
fn load_divided(
    backend: WithFallback,
    program: &VerifiedProgram,
    options: &LoadOptions,
    infos: &mut [MethodInfo],
) -> Result<Arc<dyn Loaded>> {
    let division = backend.divide(program)?;
    for delegate in infos.iter_mut().flat_map(|info| &mut info.delegates) {
        delegate.pieces = backend.pieces(&division, delegate.graph);
    }
    backend.load_divided((program, division), options)
}

/// The data of every constant, by key: from the `.ptd` files first, then from the program.
fn gather_weights(files: &Files, graphs: &ProgramGraphs) -> Result<Weights> {
    let mut weights = Weights::new(graphs.graphs.len());
    for (index, delegate) in graphs.graphs.iter().enumerate() {
        let module = &delegate.module;
        let derived: HashSet<&str> = module
            .init
            .iter()
            .flat_map(|init| init.outputs.iter().map(|output| output.name.as_str()))
            .collect();
        for graph in module.init.iter().chain([&module.main]) {
            let is_main = std::ptr::eq(graph, &module.main);
            for constant in &graph.constants {
                if weights.get(GraphId(index), &constant.name).is_some()
                    || (is_main && derived.contains(constant.name.as_str()))
                {
                    continue;
                }
                let problem = |problem: String| Error::Constant {
                    file: files.name.clone(),
                    method: delegate.method.clone(),
                    name: constant.name.clone(),
                    problem,
                };
                let Some(Type::Tensor(ty)) = graph.ty(constant.value) else {
                    return Err(problem("it is not a tensor".into()));
                };
                let shape = ty.known_shape().ok_or_else(|| problem("its size is not known".into()))?;
                let bytes = match delegate.data.get(&constant.name) {
                    Some(Constant::Inline(bytes)) => Some(bytes.clone()),
                    Some(Constant::Named(key)) => files.named(key),
                    None => files.named(&constant.name),
                };
                let tensor = match bytes {
                    Some(bytes) => files.tensor(ty.dtype, shape, bytes),
                    // A placeholder that the init graph replaces need not have data; it is one number.
                    None if derived.contains(constant.name.as_str()) && shape.is_empty() => {
                        HostTensor::zeros(ty.dtype, shape).map_err(|error| error.to_string())
                    }
                    None => Err("no such key in the program or its .ptd files".into()),
                };
                let tensor = tensor.map_err(problem)?;
                weights.add_stored(GraphId(index), &constant.name, tensor);
            }
        }
    }
    Ok(weights)
}

/// Plans the values and instructions of a method, and finds its buffers.
fn plan_method(
    files: &Files,
    source: &Source<'_>,
    shared: bool,
    buffers: &mut Buffers,
    limits: &Limits,
) -> Result<Method> {
    let mut initial: HashMap<usize, HostTensor> = HashMap::new();
    let mut method = source.method(|number, table| {
        let error = |problem| source.error(format!("value {number}"), problem);
        let mut plan = TensorPlan::new(table, limits).map_err(error)?;
        if let Some(tensor) = files.stored(table, &plan).map_err(error)? {
            match plan.place {
                None => plan.constant = Some(tensor),
                Some(_) => drop(initial.insert(number, tensor)),
            }
        }
        Ok(plan)
    })?;
    method.buffers = buffers.find(&method, source.plan, shared, initial, limits)?;
    Ok(method)
}

fn count_operators(plan: &ExecutionPlan) -> IndexMap<String, usize> {
    let mut counts = IndexMap::new();
    for instruction in plan.chains.iter().flat_map(|chain| chain.instructions.iter()) {
        if let pteron_format::pte::Instruction::Kernel(call) = instruction
            && let Some(operator) = usize::try_from(call.op_index).ok().and_then(|at| plan.operators.get(at))
        {
            *counts.entry(operator_name(operator)).or_default() += 1;
        }
    }
    counts
}

fn count_ops(module: &Module) -> IndexMap<&'static str, usize> {
    let mut counts = IndexMap::new();
    for graph in module.init.iter().chain([&module.main]) {
        graph.for_each_node(|node, _| *counts.entry(node.op.spec().name).or_default() += 1);
    }
    counts.sort_unstable_keys();
    counts
}

fn writes_cache(graph: &Graph) -> bool {
    let mut found = false;
    graph.for_each_node(|node, _| found |= matches!(node.op, Op::UpdateAndAttend { .. }));
    found
}

/// The buffers of delegates, then those of the program itself.
fn list_buffers(graphs: &ProgramGraphs, buffers: &Buffers) -> Vec<BufferInfo> {
    let mut list = Vec::new();
    for graph in &graphs.graphs {
        let main = &graph.module.main;
        for buffer in &main.buffers {
            if let Some(Type::Tensor(ty)) = main.ty(buffer.value) {
                let scope = Scope::Method(graph.method.clone());
                let id = BufferId { scope, delegate: Some(graph.delegate), name: buffer.name.clone() };
                list.push(BufferInfo { id, dtype: ty.dtype, shape: ty.known_shape().unwrap_or_default() });
            }
        }
    }
    list.extend(buffers.list.iter().map(|buffer| BufferInfo {
        id: buffer.id.clone(),
        dtype: buffer.initial.dtype(),
        shape: buffer.initial.shape().to_vec(),
    }));
    list
}
