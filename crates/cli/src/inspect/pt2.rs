//! An exported program (`.pt2`) as data and as text: what it takes, gives, holds and changes.
//!
//! Such a file cannot be run, so that it has an overview of its own beside that of programs.

use super::{Argument, Bound, Weights, render};
use crate::failure::Failure;
use crate::output::{Align, Json, Output, Table, count, size};
use indexmap::IndexMap;
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_import::pt2::argument::{Argument as Value, OrName};
use pteron_import::pt2::schema::{ConstantValue, InputSpec, OutputSpec};
use pteron_import::pt2::{self, ExportedProgram};
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;

/// Everything that `inspect` says of a `.pt2`.
#[derive(Debug, Serialize)]
struct Overview {
    file: String,
    kind: &'static str,
    bytes: u64,
    programs: Vec<Exported>,
}

#[derive(Debug, Serialize)]
struct Exported {
    name: String,
    torch: String,
    schema: String,
    /// `TRAINING` straight from export, `ATEN` after decomposition.
    dialects: Vec<String>,
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
    nodes: usize,
    /// Nodes by operator, most frequent first; those of nested graphs count as well.
    operators: IndexMap<String, usize>,
    /// Each storage counts once, however many tensors look at it.
    weights: Vec<Weights>,
    /// Weights that are tensor subclasses, by class.
    subclasses: IndexMap<&'static str, usize>,
    buffers: Vec<String>,
    mutated_buffers: Vec<String>,
    mutated_inputs: Vec<String>,
}

/// Reads, verifies and shows a `.pt2`.
pub(crate) fn inspect(path: &Path, json: bool, out: &mut Output) -> Result<(), Failure> {
    let limits = Limits::own();
    let file = MappedFile::open(path, &limits).map_err(Failure::new)?;
    let package = pt2::read(file.to_bytes(), &limits).map_err(|error| Failure::in_file(path, error))?;
    let overview = Overview {
        file: path.display().to_string(),
        kind: "pt2",
        bytes: file.to_bytes().len() as u64,
        programs: package.programs().iter().map(describe).collect(),
    };
    file.check_unchanged().map_err(Failure::new)?;
    match json {
        true => out.json(&overview, Json::Indented),
        false => show(&overview, out),
    }
}

fn describe(program: &ExportedProgram) -> Exported {
    let signature = program.signature();
    let inputs = signature.input_specs.iter().filter_map(|spec| match spec {
        InputSpec::UserInput { arg } => Some(argument(program, arg)),
        InputSpec::ConstantInput { name, value } => Some(Argument {
            name: name.clone(),
            kind: "fixed",
            value: Some(constant(value)),
            ..Argument::default()
        }),
        _ => None,
    });
    let outputs = signature.output_specs.iter().filter_map(|spec| match spec {
        OutputSpec::UserOutput { arg } => Some(argument(program, arg)),
        OutputSpec::LossOutput { arg } => Some(argument(program, &Value::Tensor(arg.clone()))),
        _ => None,
    });
    let mut operators = IndexMap::new();
    count_nodes(program.graph(), &mut operators);
    operators.sort_by(|a, x, b, y| y.cmp(x).then_with(|| a.cmp(b)));
    let mutated = |pick: fn(&OutputSpec) -> Option<&String>| {
        signature.output_specs.iter().filter_map(pick).cloned().collect::<Vec<_>>()
    };
    let version = program.schema_version();
    let (weights, subclasses) = weights(program);
    Exported {
        name: program.name().to_owned(),
        torch: program.torch_version().to_owned(),
        schema: format!("{}.{}", version.major, version.minor),
        dialects: program.dialects().to_vec(),
        inputs: inputs.collect(),
        outputs: outputs.collect(),
        nodes: operators.values().sum(),
        operators,
        weights,
        subclasses,
        buffers: signature
            .input_specs
            .iter()
            .filter_map(|spec| match spec {
                InputSpec::Buffer { buffer_name, .. } => Some(buffer_name.clone()),
                _ => None,
            })
            .collect(),
        mutated_buffers: mutated(|spec| match spec {
            OutputSpec::BufferMutation { buffer_name, .. } => Some(buffer_name),
            _ => None,
        }),
        mutated_inputs: mutated(|spec| match spec {
            OutputSpec::UserInputMutation { user_input_name, .. } => Some(user_input_name),
            _ => None,
        }),
    }
}

fn argument(program: &ExportedProgram, value: &Value) -> Argument {
    let fixed = |value: String| Argument { kind: "fixed", value: Some(value), ..Argument::default() };
    let named =
        |kind: &'static str, name: &str| Argument { name: name.to_owned(), kind, ..Argument::default() };
    match value {
        Value::Tensor(tensor) => {
            let meta = program.graph().tensor_values.get(&tensor.name);
            let dims = meta.into_iter().flat_map(|meta| &meta.sizes).map(|size| {
                let (min, max) = program.interval(size);
                let number = |value: i64| usize::try_from(value).unwrap_or(0);
                Bound { min: min.map_or(0, number), max: max.map(number) }
            });
            Argument {
                dtype: meta.map(|meta| meta.dtype.name().to_owned()),
                dims: Some(dims.collect()),
                ..named("tensor", &tensor.name)
            }
        }
        Value::SymInt(OrName::Name(name)) => named("int", name),
        Value::SymFloat(OrName::Name(name)) => named("float", name),
        Value::SymBool(OrName::Name(name)) => named("bool", name),
        Value::Object(object) => named("object", &object.name),
        Value::None(_) => fixed("None".into()),
        Value::Int(value) | Value::SymInt(OrName::Plain(value)) => fixed(value.to_string()),
        Value::Float(value) | Value::SymFloat(OrName::Plain(value)) => fixed(value.0.to_string()),
        Value::Bool(value) | Value::SymBool(OrName::Plain(value)) => fixed(value.to_string()),
        Value::Text(text) => fixed(format!("{text:?}")),
        _ => named("other", ""),
    }
}

fn constant(value: &ConstantValue) -> String {
    match value {
        ConstantValue::None(_) => "None".into(),
        ConstantValue::Int(value) => value.to_string(),
        ConstantValue::Float(value) => value.0.to_string(),
        ConstantValue::Text(text) => format!("{text:?}"),
        ConstantValue::Bool(value) => value.to_string(),
    }
}

fn count_nodes(graph: &pt2::schema::Graph, operators: &mut IndexMap<String, usize>) {
    for node in &graph.nodes {
        let name = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
        *operators.entry(name.to_owned()).or_default() += 1;
        for input in &node.inputs {
            input.arg.graphs(&mut |subgraph| count_nodes(&subgraph.graph, operators));
        }
    }
}

fn weights(program: &ExportedProgram) -> (Vec<Weights>, IndexMap<&'static str, usize>) {
    let mut totals: IndexMap<&'static str, (usize, u64)> = IndexMap::new();
    let mut subclasses = IndexMap::new();
    let mut seen = HashSet::new();
    for weight in program.weights().values().chain(program.constants().values()) {
        if let pt2::Weight::Subclass(subclass) = weight {
            *subclasses.entry(subclass.kind.name()).or_default() += 1;
        }
        for part in weight.parts() {
            let (tensors, bytes) = totals.entry(part.dtype().name()).or_default();
            *tensors += 1;
            let storage = part.storage();
            if seen.insert((storage.as_ptr() as usize, storage.len())) {
                *bytes += storage.len() as u64;
            }
        }
    }
    totals.sort_by(|a, x, b, y| y.1.cmp(&x.1).then_with(|| a.cmp(b)));
    let weights = totals.into_iter().map(|(dtype, (tensors, bytes))| Weights {
        dtype: dtype.to_owned(),
        tensors,
        bytes,
    });
    (weights.collect(), subclasses)
}

fn show(overview: &Overview, out: &mut Output) -> Result<(), Failure> {
    let programs = count(overview.programs.len(), "program");
    out.line(format!("{}: pt2, {}, {programs}", overview.file, size(overview.bytes)))?;
    for program in &overview.programs {
        out.blank()?;
        out.line(format!(
            "program {}: torch {}, schema {}, {}, {}",
            program.name,
            program.torch,
            program.schema,
            program.dialects.join(" "),
            count(program.nodes, "node")
        ))?;
        render::arguments(&program.inputs, &program.outputs, out)?;
        render::counts(&program.operators, out)?;
        render::weights(&program.weights, out)?;
        let mut state = Table::new(&[Align::Left, Align::Left]);
        for name in &program.buffers {
            state.row([name.as_str(), if program.mutated_buffers.contains(name) { "mutated" } else { "" }]);
        }
        out.section("buffers", &state)?;
        let mut facts = Table::new(&[Align::Left, Align::Left]);
        for (class, number) in &program.subclasses {
            facts.row([class.to_string(), count(*number, "weight")]);
        }
        for name in &program.mutated_inputs {
            facts.row([name.as_str(), "an input that is written to"]);
        }
        out.section("also", &facts)?;
    }
    Ok(())
}
