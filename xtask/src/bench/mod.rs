//! `cargo xtask bench`: Pteron and llama.cpp on programs of the same shapes, turn by turn in one run, so that both see
//! the same machine. What is missing (the peer, the files) is made first, in the cache folder.

mod files;
mod rounds;
mod rows;

use std::thread;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::workspace;

use files::{Files, MODELS, Model};
use rounds::Measurement;
use rows::Report;

/// Compare the speed of Pteron with that of llama.cpp on this machine.
///
/// Both run programs of the same shape with random 4-bit weights: prefill of a text, and decode at several depths of
/// context. Rounds alternate between the two; medians, spreads and ratios are printed, and Pteron's figures as a part of
/// what plain reads (decode) and the matrix unit (prefill) reach here. The first run builds llama.cpp (20 minutes of one
/// core) and writes the models (7 GB) to the cache folder. Keep the machine quiet while it measures.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these models, by name; may be given several times.
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Numbers of threads [default: 1 and all cores].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Tokens of the prefill.
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Tokens to decode.
    #[arg(long, value_name = "N", default_value_t = 128)]
    new: usize,
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
    let models = pick(&arguments.models)?;
    let threads = match arguments.threads.as_slice() {
        [] => all_threads(),
        given => given.to_vec(),
    };
    let files = Files::at(Cache::locate()?.benchmarks())?;
    files.make_peer()?;
    let pteron = workspace::build_pteron()?;
    let mut report = Report::default();
    for model in models {
        let measured = files.make(model, &pteron, arguments.prompt, &arguments.context, arguments.new)?;
        for &threads in &threads {
            let measurement = Measurement {
                pteron: &pteron,
                python: files.python(),
                files: &measured,
                threads,
                prompt: arguments.prompt,
                new: arguments.new,
                context: &arguments.context,
                backend: arguments.backend.as_deref(),
                precision: &arguments.precision,
            };
            let turns = measurement.take_turns(usize::from(arguments.rounds), model.name)?;
            report.add(model.name, threads, &turns);
        }
    }
    match arguments.json {
        true => println!("{}", report.json()?),
        false => println!("{}", report.table()),
    }
    Ok(Outcome::Good)
}

fn pick(names: &[String]) -> Result<Vec<&'static Model>> {
    if names.is_empty() {
        return Ok(MODELS.iter().collect());
    }
    let find = |name: &String| {
        MODELS.iter().find(|model| model.name == name).ok_or_else(|| {
            let known: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
            Error::message(format!("no model is called {name}; there are {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn all_threads() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 { vec![1] } else { vec![1, cores] }
}
