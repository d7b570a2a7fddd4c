//! `cargo xtask sanitize`: the tests of all that has `unsafe` or reads hostile bytes, run by the tools that see what a
//! plain test does not: Miri, AddressSanitizer, ThreadSanitizer and loom. What a run prints goes to a log; this room
//! decides what runs and says what came of it.

mod executables;
mod log;
mod shares;
mod tool;

use std::fmt;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crate::error::{Doing, Error, Result};
use crate::{Outcome, workspace};
use log::Verdict;
use tool::{Scope, Tool};

/// Run the tests under Miri, AddressSanitizer, ThreadSanitizer and loom.
///
/// Needs a nightly toolchain with Miri and rust-src, which are added where they are missing; a tool that cannot be had is
/// named as left out. Vector kernels are compiled at a low level of optimisation, and what is written in assembly (the
/// matrix tiles) runs without being watched. The tests of the CPU backend include its checking mode, in which every value
/// of a plan is an allocation of its own, so that AddressSanitizer sees where one runs into another. The last line is
/// `sanitize: N runs, N tests, N findings, N s`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What takes minutes: loom with few switches, a few tests under Miri, AddressSanitizer over the CPU backend.
    #[arg(long)]
    quick: bool,
    /// Only this tool.
    #[arg(long, value_name = "TOOL")]
    only: Option<Tool>,
    /// Only this crate.
    #[arg(long, value_name = "CRATE")]
    package: Option<String>,
    /// Run nothing: put the test programs of asan and tsan into this folder, with a script `run.sh` for another machine.
    #[arg(long, value_name = "DIR")]
    build_only: Option<PathBuf>,
    /// How many programs Miri, which keeps to one core, runs at once [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// A tool over the tests of one crate.
#[derive(Clone, Copy)]
struct Run {
    tool: Tool,
    package: &'static str,
    scope: Scope,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.tool, self.package)
    }
}

/// What runs, the quickest first, so that what is broken shows early.
fn runs(quick: bool) -> Vec<Run> {
    let run = |tool, package, scope| Run { tool, package, scope };
    if quick {
        return vec![
            run(Tool::Loom, "pteron-pool", Scope::Short),
            run(Tool::Miri, "pteron-pool", Scope::Whole),
            run(Tool::Miri, "pteron-kernels", Scope::Named(&["view", "copy", "softmax"])),
            run(Tool::Miri, "pteron-cpu", Scope::Named(&["views_follow", "memory"])),
            run(Tool::Asan, "pteron-cpu", Scope::Whole),
        ];
    }
    let mut runs = vec![run(Tool::Loom, "pteron-pool", Scope::Whole)];
    // Everything that reads bytes of strangers, then everything with `unsafe` of its own.
    for package in
        ["pteron-tensor", "pteron-ir", "pteron-format", "pteron-pool", "pteron-kernels", "pteron-cpu"]
    {
        runs.push(run(Tool::Miri, package, Scope::Whole));
    }
    for tool in [Tool::Asan, Tool::Tsan] {
        for package in ["pteron-pool", "pteron-kernels", "pteron-cpu", "pteron-runtime", "pteron-llm"] {
            runs.push(run(tool, package, Scope::Whole));
        }
    }
    runs
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let mut chosen = runs(arguments.quick);
    chosen.retain(|run| arguments.only.is_none_or(|tool| run.tool == tool));
    chosen.retain(|run| arguments.package.as_deref().is_none_or(|package| run.package == package));
    if arguments.build_only.is_some() {
        chosen.retain(|run| run.tool.makes_programs());
    }
    let mut left_out = vec![];
    for tool in Tool::ALL {
        if !chosen.iter().any(|run| run.tool == tool) {
            continue;
        }
        if let Err(reason) = tool.require() {
            println!("{tool}: left out, {reason}");
            left_out.push(format!("{tool} ({reason})"));
            chosen.retain(|run| run.tool != tool);
        }
    }
    if chosen.is_empty() {
        return Err(Error::message(if left_out.is_empty() {
            "no run is of that tool and that crate".to_string()
        } else {
            format!("nothing could run; left out: {}", left_out.join(", "))
        }));
    }
    if let Some(folder) = &arguments.build_only {
        return executables::collect(&chosen, folder);
    }
    let jobs = arguments.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let start = Instant::now();
    let mut rows = vec![];
    let (spread, one_by_one): (Vec<Run>, Vec<Run>) =
        chosen.into_iter().partition(|run| run.tool.keeps_to_one_core() && matches!(run.scope, Scope::Whole));
    for run in one_by_one {
        rows.push(carry_out(run)?);
    }
    if !spread.is_empty() {
        let names = spread.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        println!("== {names}: {jobs} tests at a time");
        for (run, ending) in spread.iter().zip(shares::run(&spread, jobs)?) {
            rows.push(judge(*run, ending.succeeded, ending.time.as_secs())?);
        }
    }
    let all = Row {
        tool: "all".into(),
        package: String::new(),
        tests: rows.iter().map(|row| row.tests).sum(),
        findings: rows.iter().map(|row| row.findings).sum(),
        seconds: start.elapsed().as_secs(),
    };
    println!("\n{:<6} {:<16} {:>6} {:>9} {:>8}", "tool", "crate", "tests", "findings", "seconds");
    for row in rows.iter().chain([&all]) {
        println!("{row}");
    }
    let left_out =
        if left_out.is_empty() { String::new() } else { format!(", left out: {}", left_out.join(", ")) };
    let Row { tests, findings, seconds, .. } = all;
    println!("\nsanitize: {} runs, {tests} tests, {findings} findings, {seconds} s{left_out}", rows.len());
    Ok(if findings == 0 { Outcome::Good } else { Outcome::Bad })
}

/// A line of the table.
struct Row {
    tool: String,
    package: String,
    tests: usize,
    findings: usize,
    seconds: u64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { tool, package, tests, findings, seconds } = self;
        write!(f, "{tool:<6} {package:<16} {tests:>6} {findings:>9} {seconds:>8}")
    }
}

/// Runs one and tells what it found.
fn carry_out(run: Run) -> Result<Row> {
    let path = log_path(run)?;
    let file = File::create(&path).doing("write", &path)?;
    let mut command = run.tool.tests(run.package, run.scope)?;
    println!("== {run}: {}", run.tool.says());
    let start = Instant::now();
    let status = command
        .stdout(file.try_clone().doing("write", &path)?)
        .stderr(file)
        .status()
        .doing("start", "cargo")?;
    judge(run, status.success(), start.elapsed().as_secs())
}

/// What the log of a run says.
fn judge(run: Run, succeeded: bool, seconds: u64) -> Result<Row> {
    let path = log_path(run)?;
    let text = fs::read(&path).doing("read", &path)?;
    let text = String::from_utf8_lossy(&text);
    let Verdict { passed, findings } = Verdict::of(&text, succeeded);
    let untested = match run.tool {
        Tool::Miri => log::left_out(&crate_folder(run.package), "miri")?,
        _ => 0,
    };
    print!("-- {run}: {passed} tests passed, {findings} findings, {seconds} s");
    match untested {
        0 => println!(),
        count => {
            println!("; {count} tests left out: they need what Miri lacks (maps, processes) or take hours")
        }
    }
    if findings > 0 {
        println!("{}\n   all of it: {}", log::first_finding(&text), path.display());
    }
    Ok(Row { tool: run.tool.to_string(), package: run.package.to_string(), tests: passed, findings, seconds })
}

fn log_path(run: Run) -> Result<PathBuf> {
    let folder = tool::scratch().join("logs");
    fs::create_dir_all(&folder).doing("make", &folder)?;
    Ok(folder.join(format!("{}-{}.txt", run.tool, run.package)))
}

fn crate_folder(package: &str) -> PathBuf {
    let name = package.strip_prefix("pteron-").unwrap_or(package);
    workspace::root().join(Path::new("crates")).join(name)
}
