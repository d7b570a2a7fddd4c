//! `pteron doctor`: what this machine has, what would run, and whether a model fits.

use crate::doctor::{examine, render};
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::output::{Json, Output};

/// Show what this machine has, which backend would run and why, and whether a model fits
///
/// With MODEL the exit status is 1 if it cannot run here or does not fit into memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron doctor
  pteron doctor model.pte
  pteron doctor gemma4_31b --json | jq .model.fits")]
pub(crate) struct Arguments {
    /// A program, a GGUF file, a checkpoint folder, or a name that `pteron list` shows
    model: Option<String>,
    /// Print one JSON object (shape: docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: Engine,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let report = examine(&arguments.engine, arguments.model.as_deref())?;
    match arguments.json {
        true => out.json(&report, Json::Indented)?,
        false => render(&report, out)?,
    }
    Ok(if report.is_well() { Answer::Yes } else { Answer::No })
}
