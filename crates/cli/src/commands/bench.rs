//! `pteron bench`: how fast a program runs here, and, for language models, how fast it could.

use crate::aside::check_place;
use crate::bench::about::About;
use crate::bench::figures::{number, seconds};
use crate::bench::lanes::{self, Lanes};
use crate::bench::machine;
use crate::bench::matrix::{self, Elements};
use crate::bench::measure::{Bench, Decode, Plan, Prefill};
use crate::bench::profile::{self, Kind, Profile};
use crate::bench::program::{self, Measured};
use crate::bench::synthetic;
use crate::bench::timeline;
use crate::bench::traffic::Traffic;
use crate::commands::exec;
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::form::{self, Wanted};
use crate::output::{Align, Json, Output, Table, size};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use pteron_llm::LanguageModel;
use pteron_models::{KvCache, Logits, ModelOptions, Packing, Position};
use pteron_runtime::{LoadMode, Placement, Precision, Program};
use pteron_tensor::DType;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Measure how fast a program runs
///
/// A language model, or one of a published shape with random weights. Prefill reads a text in the chunks that the program's
/// metadata ask for; decode gives one token at a time, greedily. Medians over repeats, with the slowest and the fastest;
/// decode also as a part of what plain reads from memory reach on this machine with the same number of threads.
///
/// Of any other program, and where --input or --method is given, one method is run again and again on the same inputs:
/// milliseconds a run, memory, and where the time goes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron bench model.pte
  pteron bench --shape llama-3.2-1b --quantize 4w --context 0,512,2048
  pteron bench --shape gemma-4-e2b --quantize 4w --save e2b.pte --new 0 --prompt 0
  pteron bench model.pte --lanes 1,4,16 --prompt 0
  pteron bench mobilenet.pte --input x.npy --threads 2 --profile
  pteron bench model.pte --profile --timeline token.svg")]
pub(crate) struct Arguments {
    /// A program
    #[arg(required_unless_present = "shape", conflicts_with = "shape")]
    model: Option<PathBuf>,
    /// A published shape in place of a program: smollm2-135m, llama-3.2-1b, gemma-4-e2b, ...
    #[arg(long, value_name = "SHAPE")]
    shape: Option<String>,
    /// How the shape's matrices are packed: 2w, 3w, 4w, 5w, 6w, 8w, mxfp4, nvfp4 or mxfp8 [default: not at all]
    #[arg(long, value_name = "SCHEME", requires = "shape")]
    quantize: Option<String>,
    /// Values that share a scale [default: 32, or what the scheme has]
    #[arg(long, value_name = "N", requires = "quantize")]
    group_size: Option<usize>,
    /// Store a bias for each group, as formats with zero points do
    #[arg(long, requires = "quantize")]
    zero_points: bool,
    /// The dtype of the shape's activations
    #[arg(long, value_enum, default_value = "bf16", requires = "shape")]
    dtype: Activations,
    /// The dtype of the shape's caches [default: that of activations]
    #[arg(long, value_enum, requires = "shape")]
    cache_dtype: Option<Activations>,
    /// Where the shape keeps keys and values: in the session's cache, as exports do, or in buffers of the graph, as
    /// ExecuTorch's runners want it
    #[arg(long, value_enum, value_name = "WHERE", default_value = "off-graph", requires = "shape")]
    kv: Kv,
    /// Tokens of the shape's largest input
    #[arg(long, value_name = "N", default_value_t = 512, requires = "shape")]
    chunk: usize,
    /// Keep the shape's program as a file
    #[arg(long, value_name = "FILE.pte", requires = "shape")]
    save: Option<PathBuf>,
    /// Tokens of the prefill; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Tokens to decode; 0 leaves decoding out
    #[arg(long, value_name = "N", default_value_t = 128)]
    new: usize,
    /// Positions that are full when decoding begins; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    context: Vec<usize>,
    /// Decode in so many sessions at once, in place of one: tokens a second of all together; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = number_of_lanes)]
    lanes: Vec<usize>,
    /// Method of a program that is no language model [default: `forward`, or the only one]
    #[arg(long, conflicts_with = "shape")]
    method: Option<String>,
    /// An input of that method, as `pteron exec` takes it; once per input [default: made up by type and size]
    #[arg(long = "input", value_name = "INPUT", conflicts_with = "shape")]
    inputs: Vec<String>,
    /// How often each measurement is taken [default: 5, or 30 runs of a program that is no language model]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: Option<u16>,
    /// Where the time of one decoded token, or of one run, goes, by kind of step
    #[arg(long)]
    profile: bool,
    /// A picture of its steps
    #[arg(long, value_name = "FILE.svg", requires = "profile")]
    timeline: Option<PathBuf>,
    #[command(flatten)]
    engine: Engine,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `--kv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kv {
    InGraph,
    OffGraph,
}

/// `--dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Activations {
    F32,
    F16,
    Bf16,
}

impl From<Activations> for DType {
    fn from(activations: Activations) -> DType {
        match activations {
            Activations::F32 => DType::F32,
            Activations::F16 => DType::F16,
            Activations::Bf16 => DType::BF16,
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    weights_bytes: u64,
    packed_bytes: u64,
    state_bytes: u64,
    peak_bytes: Option<u64>,
    read_limit_bytes_s: Option<f64>,
    matrix_limit_multiply_adds_s: Option<f64>,
    prefill: Option<Prefill>,
    decode: Vec<Decode>,
    lanes: Vec<Lanes>,
    profile: Option<Vec<Kind>>,
}

/// How often a language model is measured where nobody says.
const TOKEN_REPEATS: u16 = 5;
/// How often any other program runs.
const RUN_REPEATS: u16 = 30;

/// A number of sessions at once.
fn number_of_lanes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(lanes @ 1..=1024) => Ok(lanes),
        _ => Err("a number from 1 to 1024".to_owned()),
    }
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let plan = Plan {
        prompt: arguments.prompt,
        new: arguments.new,
        depths: arguments.context.clone(),
        repeats: arguments.repeats.unwrap_or(TOKEN_REPEATS).into(),
    };
    let threads = arguments.engine.threads();
    let source = Source::of(arguments, &plan)?;
    if let Some(timeline) = &arguments.timeline {
        let given = arguments.inputs.iter().map(PathBuf::from);
        check_place(timeline, &given.chain([source.path().to_owned()]).collect::<Vec<_>>())?;
    }
    let asks_for_runs = !arguments.inputs.is_empty() || arguments.method.is_some();
    // What a program says of itself is cheap to ask, and weights are read once, with the precision that its kind has.
    if asks_for_runs || (arguments.shape.is_none() && !reads_text(arguments, source.path())?) {
        return run_program(arguments, &source, out);
    }
    let mut engine = arguments.engine.clone();
    engine.many_sessions = !arguments.lanes.is_empty();
    let options = engine.options(Precision::Fast)?;
    machine::forget_peak();
    let start = Instant::now();
    let program = Program::open(source.path(), &[], &options)?;
    let load_s = start.elapsed().as_secs_f64();
    let model = LanguageModel::new(program.clone())?;
    if let Some(context) = model.context().filter(|&context| context < plan.positions()) {
        return Err(Failure::usage(format!(
            "{} has room for {context} positions, not {}",
            source.name,
            plan.positions()
        ))
        .hint("ask for less with --prompt, --new and --context"));
    }
    let measures = plan.rounds(arguments.lanes.len()) > 0 || arguments.profile;
    let read_limit = if measures { machine::read_limit(threads) } else { None };
    // The buffer of that trial is no part of what the model needs.
    machine::forget_peak();
    let elements = if options.precision == Precision::Fast { Elements::Int8 } else { Elements::Bf16 };
    let matrix_limit = if measures { matrix::peak(threads, elements) } else { None };
    let progress = bar(plan.rounds(arguments.lanes.len()));
    let traffic = Traffic::of(&program, "forward");
    let bench = Bench { model: &model, traffic, read_limit, matrix_limit, progress: &progress };
    let prefill = bench.prefill(&plan)?;
    let decode = if arguments.lanes.is_empty() { bench.decode(&plan)? } else { Vec::new() };
    let lanes = lanes::measure(&model, &plan, &arguments.lanes, || progress.inc(1))?;
    let profile = arguments.profile.then(|| profiled(arguments, &bench, &source.name)).transpose()?;
    progress.finish_and_clear();
    let memory = program.memory();
    let report = Report {
        about: About::of(&source.name, source.path(), &program, options.precision, threads, load_s),
        weights_bytes: memory.mapped_bytes,
        packed_bytes: memory.packed_bytes,
        state_bytes: program.state_bytes(),
        peak_bytes: machine::peak_bytes(),
        read_limit_bytes_s: read_limit,
        matrix_limit_multiply_adds_s: matrix_limit,
        prefill,
        decode,
        lanes,
        profile,
    };
    match arguments.json {
        true => out.json(&report, Json::OneLine)?,
        false => report.render(out)?,
    }
    Ok(Answer::Yes)
}

/// Whether a program is a language model.
fn reads_text(arguments: &Arguments, path: &Path) -> Result<bool, Failure> {
    let mut options = arguments.engine.options(Precision::Exact)?;
    options.placement = Placement::Fixed(LoadMode::Map);
    let program = Program::open(path, &[], &options)?;
    Ok(LanguageModel::new(program).is_ok())
}

/// Measures a program of any kind.
fn run_program(arguments: &Arguments, source: &Source, out: &mut Output) -> Result<Answer, Failure> {
    let options = arguments.engine.options(Precision::Exact)?;
    let given = exec::read_inputs(&arguments.inputs, &arguments.engine.limits())?;
    machine::forget_peak();
    let start = Instant::now();
    let program = Program::open(source.path(), &[], &options)?;
    let load_s = start.elapsed().as_secs_f64();
    let method = exec::method(&program, arguments.method.as_deref())?;
    let inputs = match given.is_empty() {
        true => program::made_up(method)?,
        false => exec::fitted(given, method),
    };
    let measured = Measured {
        name: &source.name,
        path: source.path(),
        program: &program,
        method,
        inputs,
        precision: options.precision,
        threads: arguments.engine.threads(),
        load_s,
    };
    let repeats = arguments.repeats.unwrap_or(RUN_REPEATS).into();
    let draw = |profile: &Profile, kinds: &[Kind]| match &arguments.timeline {
        Some(path) => timeline::write(path, &source.name, profile, kinds),
        None => Ok(()),
    };
    let profiles = arguments.profile.then_some(&draw as program::Told<'_>);
    let report = program::measure(&measured, repeats, profiles, &mut program.session()?)?;
    match arguments.json {
        true => out.json(&report, Json::OneLine)?,
        false => report.render(out)?,
    }
    Ok(Answer::Yes)
}

/// The program that is measured: the user's, or one that was made for this.
struct Source {
    name: String,
    path: PathBuf,
    /// Removes the file at the end.
    _made: Option<tempfile::TempPath>,
}

impl Source {
    fn of(arguments: &Arguments, plan: &Plan) -> Result<Source, Failure> {
        let Some(shape) = &arguments.shape else {
            let path = arguments.model.clone().unwrap_or_default();
            form::check(&path, Wanted::Program)?;
            return Ok(Source { name: path.display().to_string(), path, _made: None });
        };
        let shape = synthetic::shape(shape)?;
        let packing = packing(arguments)?;
        // Whole pages of positions, so that small changes of a benchmark do not change the program.
        let context = plan.positions().next_multiple_of(256);
        let activations: DType = arguments.dtype.into();
        let (kv, position, logits) = match arguments.kv {
            Kv::InGraph => (KvCache::InGraph, Position::Tensor, Logits::Last),
            // As `pteron export` writes it.
            Kv::OffGraph => (KvCache::OffGraph, Position::Number, Logits::Selected),
        };
        let options = ModelOptions {
            activations,
            cache: arguments.cache_dtype.map_or(activations, DType::from),
            context,
            chunk: arguments.chunk.min(context),
            kv,
            position,
            logits,
            ..ModelOptions::default()
        };
        let (path, made) = match &arguments.save {
            Some(path) => {
                check_place(path, &[])?;
                (path.clone(), None)
            }
            None => {
                let file = tempfile::Builder::new().prefix("pteron-bench-").suffix(".pte").tempfile();
                let made =
                    file.map_err(|error| Failure::new(format!("no place for the program: {error}")))?;
                let made = made.into_temp_path();
                (made.to_path_buf(), Some(made))
            }
        };
        synthetic::write(shape, packing, options, &path)?;
        let packed =
            packing.map_or_else(|| DType::from(arguments.dtype).to_string(), |packing| packing.to_string());
        Ok(Source { name: format!("{}, {packed}", shape.name), path, _made: made })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

fn packing(arguments: &Arguments) -> Result<Option<Packing>, Failure> {
    let Some(name) = &arguments.quantize else { return Ok(None) };
    let packing: Packing = name.parse().map_err(Failure::usage)?;
    let packing = match arguments.group_size {
        Some(group) => packing.with_group(group).map_err(Failure::usage)?,
        None => packing,
    };
    Ok(Some(packing.with_zero_points(arguments.zero_points)))
}

/// Some more tokens at the deepest place, listened to.
fn profiled(arguments: &Arguments, bench: &Bench<'_>, name: &str) -> Result<Vec<Kind>, Failure> {
    let depth = arguments.context.iter().max().copied().unwrap_or(0);
    let mut decoder = bench.at_depth(depth)?;
    let room = bench.model.context().map_or(usize::MAX, |context| context.saturating_sub(depth));
    let profile = profile::profile(bench.model.program(), &mut decoder, room)?;
    let kinds = profile.kinds(bench.read_limit);
    if let Some(path) = &arguments.timeline {
        timeline::write(path, name, &profile, &kinds)?;
    }
    Ok(kinds)
}

/// A bar on standard error; hidden where that is no terminal.
fn bar(rounds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} rounds, {eta} left");
    ProgressBar::new(rounds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Report {
    fn render(&self, out: &mut Output) -> Result<(), Failure> {
        let About { model, backend, device, precision, .. } = &self.about;
        out.line(format!("{model} on {backend} ({device}), {precision}"))?;
        let mut about = Table::new(&[Align::Left, Align::Left]);
        about.row(["load", &format!("{}, {}", self.about.load, seconds(self.about.load_s))]);
        about.row(["weights, mapped", &size(self.weights_bytes)]);
        about.row(["weights, packed", &size(self.packed_bytes)]);
        about.row(["caches", &size(self.state_bytes)]);
        if let Some(peak) = self.peak_bytes {
            about.row(["peak resident", &size(peak)]);
        }
        if let Some(limit) = self.read_limit_bytes_s {
            about.row([
                "read limit",
                &format!("{} GB/s with {} threads", number(limit / 1e9), self.about.threads),
            ]);
        }
        if let Some(limit) = self.matrix_limit_multiply_adds_s {
            about.row([
                "matrix limit",
                &format!("{} TOP/s with {} threads", number(2.0 * limit / 1e12), self.about.threads),
            ]);
        }
        out.line(about.render(2))?;
        out.blank()?;
        let mut table = Table::new(&[Align::Left, Align::Right, Align::Right, Align::Left, Align::Left]);
        table.row(["", "context", "tokens", "tokens/s", ""]);
        if let Some(prefill) = &self.prefill {
            let mut note = format!("first token after {}", seconds(prefill.first_token_s));
            if let Some(part) = prefill.limit_fraction {
                note += &format!(", {} of the matrix limit", number(part));
            }
            table.row(["prefill", "0", &prefill.tokens.to_string(), &prefill.tok_s.show(), &note]);
        }
        for decode in &self.decode {
            let part = decode.limit_fraction.map(|part| format!("{} of the read limit", number(part)));
            let (context, tokens) = (decode.context.to_string(), decode.tokens.to_string());
            table.row(["decode", &context, &tokens, &decode.tok_s.show(), &part.unwrap_or_default()]);
        }
        for lanes in &self.lanes {
            let (context, tokens) = (lanes.context.to_string(), lanes.tokens.to_string());
            let note = format!("{} at once, {} of state", lanes.lanes, size(lanes.state_bytes));
            table.row(["lanes", &context, &tokens, &lanes.tok_s.show(), &note]);
        }
        out.line(table.render(0))?;
        if let Some(kinds) = &self.profile {
            let columns = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Right];
            let mut table = Table::new(&columns);
            table.row(["step", "count", "time", "share", "bytes", "of the read limit"]);
            for kind in kinds {
                table.row([
                    kind.kind.to_owned(),
                    kind.steps.to_string(),
                    seconds(kind.seconds),
                    format!("{:.1} %", kind.share * 100.0),
                    size(kind.bytes),
                    kind.limit_fraction.map(number).unwrap_or_default(),
                ]);
            }
            out.section("one token", &table)?;
        }
        Ok(())
    }
}
