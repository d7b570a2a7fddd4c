//! The one place where a mutant meets the libraries: read, lift, verify, plan, run. An error at any of these is what
//! a damaged file should give; the driver looks for everything else.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_runtime::{CacheLayer, CacheSpec, DataFile, Options, Program, RunControl, SessionOptions, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::SafeTensors;
use serde::Deserialize;

use super::corpus::Damaged;
use crate::case::Case;
use crate::error::{Doing, Error, Result};

/// How far a mutant got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// Refused as a file.
    Refused,
    /// A container, but no program could be made of it.
    Read,
    /// A program, but running it gave an error.
    Loaded,
    /// Ran to its end.
    Ran,
}

impl Reached {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reached::Refused => "refused",
            Reached::Read => "read",
            Reached::Loaded => "loaded",
            Reached::Ran => "ran",
        }
    }
}

/// A run is told to stop after this; a run that does not is what the driver's limit is for.
const DEADLINE: Duration = Duration::from_secs(2);

/// Runs the first step of a case whose files are sound but for one. An error is about the case, never the mutant.
pub(crate) fn attempt(damaged: &Damaged<'_>) -> Result<Reached> {
    let (case, limits) = (damaged.case, Limits::default());
    let file = |name: &str| -> Result<Bytes> {
        if name == damaged.file {
            return Ok(Bytes::copy_of(&damaged.mutant.bytes));
        }
        let path = case.folder.join(name);
        Ok(Bytes::copy_of(&fs::read(&path).doing("read", &path)?))
    };
    let program = file("model.pte")?;
    if Pte::read(program.clone(), &limits).is_err() {
        return Ok(Reached::Refused);
    }
    let mut data = vec![];
    for name in &case.description.data {
        data.push(DataFile { name: name.clone(), bytes: file(name)? });
    }
    let Ok(program) = Program::load("model.pte", program, &data, &Options::default()) else {
        return Ok(Reached::Read);
    };
    let start = Start::read(case)?;
    let options = SessionOptions { cache: start.cache, ..SessionOptions::default() };
    let Ok(mut session) = program.session_with(&options) else { return Ok(Reached::Loaded) };
    let control = RunControl { deadline: Some(Instant::now() + DEADLINE), ..RunControl::default() };
    Ok(match session.run_with(&start.method, &start.inputs, &control) {
        Ok(_) => Reached::Ran,
        Err(_) => Reached::Loaded,
    })
}

/// What a case's first step needs.
struct Start {
    method: String,
    inputs: Vec<Value>,
    cache: Option<CacheSpec>,
}

#[derive(Deserialize)]
struct CaseFile {
    kv_cache: Option<CacheEntry>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct CacheEntry {
    capacity: usize,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
}

#[derive(Deserialize)]
struct Step {
    method: String,
    inputs: Vec<serde_json::Value>,
}

impl Start {
    fn read(case: &Case) -> Result<Start> {
        let path = case.folder.join("case.json");
        let text = fs::read(&path).doing("read", &path)?;
        let file: CaseFile = serde_json::from_slice(&text).map_err(|error| Error::content(&path, error))?;
        let Some(step) = file.steps.into_iter().next() else {
            return Err(Error::content(&path, "has no step"));
        };
        let tensors_path = case.folder.join("io.safetensors");
        let bytes = fs::read(&tensors_path).doing("read", &tensors_path)?;
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| Error::content(&tensors_path, error))?;
        let mut inputs = vec![];
        for (j, entry) in step.inputs.iter().enumerate() {
            inputs.push(match scalar(entry) {
                Some(value) => value,
                None => tensor(&tensors, &format!("0.in.{j}"), &tensors_path)?,
            });
        }
        let cache = file.kv_cache.map(|entry| CacheSpec {
            capacity: entry.capacity,
            layers: vec![
                CacheLayer { kv_heads: entry.kv_heads, head_dim: entry.head_dim, window: None };
                entry.layers
            ],
            max_write: None,
            dtype: None,
        });
        Ok(Start { method: step.method, inputs, cache })
    }
}

/// `{"int": 3}` and the like; `None` for a tensor.
fn scalar(entry: &serde_json::Value) -> Option<Value> {
    let (kind, value) = entry.as_object()?.iter().next()?;
    match kind.as_str() {
        "int" => value.as_i64().map(Value::Int),
        "bool" => value.as_bool().map(Value::Bool),
        // What JSON cannot write is a string, "nan" or "-inf".
        _ => value.as_f64().or_else(|| value.as_str()?.parse().ok()).map(Value::Float),
    }
}

fn tensor(tensors: &SafeTensors<'_>, name: &str, path: &Path) -> Result<Value> {
    let view = tensors.tensor(name).map_err(|error| Error::content(path, error))?;
    let dtype = DType::from_name(&format!("{:?}", view.dtype()).to_lowercase())
        .ok_or_else(|| Error::content(path, format!("{name} is {:?}", view.dtype())))?;
    HostTensor::new(dtype, view.shape().to_vec(), Bytes::copy_of(view.data()))
        .map(Value::Tensor)
        .map_err(|error| Error::content(path, error))
}
