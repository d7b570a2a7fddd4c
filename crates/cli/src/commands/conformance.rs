//! `pteron conformance`: runs a set of cases over a few threads and says which fail and why.

use crate::conformance::set::Set;
use crate::conformance::{
    self,
    run::{self, Manner, Outcome, Source},
};
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::output::{Json, Output};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use pteron_format::Limits;
use pteron_runtime::Precision;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Run conformance cases and compare with what PyTorch computed
///
/// SET is a folder with one folder per case, a zip of such a folder, or the folder of one case;
/// conformance/README.md describes the files. Every failing case gets one line that says what differs; the last
/// line on standard output is `N passed, N failed`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron conformance conformance/sample.zip
  pteron conformance cases/ops --filter 'conv2d*'
  pteron conformance cases/models --round-trip --json
  pteron conformance cases/checkpoints --from checkpoint --chunk 3

Exit status: 0 all passed; 1 at least one failed; 2 bad usage or no case to run.")]
pub(crate) struct Arguments {
    /// Folder of cases, or a zip of one
    set: PathBuf,
    #[command(flatten)]
    engine: Engine,
    /// Only cases whose name matches: `*`, `?`, `[abc]` and `{this,that}`
    #[arg(long, value_name = "GLOB")]
    filter: Option<String>,
    /// Take every program through the graph and back (read, lift, emit, write, read) before it runs
    #[arg(long)]
    round_trip: bool,
    /// Make each case's program from what it came from instead of reading its model.pte; cases without that are
    /// counted on the line before the last
    #[arg(long, value_enum, value_name = "KIND")]
    from: Option<From>,
    /// Tokens of an input of a checkpoint's prompt [default: all at once, then 3, then 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    chunk: Option<u16>,
    /// After the outcomes, print how many nodes, delegate calls and portable operators each compiled program has, beside
    /// ExecuTorch's own (with --from pt2)
    #[arg(long, conflicts_with = "json")]
    sizes: bool,
    /// After the outcomes, print how far the outputs of `--precision fast` are from those of `exact`, case by case
    #[arg(long, conflicts_with = "json")]
    quality: bool,
    /// Print all outcomes as one JSON object, on the line before the last (shape: docs/json.md)
    #[arg(long)]
    json: bool,
    /// Cases to run at a time [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// `--from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    /// What `torch.export.save` wrote
    Pt2,
    /// A Hugging Face folder or a GGUF file
    Checkpoint,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let set = Set::open(&arguments.set).map_err(Failure::into_trouble)?;
    let options = arguments.engine.options(Precision::Exact)?;
    let from = match arguments.from {
        None => Source::Program,
        Some(From::Pt2) => Source::Pt2,
        Some(From::Checkpoint) => Source::Checkpoint { chunk: arguments.chunk.map(usize::from) },
    };
    if arguments.chunk.is_some() && !matches!(from, Source::Checkpoint { .. }) {
        return Err(Failure::usage("`--chunk` is for prompts of checkpoints").hint("add `--from checkpoint`"));
    }
    if arguments.sizes && from != Source::Pt2 {
        return Err(Failure::usage("`--sizes` is for compiled programs").hint("add `--from pt2`"));
    }
    if arguments.quality && matches!(from, Source::Checkpoint { .. }) {
        return Err(Failure::usage("`--quality` is for programs with given inputs")
            .hint("leave out `--from checkpoint`"));
    }
    let share = if options.precision == Precision::Fast { run::FAST_SHARE } else { 0.0 };
    let manner = Manner { options, round_trip: arguments.round_trip, from, share, rounded: false };
    let mut names = pick(&set, arguments.filter.as_deref())?;
    let picked = names.len();
    match from {
        Source::Program => {}
        Source::Pt2 => names.retain(|name| conformance::from_pt2::has_all(&set, name)),
        Source::Checkpoint { .. } => names.retain(|name| conformance::from_checkpoint::is_one(&set, name)),
    }
    let without = picked - names.len();
    let jobs =
        arguments.jobs.map(usize::from).or_else(|| thread::available_parallelism().ok().map(Into::into));

    let fast = manner.options.precision == Precision::Fast;
    let progress = progress(names.len());
    let mut report = Report { without_source: without, ..Report::default() };
    run_all(&set, &names, &manner, jobs.unwrap_or(1), &mut |name, outcome| {
        progress.inc(1);
        if let (Some(problem), false) = (&outcome.problem, arguments.json) {
            let line = format!("FAIL {name}: {}", problem.replace('\n', " "));
            progress.suspend(|| {
                out.line(line)?;
                out.flush()
            })?;
        }
        report.add(name, outcome);
        Ok(())
    })?;
    progress.finish_and_clear();
    if arguments.sizes {
        print_sizes(&set, &names, &manner.options.limits, out)?;
    }
    if arguments.quality {
        print_quality(&set, &names, &manner, out)?;
    }
    if arguments.json {
        out.json(&report, Json::OneLine)?;
    } else {
        match from {
            Source::Program => {}
            Source::Pt2 => out.line(format!("{without} without a .pt2 for every method"))?,
            Source::Checkpoint { .. } => out.line(format!("{without} without a checkpoint"))?,
        }
        if fast && report.greedy_tokens > 0 {
            let right = report.greedy_tokens - report.greedy_missed;
            out.line(format!("{right} of {} greedy tokens as wanted", report.greedy_tokens))?;
        }
    }
    out.line(format!("{} passed, {} failed", report.passed, report.failed))?;
    Ok(if report.failed == 0 { Answer::Yes } else { Answer::No })
}

/// One row a case: ours and ExecuTorch's.
fn print_sizes(set: &Set, names: &[&str], limits: &Limits, out: &mut Output) -> Result<(), Failure> {
    out.line("| case | nodes | delegate calls | portable operators | patterns taken |")?;
    out.line("| --- | --- | --- | --- | --- |")?;
    let mut within = 0;
    for name in names {
        let row = match conformance::sizes::compare(set, name, limits) {
            Ok(found) => {
                within += usize::from(found.is_within());
                let (ours, theirs) = (found.ours, found.theirs);
                let taken = found.taken.iter().map(|(pattern, times)| format!("{pattern} {times}"));
                format!(
                    "{} / {} | {} / {} | {} / {} | {}",
                    ours.nodes,
                    theirs.nodes,
                    ours.delegate_calls,
                    theirs.delegate_calls,
                    ours.portable,
                    theirs.portable,
                    taken.collect::<Vec<_>>().join(", ")
                )
            }
            Err(problem) => format!("{problem} | | |"),
        };
        out.line(format!("| {name} | {row} |"))?;
    }
    out.line(format!("{within} of {} are nowhere larger than ExecuTorch's (ours / theirs)", names.len()))
}

/// One row a case: what `fast` misses `exact` by.
fn print_quality(set: &Set, names: &[&str], manner: &Manner, out: &mut Output) -> Result<(), Failure> {
    out.line("| case | largest error | mean error | greedy tokens as exact |")?;
    out.line("| --- | --- | --- | --- |")?;
    for name in names {
        let row = match conformance::quality::compare(set, name, manner) {
            Ok(found) => {
                let tokens = match found.tokens {
                    0 => "none picked".to_owned(),
                    tokens => format!("{} of {tokens}", found.equal),
                };
                format!("{:.2e} | {:.2e} | {tokens}", found.largest, found.mean)
            }
            Err(problem) => format!("{problem} | |"),
        };
        out.line(format!("| {name} | {row} |"))?;
    }
    out.line("largest: of an output's largest magnitude; mean: of the mean magnitude")
}

fn pick<'a>(set: &'a Set, filter: Option<&str>) -> Result<Vec<&'a str>, Failure> {
    let glob = filter.unwrap_or("*");
    let names: Vec<&str> = set.names().filter(|name| fast_glob::glob_match(glob, name)).collect();
    match names.first() {
        Some(_) => Ok(names),
        None => {
            let some: Vec<&str> = set.names().take(3).collect();
            Err(Failure::usage(format!("no case matches `{glob}`"))
                .hint(format!("names look like {}", some.join(", "))))
        }
    }
}

/// A bar on standard error; hidden where that is no terminal.
fn progress(cases: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} cases, {eta} left");
    ProgressBar::new(cases as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Runs the cases over `jobs` threads and hands the outcomes over in the order of the names.
fn run_all(
    set: &Set,
    names: &[&str],
    manner: &Manner,
    jobs: usize,
    receive: &mut dyn FnMut(&str, Outcome) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(names.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Nobody listens any more once the output is closed.
                    if sender.send((*name, run_one(set, name, manner))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut shown = 0;
        for (name, outcome) in receiver {
            waiting.insert(name, outcome);
            // Threads finish in any order; the list of failures reads the same every time.
            while let Some(outcome) = names.get(shown).and_then(|name| waiting.remove(name)) {
                receive(names[shown], outcome)?;
                shown += 1;
            }
        }
        Ok(())
    })
}

/// A case that brings the runtime down is a failed case, not the end of all others.
fn run_one(set: &Set, name: &str, manner: &Manner) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run::run(set, name, manner))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Outcome { problem: Some(format!("panic, which is a bug: {text}")), ..Outcome::default() }
    })
}

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Report {
    cases: Vec<Line>,
    passed: usize,
    failed: usize,
    /// Cases that were left alone because they have nothing of what `--from` asks for.
    without_source: usize,
    /// Greedy tokens that cases picked, and how many of them were not the right ones.
    greedy_tokens: usize,
    greedy_missed: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    status: &'static str,
    detail: Option<String>,
    used: Option<f64>,
}

impl Report {
    fn add(&mut self, name: &str, outcome: Outcome) {
        let status = if outcome.problem.is_none() { "passed" } else { "failed" };
        self.greedy_tokens += outcome.tokens;
        self.greedy_missed += outcome.missed;
        *(if outcome.problem.is_none() { &mut self.passed } else { &mut self.failed }) += 1;
        self.cases.push(Line {
            name: name.to_owned(),
            status,
            detail: outcome.problem,
            used: Some(outcome.used).filter(|used| used.is_finite()),
        });
    }
}
