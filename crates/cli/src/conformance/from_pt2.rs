//! Programs of a case compiled from what `torch.export.save` wrote, in place of the program that ExecuTorch made.

use super::case::Case;
use super::set::Set;
use pteron_format::{Limits, WriteOptions};
use pteron_import::compile::{self, Source};
use pteron_import::pt2::{self, ExportedProgram};
use pteron_tensor::Bytes;

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

/// The case's program, compiled. What its methods were exported from is one model, so that they share its buffers.
pub(crate) fn compile(set: &Set, name: &str, case: &Case, limits: &Limits) -> Result<Bytes, String> {
    let methods = methods(case);
    let mut programs: Vec<ExportedProgram> = Vec::new();
    for method in &methods {
        let file = file_of(method);
        let package = pt2::read(set.read(name, &file)?, limits).map_err(|error| format!("{file}: {error}"))?;
        match package.programs() {
            [program] => programs.push(program.clone()),
            all => return Err(format!("{file}: {} programs where one is wanted", all.len())),
        }
    }
    let sources = methods.iter().zip(&programs).map(|(name, program)| Source { name, program });
    let sources: Vec<Source<'_>> = sources.collect();
    let options = compile::Options { share_buffers: true, ..compile::Options::default() };
    let compiled = compile::compile(&sources, &options).map_err(|error| error.to_string())?;
    let mut file = Vec::new();
    compiled.writer.write(&WriteOptions::default(), &mut file).map_err(|error| error.to_string())?;
    Ok(Bytes::copy_of(&file))
}
