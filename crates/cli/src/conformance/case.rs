//! `case.json`: what a case runs and how it is judged. The layout is described in `conformance/README.md`.
//!
//! Text flows in, a checked description flows out. Nothing here runs or compares anything.

use pteron_runtime::{CacheLayer, CacheSpec, Value};
use pteron_tensor::{DType, HostTensor};
use serde::Deserialize;
use std::collections::BTreeMap;

/// More layers than any model has; the number comes from a file and is allocated.
const MOST_LAYERS: usize = 1 << 16;

/// What a case is, of the keys that running it needs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// One entry a step: the token that must have the largest logit.
    #[serde(default)]
    pub(crate) greedy: Vec<Option<i64>>,
    /// Names of `.ptd` files beside the program.
    #[serde(default)]
    pub(crate) data: Vec<String>,
    kv_cache: Option<KvCache>,
    /// How often ExecuTorch's program has each kind of node.
    #[serde(default)]
    nodes: BTreeMap<String, u64>,
    pub(crate) steps: Vec<Step>,
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Op,
    Model,
    Checkpoint,
}

/// What a description says that it is about; the rest is read by whoever runs that kind.
pub(crate) fn kind(text: &[u8]) -> Result<Kind, String> {
    #[derive(Deserialize)]
    struct Head {
        kind: Kind,
    }
    let head: Head = serde_json::from_slice(text).map_err(|error| format!("case.json: {error}"))?;
    Ok(head.kind)
}

/// One run of a method.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) method: String,
    inputs: Vec<Entry>,
    outputs: Vec<Entry>,
    pub(crate) rule: Rule,
}

/// How the outputs of a step are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    /// Within the case's tolerances.
    Close,
    /// All elements equal.
    Exact,
    /// Each element is an allowed index.
    OneOf,
    /// As in the step before.
    Repeat,
}

/// An input or output: a tensor of `io.safetensors`, or the value itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    Tensor,
    Int(i64),
    Float(Number),
    Bool(bool),
}

/// A float, as text where JSON has no number for it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(f64),
    Text(String),
}

/// The off-graph cache that an op case asks for: all layers alike and flat.
#[derive(Clone, Debug, Deserialize)]
struct KvCache {
    capacity: usize,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    dtype: String,
}

impl Case {
    /// Reads a description, or says what is wrong with it.
    pub(crate) fn parse(text: &[u8]) -> Result<Case, String> {
        let case: Case = serde_json::from_slice(text).map_err(|error| format!("case.json: {error}"))?;
        let tolerances = [case.atol, case.rtol];
        if tolerances.iter().any(|tolerance| !tolerance.is_finite() || *tolerance < 0.0) {
            return Err(format!("case.json: {tolerances:?} are not tolerances"));
        }
        if case.steps.is_empty() {
            return Err("case.json: it has no steps, so there is nothing to judge".into());
        }
        if case.greedy.len() > case.steps.len() {
            return Err("case.json: `greedy` has more entries than there are steps".into());
        }
        // A name that climbs out of the case's folder is no name of a file beside the program.
        if let Some(name) = case.data.iter().find(|name| name.contains(['/', '\\']) || name.starts_with('.'))
        {
            return Err(format!("case.json: `data` names {name:?}, which is not a file beside model.pte"));
        }
        Ok(case)
    }

    /// Whether ExecuTorch's program has a node of that kind.
    pub(crate) fn has_node(&self, kind: &str) -> bool {
        self.nodes.contains_key(kind)
    }

    /// The off-graph cache that the session is to have, where the case says so itself.
    pub(crate) fn cache(&self) -> Result<Option<CacheSpec>, String> {
        let Some(cache) = &self.kv_cache else { return Ok(None) };
        if cache.layers > MOST_LAYERS {
            return Err(format!("case.json: a cache of {} layers", cache.layers));
        }
        let dtype = match cache.dtype.as_str() {
            "float32" => DType::F32,
            "float16" => DType::F16,
            "bfloat16" => DType::BF16,
            other => return Err(format!("case.json: a cache cannot hold `{other}`")),
        };
        let layer = CacheLayer { kv_heads: cache.kv_heads, head_dim: cache.head_dim, window: None };
        Ok(Some(CacheSpec {
            capacity: cache.capacity,
            layers: vec![layer; cache.layers],
            max_write: None,
            dtype: Some(dtype),
        }))
    }
}

/// The tensors of all steps by key.
pub(crate) type Tensors = BTreeMap<String, HostTensor>;

impl Step {
    /// What the method is called with.
    pub(crate) fn inputs(&self, number: usize, tensors: &Tensors) -> Result<Vec<Value>, String> {
        values(&self.inputs, &format!("{number}.in"), tensors)
    }

    /// What it should give.
    pub(crate) fn outputs(&self, number: usize, tensors: &Tensors) -> Result<Vec<Value>, String> {
        values(&self.outputs, &format!("{number}.out"), tensors)
    }
}

fn values(entries: &[Entry], prefix: &str, tensors: &Tensors) -> Result<Vec<Value>, String> {
    let value = |(position, entry): (usize, &Entry)| {
        Ok(match entry {
            Entry::Tensor => Value::Tensor(tensor(tensors, &format!("{prefix}.{position}"))?.clone()),
            Entry::Int(value) => Value::Int(*value),
            Entry::Bool(value) => Value::Bool(*value),
            Entry::Float(Number::Plain(value)) => Value::Float(*value),
            Entry::Float(Number::Text(text)) => match text.as_str() {
                "nan" => Value::Float(f64::NAN),
                "inf" => Value::Float(f64::INFINITY),
                "-inf" => Value::Float(f64::NEG_INFINITY),
                other => return Err(format!("case.json: {other:?} is not a float")),
            },
        })
    };
    entries.iter().enumerate().map(value).collect()
}

/// A tensor of `io.safetensors`.
pub(crate) fn tensor<'a>(tensors: &'a Tensors, key: &str) -> Result<&'a HostTensor, String> {
    tensors.get(key).ok_or_else(|| format!("io.safetensors has no `{key}`, which case.json asks for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(keys: &str) -> String {
        format!(
            r#"{{"name": "n", "kind": "op", "source": "s", "atol": 1e-5, "rtol": 0, "nodes": {{}}, {keys}
            "steps": [{{"method": "forward", "rule": "one_of",
                        "inputs": ["tensor", {{"int": 3}}, {{"float": "-inf"}}, {{"bool": true}}],
                        "outputs": [{{"float": 0.5}}]}}]}}"#
        )
    }

    #[test]
    fn a_description_reads_as_it_was_written() {
        let cache = r#""kv_cache": {"capacity": 16, "layers": 2, "kv_heads": 2, "head_dim": 8,
                       "dtype": "float16"}, "greedy": [null], "data": ["x.ptd"],"#;
        let case = Case::parse(with(cache).as_bytes()).unwrap();
        let cache = case.cache().unwrap().unwrap();
        assert_eq!((cache.capacity, cache.layers.len(), cache.dtype), (16, 2, Some(DType::F16)));
        let tensor = HostTensor::zeros(DType::F32, vec![1]).unwrap();
        let tensors = Tensors::from([("0.in.0".to_owned(), tensor)]);
        let inputs = case.steps[0].inputs(0, &tensors).unwrap();
        let shown: Vec<String> = inputs.iter().map(Value::describe).collect();
        assert_eq!(shown, ["f32 [1]", "int 3", "float -inf", "bool true"]);
        assert_eq!(case.steps[0].rule, Rule::OneOf);
        let missing = case.steps[0].inputs(1, &tensors).unwrap_err();
        assert!(missing.contains("no `1.in.0`"), "{missing}");
    }

    #[test]
    fn bad_descriptions_are_errors() {
        let cases = [
            ("{", "EOF"),
            (&with(r#""data": ["../../etc/passwd"],"#), "not a file beside"),
            (&with(r#""greedy": [1, 2],"#), "more entries"),
            (&with("").replace("one_of", "vibes"), "vibes"),
            (&with("").replace("1e-5", "-1"), "not tolerances"),
        ];
        for (text, message) in cases {
            let error = Case::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(message), "{error:?} should say {message:?}");
        }
    }
}
