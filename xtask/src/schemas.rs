//! `cargo xtask schemas`: the default model writes JSON under schemas, at temperature 1, and a validator that knows nothing
//! of grammars judges every answer.

mod generated;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use jsonschema::Validator;
use pteron_llm::constrain::Constraint;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{Answer, Decoder, FinishReason, GenerateOptions, generate};
use pteron_runtime::{Precision, RunControl};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Outcome;
use crate::error::{Doing, Error, Result};
use crate::language::{self, Language, said};
use crate::workspace;

/// Let the default model answer under JSON schemas, at temperature 1, and validate every answer.
///
/// The schemas and what is asked are in `real/schemas.json`; seeds are counted up, and the same seeds give the same
/// answers. Builds the release binary and fetches the model through it. Then answers are cut off, which must end as
/// `length` and with an error. Schemas that a generator makes are answered too, by chance and not by a model: no object may
/// have a key twice. The last lines are `generated: N valid, N not` and `schemas: N valid, N not`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Answers in all; schemas take turns.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    count: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Schemas that the generator makes.
    #[arg(long, default_value_t = 500, value_name = "N")]
    generated: usize,
    /// Answers to these in all.
    #[arg(long, default_value_t = 2000, value_name = "N")]
    answers: usize,
    /// Which model of the registry.
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME")]
    model: String,
    /// Print every answer.
    #[arg(long)]
    show: bool,
}

/// Tokens of an answer at most: more than the longest value of any of the schemas has bytes. The longest character is
/// a control character as `\u001f`, six bytes.
const BUDGET: usize = 1024;

/// Too few tokens for any value of the schema that is cut off.
const TOO_FEW: usize = 3;

/// An entry of `real/schemas.json`.
#[derive(Deserialize)]
struct Entry {
    name: String,
    ask: String,
    schema: Value,
}

/// A schema, ready.
struct Task {
    entry: Entry,
    prompt: Vec<u32>,
    /// At its beginning; answers use clones.
    constraint: Constraint,
    validator: Validator,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let pteron = workspace::build_pteron()?;
    let source = language::pull(&pteron, &arguments.model)?;
    let program = language::export(&pteron, &source, &arguments.model, &["--context", "2048"])?;
    let language = Language::open(&program, Precision::Fast)?;
    let tasks = tasks(&language)?;
    let mut decoder = language.decoder()?;
    let mut bad = Vec::new();
    let mut tokens = BTreeMap::new();
    let bar = bar(arguments.count);
    for (number, task) in (0..arguments.count).zip(tasks.iter().cycle()) {
        let seed = arguments.seed + number;
        let answer = task.answer(&language, &mut decoder, seed, BUDGET)?;
        if arguments.show {
            bar.suspend(|| println!("{seed} {}: {}", task.entry.name, answer.text));
        }
        if let Err(problem) = task.judge(&answer) {
            bar.suspend(|| println!("seed {seed}, {}: {problem}\n  {}", task.entry.name, answer.text));
            bad.push(seed);
        }
        let (count, longest): &mut (u64, usize) = tokens.entry(task.entry.name.as_str()).or_default();
        *count += 1;
        *longest = answer.tokens.len().max(*longest);
        bar.inc(1);
    }
    bar.finish_and_clear();
    for (name, (count, longest)) in &tokens {
        println!("{count:>6} answers of up to {longest:>4} tokens: {name}");
    }
    let told = cut_off(&pteron, &program, &tasks[0], &language, &mut decoder)?;
    println!("an answer that is cut off {}", if told { "says so" } else { "DOES NOT say so" });
    let even = generated(arguments, &language);
    println!("schemas: {} valid, {} not", arguments.count - bad.len() as u64, bad.len());
    Ok(if bad.is_empty() && told && even { Outcome::Good } else { Outcome::Bad })
}

/// Whether chance answers generated schemas as they ask.
fn generated(arguments: &Arguments, language: &Language) -> bool {
    let (schemas, answers) = (arguments.generated, arguments.answers);
    let bar = bar(answers as u64);
    let outcome = generated::run(&language.voice.tokenizer, schemas, answers, arguments.seed, || bar.inc(1));
    bar.finish_and_clear();
    outcome.wrong.iter().for_each(|problem| println!("{problem}"));
    println!("generated: {} valid, {} not", outcome.valid, outcome.wrong.len());
    outcome.wrong.is_empty()
}

fn tasks(language: &Language) -> Result<Vec<Task>> {
    let path = workspace::root().join("real").join("schemas.json");
    let text = fs::read(&path).doing("read", &path)?;
    let entries: Vec<Entry> = serde_json::from_slice(&text).map_err(|error| Error::content(&path, error))?;
    let task = |entry: Entry| {
        let wrong =
            |problem: &dyn std::fmt::Display| Error::content(&path, format!("{}: {problem}", entry.name));
        let asked = json!({"role": "user", "content": format!("{} Answer in JSON.", entry.ask)});
        let prompt = language.voice.chat(&[asked]).map_err(|error| wrong(&error))?.tokens;
        let constraint = Constraint::json_schema(&language.voice.tokenizer, &entry.schema);
        let constraint = constraint.map_err(|error| wrong(&error))?;
        let validator = jsonschema::options().should_validate_formats(true).build(&entry.schema);
        let validator = validator.map_err(|error| wrong(&error))?;
        Ok(Task { prompt, constraint, validator, entry })
    };
    entries.into_iter().map(task).collect()
}

impl Task {
    fn answer(&self, language: &Language, decoder: &mut Decoder, seed: u64, budget: usize) -> Result<Answer> {
        let options = GenerateOptions {
            max_new: Some(budget),
            sampling: SamplerSettings { temperature: 1.0, ..SamplerSettings::default() },
            seed,
            stop: Vec::new(),
            end_tokens: language.voice.end_tokens(&language.model),
        };
        let mut constraint = self.constraint.clone();
        let tokenizer = Some(&language.voice.tokenizer);
        let mut show = |_: &str| ControlFlow::Continue(());
        let control = RunControl::default();
        generate(decoder, tokenizer, &self.prompt, &options, Some(&mut constraint), &mut show, &control)
            .map_err(said)
    }

    fn judge(&self, answer: &Answer) -> std::result::Result<(), String> {
        if answer.finish_reason != FinishReason::Stop {
            return Err(format!("ended as {:?} after {} tokens", answer.finish_reason, answer.tokens.len()));
        }
        let value: Value = serde_json::from_str(&answer.text).map_err(|error| format!("no JSON: {error}"))?;
        self.validator.validate(&value).map_err(|error| format!("not valid: {error}"))
    }
}

/// Whether an answer that is cut off ends as `length`, here and in the binary, which must also fail.
fn cut_off(
    pteron: &Path,
    program: &Path,
    task: &Task,
    language: &Language,
    decoder: &mut Decoder,
) -> Result<bool> {
    let answer = task.answer(language, decoder, 0, TOO_FEW)?;
    let schema = tempfile::NamedTempFile::new().doing("make", "a temporary file")?;
    fs::write(schema.path(), task.entry.schema.to_string()).doing("write", schema.path())?;
    let mut command = Command::new(pteron);
    command.arg("run").arg("--model").arg(program).arg("--json-schema").arg(schema.path());
    command.args(["--json", "--quiet", "--temperature", "1", "--max-new", &TOO_FEW.to_string()]);
    let done = command.arg(&task.entry.ask).output().doing("start", pteron)?;
    let report: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    let failed = done.status.code() == Some(1) && report["finish_reason"] == "length";
    Ok(failed && answer.finish_reason == FinishReason::Length)
}

fn bar(count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} answers, {eta} left");
    let bar = ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
