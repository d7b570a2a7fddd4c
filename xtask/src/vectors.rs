//! `cargo xtask vectors`: tokenizers, chat templates and samplers against what their reference libraries gave.

use std::path::PathBuf;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Run the tokenizer, template and sampler vectors that `cargo xtask cases --only vectors` made.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The llama.cpp checkout that the set was made with, if it was made with one.
    #[arg(long, value_name = "DIR")]
    llama: Option<PathBuf>,
    /// The set [default: the one in the cache folder]
    #[arg(long, value_name = "DIR")]
    set: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let set = match &arguments.set {
        Some(set) => std::path::absolute(set).doing("find", set)?,
        None => Cache::locate()?.set("vectors"),
    };
    if !set.is_dir() {
        let missing =
            format!("no vectors at {}; `cargo xtask cases --only vectors` makes them", set.display());
        return Err(Error::message(missing));
    }
    let mut command = workspace::cargo();
    command.args(["test", "--release", "--package", "pteron-llm", "--test", "vectors"]);
    command.env("PTERON_VECTORS", &set);
    if let Some(llama) = &arguments.llama {
        command.env("PTERON_LLAMA", std::path::absolute(llama).doing("find", llama)?);
    }
    let status = command.status().doing("start", "cargo test")?;
    Ok(if status.success() { Outcome::Good } else { Outcome::Bad })
}
