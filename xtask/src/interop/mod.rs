//! `cargo xtask interop`: rewrites the program of every case with the binary, plainly and through the graph, compiles its
//! `.pt2` files, exports every checkpoint in both forms (for our runner and for ExecuTorch's), and shows the results to
//! ExecuTorch's own Python: what was rewritten plainly must say the same as the original, the others must be accepted, and
//! programs of portable operators alone must run on its runtime.

mod judge;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use judge::{Checker, Runner};

use crate::Outcome;
use crate::cache::Cache;
use crate::case::{self, Case};
use crate::cases;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Rewrite and compile every case's program and let ExecuTorch's own Python judge the result.
///
/// Builds the release binary and runs over all sets that `cargo xtask cases` has made: `pteron rewrite IN OUT` must
/// give a file that is equal table by table, `pteron rewrite IN OUT --through-graph` and `pteron compile` of the case's
/// .pt2 files one that is accepted, and so must `pteron export` of every checkpoint, with and without `--for executorch`; what `pteron compile --portable` can make without a delegate must run on ExecuTorch's
/// Python runtime and give the case's outputs, unless that runtime lacks an operator or has a wrong one (its own program of the
/// same .pt2 is asked). The last line is `N passed, N failed`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only cases whose name matches.
    #[arg(long, value_name = "GLOB", default_value = "*")]
    filter: String,
}

/// The ways to make a file of a case, and the verdict that each must get.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Plain,
    ThroughGraph,
    Compiled,
    Portable,
    Exported,
    ForExecutorch,
}

impl Way {
    /// Of programs, and of checkpoints.
    const OF_PROGRAMS: [Way; 4] = [Way::Plain, Way::ThroughGraph, Way::Compiled, Way::Portable];
    const OF_CHECKPOINTS: [Way; 2] = [Way::Exported, Way::ForExecutorch];

    fn wanted(self) -> &'static str {
        match self {
            Way::Plain | Way::Portable => "equal",
            Way::ThroughGraph | Way::Compiled | Way::Exported | Way::ForExecutorch => "accepted",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::ThroughGraph => "graph",
            Way::Compiled => "compiled",
            Way::Portable => "portable",
            Way::Exported => "exported",
            Way::ForExecutorch => "for et",
        }
    }

    /// The command that makes the file; `None` where there is nothing to make it of.
    fn command(self, subject: &Subject, binary: &Path, made: &Path) -> Result<Option<Command>> {
        let mut command = Command::new(binary);
        command.stdin(Stdio::null());
        let case = match subject {
            Subject::Case(case) => case,
            Subject::Checkpoint(folder) => {
                let folder = folder.join("checkpoint");
                let gguf = folder.join("model.gguf");
                let source = if gguf.is_file() { gguf } else { folder };
                command.arg("export").arg(source).arg("--output").arg(made);
                if self == Way::ForExecutorch {
                    command.args(["--for", "executorch"]);
                }
                return Ok(Some(command));
            }
        };
        match self {
            Way::Plain => command.arg("rewrite").arg(case.program()).arg(made),
            Way::ThroughGraph => command.arg("rewrite").arg(case.program()).arg(made).arg("--through-graph"),
            Way::Exported | Way::ForExecutorch => return Ok(None),
            Way::Compiled | Way::Portable => {
                let sources = case.exports()?;
                if sources.is_empty() {
                    return Ok(None);
                }
                command.arg("compile").args(sources).arg("--share-buffers").arg("--output").arg(made);
                if self == Way::Portable { command.arg("--portable") } else { &mut command }
            }
        };
        Ok(Some(command))
    }
}

/// What files are made of.
enum Subject {
    Case(Case),
    /// A case of a checkpoint: its folder.
    Checkpoint(PathBuf),
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Subject::Case(case) => case.name().to_owned(),
            Subject::Checkpoint(folder) => {
                folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        }
    }

    fn ways(&self) -> &'static [Way] {
        match self {
            Subject::Case(_) => &Way::OF_PROGRAMS,
            Subject::Checkpoint(_) => &Way::OF_CHECKPOINTS,
        }
    }
}

/// The checkpoints that `cargo xtask cases` has made.
fn checkpoints(cache: &Cache) -> Result<Vec<Subject>> {
    let folder = cache.set(cases::CHECKPOINT_SET);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).doing("read", &folder)? {
        let path = entry.doing("read", &folder)?.path();
        if path.join("checkpoint").is_dir() {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(Subject::Checkpoint).collect())
}

/// What became of one file.
enum Found {
    Good,
    /// Nothing to judge: why.
    LeftOut(&'static str),
    Bad(String),
}

/// One file of one case, and how it fared.
struct Check {
    set: &'static str,
    case: String,
    way: Way,
    found: Found,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let cache = Cache::locate()?;
    let mut programs = vec![];
    for set in cases::SETS {
        let folder = cache.set(set);
        let found = if folder.is_dir() { case::find(&folder)? } else { vec![] };
        programs.extend(found.into_iter().map(|case| (set, Subject::Case(case))));
    }
    programs.extend(checkpoints(&cache)?.into_iter().map(|checkpoint| (cases::CHECKPOINT_SET, checkpoint)));
    programs.retain(|(_, subject)| case::matches(&arguments.filter, &subject.name()));
    if programs.is_empty() {
        let text = format!(
            "no case matches {:?} in {}; `cargo xtask cases` makes them",
            arguments.filter,
            cache.root().display()
        );
        return Err(Error::message(text));
    }
    let binary = workspace::build_pteron()?;
    let checks = check_all(&programs, &binary, &cache.python())?;
    Ok(report(&checks))
}

/// All checks, one thread and one Python per core; in the order of the programs.
fn check_all(programs: &[(&'static str, Subject)], binary: &Path, python: &Path) -> Result<Vec<Check>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut judges =
                        Judges { checker: Checker::start(python)?, runner: Runner::start(python)? };
                    let folder = tempfile::tempdir().doing("make", "a folder for rewritten files")?;
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some((set, subject)) = programs.get(index) else { return Ok(()) };
                        for &way in subject.ways() {
                            let found = check(subject, way, binary, folder.path(), &mut judges)?;
                            let check = Check { set, case: subject.name(), way, found };
                            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            done.push((index, check));
                            if done.len() % 200 == 0 {
                                let all: usize =
                                    programs.iter().map(|(_, subject)| subject.ways().len()).sum();
                                eprintln!("{} of {all} files", done.len());
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| Error::message("a checking thread panicked"))??;
        }
        Ok::<(), Error>(())
    })?;
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, check)| (*index, check.way));
    Ok(done.into_iter().map(|(_, check)| check).collect())
}

struct Judges {
    checker: Checker,
    runner: Runner,
}

/// Makes one file of one case and has it judged.
fn check(subject: &Subject, way: Way, binary: &Path, folder: &Path, judges: &mut Judges) -> Result<Found> {
    let made = folder.join("made.pte");
    let Some(mut command) = way.command(subject, binary, &made)? else {
        return Ok(Found::LeftOut("no .pt2"));
    };
    let run = command.output().doing("run", binary)?;
    if !run.status.success() {
        let errors = String::from_utf8_lossy(&run.stderr);
        // Not every model can do without a delegate; the compiler says so and writes nothing.
        if way == Way::Portable && run.status.code() == Some(1) {
            return Ok(Found::LeftOut("needs a delegate"));
        }
        return Ok(Found::Bad(format!("it was not made, {}: {}", run.status, errors.trim())));
    }
    let answer = match (way, subject) {
        (Way::Plain, Subject::Case(case)) => judges.checker.ask(&[&case.program(), &made])?,
        (Way::Portable, Subject::Case(case)) => judges.runner.ask(&case.folder, &made)?,
        _ => judges.checker.ask(&[&made])?,
    };
    // A later file that cannot be made must not be judged by this one.
    fs::remove_file(&made).doing("remove", &made)?;
    Ok(match answer.verdict.as_str() {
        verdict if verdict == way.wanted() => Found::Good,
        "missing" => Found::LeftOut("ExecuTorch lacks an operator"),
        "theirs" => Found::LeftOut("ExecuTorch's own program is wrong as well"),
        verdict => Found::Bad(format!("{verdict}: {}", answer.details.join("; "))),
    })
}

/// Counts by set and way, then what failed, then the sum over cases.
fn report(checks: &[Check]) -> Outcome {
    let mut counts: BTreeMap<(&str, Way), (usize, usize)> = BTreeMap::new();
    let mut left_out: BTreeMap<(&str, Way, &str), usize> = BTreeMap::new();
    let mut cases: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for Check { set, case, way, found } in checks {
        let fine = !matches!(found, Found::Bad(_));
        *cases.entry((set, case)).or_insert(true) &= fine;
        if let Found::LeftOut(reason) = found {
            *left_out.entry((set, *way, reason)).or_default() += 1;
            continue;
        }
        let (good, all) = counts.entry((set, *way)).or_default();
        *good += usize::from(fine);
        *all += 1;
    }
    println!("{:<10} {:<8} {:<9} {:>6} {:>6}", "set", "way", "must be", "are", "of");
    for ((set, way), (good, all)) in &counts {
        println!("{set:<10} {:<8} {:<9} {good:>6} {all:>6}", way.name(), way.wanted());
    }
    for ((set, way, reason), count) in &left_out {
        println!("{set:<10} {:<8} not judged: {count} ({reason})", way.name());
    }
    for Check { set, case, way, found } in checks {
        if let Found::Bad(problem) = found {
            println!("{set}/{case} {}: {problem}", way.name());
        }
    }
    let passed = cases.values().filter(|&&passed| passed).count();
    println!("{passed} passed, {} failed", cases.len() - passed);
    if passed == cases.len() { Outcome::Good } else { Outcome::Bad }
}
