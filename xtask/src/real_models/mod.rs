//! `cargo xtask real-models`: published models with their real weights. Language models from GGUF files are held against
//! stored figures of `transformers`; PyTorch models are exported, compiled, run and held against eager PyTorch.

mod language;
mod reference;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::language::pull;
use crate::workspace;
use reference::{Plan, Reference};

/// Run real models and compare what they give with transformers and PyTorch.
///
/// Builds the release binary; weights are fetched by name, their hashes checked. Language models are compared with the
/// figures in `real/reference`, which takes no Python; PyTorch models need the environment of `cargo xtask cases` and
/// are not run without it. The last line is `real models: N passed, N failed`, with how many were not run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this model; may be repeated.
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// Make the figures of the language models again, with `transformers`, and compare all logits in place of the stored
    /// ones; the measurements are written to `real/figures.json`.
    #[arg(long)]
    refresh: bool,
}

/// PyTorch models that `run.py` knows.
const COMPILED: [&str; 2] = ["all-MiniLM-L6-v2", "whisper-tiny.en"];

/// Models by how they fared.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    not_run: usize,
}

impl Tally {
    fn count(&mut self, good: bool) {
        match good {
            true => self.passed += 1,
            false => self.failed += 1,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let plan = Plan::read()?;
    let known: Vec<&str> = plan.models.iter().map(String::as_str).chain(COMPILED).collect();
    if let Some(unknown) = arguments.model.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::message(format!("no model {unknown}; there are {}", known.join(", "))));
    }
    let wanted = |name: &str| arguments.model.is_empty() || arguments.model.iter().any(|model| model == name);
    let cache = Cache::locate()?;
    let pteron = workspace::build_pteron()?;
    let mut tally = Tally::default();
    let mut figures = serde_json::Map::new();
    for name in plan.models.iter().filter(|name| wanted(name)) {
        println!("{name}");
        let source = pull(&pteron, name)?;
        let reference = match arguments.refresh {
            true => refresh(&cache, name, &source)?,
            false => Reference::stored(name)?,
        };
        let found = language::measure(&pteron, name, &source, &plan, &reference)?;
        found.print();
        tally.count(found.is_good());
        figures.insert(name.clone(), serde_json::to_value(&found).map_err(crate::language::said)?);
    }
    if arguments.refresh {
        let path = workspace::root().join("real").join("figures.json");
        let text = serde_json::to_string_pretty(&figures).map_err(crate::language::said)?;
        fs::write(&path, text + "\n").doing("write", &path)?;
    }
    for name in COMPILED.into_iter().filter(|name| wanted(name)) {
        if cache.python().exists() {
            tally.count(compiled(&cache, &pteron, name)?);
        } else {
            println!(
                "{name}\n  not run: `cargo xtask cases` makes the Python environment that it is compared in"
            );
            tally.not_run += 1;
        }
    }
    let not_run = if tally.not_run > 0 { format!(", {} not run", tally.not_run) } else { String::new() };
    println!("real models: {} passed, {} failed{not_run}", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// A script of `real`, in the environment of the case sets.
fn script(cache: &Cache, name: &str) -> Command {
    let mut command = Command::new(cache.python());
    // -B: no compiled modules in the checkout.
    command.arg("-B").arg(workspace::root().join("real").join(name));
    command
}

/// What `transformers` makes of the model now.
fn refresh(cache: &Cache, name: &str, source: &Path) -> Result<Reference> {
    if !cache.python().exists() {
        return Err(Error::message("no Python environment yet; `cargo xtask cases` makes it"));
    }
    let folder = cache.root().with_file_name("real");
    fs::create_dir_all(&folder).doing("make", &folder)?;
    let full = folder.join(format!("{name}.safetensors"));
    let status = script(cache, "reference.py").arg(name).arg(source).arg("--full").arg(&full).status();
    if !status.doing("start", cache.python())?.success() {
        return Err(Error::message(format!("reference.py failed for {name}")));
    }
    Reference::read(name, &full)
}

/// Whether a PyTorch model, compiled, gives what eager PyTorch gives.
fn compiled(cache: &Cache, pteron: &Path, name: &str) -> Result<bool> {
    let mut command = script(cache, "run.py");
    command.arg("--pteron").arg(pteron).arg("--cache").arg(cache.root().with_file_name("real"));
    let status = command.args(["--model", name]).status();
    Ok(status.doing("start", cache.python())?.success())
}
