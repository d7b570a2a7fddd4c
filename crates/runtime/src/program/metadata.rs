//! Constant methods: what an exporter wrote about its program, and the off-graph cache that it describes so.

use super::files::Files;
use super::tensors::TensorPlan;
use crate::backend::ProgramGraphs;
use crate::cache::{CacheLayer, CacheSpec};
use crate::portable::lanes;
use crate::{Error, Result, Value};
use indexmap::IndexMap;
use pteron_format::Limits;
use pteron_format::pte::{EValue, ExecutionPlan};
use pteron_ir::{Op, Type};
use std::collections::BTreeMap;

/// Whether a method only gives constants: it takes nothing and does nothing.
pub(super) fn is_constant(plan: &ExecutionPlan) -> bool {
    plan.inputs.is_empty()
        && !plan.outputs.is_empty()
        && plan.chains.iter().all(|chain| chain.instructions.is_empty())
        && plan.delegates.is_empty()
}

/// The outputs of constant methods, by name.
pub(super) fn read(
    files: &Files,
    plans: &[&ExecutionPlan],
    limits: &Limits,
) -> Result<IndexMap<String, Vec<Value>>> {
    let mut metadata = IndexMap::new();
    for plan in plans {
        let error = |problem: String| Error::Program {
            file: files.name.clone(),
            place: format!("method `{}`", &*plan.name),
            problem,
        };
        let values = plan.outputs.iter().map(|&output| {
            let value = usize::try_from(output).ok().and_then(|output| plan.values.get(output));
            let value = value.ok_or_else(|| error(format!("there is no value {output}")))?;
            read_value(files, plan, value, limits).map_err(error)
        });
        metadata.insert(plan.name.to_string(), values.collect::<Result<Vec<_>>>()?);
    }
    Ok(metadata)
}

fn read_value(files: &Files, plan: &ExecutionPlan, value: &EValue, limits: &Limits) -> Result<Value, String> {
    Ok(match value {
        EValue::Null => Value::None,
        EValue::Int(value) => Value::Int(*value),
        EValue::Bool(value) => Value::Bool(*value),
        EValue::Double(value) => Value::Float(*value),
        EValue::String(text) => Value::Str(text.to_string()),
        EValue::DoubleList(items) => Value::Floats(items.to_vec()),
        EValue::BoolList(items) => Value::Bools(items.to_vec()),
        EValue::IntList(items) => {
            let items = items.iter().map(|&item| {
                match usize::try_from(item).ok().and_then(|item| plan.values.get(item)) {
                    Some(EValue::Int(value)) => Ok(*value),
                    _ => Err(format!("value {item} of a list is no integer")),
                }
            });
            Value::Ints(items.collect::<Result<_, _>>()?)
        }
        EValue::Tensor(table) => {
            let plan = TensorPlan::new(table, limits)?;
            if plan.is_complex {
                return Err("complex numbers as metadata".into());
            }
            let tensor = files.stored(table, &plan)?;
            Value::Tensor(tensor.ok_or("a tensor without data")?)
        }
        EValue::TensorList(_) | EValue::OptionalTensorList(_) => {
            return Err("a list of tensors as metadata".into());
        }
    })
}

/// The layers of the off-graph cache: by the metadata, or else by the types of the nodes that write to it, which
/// do not know of windows.
pub(super) fn cache_layers(
    metadata: &IndexMap<String, Vec<Value>>,
    graphs: &ProgramGraphs,
) -> Option<Vec<CacheLayer>> {
    described_layers(metadata).or_else(|| {
        let mut layers: BTreeMap<i32, CacheLayer> = BTreeMap::new();
        for graph in graphs.graphs.iter().map(|graph| &graph.module.main) {
            graph.for_each_node(|node, _| {
                if let Op::UpdateAndAttend { k, layer_id: Some(layer), .. } = &node.op
                    && let Some(Type::Tensor(keys)) = graph.ty(*k)
                    && let [_, heads, _, features] = keys.shape.as_slice()
                    && let Some((heads, features)) = heads.as_known().zip(features.as_known())
                {
                    let (kv_heads, head_dim) = (heads.max(0) as usize, features.max(0) as usize);
                    layers.insert(*layer, CacheLayer { kv_heads, head_dim, window: None });
                }
            });
        }
        // Cache ids count from 0 without gaps.
        let in_order = layers.keys().copied().eq(0..layers.len() as i32);
        (in_order && !layers.is_empty()).then(|| layers.into_values().collect())
    })
}

fn described_layers(metadata: &IndexMap<String, Vec<Value>>) -> Option<Vec<CacheLayer>> {
    let count = size(metadata, "get_n_caches")?;
    let heads = sizes(metadata, "get_kv_heads")?;
    let dims = sizes(metadata, "get_head_dims")?;
    let windows = sizes(metadata, "get_windows").unwrap_or_else(|| vec![0; heads.len()]);
    if [heads.len(), dims.len(), windows.len()] != [count; 3] {
        return None;
    }
    let layers = heads.into_iter().zip(dims).zip(windows).map(|((kv_heads, head_dim), window)| CacheLayer {
        kv_heads,
        head_dim,
        window: (window > 0).then_some(window),
    });
    Some(layers.collect())
}

/// The largest context that the metadata declare.
pub(super) fn context(metadata: &IndexMap<String, Vec<Value>>) -> Option<usize> {
    // The first that is present: `get_max_seq_len` is the largest input in some files.
    let names = ["get_max_context_len", "get_max_ctx_len", "get_max_seq_len"];
    names.iter().find_map(|name| size(metadata, name))
}

/// The off-graph cache of a program, where the files say how long it is.
pub(super) fn cache_spec(
    metadata: &IndexMap<String, Vec<Value>>,
    layers: Option<&Vec<CacheLayer>>,
    context: Option<usize>,
) -> Option<CacheSpec> {
    let max_write =
        size(metadata, "get_prefill_chunk_size").or_else(|| size(metadata, "get_max_prefill_chunk"));
    Some(CacheSpec { capacity: context?, layers: layers?.clone(), max_write, dtype: None })
}

fn size(metadata: &IndexMap<String, Vec<Value>>, name: &str) -> Option<usize> {
    match sizes(metadata, name)?[..] {
        [size] => Some(size),
        _ => None,
    }
}

fn sizes(metadata: &IndexMap<String, Vec<Value>>, name: &str) -> Option<Vec<usize>> {
    let numbers = match metadata.get(name)?.as_slice() {
        [Value::Int(value)] => vec![*value],
        [Value::Ints(values)] => values.clone(),
        [Value::Tensor(tensor)] if tensor.dtype().is_int() => lanes::ints(tensor),
        _ => return None,
    };
    numbers.into_iter().map(|number| usize::try_from(number).ok()).collect()
}
