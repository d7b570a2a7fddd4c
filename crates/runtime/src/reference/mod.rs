//! The reference backend: every op, every dtype, scalar and safe. It is the oracle that other backends are held
//! against, and it runs the init graphs of every program, whatever backend runs the rest.

mod arguments;
mod attend;
mod control;
mod cost;
mod effects;
mod estimate;
pub(crate) mod interpret;
pub(crate) mod kernels;
mod liveness;
mod memory;
mod state;
#[cfg(test)]
mod tests;

pub use arguments::check_arguments;
pub use cost::work;
pub use effects::Effects;
pub(crate) use estimate::run_bytes;
pub use interpret::extent;
pub use kernels::metal::{KnownKernel, recognise_in as known_kernel};
pub use liveness::BlockLife;

use crate::backend::{
    Backend, DeviceId, DeviceInfo, GraphId, LoadOptions, Loaded, MemoryReport, Part, ProgramGraphs,
    RunControl, State, StateOptions, Support,
};
use crate::{Error, Result, Value, VerifiedProgram, Weights};
use attend::{Beside, Flat};
use interpret::Context;
use kernels::Datum;
use pteron_format::Limits;
use pteron_ir::{Builder, Dim, Effect, Graph, Op, Output, Ssa, TensorType, Type, TypeSource, ValueId};
use pteron_tensor::{DType, HostTensor, Scalar};
use state::ReferenceState;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The reference backend.
#[derive(Debug, Default)]
pub struct Reference {}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![DeviceInfo { name: "host, scalar".into(), ..DeviceInfo::default() }]
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        match op {
            Op::MetalKernel { .. } => Support::of_source(kernels::metal::recognise_in(op, types)),
            _ => Support::Native,
        }
    }

    fn load(&self, _: DeviceId, program: &VerifiedProgram, options: &LoadOptions) -> Result<Arc<dyn Loaded>> {
        let (graphs, weights) = (program.graphs().clone(), program.weights().clone());
        let mut prepared = Vec::with_capacity(graphs.graphs.len());
        for (index, graph) in graphs.graphs.iter().enumerate() {
            let main = &graph.module.main;
            let constants = main.constants.iter().map(|constant| {
                weights.get(GraphId(index), &constant.name).cloned().ok_or_else(|| Error::Constant {
                    file: graphs.file.clone(),
                    method: graph.method.clone(),
                    name: constant.name.clone(),
                    problem: "no data".into(),
                })
            });
            prepared
                .push(Prepared { constants: constants.collect::<Result<_>>()?, life: BlockLife::of(main) });
        }
        Ok(Arc::new(LoadedReference { graphs, weights, prepared, limits: options.limits.clone() }))
    }
}

/// A graph ready to run.
struct Prepared {
    constants: Vec<HostTensor>,
    life: BlockLife,
}

struct LoadedReference {
    graphs: Arc<ProgramGraphs>,
    weights: Arc<Weights>,
    prepared: Vec<Prepared>,
    limits: Limits,
}

impl Loaded for LoadedReference {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        let apart = |graph: &Prepared| graph.constants.iter().map(HostTensor::counted_apart).collect();
        let constants = self.prepared.iter().map(apart).collect();
        Ok(Box::new(ReferenceState::new(self.graphs.clone(), constants, options, &self.limits)?))
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let state = state.as_any_mut().downcast_mut::<ReferenceState>();
        let state = state.filter(|state| state.is_of(&self.graphs)).ok_or(Error::ForeignState)?;
        outputs.clear();
        match self.run_pending(graph, state, inputs, control, None) {
            Ok(results) => {
                *outputs = results;
                Ok(())
            }
            Err(error) => {
                state.rollback();
                Err(error)
            }
        }
    }

    fn runs_flat(&self) -> bool {
        true
    }

    fn run_flat(
        &self,
        graph: GraphId,
        parts: &mut [Part<'_>],
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let mut states = Vec::with_capacity(parts.len());
        for Part { state, tokens, control } in parts {
            let state = state.as_any_mut().downcast_mut::<ReferenceState>();
            let state = state.filter(|state| state.is_of(&self.graphs)).ok_or(Error::ForeignState)?;
            states.push((state, *tokens, *control));
        }
        let [(first, tokens, watched), others @ ..] = states.as_mut_slice() else {
            return Err(Error::Invalid("a flat batch of no sessions".into()));
        };
        let others = others.iter_mut().map(|(state, tokens, control)| Beside {
            effects: &mut state.pending().effects,
            tokens: *tokens,
            control,
        });
        let flat = Flat { tokens: *tokens, control: watched, others: others.collect() };
        outputs.clear();
        let results = self.run_pending(graph, first, inputs, control, Some(flat));
        match results {
            Ok(results) => {
                *outputs = results;
                Ok(())
            }
            Err(error) => {
                states.iter_mut().for_each(|(state, ..)| state.rollback());
                Err(error)
            }
        }
    }

    fn memory(&self) -> MemoryReport {
        let (mapped_bytes, packed_bytes) = self.weights.bytes();
        let buffers = self.graphs.graphs.iter().flat_map(|graph| {
            let main = &graph.module.main;
            main.buffers.iter().filter_map(|buffer| match main.ty(buffer.value)? {
                Type::Tensor(tensor) => interpret::byte_size(tensor.dtype, &tensor.known_shape()?),
                _ => None,
            })
        });
        MemoryReport { mapped_bytes, packed_bytes, state_bytes: buffers.sum(), run_bytes: 0, cache_bytes: 0 }
    }
}

impl LoadedReference {
    fn run_pending(
        &self,
        id: GraphId,
        state: &mut ReferenceState,
        inputs: &[Value],
        control: &RunControl,
        flat: Option<Flat<'_>>,
    ) -> Result<Vec<Value>> {
        let (Some(graph), Some(prepared)) = (self.graphs.graphs.get(id.0), self.prepared.get(id.0)) else {
            return Err(Error::Invalid(format!("there is no graph {}", id.0)));
        };
        let graph = &graph.module.main;
        let inputs = check_inputs(graph, inputs)?.map(|input| input.map(datum)).collect::<Result<_>>()?;
        let elsewhere = state.bytes_outside(id);
        let constants = state.constants(id);
        let contents = state.pending();
        let context = Context {
            id,
            graph,
            life: &prepared.life,
            limits: &self.limits,
            control,
            effects: &mut contents.effects,
            elsewhere,
            flat,
        };
        let outputs = interpret::run(context, inputs, &constants, &mut contents.buffers[id.0])?;
        let converted = graph.outputs.iter().zip(outputs).map(|(output, datum)| match (&output.ty, datum) {
            // The file declares what a caller gets: argmax gives u32 and is declared i64.
            (Type::Tensor(declared), Datum::Tensor(tensor)) => {
                cast(&tensor, declared.dtype).map(Value::Tensor)
            }
            (_, datum) => Ok(interpret::to_value(datum)),
        });
        converted.collect()
    }
}

/// An input that has been held against what the graph declares.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A tensor in host memory.
    Tensor(HostTensor),
    /// A number.
    Scalar(Scalar),
}

fn datum(argument: Argument) -> Datum {
    match argument {
        Argument::Tensor(tensor) => Datum::Tensor(tensor),
        Argument::Scalar(scalar) => Datum::Scalar(scalar),
    }
}

/// Inputs as the graph wants them, in host memory; see [`check_arguments`].
pub fn check_inputs(
    graph: &Graph,
    inputs: &[Value],
) -> Result<impl ExactSizeIterator<Item = Result<Argument>>> {
    check_arguments(graph, inputs)?;
    Ok(inputs.iter().map(|value| match value.as_scalar() {
        Some(scalar) => Ok(Argument::Scalar(scalar)),
        None => {
            let tensor = value.to_tensor()?;
            tensor
                .map(Argument::Tensor)
                .ok_or_else(|| Error::Invalid(format!("{} as input", value.describe())))
        }
    }))
}

/// A tensor in the dtype that a file declares for it; shared where it has that already.
pub fn cast(tensor: &HostTensor, dtype: DType) -> Result<HostTensor> {
    kernels::cast(tensor, dtype).map_err(|error| Error::Invalid(error.to_string()))
}

/// Runs a graph that has no state and no inputs: the init graph of a payload.
pub(crate) fn run_init(
    id: GraphId,
    graph: &Graph,
    constants: &[HostTensor],
    limits: &Limits,
    control: &RunControl,
) -> Result<Vec<HostTensor>> {
    let life = BlockLife::of(graph);
    let mut effects = Effects::none();
    let context =
        Context { id, graph, life: &life, limits, control, effects: &mut effects, elsewhere: 0, flat: None };
    let outputs = interpret::run(context, Vec::new(), constants, &mut [])?;
    let tensors = outputs.into_iter().map(|datum| match datum {
        Datum::Tensor(tensor) => Ok(tensor),
        Datum::Scalar(_) => Err(Error::Invalid("an init graph gives a number".into())),
    });
    tensors.collect()
}

/// What an init graph makes of its constants, for whoever writes that down instead of the graph.
pub fn run_constants(graph: &Graph, constants: &[HostTensor], limits: &Limits) -> Result<Vec<HostTensor>> {
    let control = RunControl { work: Some(Arc::new(AtomicU64::new(limits.work))), ..RunControl::default() };
    run_init(GraphId(0), graph, constants, limits, &control)
}

/// Computes one op for a backend that has no kernel for it. Ops with bodies are not for this: they belong to
/// whoever runs the graph; ops with an effect need [`Effects`].
pub fn run_op(
    op: &Op<Ssa>,
    operands: &[(ValueId, Value)],
    limits: &Limits,
    control: &RunControl,
) -> Result<Vec<Value>> {
    if op.effect() != Effect::Pure {
        return Err(Error::Invalid(format!("{} is not run alone", op.spec().name)));
    }
    run_op_with(op, operands, &mut Effects::none(), limits, control)
}

/// The same, for every op but those with bodies.
fn run_op_with(
    op: &Op<Ssa>,
    operands: &[(ValueId, Value)],
    effects: &mut Effects,
    limits: &Limits,
    control: &RunControl,
) -> Result<Vec<Value>> {
    let outputs = run_expanded(op, operands, effects, limits, control)?;
    Ok(outputs.into_iter().map(interpret::to_value).collect())
}

/// What one op gives, as a graph of its own; an internal op as the plain ones that it stands for.
fn run_expanded(
    op: &Op<Ssa>,
    operands: &[(ValueId, Value)],
    effects: &mut Effects,
    limits: &Limits,
    control: &RunControl,
) -> Result<Vec<Datum>> {
    if matches!(op, Op::If { .. } | Op::Scan { .. }) {
        return Err(Error::Invalid(format!("{} is not run alone", op.spec().name)));
    }
    let mut graph = Graph::default();
    let (mut inputs, mut numbers) = (Vec::new(), HashMap::new());
    for (value, given) in operands {
        let (ty, datum) = match given {
            Value::Int(number) => (Type::Int(Dim::known(*number)), Datum::Scalar(Scalar::Int(*number))),
            Value::Float(number) => (Type::Float, Datum::Scalar(Scalar::Float(*number))),
            Value::Bool(truth) => (Type::Bool, Datum::Scalar(Scalar::Bool(*truth))),
            other => {
                let tensor = other
                    .to_tensor()?
                    .ok_or_else(|| Error::Invalid(format!("{} as operand", other.describe())))?;
                (Type::Tensor(TensorType::known(tensor.dtype(), tensor.shape())), Datum::Tensor(tensor))
            }
        };
        numbers.insert(*value, graph.add_input("", ty));
        inputs.push(datum);
    }
    let mut op = op.clone();
    op.for_each_field_mut(|_, mut field| {
        let renumber =
            |value: &mut ValueId| *value = numbers.get(value).copied().unwrap_or(ValueId(u32::MAX));
        field.for_each_tensor(&mut { renumber });
        field.for_each_scalar(&mut { renumber });
    });
    let mut builder = Builder::new(graph);
    let results = builder.append(op, None).map_err(|error| Error::Invalid(error.to_string()))?;
    let mut graph = builder.finish();
    pteron_ir::expand(&mut graph).map_err(|error| Error::Invalid(error.to_string()))?;
    graph.outputs = results
        .into_iter()
        .map(|value| Output { name: String::new(), value, ty: graph.values[value.0 as usize].ty.clone() })
        .collect();
    let life = BlockLife::of(&graph);
    let context = Context {
        id: GraphId(0),
        graph: &graph,
        life: &life,
        limits,
        control,
        effects,
        elsewhere: 0,
        flat: None,
    };
    interpret::run(context, inputs, &[], &mut [])
}
