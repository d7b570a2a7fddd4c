//! How a case is run: the methods of its steps, their inputs, and the cache that the session is given.

use std::fs;
use std::path::Path;

use pteron_runtime::{CacheLayer, CacheSpec, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::case::Case;
use crate::error::{Doing, Error, Result};

/// What a case's steps need.
pub(crate) struct Start {
    /// Of the first step.
    pub(crate) method: String,
    pub(crate) inputs: Vec<Value>,
    pub(crate) cache: Option<CacheSpec>,
    /// All steps, the first too.
    pub(crate) steps: Vec<Step>,
    /// How far the case's outputs may be from those that are stored.
    pub(crate) atol: f64,
}

/// One call.
pub(crate) struct Step {
    pub(crate) method: String,
    pub(crate) inputs: Vec<Value>,
}

#[derive(Deserialize)]
struct CaseFile {
    kv_cache: Option<CacheEntry>,
    steps: Vec<StepEntry>,
    #[serde(default)]
    atol: f64,
}

#[derive(Deserialize)]
struct CacheEntry {
    capacity: usize,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
}

#[derive(Deserialize)]
struct StepEntry {
    method: String,
    inputs: Vec<serde_json::Value>,
}

impl Start {
    pub(crate) fn read(case: &Case) -> Result<Start> {
        let path = case.folder.join("case.json");
        let text = fs::read(&path).doing("read", &path)?;
        let file: CaseFile = serde_json::from_slice(&text).map_err(|error| Error::content(&path, error))?;
        let tensors_path = case.folder.join("io.safetensors");
        let bytes = fs::read(&tensors_path).doing("read", &tensors_path)?;
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| Error::content(&tensors_path, error))?;
        let mut steps = vec![];
        for (i, StepEntry { method, inputs: entries }) in file.steps.into_iter().enumerate() {
            let inputs = entries.iter().enumerate().map(|(j, entry)| match scalar(entry) {
                Some(value) => Ok(value),
                None => tensor(&tensors, &format!("{i}.in.{j}"), &tensors_path),
            });
            steps.push(Step { method, inputs: inputs.collect::<Result<_>>()? });
        }
        let Some(Step { method, inputs }) = steps.first() else {
            return Err(Error::content(&path, "has no step"));
        };
        let (method, inputs) = (method.clone(), inputs.clone());
        let cache = file.kv_cache.map(|entry| CacheSpec {
            capacity: entry.capacity,
            layers: vec![
                CacheLayer { kv_heads: entry.kv_heads, head_dim: entry.head_dim, window: None };
                entry.layers
            ],
            max_write: None,
            dtype: None,
        });
        Ok(Start { method, inputs, cache, steps, atol: file.atol })
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
