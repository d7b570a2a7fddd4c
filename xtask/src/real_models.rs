//! `cargo xtask real-models`: published PyTorch models with their real weights, exported, compiled and run, and held
//! against eager PyTorch. Needs the Python environment of `cargo xtask cases`, and fetches the weights once.

use std::process::Command;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Compile real PyTorch models and compare what they give with eager PyTorch.
///
/// Builds the release binary; fetches weights by name (170 MB, hashes checked) into a folder beside the case sets. The
/// last line is `real models: N passed, N failed`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this model; may be repeated.
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let cache = Cache::locate()?;
    if !cache.python().exists() {
        return Err(Error::message("no Python environment yet; `cargo xtask cases` makes it"));
    }
    let script = workspace::root().join("real").join("run.py");
    let mut command = Command::new(cache.python());
    // -B: no compiled modules in the checkout.
    command.arg("-B").arg(&script).arg("--pteron").arg(workspace::build_pteron()?);
    command.arg("--cache").arg(cache.root().with_file_name("real"));
    for model in &arguments.model {
        command.args(["--model", model]);
    }
    let status = command.status().doing("start", &script)?;
    Ok(if status.success() { Outcome::Good } else { Outcome::Bad })
}
