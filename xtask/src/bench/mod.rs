//! `cargo xtask bench`: Pteron and llama.cpp on programs of the same shapes, turn by turn in one run, so that both see
//! the same machine. What is missing (the peer, the files) is made first, in the cache folder.

mod files;
mod rounds;
mod rows;

use std::fs;
use std::thread;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Result};
use crate::workspace;

use files::{Files, MODELS, Pair, REAL, Subject};
use rounds::Measurement;
use rows::Report;

/// Compare the speed of Pteron with that of llama.cpp on this machine.
///
/// Both run programs of the same shape with random 4-bit weights, or the same GGUF file of a real model: prefill of a text,
/// and decode at several depths of context; the time to fill the deepest is that to the first token of a long prompt.
/// Rounds alternate between the two; medians, spreads and ratios are printed, and Pteron's figures as a part of what plain
/// reads (decode) and the matrix unit (prefill) reach here. The first run builds llama.cpp (20 minutes of one core), writes
/// the models (7 GB) to the cache folder and fetches the real ones. Keep the machine quiet while it measures.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these models: shapes by name, real ones as real/NAME, GGUF files by path; may be given several times.
    #[arg(long = "model", value_name = "NAME|real/NAME|FILE.gguf")]
    models: Vec<String>,
    /// Numbers of threads [default: 1 and all cores].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Tokens of the prefill.
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Tokens to decode [default: by the size of the model, 48 to 192].
    #[arg(long, value_name = "N")]
    new: Option<usize>,
    /// Positions that are full when decoding begins.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "0,512,2048")]
    context: Vec<usize>,
    /// How often each side takes its turn.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Pteron's backend [default: its own choice].
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Pteron's precision: fast or exact.
    #[arg(long, value_name = "PRECISION", default_value = "fast")]
    precision: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let subjects = pick(&arguments.models)?;
    let deepest = arguments.context.iter().max().copied().unwrap_or(0);
    let positions = arguments.prompt.max(deepest + arguments.new.unwrap_or(*DECODED.end()));
    let threads = match arguments.threads.as_slice() {
        [] => all_threads(),
        given => given.to_vec(),
    };
    let files = Files::at(Cache::locate()?.benchmarks())?;
    files.make_peer()?;
    let pteron = workspace::build_pteron()?;
    let mut report = Report::default();
    for subject in subjects {
        let measured = files.make(&subject, &pteron, positions)?;
        let name = subject.name();
        for &threads in &threads {
            let measurement = Measurement {
                pteron: &pteron,
                python: files.python(),
                files: &measured,
                threads,
                prompt: arguments.prompt,
                new: arguments.new.map_or_else(|| tokens_worth_timing(&measured), Ok)?,
                context: &arguments.context,
                backend: arguments.backend.as_deref(),
                precision: &arguments.precision,
            };
            let turns = measurement.take_turns(usize::from(arguments.rounds), &name)?;
            report.add(&name, threads, &turns);
        }
    }
    match arguments.json {
        true => println!("{}", report.json()?),
        false => println!("{}", report.table()),
    }
    Ok(Outcome::Good)
}

/// Tokens that are decoded where nobody says how many.
const DECODED: std::ops::RangeInclusive<usize> = 48..=192;

/// As many tokens as take about a second or more: a tenth of that measures what else the machine does.
fn tokens_worth_timing(files: &Pair) -> Result<usize> {
    const BYTES_READ: u64 = 15_000_000_000;
    let bytes = fs::metadata(&files.gguf).doing("read", &files.gguf)?.len();
    Ok(((BYTES_READ / bytes.max(1)) as usize).clamp(*DECODED.start(), *DECODED.end()))
}

fn pick(names: &[String]) -> Result<Vec<Subject>> {
    match names {
        [] => Ok(MODELS.iter().map(Subject::Shape).chain(REAL.map(Subject::Real)).collect()),
        names => names.iter().map(|name| Subject::find(name)).collect(),
    }
}

fn all_threads() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 { vec![1] } else { vec![1, cores] }
}
