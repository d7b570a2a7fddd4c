//! `pteron template`: chat templates held against what their own engine gives.

use crate::failure::{Answer, Failure};
use crate::output::Output;
use pteron_llm::vectors::{run_template_cases, run_templates};
use std::path::PathBuf;

/// Render conversations with chat templates and compare the texts
///
/// Every case renders one conversation with one template and compares the text to the last byte; where the template
/// refuses the conversation, the error must carry its message. Differences are shown, the last line counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "FILE is JSON, or one JSON object a line, of one of these shapes:
  {\"template\": SOURCE, \"cases\": {INPUT: RESULT, ...}}         inputs from inputs.json beside it, or its own \"inputs\"
  {\"inputs\": {INPUT: VARIABLES, ...}}                         every template of the folder that has cases for them
  {\"inputs\": ..., \"cases\": {TEMPLATE: {INPUT: RESULT}}}       templates by name
  [{\"template\": T, \"input\": VARIABLES or INPUT, \"text\": ...}, ...]
RESULT is {\"text\": ...} or {\"error\": \"raised\", \"message\": ...}; {\"error\": \"engine\"} takes an error or a text.
VARIABLES are messages, tools, add_generation_prompt and flags; \"now\" and \"tokens\" may stand beside \"inputs\".
A listed case with neither text nor error is hostile: it must fail.
A folder is run whole, as conformance/make_vectors.py writes it.

Examples:
  pteron template --cases vectors/templates
  pteron template --cases cases.json --dir templates

Exit status: 0 all passed; 1 some failed.")]
pub(crate) struct Arguments {
    /// A file of cases, or a folder of such files
    #[arg(long, value_name = "FILE")]
    cases: PathBuf,
    /// Where templates that cases name lie: NAME.jinja, or NAME.json with a \"template\" [default: beside FILE]
    #[arg(long, value_name = "TEMPLATES")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let report = match arguments.cases.is_dir() {
        true => run_templates(&arguments.cases),
        false => run_template_cases(&arguments.cases, arguments.dir.as_deref()),
    };
    let report = report.map_err(Failure::new)?;
    for failure in &report.failures {
        out.line(failure)?;
    }
    out.line(format!("{} passed, {} failed", report.passed, report.failures.len()))?;
    Ok(if report.failures.is_empty() { Answer::Yes } else { Answer::No })
}
