//! `cargo xtask interop`: rewrites the program of every case with the binary, plainly and through the graph, and shows
//! both to ExecuTorch's own Python: the first must say the same as the original, the second must be accepted.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Deserialize;

use crate::Outcome;
use crate::cache::Cache;
use crate::case::{self, Case};
use crate::cases;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Rewrite every case's program and let ExecuTorch's own Python judge the result.
///
/// Builds the release binary and runs over all sets that `cargo xtask cases` has made: `pteron rewrite IN OUT` must
/// give a file that is equal table by table, `pteron rewrite IN OUT --through-graph` one that is accepted. The last
/// line is `N passed, N failed`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only cases whose name matches.
    #[arg(long, value_name = "GLOB", default_value = "*")]
    filter: String,
}

/// The two ways to rewrite a file, and the verdict that each must get.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Plain,
    ThroughGraph,
}

impl Way {
    const ALL: [Way; 2] = [Way::Plain, Way::ThroughGraph];

    fn wanted(self) -> &'static str {
        match self {
            Way::Plain => "equal",
            Way::ThroughGraph => "accepted",
        }
    }

    fn option(self) -> Option<&'static str> {
        match self {
            Way::Plain => None,
            Way::ThroughGraph => Some("--through-graph"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::ThroughGraph => "graph",
        }
    }
}

/// One rewrite of one program, and how it fared: nothing, or why it failed.
struct Check {
    set: &'static str,
    case: String,
    way: Way,
    problem: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let cache = Cache::locate()?;
    let mut programs = vec![];
    for set in cases::SETS {
        let folder = cache.set(set);
        let found = if folder.is_dir() { case::find(&folder)? } else { vec![] };
        let wanted = found.into_iter().filter(|case| case::matches(&arguments.filter, case.name()));
        programs.extend(wanted.map(|case| (set, case)));
    }
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
fn check_all(programs: &[(&'static str, Case)], binary: &Path, python: &Path) -> Result<Vec<Check>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut judge = Judge::start(python)?;
                    let folder = tempfile::tempdir().doing("make", "a folder for rewritten files")?;
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some((set, case)) = programs.get(index) else { return Ok(()) };
                        for way in Way::ALL {
                            let problem = check(case, way, binary, folder.path(), &mut judge)?;
                            let check = Check { set, case: case.name().to_string(), way, problem };
                            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            done.push((index, check));
                            if done.len() % 200 == 0 {
                                eprintln!("{} of {} files", done.len(), programs.len() * Way::ALL.len());
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

/// Rewrites one program one way; the reason if the result is not what it must be.
fn check(case: &Case, way: Way, binary: &Path, folder: &Path, judge: &mut Judge) -> Result<Option<String>> {
    let (original, rewritten) = (case.program(), folder.join("rewritten.pte"));
    let run = Command::new(binary)
        .arg("rewrite")
        .args([&original, &rewritten])
        .args(way.option())
        .stdin(Stdio::null())
        .output()
        .doing("run", binary)?;
    if !run.status.success() {
        let errors = String::from_utf8_lossy(&run.stderr);
        return Ok(Some(format!("rewrite ended with {}: {}", run.status, errors.trim())));
    }
    let answer = match way {
        Way::Plain => judge.ask(&[&original, &rewritten])?,
        Way::ThroughGraph => judge.ask(&[&rewritten])?,
    };
    // A later rewrite that fails must not be judged by this file.
    std::fs::remove_file(&rewritten).doing("remove", &rewritten)?;
    let fine = answer.verdict == way.wanted();
    Ok((!fine).then(|| format!("{}: {}", answer.verdict, answer.details.join("; "))))
}

/// A running `check_pte.py`: loading ExecuTorch takes seconds, so it stays for all files.
struct Judge {
    child: std::process::Child,
    questions: std::process::ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    verdict: String,
    details: Vec<String>,
}

impl Judge {
    fn start(python: &Path) -> Result<Judge> {
        let script = workspace::conformance().join("tools").join("check_pte.py");
        let mut child = Command::new(python)
            .arg("-B")
            .arg(&script)
            .args(["--batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing("start", python)?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::message("the checker has no standard input and output"));
        };
        Ok(Judge { child, questions, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, files: &[&PathBuf]) -> Result<Answer> {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        writeln!(self.questions, "{}", names.join("\t")).doing("ask", "the checker")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).doing("hear", "the checker")?;
        serde_json::from_str(&line)
            .map_err(|_| Error::message(format!("the checker broke off at {}", names.join(" and "))))
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // It would end by itself at the end of its input; after an error nobody waits for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts by set and way, then what failed, then the sum over cases.
fn report(checks: &[Check]) -> Outcome {
    let mut counts: BTreeMap<(&str, Way), (usize, usize)> = BTreeMap::new();
    let mut cases: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for check in checks {
        let (good, all) = counts.entry((check.set, check.way)).or_default();
        *good += usize::from(check.problem.is_none());
        *all += 1;
        *cases.entry((check.set, &check.case)).or_insert(true) &= check.problem.is_none();
    }
    println!("{:<10} {:<6} {:<9} {:>6} {:>6}", "set", "way", "must be", "are", "of");
    for ((set, way), (good, all)) in &counts {
        println!("{set:<10} {:<6} {:<9} {good:>6} {all:>6}", way.name(), way.wanted());
    }
    for check in checks {
        if let Some(problem) = &check.problem {
            println!("{}/{} {}: {problem}", check.set, check.case, check.way.name());
        }
    }
    let passed = cases.values().filter(|&&passed| passed).count();
    println!("{passed} passed, {} failed", cases.len() - passed);
    if passed == cases.len() { Outcome::Good } else { Outcome::Bad }
}
