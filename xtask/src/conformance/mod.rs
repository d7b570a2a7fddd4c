//! `cargo xtask conformance`: every set of cases on every backend, in every way that a program can come to it, as one
//! table. What is judged, and how, is `pteron conformance`'s business; here is only what is run, and the sum.

mod binary;
mod plan;
mod table;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::ValueEnum;
use serde::Deserialize;

use crate::Outcome;
use crate::error::{Doing, Error, Result};

use binary::Binary;
use plan::{Run, Set};
use table::{Counts, Ending, Table};

/// Run every set of cases on every backend and print the table.
///
/// Sets are those that `cargo xtask cases` made; the packed samples stand in for what is not there, and the head of the
/// table says so. Each runs as it is, with `--round-trip` and with `--from pt2`; checkpoints with `--from checkpoint`, and
/// then with `--round-trip` too. Backends are cpu on every vector path of this machine in both precisions, reference, and
/// mlx where MLX can be had. The first run builds a binary with MLX in a target folder of its own. Something that cannot
/// be run here is left out, says why, and never counts as passed. The last line is `N runs: N passed, N failed, N left
/// out`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the packed samples, also where the full sets are there.
    #[arg(long)]
    quick: bool,
    /// Only this set.
    #[arg(long, value_name = "SET")]
    only: Option<String>,
    /// Only this backend.
    #[arg(long, value_name = "NAME")]
    backend: Option<Backend>,
}

/// A backend by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Cpu,
    Reference,
    Mlx,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Reference => "reference",
            Backend::Mlx => "mlx",
        }
    }
}

/// What `fast` is held to, which is not what the cases ask for.
const FAST_BAR: &str = "fast: where its case allows less, an element may miss by 2 % of its output's largest magnitude, \
                        or by\n      1.5 times what rounding to 8 bits alone costs the case; greedy tokens are \
                        counted, not judged";

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let sets = Set::find(arguments.quick, arguments.only.as_deref())?;
    let wanted = |backend| arguments.backend.is_none_or(|only| only == backend);
    let binary = Binary::build(wanted(Backend::Mlx))?;
    let engines = binary.engines(wanted)?;
    let runs = plan::runs(&sets, &engines);
    for set in sets.iter().filter_map(Set::stands_for) {
        println!("{set}");
    }
    let mut table = Table::new(&runs);
    println!("{}", table.header());
    for run in &runs {
        let ending = match run.engine.missing.clone() {
            Some(reason) => Ending::LeftOut(reason),
            None => measure(&binary.path, run)?,
        };
        print!("{}", table.add(run, ending));
    }
    if let Some(tokens) = table.fast_tokens() {
        println!("{FAST_BAR}: {tokens}");
    }
    println!("{}", table.summary());
    Ok(if table.is_good() { Outcome::Good } else { Outcome::Bad })
}

/// What `pteron conformance --json` says, of the keys that are needed here.
#[derive(Deserialize)]
struct Report {
    cases: Vec<Case>,
    passed: usize,
    failed: usize,
    without_source: usize,
    greedy_tokens: usize,
    greedy_missed: usize,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    detail: Option<String>,
}

/// Makes one run of the table.
fn measure(pteron: &Path, run: &Run<'_>) -> Result<Ending> {
    let mut command = Command::new(pteron);
    command.arg("conformance").arg(&run.set.path).args(run.arguments()).arg("--json");
    // The path is the run's, whatever the caller's shell prefers.
    command.env_remove("PTERON_CPU").stderr(Stdio::piped());
    let start = Instant::now();
    let output = command.output().doing("start", pteron)?;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().next().and_then(|line| serde_json::from_str::<Report>(line).ok());
    // 1 is the status of cases that failed; a run that ended otherwise has judged nothing.
    let Some(report) = report.filter(|_| matches!(output.status.code(), Some(0 | 1))) else {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        return Ok(Ending::Broken(format!("{}: {last}", output.status)));
    };
    if report.cases.len() != report.passed + report.failed {
        return Err(Error::message("`pteron conformance --json` counts other cases than it lists"));
    }
    if report.cases.is_empty() {
        return Ok(Ending::LeftOut(format!("none of {} cases has what it needs", report.without_source)));
    }
    let failures = report.cases.into_iter().filter_map(|case| Some((case.name, case.detail?)));
    Ok(Ending::Ran(Counts {
        passed: report.passed,
        failed: report.failed,
        seconds,
        failures: failures.collect(),
        tokens: report.greedy_tokens,
        missed: report.greedy_missed,
    }))
}
