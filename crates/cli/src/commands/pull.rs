//! `pteron pull`: a model by its name, onto this machine.

use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::home;
use crate::output::{Output, count, size};
use pteron_registry::{FileKind, Identity, Resolution};
use pteron_runtime::Precision;

/// Fetch a model by name
///
/// `pteron list` shows the names. Sources are tried in order; a download that was broken off goes on where it ended;
/// size and hash are checked on the way, and nothing is used before it is whole. The last line is the path.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron pull                              the default model
  pteron pull gemma3-270m
  pteron pull gemma4_e2b --backend mlx     the variant for a backend, also of another machine
  pteron pull smollm2-135m --check         read what is here again, also what was converted, and compare

PTERON_HOME names the folder for models and settings; HF_TOKEN is sent to the Hugging Face hub.")]
pub(crate) struct Arguments {
    /// The model [default: the registry's default]
    name: Option<String>,
    /// The backend that it is for [default: the one that would run it here]
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// If it is here already, read all of it and what was converted from it, and compare hashes
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let home = home::open()?;
    let options = Engine::default().options(Precision::Exact)?;
    let present: Vec<&str> = options.registry.backends().iter().map(|backend| backend.name()).collect();
    let chosen = home.resolve(arguments.name.as_deref(), arguments.backend.as_deref(), &present)?;
    let Resolution { model, variant, backend, .. } = &chosen;
    let here = home.store.installed(variant)?;
    if let (Some(installed), true) = (&here, arguments.check) {
        let changed = installed.check()?;
        if !changed.is_empty() {
            out.line(format!("{}: changed since it was fetched: {}", variant.id(), changed.join(", ")))?;
            out.line(format!("`pteron rm {}`, then `pteron pull {}` fetch it anew", model.name, model.name))?;
            return Ok(Answer::No);
        }
        if home.store.mend(&Identity::of_installed(installed))? {
            out.line(
                "what was converted from it was damaged and is removed; the next run converts it again",
            )?;
        }
    }
    let was_here = here.is_some();
    let installed = home::fetch(&home, variant)?;
    let record = &installed.record;
    let what = match record.kind {
        FileKind::Folder => count(record.files.len(), "file"),
        FileKind::Gguf => "GGUF".to_owned(),
        FileKind::Pt => "PyTorch checkpoint".to_owned(),
        FileKind::Nemo => "NeMo checkpoint".to_owned(),
        FileKind::Pte => "program".to_owned(),
        FileKind::Safetensors => "weights".to_owned(),
    };
    let state = match (was_here, arguments.check) {
        (true, true) => "was here, hash checked".to_owned(),
        (true, false) => "was here".to_owned(),
        (false, _) => format!("from {}", record.source),
    };
    let (name, licence, bytes) = (&model.name, &model.licence, size(record.size));
    out.line(format!(
        "{name} ({}, for {backend}): {what}, {bytes}, licence {licence}, {state}",
        variant.name
    ))?;
    out.line(installed.path.display())?;
    Ok(Answer::Yes)
}
