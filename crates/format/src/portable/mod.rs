//! From delegates to portable operators: what a payload computes becomes calls of kernels that every build of ExecuTorch has,
//! in the place where the delegate was called, with the same values going in and coming out.
//!
//! A payload is lifted; what its init graph makes is made now, by whoever asks, since nothing here computes. [`plain`] says in ops
//! with a kernel what others mean, [`kernels`] turns each of these into a call, [`calls`] holds the values of the method. A checked
//! [`Pte`] flows in; tables and segments that can be written flow out. All that cannot be said is said at once.

mod calls;
mod kernels;
mod norms;
mod plain;
mod products;
mod rope;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use pteron_ir::{Graph, Module, ValueId};
use pteron_tensor::{Bytes, HostTensor};

use crate::across::{Tables, without_unused};
use crate::assemble::MethodWriter;
use crate::delegate::lift_delegate;
use crate::draft::{Constant, Lifted};
use crate::pte::{self, EValue, ExecutionPlan, Instruction, Pte};
use crate::{Limits, List};

use calls::{Calls, Shared};
use store::Store;

/// Runs a graph without inputs over its constants: what its outputs are.
pub type RunInit<'r> = dyn Fn(&Graph, &[HostTensor]) -> Result<Vec<HostTensor>, String> + 'r;

/// The program with calls of portable operators in place of its delegates; or all that stands in the way.
pub fn to_portable(pte: &Pte, limits: &Limits, run_init: &RunInit<'_>) -> Result<Tables, Vec<String>> {
    let (mut program, mut segments) = (pte.program.clone(), pte.segments());
    let mut store = Store::of(pte);
    let mut problems = Vec::new();
    for (old, plan) in pte.program.execution_plan.iter().zip(program.execution_plan.make_mut()) {
        if old.delegates.is_empty() {
            continue;
        }
        let graphs = graphs_of(pte, old, limits, run_init);
        if let Err(found) = graphs.and_then(|graphs| rewritten(old, plan, &graphs, &mut store)) {
            problems.extend(found.into_iter().map(|problem| format!("method `{}`, {problem}", &*old.name)));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    keep_shared_arenas(&pte.program, &mut program);
    store.finish(&mut program, &mut segments);
    program.backend_delegate_data = List::default();
    // No payload is left to find data by name; tensors that are not in the file do.
    let external = program.execution_plan.iter().flat_map(|plan| plan.values.iter()).any(is_external);
    if !external {
        program.named_data = List::default();
    }
    program.complete();
    Ok(without_unused((program, segments)))
}

fn is_external(value: &EValue) -> bool {
    matches!(value, EValue::Tensor(tensor) if tensor.is_external())
}

/// A delegate's graph, in ops that have a kernel, and the constants that it reads.
struct Prepared {
    graph: Graph,
    constants: HashMap<ValueId, HostTensor>,
}

fn graphs_of(
    pte: &Pte,
    plan: &ExecutionPlan,
    limits: &Limits,
    run_init: &RunInit<'_>,
) -> Result<Vec<Prepared>, Vec<String>> {
    let (mut graphs, mut problems) = (Vec::new(), Vec::new());
    for number in 0..plan.delegates.len() {
        match prepared(pte, plan, number, limits, run_init) {
            Ok(graph) => graphs.push(graph),
            Err(found) => {
                problems.extend(found.into_iter().map(|problem| format!("delegate {number}: {problem}")));
            }
        }
    }
    if problems.is_empty() { Ok(graphs) } else { Err(problems) }
}

fn prepared(
    pte: &Pte,
    plan: &ExecutionPlan,
    number: usize,
    limits: &Limits,
    run_init: &RunInit<'_>,
) -> Result<Prepared, Vec<String>> {
    let lifted = lift_delegate(pte, plan, number, limits).map_err(|error| vec![error.to_string()])?;
    let mut data = data_of(pte, &lifted).map_err(|problem| vec![problem])?;
    if let Some(init) = &lifted.module.init {
        let constants = tensors(init, &data).map_err(|problem| vec![problem])?;
        let constants: Vec<HostTensor> =
            init.constants.iter().filter_map(|constant| constants.get(&constant.value).cloned()).collect();
        let made = run_init(init, &constants).map_err(|problem| vec![problem])?;
        let made = made.into_iter().map(|tensor| tensor.bytes().clone());
        data.extend(init.outputs.iter().map(|output| output.name.clone()).zip(made));
    }
    let Lifted { module, data: written } = plain::in_plain_ops(&lifted.module.main, limits)?;
    let graph = module.main;
    data.extend(written.into_iter().filter_map(|(name, constant)| match constant {
        Constant::Inline(bytes) => Some((name, bytes)),
        Constant::Named(_) => None,
    }));
    let constants = tensors(&graph, &data).map_err(|problem| vec![problem])?;
    Ok(Prepared { graph, constants })
}

/// The bytes of a lifted payload's constants by name.
fn data_of(pte: &Pte, lifted: &Lifted) -> Result<HashMap<String, Bytes>, String> {
    let Module { init, main } = &lifted.module;
    let made = init.iter().flat_map(|init| init.outputs.iter().map(|output| output.name.as_str()));
    let made: Vec<&str> = made.collect();
    let mut data = HashMap::new();
    for constant in [Some(main), init.as_ref()].into_iter().flatten().flat_map(|graph| &graph.constants) {
        let key = match lifted.data.get(&constant.name) {
            Some(Constant::Inline(bytes)) => {
                data.insert(constant.name.clone(), bytes.clone());
                continue;
            }
            Some(Constant::Named(key)) => key,
            None => &constant.name,
        };
        match pte.named(key) {
            Some(bytes) => drop(data.insert(constant.name.clone(), bytes)),
            None if made.contains(&constant.name.as_str()) => {}
            None => return Err(format!("constant `{key}` is not in the program (a .ptd file may have it)")),
        }
    }
    Ok(data)
}

/// The constants of a graph.
fn tensors(graph: &Graph, data: &HashMap<String, Bytes>) -> Result<HashMap<ValueId, HostTensor>, String> {
    let mut tensors = HashMap::new();
    for constant in &graph.constants {
        let tensor = plain::constant_type(graph, constant.value).and_then(|(dtype, shape)| {
            let bytes = data.get(&constant.name)?;
            let wanted = shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size))?;
            // What lies behind a constant in its segment is not part of it.
            HostTensor::new(dtype, shape, bytes.slice(0..wanted)?).ok()
        });
        let tensor =
            tensor.ok_or_else(|| format!("constant `{}` has not the bytes of its type", constant.name))?;
        tensors.insert(constant.value, tensor);
    }
    Ok(tensors)
}

/// Puts calls of operators in the place of a method's calls of delegates.
fn rewritten(
    old: &ExecutionPlan,
    plan: &mut ExecutionPlan,
    graphs: &[Prepared],
    store: &mut Store,
) -> Result<(), Vec<String>> {
    let [chain] = &old.chains[..] else {
        return Err(vec![format!("it has {} chains; methods of one are turned", old.chains.len())]);
    };
    let mut method = MethodWriter::resumed(old);
    let mut shared = Shared::default();
    let mut problems = Vec::new();
    // By instruction: where those that stand for it begin.
    let mut starts = Vec::with_capacity(chain.instructions.len() + 1);
    let mut traces = Vec::new();
    for (at, instruction) in chain.instructions.iter().enumerate() {
        starts.push(method.steps());
        match instruction {
            Instruction::Delegate(call) => {
                let graph = usize::try_from(call.delegate_index).ok().and_then(|number| graphs.get(number));
                let Some(prepared) = graph else { continue };
                let calls = Calls::new(prepared, (&mut method, store, &mut shared));
                if let Err(found) = calls.run(old, call.delegate_index, &call.args) {
                    let here = |problem| format!("delegate {}: {problem}", call.delegate_index);
                    problems.extend(found.into_iter().map(here));
                }
            }
            other => method.repeat(other.clone()),
        }
        if let Some(trace) = chain.stacktrace.get(at) {
            traces.resize(method.steps(), trace.clone());
        }
    }
    starts.push(method.steps());
    if !problems.is_empty() {
        problems.dedup();
        return Err(problems);
    }
    method.complete(plan).map_err(|error| vec![error.to_string()])?;
    plan.delegates = List::from(Vec::new());
    for chain in plan.chains.make_mut() {
        for instruction in chain.instructions.make_mut() {
            if let Instruction::JumpFalse(jump) = instruction {
                let to = usize::try_from(jump.destination_instruction).ok().and_then(|to| starts.get(to));
                jump.destination_instruction = to.map_or(0, |&to| to as i32);
            }
        }
        if !traces.is_empty() {
            chain.stacktrace = std::mem::take(&mut traces).into();
        }
    }
    Ok(())
}

/// Methods that share state show it by a second arena of one size in each that has an arena at all: one that has got its first
/// gets the second with it.
fn keep_shared_arenas(old: &pte::Program, program: &mut pte::Program) {
    const SECOND: usize = 2;
    let planned = || old.execution_plan.iter().filter(|plan| plan.non_const_buffer_sizes.len() > 1);
    let Some(&size) = planned().next().and_then(|plan| plan.non_const_buffer_sizes.get(SECOND)) else {
        return;
    };
    if planned().all(|plan| plan.non_const_buffer_sizes.get(SECOND) == Some(&size)) {
        for plan in program.execution_plan.make_mut() {
            let sizes = plan.non_const_buffer_sizes.make_mut();
            if sizes.len() == SECOND {
                sizes.push(size);
            }
        }
    }
}
