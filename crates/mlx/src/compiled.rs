//! Compiled execution: a piece of a graph that reads nothing back is traced by MLX once for every signature of what it takes
//! (and on every thread, because MLX's traces belong to threads), then replayed.

use crate::error::MlxError;
use crate::ffi::{Array, DeviceKind, Function};
use crate::known::Known;
use crate::loaded::GraphSet;
use crate::machine::{Effects, Note, Way, joined, walk_piece};
use crate::pieces::Piece;
use crate::values::{ArrayType, Datum, Tensor};
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
    /// When inputs of the same signature have come often enough to be worth a trace: a second time, or a good many
    /// times where MLX builds C++ for it.
    #[default]
    Repeated,
    /// At once.
    Always,
}

/// Signatures of one piece that are remembered; further ones run uncompiled.
const MOST_SIGNATURES: usize = 64;

/// Walks of a signature before it is traced on a GPU, where that takes milliseconds.
const WALKS_ON_GPU: u32 = 1;

/// The same where MLX runs the machine's C++ compiler, which takes a second or two.
const WALKS_ON_CPU: u32 = 15;

/// A piece of a graph of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PieceId {
    pub(crate) graph: GraphId,
    pub(crate) number: usize,
}

/// What of its inputs a trace depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Signature(Vec<InputKey>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum InputKey {
    Tensor(Arc<ArrayType>),
    Int(i64),
    /// By its bits.
    Float(u64),
    Bool(bool),
}

impl Signature {
    fn new(inputs: &[Datum]) -> Signature {
        let key = |datum: &Datum| match datum {
            Datum::Tensor(tensor) => InputKey::Tensor(tensor.ty.clone()),
            Datum::Scalar(Scalar::Int(value)) => InputKey::Int(*value),
            Datum::Scalar(Scalar::Float(value)) => InputKey::Float(value.to_bits()),
            Datum::Scalar(Scalar::Bool(value)) => InputKey::Bool(*value),
        };
        Signature(inputs.iter().map(key).collect())
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inputs = self.0.iter().map(|input| match input {
            InputKey::Tensor(ty) => ty.to_string(),
            InputKey::Int(value) => value.to_string(),
            InputKey::Float(bits) => f64::from_bits(*bits).to_string(),
            InputKey::Bool(value) => value.to_string(),
        });
        write!(f, "({})", inputs.collect::<Vec<_>>().join(", "))
    }
}

/// The compiled functions of a program.
#[derive(Default)]
pub(crate) struct Compiled {
    pieces: Mutex<HashMap<PieceId, HashMap<Signature, Entry>>>,
}

#[derive(Clone)]
enum Entry {
    /// Walked so often.
    Seen(u32),
    Traced(Arc<Replay>),
    /// MLX could not trace it.
    Refused,
}

/// A piece that MLX traces when it is first called on a thread, and then replays.
struct Replay {
    function: Function,
    outcome: Arc<Mutex<Option<Arc<Outcome>>>>,
    /// Arrays that a call gives at most.
    most: usize,
}

/// What a trace has found out; the same for every trace of one signature.
struct Outcome {
    /// With the place of what it takes whose elements a value has, where it has some of those.
    gives: Vec<(Form, Option<usize>)>,
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
            Form::Tensor(ty) => {
                let array = arrays.next();
                let array =
                    array.ok_or_else(|| MlxError::Invalid("a traced graph of fewer arrays".into()))?;
                Datum::Tensor(Tensor { array: array.into(), ty: ty.clone(), known: None })
            }
            Form::Scalar(scalar) => Datum::Scalar(*scalar),
        })
    }
}

/// What a replay gives; all of it is yet to be computed.
pub(crate) struct Replayed {
    /// In the order of the piece.
    pub(crate) gives: Vec<Datum>,
    pub(crate) key: Array,
    /// All guards in one array, and what they mean.
    pub(crate) guards: Option<(Array, Vec<Note>)>,
}

/// What a walk finds its compiled pieces by.
#[derive(Clone, Copy)]
pub(crate) struct Replays<'a> {
    pub(crate) set: &'a Arc<GraphSet>,
    pub(crate) compiled: &'a Compiled,
    pub(crate) when: Compile,
}

impl Replays<'_> {
    /// Runs a piece by way of its compiled function; `None` where it is to be walked.
    pub(crate) fn run(
        &self,
        id: PieceId,
        piece: &Piece,
        taken: &[Datum],
        key: &Array,
    ) -> Result<Option<Replayed>, MlxError> {
        let signature = Signature::new(&taken[piece.fixed..]);
        let Some(replay) = self.find(id, &signature, piece, taken)? else { return Ok(None) };
        match replay.run(taken, key) {
            Ok(replayed) => Ok(Some(replayed)),
            Err(error) => {
                // The uncompiled run says what is wrong, if it is not the trace.
                let (method, nodes) = (self.set.method(id.graph), format!("{:?}", piece.nodes));
                let text = signature.to_string();
                tracing::info!(method, nodes, signature = text, %error, "compiled execution: not for this signature");
                self.compiled.entries(id, |entries| entries.insert(signature, Entry::Refused));
                Ok(None)
            }
        }
    }

    /// The function for a signature, if it is to be compiled now.
    fn find(
        &self,
        id: PieceId,
        signature: &Signature,
        piece: &Piece,
        taken: &[Datum],
    ) -> Result<Option<Arc<Replay>>, MlxError> {
        self.compiled.entries(id, |entries| {
            let walks = match self.when {
                Compile::Never => return Ok(None),
                Compile::Always => 0,
                Compile::Repeated if self.set.mlx.device.kind == DeviceKind::Cpu => WALKS_ON_CPU,
                Compile::Repeated => WALKS_ON_GPU,
            };
            let seen = match entries.get(signature) {
                Some(Entry::Traced(replay)) => return Ok(Some(replay.clone())),
                Some(Entry::Refused) => return Ok(None),
                None if entries.len() >= MOST_SIGNATURES => return Ok(None),
                Some(Entry::Seen(seen)) => *seen,
                None => 0,
            };
            if seen < walks {
                entries.insert(signature.clone(), Entry::Seen(seen + 1));
                return Ok(None);
            }
            let replay = Arc::new(Replay::new(self.set, id, piece, signature.to_string(), taken)?);
            entries.insert(signature.clone(), Entry::Traced(replay.clone()));
            Ok(Some(replay))
        })
    }
}

impl Compiled {
    /// Looks at the signatures of a piece.
    fn entries<R>(&self, id: PieceId, look: impl FnOnce(&mut HashMap<Signature, Entry>) -> R) -> R {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        look(pieces.entry(id).or_default())
    }
}

impl Replay {
    fn new(
        set: &Arc<GraphSet>,
        id: PieceId,
        piece: &Piece,
        signature: String,
        taken: &[Datum],
    ) -> Result<Replay, MlxError> {
        let outcome = Arc::new(Mutex::new(None));
        // Only types and numbers are kept of what it takes: a trace computes with MLX's placeholders.
        let forms: Vec<Form> = taken.iter().map(Form::of).collect();
        let (set_traced, kept) = (set.clone(), outcome.clone());
        let nodes = format!("{:?}", piece.nodes);
        let trace = move |arrays: Vec<Array>| {
            let (results, outcome) =
                trace(&set_traced, id, &forms, arrays).map_err(|error| error.to_string())?;
            let method = set_traced.method(id.graph);
            let thread = format!("{:?}", std::thread::current().id());
            tracing::info!(method, nodes, signature, thread, "compiled execution: enabled");
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(outcome));
            Ok(results)
        };
        // Beside what it gives: the key and the guards.
        let most = piece.gives.len() + 2;
        Ok(Replay { function: set.mlx.compile(Box::new(trace))?, outcome, most })
    }

    /// Calls the function; the numbers are those that it was made for.
    fn run(&self, taken: &[Datum], key: &Array) -> Result<Replayed, MlxError> {
        let tensors = taken.iter().filter_map(Datum::as_tensor);
        let arrays: Vec<&Array> = tensors.map(|tensor| &*tensor.array).chain([key]).collect();
        let mut arrays = self.function.call(&arrays, self.most)?.into_iter();
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let outcome = outcome.ok_or_else(|| MlxError::Invalid("a graph that was never traced".into()))?;
        let gives = outcome.gives.iter().map(|(form, of)| {
            let known = of.and_then(|of| taken.get(of)?.as_tensor()?.known.clone());
            Ok(form.filled(&mut arrays)?.with_known(known))
        });
        let gives = gives.collect::<Result<_, MlxError>>()?;
        let key = arrays.next().ok_or_else(|| MlxError::Invalid("a traced graph without a key".into()))?;
        let guards = arrays.next().map(|guards| (guards, outcome.notes.clone()));
        Ok(Replayed { gives, key, guards })
    }
}

/// The place of what a piece takes whose elements a value has.
fn taken_by(datum: &Datum) -> Option<usize> {
    match datum.as_tensor()?.known {
        Some(Known::Taken(number)) => Some(number),
        _ => None,
    }
}

/// Walks a piece over placeholders: what it takes and the key in; what it gives, key and guards out.
fn trace(set: &GraphSet, id: PieceId, forms: &[Form], arrays: Vec<Array>) -> Result<(Vec<Array>, Outcome)> {
    let mut arrays = arrays.into_iter();
    let taken = forms
        .iter()
        .enumerate()
        .map(|(number, form)| Ok(form.filled(&mut arrays)?.with_known(Some(Known::Taken(number)))));
    let taken = taken.collect::<Result<_, MlxError>>()?;
    let key = arrays.next().ok_or_else(|| MlxError::Invalid("a trace without a key".into()))?;
    let mut effects = Effects { cache: None, key: key.into() };
    let control = RunControl::default();
    let context = set.context(id.graph, &control, 0, Way::Traced);
    let (gives, guards) = walk_piece(context, set.piece(id), taken, &mut effects)?;
    let outcome = Outcome {
        gives: gives.iter().map(|datum| (Form::of(datum), taken_by(datum))).collect(),
        notes: guards.iter().flat_map(|guard| guard.notes.clone()).collect(),
    };
    let arrays = gives.iter().filter_map(Datum::as_tensor).map(|tensor| &tensor.array);
    let results = arrays.chain([&effects.key]).map(|array| array.share());
    let mut results = results.collect::<Result<Vec<Array>, _>>()?;
    results.extend(joined(&set.mlx, &guards)?);
    Ok((results, outcome))
}
