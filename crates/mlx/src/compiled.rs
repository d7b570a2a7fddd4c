//! Compiled execution: a graph that reads nothing back is traced by MLX once for every signature of its inputs (and on
//! every thread, because MLX's traces belong to threads), then replayed.

use crate::error::MlxError;
use crate::ffi::{Array, Function};
use crate::loaded::GraphSet;
use crate::machine::{Effects, Note, joined, walk};
use crate::state::known;
use crate::values::{ArrayType, Datum, Tensor};
use pteron_ir::{Graph, Op};
use pteron_runtime::Result;
use pteron_runtime::backend::{GraphId, RunControl};
use pteron_tensor::Scalar;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// When graphs are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compile {
    /// Never.
    Never,
    /// When inputs of the same signature come a second time: what runs once is not worth a trace.
    #[default]
    Repeated,
    /// At once.
    Always,
}

/// Signatures of one graph that are remembered; inputs of further ones run uncompiled.
const MOST_SIGNATURES: usize = 64;

/// What of its inputs a trace depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    graph: GraphId,
    inputs: Vec<InputKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum InputKey {
    Tensor(Arc<ArrayType>),
    Int(i64),
    /// By its bits.
    Float(u64),
    Bool(bool),
}

impl Signature {
    pub(crate) fn new(graph: GraphId, inputs: &[Datum]) -> Signature {
        let key = |datum: &Datum| match datum {
            Datum::Tensor(tensor) => InputKey::Tensor(tensor.ty.clone()),
            Datum::Scalar(Scalar::Int(value)) => InputKey::Int(*value),
            Datum::Scalar(Scalar::Float(value)) => InputKey::Float(value.to_bits()),
            Datum::Scalar(Scalar::Bool(value)) => InputKey::Bool(*value),
        };
        Signature { graph, inputs: inputs.iter().map(key).collect() }
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inputs = self.inputs.iter().map(|input| match input {
            InputKey::Tensor(ty) => ty.to_string(),
            InputKey::Int(value) => value.to_string(),
            InputKey::Float(bits) => f64::from_bits(*bits).to_string(),
            InputKey::Bool(value) => value.to_string(),
        });
        write!(f, "({})", inputs.collect::<Vec<_>>().join(", "))
    }
}

/// The op that keeps a graph from being compiled, if there is one: it needs a number that only the data tell.
pub(crate) fn reads_back(graph: &Graph) -> Option<&'static str> {
    let mut found = None;
    graph.for_each_node(|node, _| {
        if matches!(node.op, Op::ItemInt { .. } | Op::UpdateAndAttend { .. }) {
            found.get_or_insert(node.op.spec().name);
        }
    });
    found
}

/// The compiled functions of a program.
#[derive(Default)]
pub(crate) struct Compiled {
    entries: Mutex<HashMap<Signature, Entry>>,
}

#[derive(Clone)]
enum Entry {
    /// Seen once.
    Seen,
    Traced(Arc<Replay>),
    /// MLX could not trace it.
    Refused,
}

/// A graph that MLX traces when it is first called on a thread, and then replays.
pub(crate) struct Replay {
    function: Function,
    outcome: Arc<Mutex<Option<Arc<Outcome>>>>,
    /// Arrays that a call gives at most.
    most: usize,
}

/// What a trace has found out; the same for every trace of one signature.
struct Outcome {
    outputs: Vec<Form>,
    updates: Vec<Arc<ArrayType>>,
    /// What the guards mean, in order.
    notes: Vec<Note>,
}

/// A value without its data: a tensor's type, or a number.
#[derive(Clone)]
enum Form {
    Tensor(Arc<ArrayType>),
    Scalar(Scalar),
}

impl Form {
    fn of(datum: &Datum) -> Form {
        match datum {
            Datum::Tensor(tensor) => Form::Tensor(tensor.ty.clone()),
            Datum::Scalar(scalar) => Form::Scalar(*scalar),
        }
    }

    /// The value, with the next array where it is a tensor.
    fn filled(&self, arrays: &mut impl Iterator<Item = Array>) -> Result<Datum, MlxError> {
        Ok(match self {
            Form::Tensor(ty) => Datum::Tensor(tensor(ty, arrays)?),
            Form::Scalar(scalar) => Datum::Scalar(*scalar),
        })
    }
}

fn tensor(ty: &Arc<ArrayType>, arrays: &mut impl Iterator<Item = Array>) -> Result<Tensor, MlxError> {
    let array = arrays.next().ok_or_else(|| MlxError::Invalid("a traced graph of fewer arrays".into()))?;
    Ok(Tensor { array: Arc::new(array), ty: ty.clone() })
}

/// What a replay gives; all of it is yet to be computed.
pub(crate) struct Replayed {
    pub(crate) outputs: Vec<Datum>,
    pub(crate) updates: Vec<Tensor>,
    pub(crate) key: Array,
    /// All guards in one array, and what they mean.
    pub(crate) guards: Option<(Array, Vec<Note>)>,
}

impl Compiled {
    /// The function for a signature, if it is to be compiled now.
    pub(crate) fn find(
        &self,
        when: Compile,
        set: &Arc<GraphSet>,
        signature: &Signature,
        inputs: &[Datum],
    ) -> Result<Option<Arc<Replay>>, MlxError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match (entries.get(signature), when) {
            (Some(Entry::Traced(replay)), _) => return Ok(Some(replay.clone())),
            (Some(Entry::Refused), _) | (_, Compile::Never) => return Ok(None),
            (None, _) if entries.len() >= MOST_SIGNATURES => return Ok(None),
            (None, Compile::Repeated) => {
                entries.insert(signature.clone(), Entry::Seen);
                return Ok(None);
            }
            (Some(Entry::Seen), _) | (None, Compile::Always) => {}
        }
        let replay = Arc::new(Replay::new(set, signature, inputs)?);
        entries.insert(signature.clone(), Entry::Traced(replay.clone()));
        Ok(Some(replay))
    }

    /// Runs a signature uncompiled from now on.
    pub(crate) fn refuse(&self, signature: &Signature) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(signature.clone(), Entry::Refused);
    }
}

impl Replay {
    fn new(set: &Arc<GraphSet>, signature: &Signature, inputs: &[Datum]) -> Result<Replay, MlxError> {
        let (id, text) = (signature.graph, signature.to_string());
        let graph = &set.graphs.graphs[id.0].module.main;
        let most = graph.outputs.len() + graph.buffers.len() + 2;
        let outcome = Arc::new(Mutex::new(None));
        // Only types and numbers are kept of the inputs: a trace computes with MLX's placeholders.
        let forms: Vec<Form> = inputs.iter().map(Form::of).collect();
        let (set_traced, kept) = (set.clone(), outcome.clone());
        let trace = move |arrays: Vec<Array>| {
            let (results, outcome) =
                trace(&set_traced, id, &forms, arrays).map_err(|error| error.to_string())?;
            let method = set_traced.graphs.graphs[id.0].method.as_str();
            let thread = format!("{:?}", std::thread::current().id());
            tracing::info!(method, signature = text, thread, "compiled execution: enabled");
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(outcome));
            Ok(results)
        };
        Ok(Replay { function: set.mlx.compile(Box::new(trace))?, outcome, most })
    }

    /// Calls the function; the inputs' numbers are those that it was made for.
    pub(crate) fn run(
        &self,
        constants: &[Tensor],
        inputs: &[Datum],
        buffers: &[Tensor],
        key: &Array,
    ) -> Result<Replayed, MlxError> {
        let given = inputs.iter().filter_map(|datum| match datum {
            Datum::Tensor(tensor) => Some(tensor),
            Datum::Scalar(_) => None,
        });
        let tensors = constants.iter().chain(given).chain(buffers);
        let arrays: Vec<&Array> = tensors.map(|tensor| &*tensor.array).chain([key]).collect();
        let mut arrays = self.function.call(&arrays, self.most)?.into_iter();
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let outcome = outcome.ok_or_else(|| MlxError::Invalid("a graph that was never traced".into()))?;
        let outputs =
            outcome.outputs.iter().map(|form| form.filled(&mut arrays)).collect::<Result<_, _>>()?;
        let updates = outcome.updates.iter().map(|ty| tensor(ty, &mut arrays)).collect::<Result<_, _>>()?;
        let key = arrays.next().ok_or_else(|| MlxError::Invalid("a traced graph without a key".into()))?;
        let guards = arrays.next().map(|guards| (guards, outcome.notes.clone()));
        Ok(Replayed { outputs, updates, key, guards })
    }
}

/// Walks a graph over placeholders: constants, inputs, buffers, key in; outputs, updates, key and guards out.
fn trace(set: &GraphSet, id: GraphId, forms: &[Form], arrays: Vec<Array>) -> Result<(Vec<Array>, Outcome)> {
    let graph = &set.graphs.graphs[id.0].module.main;
    let mut arrays = arrays.into_iter();
    let stored = |value| {
        let ty = graph.ty(value).and_then(known).map(Arc::new);
        ty.ok_or_else(|| MlxError::Invalid("a constant or buffer of unknown size".into()))
    };
    let constants = graph.constants.iter().map(|constant| tensor(&stored(constant.value)?, &mut arrays));
    let constants = constants.collect::<Result<Vec<_>, _>>()?;
    let inputs = forms.iter().map(|form| form.filled(&mut arrays)).collect::<Result<_, _>>()?;
    let buffers = graph.buffers.iter().map(|buffer| tensor(&stored(buffer.value)?, &mut arrays));
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    let key = arrays.next().ok_or_else(|| MlxError::Invalid("a trace without a key".into()))?;
    let mut effects = Effects { cache: None, key: Arc::new(key) };
    let control = RunControl::default();
    let context = set.context(id, &control, 0, true);
    let walked = walk(context, &constants, inputs, buffers, &mut effects)?;
    let outcome = Outcome {
        outputs: walked.outputs.iter().map(Form::of).collect(),
        updates: walked.updates.iter().map(|tensor| tensor.ty.clone()).collect(),
        notes: walked.guards.iter().map(|guard| guard.note.clone()).collect(),
    };
    let outputs = walked.outputs.iter().filter_map(|datum| match datum {
        Datum::Tensor(tensor) => Some(&tensor.array),
        Datum::Scalar(_) => None,
    });
    let updates = walked.updates.iter().map(|tensor| &tensor.array);
    let results = outputs.chain(updates).chain([&effects.key]).map(|array| array.share());
    let mut results = results.collect::<Result<Vec<Array>, _>>()?;
    results.extend(joined(&set.mlx, &walked.guards)?);
    Ok((results, outcome))
}
