//! `pteron version`: which build this is.

use crate::failure::{Answer, Failure};
use crate::output::{Json, Output};
use serde::Serialize;

/// What follows the name in `-V`: the number, and the commit where the build knew it.
pub(crate) const SHORT: &str = env!("PTERON_VERSION");

/// What follows the name in `--version`.
pub(crate) const LONG: &str = concat!(
    env!("PTERON_VERSION"),
    "\ntarget: ",
    env!("PTERON_TARGET"),
    "\nfeatures: ",
    env!("PTERON_FEATURES")
);

/// Show the version, the commit, the target and the features of this build
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron version
  pteron version --json | jq -r .commit")]
pub(crate) struct Arguments {
    /// Print one JSON object (shape: docs/json.md)
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    commit: Option<&'static str>,
    target: &'static str,
    features: Vec<&'static str>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    if !arguments.json {
        out.line(format!("pteron {LONG}"))?;
        return Ok(Answer::Yes);
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        commit: Some(env!("PTERON_COMMIT")).filter(|commit| !commit.is_empty()),
        target: env!("PTERON_TARGET"),
        features: [env!("PTERON_FEATURES")].into_iter().filter(|feature| *feature != "none").collect(),
    };
    out.json(&report, Json::OneLine)?;
    Ok(Answer::Yes)
}
