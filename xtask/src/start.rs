//! How a case begins: the method of its first step, that step's inputs and the cache that the session is given.

use std::fs;
use std::path::Path;

use pteron_runtime::{CacheLayer, CacheSpec, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::case::Case;
use crate::error::{Doing, Error, Result};

/// What a case's first step needs.
pub(crate) struct Start {
    pub(crate) method: String,
    pub(crate) inputs: Vec<Value>,
    pub(crate) cache: Option<CacheSpec>,
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
    pub(crate) fn read(case: &Case) -> Result<Start> {
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
