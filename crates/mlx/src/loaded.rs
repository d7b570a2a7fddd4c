//! A program inside this backend: its constants as MLX arrays, its compiled functions, and the running of its graphs.
//!
//! A run builds a lazy graph, on the caller's thread and stream, and then computes in two goes: first what the guards
//! say, while nothing has been changed yet, then the outputs and the new state. Nothing is left to be computed when
//! `run` returns, so a session may move to another thread.

use crate::calls::Mlx;
use crate::compiled::{Compile, Compiled, Signature, reads_back};
use crate::constants::Constants;
use crate::device::DeviceArray;
use crate::error::MlxError;
use crate::ffi::Array;
use crate::lower::Guard;
use crate::machine::{Context, Note, joined, walk};
use crate::numbers::to_value;
use crate::state::{Contents, MlxState, changed, known};
use crate::values::{ArrayType, Datum, Tensor};
use pteron_format::Limits;
use pteron_runtime::backend::{
    GraphId, LoadOptions, Loaded, MemoryReport, ProgramGraphs, RunControl, State, StateOptions,
};
use pteron_runtime::reference::{BlockLife, check_arguments};
use pteron_runtime::{Error, Result, Value, Weights};
use std::sync::Arc;

/// The graphs of a program and what every walk over them needs.
pub(crate) struct GraphSet {
    pub(crate) mlx: Mlx,
    pub(crate) graphs: Arc<ProgramGraphs>,
    lives: Vec<BlockLife>,
    limits: Limits,
}

impl GraphSet {
    /// What a walk of one graph needs.
    pub(crate) fn context<'a>(
        &'a self,
        id: GraphId,
        control: &'a RunControl,
        elsewhere: u64,
        tracing: bool,
    ) -> Context<'a> {
        Context {
            mlx: self.mlx,
            id,
            graph: &self.graphs.graphs[id.0].module.main,
            life: &self.lives[id.0],
            limits: &self.limits,
            control,
            elsewhere,
            tracing,
        }
    }
}

/// A program that runs on MLX.
pub(crate) struct LoadedMlx {
    set: Arc<GraphSet>,
    /// By graph, in the graph's order.
    constants: Vec<Vec<Tensor>>,
    /// By graph: whether it can be compiled.
    compiles: Vec<bool>,
    compile: Compile,
    compiled: Compiled,
    mapped_bytes: u64,
    copied_bytes: u64,
}

impl LoadedMlx {
    pub(crate) fn new(
        mlx: Mlx,
        compile: Compile,
        graphs: Arc<ProgramGraphs>,
        weights: &Weights,
        options: &LoadOptions,
    ) -> Result<LoadedMlx> {
        let mut arrays = Constants::new(mlx, options.mode);
        let mut constants = Vec::with_capacity(graphs.graphs.len());
        for (index, graph) in graphs.graphs.iter().enumerate() {
            let refused = |name: &str, problem: String| Error::Constant {
                file: graphs.file.clone(),
                method: graph.method.clone(),
                name: name.to_owned(),
                problem,
            };
            let made = graph.module.main.constants.iter().map(|constant| {
                let tensor = weights.get(GraphId(index), &constant.name);
                let tensor = tensor.ok_or_else(|| refused(&constant.name, "no data".into()))?;
                arrays.add(tensor).map_err(|error| refused(&constant.name, error.to_string()))
            });
            constants.push(made.collect::<Result<Vec<_>>>()?);
        }
        let lives = graphs.graphs.iter().map(|graph| BlockLife::of(&graph.module.main)).collect();
        let compiles = compilable(&mlx, compile, &graphs);
        let set = Arc::new(GraphSet { mlx, graphs, lives, limits: options.limits.clone() });
        let (mapped_bytes, copied_bytes) = (arrays.mapped_bytes, arrays.copied_bytes);
        tracing::info!(mapped_bytes, copied_bytes, mode = ?options.mode, "constants are with MLX");
        let compiled = Compiled::default();
        Ok(LoadedMlx { set, constants, compiles, compile, compiled, mapped_bytes, copied_bytes })
    }

    fn run_pending(
        &self,
        id: GraphId,
        state: &mut MlxState,
        inputs: &[Value],
        control: &RunControl,
    ) -> Result<Vec<Value>> {
        let Some(graph) = self.set.graphs.graphs.get(id.0) else {
            return Err(Error::Invalid(format!("there is no graph {}", id.0)));
        };
        check_arguments(&graph.module.main, inputs)?;
        let mlx = self.set.mlx;
        let inputs = inputs.iter().map(|value| argument(&mlx, value)).collect::<Result<Vec<_>>>()?;
        let mut contents = state.begin()?;
        let (outputs, guards) = match self.replay(id, &inputs, &contents, control)? {
            Some((outputs, updates, key, guards)) => {
                contents.buffers[id.0] = updates;
                contents.effects.key = Arc::new(key);
                (outputs, guards)
            }
            None => {
                let context = self.set.context(id, control, contents.bytes_outside(id), false);
                let buffers = std::mem::take(&mut contents.buffers[id.0]);
                let walked = walk(context, &self.constants[id.0], inputs, buffers, &mut contents.effects)?;
                contents.buffers[id.0] = walked.updates;
                let array = joined(&mlx, &walked.guards)?;
                let notes = walked.guards.into_iter().map(|guard| guard.note).collect();
                (walked.outputs, array.map(|array| (array, notes)))
            }
        };
        if let Some((array, notes)) = guards {
            check_guards(&array, notes)?;
        }
        control.check()?;
        if control.last {
            state.give_up();
        }
        let arrays = outputs.iter().filter_map(|datum| match datum {
            Datum::Tensor(tensor) => Some(&*tensor.array),
            Datum::Scalar(_) => None,
        });
        mlx.eval(arrays.chain(changed(&contents, id)?)).map_err(|error| {
            Error::Invalid(format!("method `{}`, delegate {}: {error}", graph.method, graph.delegate))
        })?;
        state.finish(contents);
        Ok(outputs.into_iter().map(to_value_of).collect())
    }

    /// The graph by way of a compiled function, if there is one for these inputs.
    #[allow(clippy::type_complexity, reason = "taken apart at once by the only caller")]
    fn replay(
        &self,
        id: GraphId,
        inputs: &[Datum],
        contents: &Contents,
        control: &RunControl,
    ) -> Result<Option<(Vec<Datum>, Vec<Tensor>, Array, Option<(Array, Vec<Note>)>)>> {
        // A listener wants to hear of every node.
        if !self.compiles[id.0] || control.trace.is_some() {
            return Ok(None);
        }
        let signature = Signature::new(id, inputs);
        let Some(replay) = self.compiled.find(self.compile, &self.set, &signature, inputs)? else {
            return Ok(None);
        };
        match replay.run(&self.constants[id.0], inputs, &contents.buffers[id.0], &contents.effects.key) {
            Ok(made) => Ok(Some((made.outputs, made.updates, made.key, made.guards))),
            Err(error) => {
                // The uncompiled run says what is wrong, if it is not the trace.
                let (method, signature_text) = (&self.set.graphs.graphs[id.0].method, signature.to_string());
                tracing::info!(method, signature = signature_text, %error, "compiled execution: not for this signature");
                self.compiled.refuse(&signature);
                Ok(None)
            }
        }
    }
}

/// Which graphs can be compiled; the log says why others are not.
fn compilable(mlx: &Mlx, compile: Compile, graphs: &ProgramGraphs) -> Vec<bool> {
    if compile == Compile::Never || !mlx.device.can_compile {
        let reason =
            if compile == Compile::Never { "switched off" } else { "MLX finds no compiler for its kernels" };
        tracing::info!(reason, "compiled execution: disabled");
        return vec![false; graphs.graphs.len()];
    }
    let each = graphs.graphs.iter().map(|graph| match reads_back(&graph.module.main) {
        Some(op) => {
            let (method, delegate) = (graph.method.as_str(), graph.delegate);
            tracing::info!(
                method,
                delegate,
                op,
                "compiled execution: run in pieces, because an op reads a value back"
            );
            false
        }
        None => true,
    });
    each.collect()
}

/// Computes the guards; the first that found something is the error.
fn check_guards(array: &Array, notes: Vec<Note>) -> Result<()> {
    let found = array.to_host()?;
    let mut found = found.as_slice::<i64>()?.iter().zip(notes);
    match found.find(|(found, _)| **found != Guard::FINE) {
        Some((&number, note)) => Err(note.error(number)),
        None => Ok(()),
    }
}

fn argument(mlx: &Mlx, value: &Value) -> Result<Datum> {
    if let Some(scalar) = value.as_scalar() {
        return Ok(Datum::Scalar(scalar));
    }
    if let Value::Device(tensor) = value
        && let Some(array) = tensor.as_any().downcast_ref::<DeviceArray>()
    {
        return Ok(Datum::Tensor(array.tensor().clone()));
    }
    let tensor = value.to_tensor()?;
    let tensor = tensor.ok_or_else(|| MlxError::Invalid(format!("{} as input", value.describe())))?;
    let ty = ArrayType { dtype: tensor.dtype(), shape: tensor.shape().to_vec() };
    Ok(Datum::Tensor(Tensor::new(mlx.copy(&tensor)?, ty)))
}

fn to_value_of(datum: Datum) -> Value {
    match datum {
        Datum::Tensor(tensor) => Value::Device(Arc::new(DeviceArray::new(tensor))),
        Datum::Scalar(scalar) => to_value(scalar),
    }
}

impl Loaded for LoadedMlx {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        let state = MlxState::new(self.set.mlx, self.set.graphs.clone(), options, &self.set.limits)?;
        Ok(Box::new(state))
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
    ) -> Result<Vec<Value>> {
        let state = state.as_any_mut().downcast_mut::<MlxState>().ok_or(Error::ForeignSnapshot)?;
        let result = self.run_pending(graph, state, inputs, control);
        if result.is_err() {
            state.rollback();
        }
        result
    }

    fn memory(&self) -> MemoryReport {
        let buffers = self.set.graphs.graphs.iter().flat_map(|graph| {
            let main = &graph.module.main;
            main.buffers.iter().filter_map(|buffer| main.ty(buffer.value).and_then(known))
        });
        let state_bytes = buffers.map(|ty| (ty.count() * ty.dtype.size()) as u64).sum();
        MemoryReport { mapped_bytes: self.mapped_bytes, packed_bytes: self.copied_bytes, state_bytes }
    }
}
