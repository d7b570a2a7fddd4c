//! `cargo xtask parallel`: one program, many sessions at once. Shows that they give what one gives, bit for bit, and how
//! throughput grows with threads.

use std::thread;
use std::time::{Duration, Instant};

use pteron_runtime::{Options, Program, Session, SessionOptions, Value};

use crate::Outcome;
use crate::cache::Cache;
use crate::case::Case;
use crate::error::{Error, Result};
use crate::start::Start;

/// Run one program in many sessions at once and compare with one; then measure throughput by threads.
///
/// Needs the sets of `cargo xtask cases`. The last line is `N runs, N differ`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which model case.
    #[arg(long, default_value = "llama_f32")]
    model: String,
    /// Sessions at once, each on a thread of its own.
    #[arg(long, default_value_t = 64)]
    threads: usize,
    /// Runs of each.
    #[arg(long, default_value_t = 50)]
    runs: usize,
    /// Seconds of each throughput measurement.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
}

/// Measurements of each kind; the medians are printed.
const REPEATS: usize = 5;

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let case = Case::read(&Cache::locate()?.set("models").join(&arguments.model))?;
    let program = Program::open(&case.program(), &[], &Options::default()).map_err(failed)?;
    let start = Start::read(&case)?;
    let alone = outputs_of(&program, &start, arguments.runs)?;
    let together = thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| outputs_of(&program, &start, arguments.runs));
        let threads: Vec<_> = (0..arguments.threads).map(spawn).collect();
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let differing =
        together.iter().flat_map(|outputs| outputs.iter().zip(&alone)).filter(|(a, b)| a != b).count();

    println!("{:>8} {:>12} {:>8}", "threads", "runs/s", "ratio");
    let mut first = None;
    for count in [1, 2] {
        let mut rates = (0..REPEATS)
            .map(|_| throughput(&program, &start, count, arguments.seconds))
            .collect::<Result<Vec<_>>>()?;
        rates.sort_by(f64::total_cmp);
        let median = rates[REPEATS / 2];
        println!("{count:>8} {median:>12.0} {:>8.2}", median / *first.get_or_insert(median));
    }
    println!("{} runs, {differing} differ", arguments.threads * arguments.runs);
    Ok(if differing == 0 { Outcome::Good } else { Outcome::Bad })
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
                let mut count = 0u32;
                while Instant::now() < until {
                    session.run(&start.method, &start.inputs).map_err(failed)?;
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

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| Error::message("a thread panicked"))?
}

fn failed(error: pteron_runtime::Error) -> Error {
    Error::message(error.to_string())
}
