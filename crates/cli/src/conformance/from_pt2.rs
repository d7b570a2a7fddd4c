//! Programs of a case compiled from what `torch.export.save` wrote, in place of the program that ExecuTorch made.

use super::case::{Case, Kind};
use super::set::Set;
use pteron_format::pte::{EValue, ExecutionPlan, Pte};
use pteron_format::{Limits, WriteOptions};
use pteron_import::compile::{self, GgufLayout, Metadata, Portable, Report, Source};
use pteron_import::pt2::{self, ExportedProgram};
use pteron_tensor::{Bytes, HostTensor};

/// The file that a method is exported to: methods are named by file stem, and `model` is `forward`.
fn file_of(method: &str) -> String {
    format!("{}.pt2", if method == "forward" { "model" } else { method })
}

/// Whether a case has an exported program for each of its methods.
pub(crate) fn has_all(set: &Set, name: &str) -> bool {
    let Ok(text) = set.read(name, "case.json") else { return false };
    let Ok(case) = Case::parse(&text) else { return false };
    methods(&case).iter().all(|method| !method.contains(['/', '\\']) && set.has(name, &file_of(method)))
}

/// The methods that a case runs, each once.
fn methods(case: &Case) -> Vec<&str> {
    let mut methods = Vec::new();
    for step in &case.steps {
        if !methods.contains(&step.method.as_str()) {
            methods.push(&step.method);
        }
    }
    methods
}

/// The case's program, compiled. What its methods were exported from is one model, so that they share its buffers. What
/// an exporter decides outside the exported program is taken from ExecuTorch's own: metadata, what becomes of GGUF weights,
/// and which methods of a model were given no delegate.
pub(crate) fn compile(set: &Set, name: &str, case: &Case, limits: &Limits) -> Result<Bytes, String> {
    compile_with_report(set, name, case, limits).map(|(file, _)| file)
}

/// The same, with what became of it.
pub(crate) fn compile_with_report(
    set: &Set,
    name: &str,
    case: &Case,
    limits: &Limits,
) -> Result<(Bytes, Report), String> {
    let methods = methods(case);
    let mut programs: Vec<ExportedProgram> = Vec::new();
    for method in &methods {
        let file = file_of(method);
        let package =
            pt2::read(set.read(name, &file)?, limits).map_err(|error| format!("{file}: {error}"))?;
        match package.programs() {
            [program] => programs.push(program.clone()),
            all => return Err(format!("{file}: {} programs where one is wanted", all.len())),
        }
    }
    let sources = methods.iter().zip(&programs).map(|(name, program)| Source { name, program });
    let sources: Vec<Source<'_>> = sources.collect();
    let reference =
        Pte::read(set.read(name, "model.pte")?, limits).map_err(|error| format!("model.pte: {error}"))?;
    let gguf = match case.has_node("MetalKernelNode") {
        true => GgufLayout::Exact,
        false => GgufLayout::Repacked,
    };
    let metadata = metadata(&reference);
    let portable = match case.kind {
        Kind::Model => Portable::Methods(undelegated(&reference, &methods)),
        _ => Portable::None,
    };
    let options =
        compile::Options { share_buffers: true, gguf, metadata, portable, ..compile::Options::default() };
    let compiled = compile::compile(&sources, &options).map_err(|error| error.to_string())?;
    let mut file = Vec::new();
    compiled.writer.write(&WriteOptions::default(), &mut file).map_err(|error| error.to_string())?;
    Ok((Bytes::copy_of(&file), compiled.report))
}

/// Methods that call no delegate.
fn undelegated(pte: &Pte, methods: &[&str]) -> Vec<String> {
    let plans = pte.program.execution_plan.iter().filter(|plan| plan.delegates.is_empty());
    plans.map(|plan| plan.name.to_string()).filter(|name| methods.contains(&name.as_str())).collect()
}

/// Constant methods of a program: those that take nothing and do nothing.
fn metadata(pte: &Pte) -> Vec<(String, Metadata)> {
    let constant = |plan: &&ExecutionPlan| {
        plan.inputs.is_empty() && plan.chains.iter().all(|chain| chain.instructions.is_empty())
    };
    let plans = pte.program.execution_plan.iter().filter(constant);
    plans.filter_map(|plan| Some((plan.name.to_string(), constant_value(pte, plan)?))).collect()
}

fn constant_value(pte: &Pte, plan: &ExecutionPlan) -> Option<Metadata> {
    let values = plan.outputs.iter().map(|&at| plan.values.get(usize::try_from(at).ok()?));
    let values = values.collect::<Option<Vec<&EValue>>>()?;
    let int = |value: &&EValue| match value {
        EValue::Int(value) => Some(*value),
        _ => None,
    };
    Some(match values.as_slice() {
        [EValue::Int(value)] => Metadata::Int(*value),
        [EValue::Bool(value)] => Metadata::Bool(*value),
        [EValue::Double(value)] => Metadata::Double(*value),
        [EValue::String(text)] => Metadata::String(text.to_string()),
        [EValue::Tensor(table)] => {
            let sizes =
                table.sizes.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<_>>>()?;
            Metadata::Tensor(HostTensor::new(table.scalar_type.dtype()?, sizes, pte.stored(table)?).ok()?)
        }
        several => Metadata::Ints(several.iter().map(int).collect::<Option<Vec<i64>>>()?),
    })
}
