//! `pteron verify`: everything that is wrong with a file, all at once.

use super::inspect::read_data;
use crate::engine::Engine;
use crate::failure::{Answer, Failure, in_format};
use crate::file::{Content, File};
use crate::form::{self, Wanted};
use crate::inspect::portable_operators;
use crate::output::{Output, count};
use pteron_format::pte::Pte;
use pteron_format::{FormatError, lift_delegate};
use pteron_ir::text::Printer;
use pteron_ir::verify::verify_module;
use pteron_ir::{Graph, Module};
use pteron_runtime::backend::{Backend, Support};
use pteron_runtime::reference::Reference;
use pteron_runtime::{DataFile, Options, Precision, Program, WithFallback, knows_operator};
use std::path::PathBuf;
use std::sync::Arc;

/// Check a file and report everything that is wrong with it
///
/// For a program: the container, every MLX, XNNPACK and Vulkan payload, its graph with the type and shape of every node, and
/// whether the backend can run it all. A sound file gets one line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron verify model.pte
  pteron verify model.pte --data weights.ptd

Exit status: 0 sound; 1 something is wrong.")]
pub(crate) struct Arguments {
    /// A .pte, .ptd or .bpte file
    file: PathBuf,
    /// External weights that the program needs; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    engine: Engine,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let options = arguments.engine.options(Precision::Exact)?;
    let target = options.registry.resolve(options.backend.as_deref())?;
    let backend: Arc<dyn Backend> = match options.registry.fallback(&target) {
        Some(behind) => Arc::new(WithFallback::new(target, behind)),
        None => target.backend,
    };
    let path = &arguments.file;
    let data = arguments.data.iter().map(|path| read_data(path)).collect::<Result<Vec<_>, _>>()?;
    let file = match File::read(path) {
        Ok(file) => file,
        Err(error @ (FormatError::Io { .. } | FormatError::Changed { .. })) => {
            return Err(in_format(path, error));
        }
        Err(error) => {
            let problem = form::mismatch(path, Wanted::Program).map(|(problem, _)| problem);
            let problem = problem.unwrap_or_else(|| error.to_string());
            return report(&path.display().to_string(), &[problem], "", out);
        }
    };
    let name = path.display().to_string();
    let (problems, summary) = match &file.content {
        Content::Pte(pte) => verify_program(pte, &name, &data, backend.as_ref(), &options),
        Content::Bpte(bpte) => verify_program(&bpte.pte, &name, &data, backend.as_ref(), &options),
        Content::Ptd(ptd) => (Vec::new(), count(ptd.keys().count(), "key")),
    };
    file.check_unchanged()?;
    report(&name, &problems, &summary, out)
}

fn report(name: &str, problems: &[String], summary: &str, out: &mut Output) -> Result<Answer, Failure> {
    if problems.is_empty() {
        out.line(format!("{name}: sound ({summary})"))?;
        return Ok(Answer::Yes);
    }
    for problem in problems {
        // The runtime's errors name the file themselves.
        let problem = problem.strip_prefix(&format!("{name}: ")).unwrap_or(problem);
        out.line(format!("{name}: {problem}"))?;
    }
    out.line(count(problems.len(), "problem"))?;
    Ok(Answer::No)
}

fn verify_program(
    pte: &Pte,
    name: &str,
    data: &[DataFile],
    backend: &dyn Backend,
    options: &Options,
) -> (Vec<String>, String) {
    let mut problems = Vec::new();
    let (mut delegates, mut nodes) = (0, 0);
    for plan in &pte.program.execution_plan {
        for number in 0..plan.delegates.len() {
            delegates += 1;
            let lifted = lift_delegate(pte, plan, number, &options.limits);
            let found = match lifted.map(|lifted| lifted.module) {
                Ok(module) => {
                    module.main.for_each_node(|_, _| nodes += 1);
                    verify_graphs(&module, backend)
                }
                Err(problem) => problem.all(),
            };
            let here = |problem| format!("method `{}`, delegate {number}: {problem}", &*plan.name);
            problems.extend(found.into_iter().map(here));
        }
        let unknown = portable_operators(plan).into_keys().filter(|operator| !knows_operator(operator));
        problems.extend(unknown.map(|operator| {
            format!("method `{}` calls operator `{operator}`, which is not implemented", &*plan.name)
        }));
    }
    // Loading checks what is left: constants, arguments of operators, how calls fit together. It stops at the
    // first problem, so that it is asked only once there is no other.
    if problems.is_empty()
        && let Err(error) = Program::load(name, pte.bytes().clone(), data, options)
    {
        problems.push(error.to_string());
    }
    let methods = count(pte.program.execution_plan.len(), "method");
    (problems, format!("{methods}, {}, {}", count(delegates, "delegate"), count(nodes, "node")))
}

fn verify_graphs(module: &Module, backend: &dyn Backend) -> Vec<String> {
    if let Err(errors) = verify_module(module) {
        return errors.iter().map(ToString::to_string).collect();
    }
    let graphs = module.init.iter().chain([&module.main]);
    graphs.flat_map(|graph| unsupported(graph, backend)).collect()
}

fn unsupported(graph: &Graph, backend: &dyn Backend) -> Vec<String> {
    let printer = Printer::new(graph);
    let reference = Reference::default();
    let mut problems = Vec::new();
    graph.for_each_node(|node, _| {
        let support = match backend.supports(&node.op, &graph.values) {
            Support::Fallback(_) => reference.supports(&node.op, &graph.values),
            other => other,
        };
        if let Some(reason) = support.lack() {
            let place = node.place.map(|place| format!(" (chain {} #{})", place.chain, place.index));
            let (name, line) = (backend.name(), printer.node(node));
            let place = place.unwrap_or_default();
            problems.push(format!("backend `{name}` cannot run this: {reason}, in `{line}`{place}"));
        }
    });
    problems
}
