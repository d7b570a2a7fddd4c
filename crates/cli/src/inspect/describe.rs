//! From a file to its [`Overview`].

use super::*;
use crate::file::{Content, File};
use crate::rewrite::MLX;
use pteron::parts::key_dtype;
use pteron_companion::GENERATION_CONFIG;
use pteron_format::bpte::Bpte;
use pteron_format::payload::Payload;
use pteron_format::ptd::Ptd;
use pteron_format::pte::{EValue, ExecutionPlan, Instruction, Pte, ScalarType, TensorShapeDynamism};
use pteron_format::vulkan::{self, VULKAN_BACKEND};
use pteron_format::xnnpack::{self, XNNPACK_BACKEND};
use pteron_format::{Limits, lift_delegate};
use pteron_runtime::{ArgumentKind, CacheSpec, DataFile, Options, Program, Value};
use pteron_tensor::DType;
use std::collections::BTreeSet;

/// Larger than any that `export` stores.
const LARGEST_GENERATION_CONFIG: usize = 1 << 20;

/// What is in a file. Graphs in text form are long, so that they are made only if asked for.
pub(crate) fn describe(file: &File, data: &[DataFile], options: &Options, graphs: bool) -> Overview {
    let mut overview = Overview { file: file.path.display().to_string(), ..Overview::default() };
    overview.bytes = file.len();
    match &file.content {
        Content::Pte(pte) => {
            overview.kind = "pte";
            overview.program = Some(describe_program(&overview.file, pte, data, options, graphs));
        }
        Content::Bpte(bpte) => {
            overview.kind = "bpte";
            overview.program = Some(describe_program(&overview.file, &bpte.pte, data, options, graphs));
            overview.tests = Some(tests(bpte));
        }
        Content::Ptd(ptd) => {
            overview.kind = "ptd";
            overview.entries = Some(entries(ptd));
        }
    }
    overview
}

fn describe_program(
    name: &str,
    pte: &Pte,
    data: &[DataFile],
    options: &Options,
    graphs: bool,
) -> ProgramOverview {
    let loaded = Program::load(name, pte.bytes().clone(), data, options);
    let mut overview = match &loaded {
        Ok(program) => of_loaded(program),
        Err(error) => {
            // The file is named once, at the top.
            let problem = error.to_string();
            let problem = problem.strip_prefix(&format!("{name}: ")).unwrap_or(&problem).to_owned();
            ProgramOverview { problem: Some(problem), ..of_tables(pte) }
        }
    };
    let keyed: BTreeSet<u32> = pte.program.named_data.iter().map(|named| named.segment_index).collect();
    overview.named_data = NamedData {
        keys: pte.program.named_data.len(),
        bytes: keyed
            .iter()
            .filter_map(|index| pte.segment_range(*index))
            .map(|range| range.len() as u64)
            .sum(),
    };
    overview.generation_config = generation_config(pte);
    // In a program that cannot be loaded every delegate's bytes are still known by its place.
    for (method, plan) in runnable(pte).zip(&mut overview.methods) {
        for (delegate, shown) in method.delegates.iter().zip(&mut plan.delegates) {
            shown.id = delegate.id.to_string();
        }
    }
    overview.graphs = graphs.then(|| graph_texts(pte, &options.limits));
    overview
}

/// The `generation_config.json` inside; nothing where it is none.
fn generation_config(pte: &Pte) -> Option<serde_json::Map<String, serde_json::Value>> {
    let text = pte.named(GENERATION_CONFIG).filter(|text| text.len() <= LARGEST_GENERATION_CONFIG)?;
    serde_json::from_slice(&text).ok()
}

/// Methods that do something; the others are metadata.
fn runnable(pte: &Pte) -> impl Iterator<Item = &ExecutionPlan> {
    pte.program.execution_plan.iter().filter(|plan| !is_constant(plan))
}

fn is_constant(plan: &ExecutionPlan) -> bool {
    plan.inputs.is_empty()
        && !plan.outputs.is_empty()
        && plan.delegates.is_empty()
        && plan.chains.iter().all(|chain| chain.instructions.is_empty())
}

fn of_loaded(program: &Program) -> ProgramOverview {
    let methods = program.methods().iter().map(|method| Method {
        name: method.name.clone(),
        inputs: method.inputs.iter().map(argument).collect(),
        outputs: method.outputs.iter().map(argument).collect(),
        delegates: method.delegates.iter().map(delegate).collect(),
        portable: method.portable.clone(),
    });
    let weights = program.weights().totals().into_iter().map(|(dtype, totals)| Weights {
        dtype: dtype.name().to_owned(),
        tensors: totals.count,
        bytes: totals.bytes,
    });
    let metadata = program.metadata().iter().map(|(name, values)| {
        let values: Vec<_> = values.iter().map(json).collect();
        let value = if let [only] = &values[..] { only.clone() } else { values.into() };
        (name.clone(), value)
    });
    ProgramOverview {
        backend: Some(program.backend().0),
        methods: methods.collect(),
        metadata: metadata.collect(),
        weights: weights.collect(),
        memory: Some(memory(program)),
        ..ProgramOverview::default()
    }
}

fn argument(argument: &pteron_runtime::Argument) -> Argument {
    let name = argument.name.clone();
    match &argument.kind {
        ArgumentKind::Tensor { dtype, dims } => Argument {
            name,
            kind: "tensor",
            dtype: Some(dtype.name().to_owned()),
            dims: Some(dims.iter().map(|dim| Bound { min: dim.min, max: dim.max }).collect()),
            value: None,
        },
        ArgumentKind::Int => Argument { name, kind: "int", ..Argument::default() },
        ArgumentKind::Fixed(value) => {
            Argument { name, kind: "fixed", value: Some(value.clone()), ..Argument::default() }
        }
    }
}

fn delegate(delegate: &pteron_runtime::DelegateInfo) -> Delegate {
    let mut ops: IndexMap<String, usize> =
        delegate.ops.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    ops.sort_by(|a, x, b, y| y.cmp(x).then_with(|| a.cmp(b)));
    Delegate {
        id: delegate.id.clone(),
        payload_bytes: delegate.payload_bytes,
        nodes: ops.values().sum(),
        ops,
        fallbacks: delegate.fallbacks.iter().map(|(op, by)| ((*op).to_owned(), fallback(by))).collect(),
        pieces: delegate.pieces.as_ref().map(pieces),
        joined: delegate.joined,
    }
}

fn fallback(by: &pteron_runtime::Fallback) -> Fallback {
    Fallback { backend: by.backend.to_owned(), nodes: by.nodes, reason: by.lack.to_string() }
}

fn pieces(pieces: &pteron_runtime::Pieces) -> Pieces {
    let list = pieces.list.iter().map(|&(backend, nodes)| Piece { backend: backend.to_owned(), nodes });
    Pieces { list: list.collect(), crossing_values: pieces.values, crossing_bytes: pieces.bytes }
}

/// A value as JSON; tensors become the list of their elements, row by row.
fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Int(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Bool(value) => (*value).into(),
        Value::Str(value) => value.clone().into(),
        Value::Ints(values) => values.clone().into(),
        Value::Floats(values) => values.clone().into(),
        Value::Bools(values) => values.clone().into(),
        Value::Tensor(tensor) => match tensor.dtype() {
            DType::I32 => tensor.as_slice::<i32>().unwrap_or_default().into(),
            DType::I64 => tensor.as_slice::<i64>().unwrap_or_default().into(),
            DType::F32 => tensor.as_slice::<f32>().unwrap_or_default().into(),
            DType::F64 => tensor.as_slice::<f64>().unwrap_or_default().into(),
            _ => value.describe().into(),
        },
        other => other.describe().into(),
    }
}

fn memory(program: &Program) -> Memory {
    let report = program.memory();
    let (backend, device) = program.backend();
    let buffers = program.buffers().iter().map(|buffer| Buffer {
        name: buffer.id.to_string(),
        dtype: buffer.dtype.name().to_owned(),
        shape: buffer.shape.clone(),
        bytes: buffer
            .shape
            .iter()
            .fold(buffer.dtype.size() as u64, |bytes, &dim| bytes.saturating_mul(dim as u64)),
    });
    let run_bytes = program
        .methods()
        .iter()
        .map(|method| (method.name.clone(), program.run_bytes(&method.name).ok().flatten()));
    Memory {
        backend: backend.to_owned(),
        device: device.name.clone(),
        mapped_bytes: report.mapped_bytes,
        packed_bytes: report.packed_bytes,
        state_bytes: program.state_bytes(),
        buffers: buffers.collect(),
        cache: program.cache_spec().map(|spec| cache(program, spec)),
        run_bytes: run_bytes.collect(),
    }
}

fn cache(program: &Program, spec: &CacheSpec) -> Cache {
    let dtype = spec.dtype.or_else(|| key_dtype(program));
    let slots = |window: Option<usize>| match window {
        None => spec.capacity as u64,
        Some(window) => (window + spec.max_write.unwrap_or(window)).saturating_sub(1) as u64,
    };
    let elements = spec.layers.iter().fold(0u64, |sum, layer| {
        let row = (layer.kv_heads as u64).saturating_mul(layer.head_dim as u64);
        // Keys and values.
        sum.saturating_add(row.saturating_mul(slots(layer.window)).saturating_mul(2))
    });
    Cache {
        capacity: spec.capacity,
        layers: spec.layers.len(),
        ring_layers: spec.layers.iter().filter(|layer| layer.window.is_some()).count(),
        dtype: dtype.map(|dtype| dtype.name().to_owned()),
        bytes: dtype.map(|dtype| elements.saturating_mul(dtype.size() as u64)),
    }
}

/// What the tables alone say of a program that cannot be loaded.
fn of_tables(pte: &Pte) -> ProgramOverview {
    let limits = Limits::own();
    let methods = runnable(pte).map(|plan| Method {
        name: plan.name.to_string(),
        inputs: plan.inputs.iter().map(|index| table_argument(plan, *index)).collect(),
        outputs: plan.outputs.iter().map(|index| table_argument(plan, *index)).collect(),
        delegates: plan.delegates.iter().map(|delegate| table_delegate(pte, delegate, &limits)).collect(),
        portable: portable_operators(plan),
    });
    let constants = pte.program.execution_plan.iter().filter(|plan| is_constant(plan));
    let metadata = constants.map(|plan| {
        let output = plan.outputs.first().and_then(|index| plan.values.get(usize::try_from(*index).ok()?));
        let value = match output {
            Some(EValue::Int(value)) => (*value).into(),
            Some(EValue::Bool(value)) => (*value).into(),
            Some(EValue::Double(value)) => (*value).into(),
            Some(EValue::String(value)) => value.to_string().into(),
            other => other.map_or(serde_json::Value::Null, |value| value.kind().into()),
        };
        (plan.name.to_string(), value)
    });
    ProgramOverview { methods: methods.collect(), metadata: metadata.collect(), ..ProgramOverview::default() }
}

fn table_argument(plan: &ExecutionPlan, index: i32) -> Argument {
    let value = usize::try_from(index).ok().and_then(|index| plan.values.get(index));
    let Some(EValue::Tensor(tensor)) = value else {
        let value = value.map(|value| value.kind().to_owned());
        return Argument { kind: "fixed", value, ..Argument::default() };
    };
    let dims = tensor.sizes.iter().map(|size| {
        let size = usize::try_from(*size).unwrap_or(0);
        match tensor.shape_dynamism {
            TensorShapeDynamism::Static => Bound { min: size, max: Some(size) },
            TensorShapeDynamism::DynamicBound => Bound { min: 0, max: Some(size) },
            TensorShapeDynamism::DynamicUnbound => Bound { min: 0, max: None },
        }
    });
    let dims = Some(dims.collect());
    Argument { kind: "tensor", dtype: Some(dtype(tensor.scalar_type)), dims, ..Argument::default() }
}

fn dtype(scalar: ScalarType) -> String {
    scalar.dtype().map_or_else(|| format!("type {}", scalar.code()), |dtype| dtype.name().to_owned())
}

fn table_delegate(pte: &Pte, delegate: &pteron_format::pte::BackendDelegate, limits: &Limits) -> Delegate {
    let bytes = pte.payload(delegate).unwrap_or_else(|| pteron_tensor::Bytes::zeroed(0));
    let mut ops: IndexMap<String, usize> = IndexMap::new();
    let mut count = |name: &str| *ops.entry(name.to_owned()).or_default() += 1;
    match &*delegate.id {
        MLX => {
            let payload = Payload::decode(&bytes, limits).ok();
            let chains = payload.iter().flat_map(|payload| payload.instruction_chains.iter());
            let nodes = chains.flat_map(|chain| chain.instructions.iter());
            nodes.for_each(|instruction| count(instruction.op.spec().name));
        }
        XNNPACK_BACKEND => {
            let payload = xnnpack::Payload::decode(&bytes, limits).ok();
            let nodes = payload.iter().flat_map(|payload| payload.graph.xnodes.iter());
            nodes.for_each(|node| count(node.kind.name()));
        }
        VULKAN_BACKEND => {
            let payload = vulkan::Payload::decode(&bytes, limits).ok();
            let calls = payload.iter().flat_map(|payload| payload.graph.chain.iter());
            calls.for_each(|call| count(&call.name));
        }
        _ => {}
    }
    ops.sort_by(|a, x, b, y| y.cmp(x).then_with(|| a.cmp(b)));
    Delegate {
        id: delegate.id.to_string(),
        payload_bytes: bytes.len() as u64,
        nodes: ops.values().sum(),
        ops,
        fallbacks: IndexMap::new(),
        pieces: None,
        joined: None,
    }
}

/// The operators that a method calls outside its delegates, with the number of calls.
pub(crate) fn portable_operators(plan: &ExecutionPlan) -> IndexMap<String, usize> {
    let mut calls = IndexMap::new();
    for instruction in plan.chains.iter().flat_map(|chain| chain.instructions.iter()) {
        let Instruction::Kernel(call) = instruction else { continue };
        let operator = usize::try_from(call.op_index).ok().and_then(|index| plan.operators.get(index));
        let Some(operator) = operator else { continue };
        let name = match operator.overload.is_empty() {
            true => operator.name.to_string(),
            false => format!("{}.{}", &*operator.name, &*operator.overload),
        };
        *calls.entry(name).or_default() += 1;
    }
    calls
}

/// Every delegate's graph; where there is none, a comment says why.
fn graph_texts(pte: &Pte, limits: &Limits) -> Vec<GraphText> {
    let mut texts = Vec::new();
    for plan in &pte.program.execution_plan {
        for number in 0..plan.delegates.len() {
            let text = match lift_delegate(pte, plan, number, limits) {
                Ok(lifted) => lifted.module.to_string(),
                Err(problem) => format!("; no graph: {problem}"),
            };
            texts.push(GraphText { method: plan.name.to_string(), delegate: number, text });
        }
    }
    texts
}

fn entries(ptd: &Ptd) -> Vec<Entry> {
    let entry = |key: &str| {
        let data = ptd.named(key)?;
        Some(Entry {
            key: key.to_owned(),
            dtype: data.layout.as_ref().map(|layout| dtype(layout.scalar_type)),
            shape: data
                .layout
                .as_ref()
                .map(|layout| layout.sizes.iter().map(|size| i64::from(*size)).collect()),
            bytes: data.bytes.len() as u64,
        })
    };
    ptd.keys().filter_map(entry).collect()
}

fn tests(bpte: &Bpte) -> Vec<Tests> {
    let suites = bpte.tables.method_test_suites.iter();
    suites
        .map(|suite| Tests { method: suite.method_name.to_string(), cases: suite.test_cases.len() })
        .collect()
}
