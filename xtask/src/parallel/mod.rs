//! `cargo xtask parallel`: one program, many sessions at once. Shows that they give what one gives, bit for bit, and how
//! throughput grows with threads; with `--lanes`, the same of sessions that run together.

mod flat;
mod lanes;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pteron_runtime::{Program, RunControl, Session, SessionOptions, Value};

use crate::Outcome;
use crate::cache::Cache;
use crate::case::Case;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::start::Start;

/// Run one program in many sessions at once and compare with one; then measure throughput by threads.
///
/// Needs the sets of `cargo xtask cases`. The last line is `N runs, N differ`.
///
/// With --lanes, sessions of one program run together, so many at a time, over all steps of the model cases, on every vector
/// path and with both precisions; each must give what it gives alone. Programs that take tokens of several sessions in one call
/// are given them so too. Without --batch-invariant, what matrix tiles compute may differ by as much as `fast` differs from
/// `exact`. The cases must have every kind of cache among them.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which model case [default: llama_f32; with --lanes all, and globs].
    #[arg(long)]
    model: Vec<String>,
    /// Run so many sessions together.
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    lanes: Vec<usize>,
    /// Only these vector paths, with --lanes.
    #[arg(long, value_name = "PATH,PATH", value_delimiter = ',', requires = "lanes")]
    paths: Vec<String>,
    /// Ask for the same bytes whatever runs together, with --lanes.
    #[arg(long, requires = "lanes")]
    batch_invariant: bool,
    /// On which backend.
    #[arg(long, value_enum, default_value = "cpu")]
    backend: Engine,
    /// Sessions at once, each on a thread of its own.
    #[arg(long, default_value_t = 64)]
    threads: usize,
    /// Runs of each.
    #[arg(long, default_value_t = 50)]
    runs: usize,
    /// Seconds of each throughput measurement.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Only print the runs per second of so many threads: what a process of its own is asked for.
    #[arg(long, hide = true)]
    rate: Option<usize>,
}

/// Measurements of each kind, taken in turn; the medians are printed.
const REPEATS: usize = 5;

/// What throughput is measured over. Two processes share nothing but the machine, so they show how far two threads
/// could get on it.
const KINDS: [&str; 3] = ["1 thread", "2 threads", "2 processes"];

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    if !arguments.lanes.is_empty() {
        return lanes::run(&lanes::Wanted {
            numbers: &arguments.lanes,
            models: &arguments.model,
            paths: &arguments.paths,
            invariant: arguments.batch_invariant,
        });
    }
    let case = Case::read(&Cache::locate()?.set("models").join(arguments.model()))?;
    let program = Program::open(&case.program(), &[], &arguments.backend.options()?).map_err(failed)?;
    let start = Start::read(&case)?;
    if let Some(threads) = arguments.rate {
        println!("{}", throughput(&program, &start, threads, arguments.seconds)?);
        return Ok(Outcome::Good);
    }
    let alone = outputs_of(&program, &start, arguments.runs)?;
    let together = thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| outputs_of(&program, &start, arguments.runs));
        let threads: Vec<_> = (0..arguments.threads).map(spawn).collect();
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let differing =
        together.iter().flat_map(|outputs| outputs.iter().zip(&alone)).filter(|(a, b)| a != b).count();

    let mut rates = [const { Vec::new() }; KINDS.len()];
    for _ in 0..REPEATS {
        rates[0].push(throughput(&program, &start, 1, arguments.seconds)?);
        rates[1].push(throughput(&program, &start, 2, arguments.seconds)?);
        rates[2].push(rate_of_processes(arguments, 2)?);
    }
    println!("{:<12} {:>10} {:>7}", "", "runs/s", "ratio");
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[REPEATS / 2]
    });
    for (kind, median) in KINDS.iter().zip(medians) {
        println!("{kind:<12} {median:>10.0} {:>7.2}", median / medians[0]);
    }
    println!("{} runs, {differing} differ", arguments.threads * arguments.runs);
    Ok(if differing == 0 { Outcome::Good } else { Outcome::Bad })
}

impl Arguments {
    fn model(&self) -> &str {
        self.model.first().map_or("llama_f32", String::as_str)
    }
}

/// The bytes of all outputs of each of so many runs in a fresh session.
fn outputs_of(program: &Program, start: &Start, runs: usize) -> Result<Vec<Vec<u8>>> {
    let mut session = session_of(program, start)?;
    let mut results = Vec::with_capacity(runs);
    for _ in 0..runs {
        let outputs = session.run(&start.method, &start.inputs).map_err(failed)?;
        results.push(
            outputs.iter().filter_map(Value::as_tensor).flat_map(|tensor| tensor.bytes().to_vec()).collect(),
        );
    }
    Ok(results)
}

fn session_of(program: &Program, start: &Start) -> Result<Session> {
    let options = SessionOptions { cache: start.cache.clone(), ..SessionOptions::default() };
    program.session_with(&options).map_err(failed)
}

/// Runs per second over `threads` sessions.
fn throughput(program: &Program, start: &Start, threads: usize, seconds: u64) -> Result<f64> {
    let begin = Instant::now();
    let until = begin + Duration::from_secs(seconds);
    let counts = thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| {
                let mut session = session_of(program, start)?;
                // Callers have inputs of their own.
                let inputs: Vec<Value> = start.inputs.iter().map(copy_of).collect();
                let mut count = 0u32;
                let mut outputs = Vec::new();
                let control = RunControl::default();
                while Instant::now() < until {
                    session.run_into(&start.method, &inputs, &control, &mut outputs).map_err(failed)?;
                    count += 1;
                }
                Ok(count)
            })
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        workers.into_iter().map(join).collect::<Result<Vec<u32>>>()
    })?;
    Ok(f64::from(counts.iter().sum::<u32>()) / begin.elapsed().as_secs_f64())
}

fn copy_of(input: &Value) -> Value {
    match input {
        Value::Tensor(tensor) => Value::Tensor(tensor.counted_apart()),
        other => other.clone(),
    }
}

/// Runs per second of so many processes at once, each with one session.
fn rate_of_processes(arguments: &Arguments, processes: usize) -> Result<f64> {
    let program = std::env::current_exe().map_err(|error| Error::message(error.to_string()))?;
    let spawn = |_| {
        Command::new(&program)
            .args([
                "parallel",
                "--rate",
                "1",
                "--model",
                arguments.model(),
                "--backend",
                arguments.backend.name(),
            ])
            .args(["--seconds", &arguments.seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let children = (0..processes).map(spawn).collect::<std::io::Result<Vec<_>>>();
    let mut sum = 0.0;
    for child in children.map_err(|error| Error::message(error.to_string()))? {
        let output = child.wait_with_output().map_err(|error| Error::message(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        sum += text.trim().parse::<f64>().map_err(|_| Error::message("a process gave no figure"))?;
    }
    Ok(sum)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| Error::message("a thread panicked"))?
}

fn failed(error: pteron_runtime::Error) -> Error {
    Error::message(error.to_string())
}
