//! `cargo xtask mutate`: runs damaged copies of real programs and reports whatever is not an error message: panics,
//! hangs, deaths (aborts, runaway allocations, stack overflows). Mutants run in worker processes; a mutant is a number
//! under a seed, so that any of them can be had again.

mod attempt;
mod corpus;
mod mutator;
mod worker;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::corpus::Corpus;
use self::worker::PANICKED;
pub(crate) use self::worker::{WorkerArguments, work};
use crate::Outcome;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Run COUNT damaged copies of the programs under FOLDER and look for panics, hangs and deaths.
///
/// FOLDER is a case set or a folder of sets, as `cargo xtask cases` prints it. Each mutant of a `.pte` or `.ptd` file
/// of at most 1 MiB is read, lifted, verified and run on every backend with the inputs of its case's first step. The
/// mutants depend on the files and the seed alone. What is found is kept as a reproducer. The last line is `N mutants, N findings`.
/// Overflow checks are on, as in every build of `cargo xtask`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the cases are.
    folder: PathBuf,
    /// How many mutants to run.
    count: u64,
    /// Another seed gives other mutants.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// The number of the first mutant; with COUNT 1, that of a finding to be seen again.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    first: u64,
    /// Worker processes [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Seconds after which a mutant counts as hanging.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    time_limit: u64,
    /// Address space of a worker, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 6144)]
    memory_limit: u64,
}

struct Finding {
    index: u64,
    what: String,
}

/// What all threads add to.
#[derive(Default)]
struct Tally {
    done: u64,
    reached: BTreeMap<String, u64>,
    findings: Vec<Finding>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let corpus = Corpus::open(&arguments.folder, arguments.seed)?;
    let scratch = workspace::scratch().join("mutate");
    fs::create_dir_all(&scratch).doing("make", &scratch)?;
    let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let jobs =
        arguments.jobs.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs)
            .map(|job| {
                let (scratch, next, tally) = (&scratch, &next, &tally);
                scope.spawn(move || drive(arguments, scratch, job, next, tally, start))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| Error::message("a driving thread panicked"))??;
        }
        Ok::<(), Error>(())
    })?;
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.findings.sort_by_key(|finding| finding.index);
    for finding in &tally.findings {
        report(finding, &corpus, arguments, &scratch)?;
    }
    let reached: Vec<String> =
        tally.reached.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
    println!("{}; {} s", reached.join(", "), start.elapsed().as_secs());
    println!("{} mutants, {} findings", tally.done, tally.findings.len());
    Ok(if tally.findings.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Takes numbers until there are no more and gives them to a worker, a new one whenever the old one is lost.
fn drive(
    arguments: &Arguments,
    scratch: &Path,
    job: usize,
    next: &AtomicU64,
    tally: &Mutex<Tally>,
    start: Instant,
) -> Result<()> {
    let errors = scratch.join(format!("worker-{job}.log"));
    let mut worker = None;
    loop {
        let offset = next.fetch_add(1, Ordering::Relaxed);
        if offset >= arguments.count {
            return Ok(());
        }
        let index = arguments.first.wrapping_add(offset);
        let mut running = match worker.take() {
            Some(running) => running,
            None => Worker::start(arguments, &errors)?,
        };
        let ending = running.run(index, Duration::from_secs(arguments.time_limit))?;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.done += 1;
        let stage = match ending {
            Ending::Answer(word) if word.starts_with(PANICKED) => {
                tally.findings.push(Finding { index, what: word });
                worker = Some(running);
                PANICKED.to_string()
            }
            Ending::Answer(word) => {
                worker = Some(running);
                word
            }
            Ending::Hang => {
                let what = format!("hangs: no answer in {} s", arguments.time_limit);
                tally.findings.push(Finding { index, what });
                "hung".to_string()
            }
            Ending::Death(how) => {
                tally.findings.push(Finding { index, what: format!("died: {how}") });
                "died".to_string()
            }
        };
        *tally.reached.entry(stage).or_default() += 1;
        if tally.done.is_multiple_of(5000) {
            let (done, findings, count) = (tally.done, tally.findings.len(), arguments.count);
            eprintln!("{done} of {count} mutants, {findings} findings, {} s", start.elapsed().as_secs());
        }
    }
}

/// A worker process, with its answers arriving on a channel so that waiting for one can end.
struct Worker {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
    errors: PathBuf,
}

enum Ending {
    Answer(String),
    Hang,
    Death(String),
}

impl Worker {
    fn start(arguments: &Arguments, errors: &Path) -> Result<Worker> {
        let program = std::env::current_exe().doing("find", "this program")?;
        let log = File::create(errors).doing("make", errors)?;
        let mut child = Command::new(&program)
            .arg("mutate-worker")
            .arg(&arguments.folder)
            .args(["--seed", &arguments.seed.to_string()])
            .args(["--memory-mib", &arguments.memory_limit.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .doing("start", &program)?;
        let (Some(questions), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::message("a worker has no standard input and output"));
        };
        let (sender, answers) = mpsc::channel();
        // Ends with the worker's output, or when nobody listens any more.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, questions, answers, errors: errors.to_path_buf() })
    }

    fn run(&mut self, index: u64, limit: Duration) -> Result<Ending> {
        let asked = writeln!(self.questions, "{index}").and_then(|()| self.questions.flush());
        if asked.is_ok() {
            match self.answers.recv_timeout(limit) {
                Ok(answer) => return Ok(Ending::Answer(answer)),
                Err(RecvTimeoutError::Timeout) => return Ok(Ending::Hang),
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        let status = self.child.wait().doing("wait for", "a worker")?;
        let errors = fs::read(&self.errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        if status.code() == Some(1) {
            // It ended by itself, with a message: the corpus cannot be read, say. No mutant does that.
            return Err(Error::message(errors.trim()));
        }
        Ok(Ending::Death(format!("{status}; {}", errors.trim().replace('\n', " "))))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says what was found and keeps the file that shows it.
fn report(finding: &Finding, corpus: &Corpus, arguments: &Arguments, scratch: &Path) -> Result<()> {
    let damaged = corpus.mutant(finding.index)?;
    let folder = scratch.join(format!("seed-{}-mutant-{}", arguments.seed, finding.index));
    fs::create_dir_all(&folder).doing("make", &folder)?;
    for file in damaged.case.files() {
        let (from, to) = (damaged.case.folder.join(&file), folder.join(&file));
        if file == damaged.file {
            fs::write(&to, &damaged.mutant.bytes).doing("write", &to)?;
        } else {
            fs::copy(&from, &to).doing("copy", &from)?;
        }
    }
    println!(
        "mutant {} ({} of {}: {}) {}\n  reproducer: {}\n  again: cargo xtask mutate {} 1 --seed {} --first {}",
        finding.index,
        damaged.file,
        damaged.case.name(),
        damaged.mutant.how,
        finding.what,
        folder.display(),
        arguments.folder.display(),
        arguments.seed,
        finding.index
    );
    Ok(())
}
