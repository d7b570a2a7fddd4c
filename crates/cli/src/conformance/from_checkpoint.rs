//! Checkpoints as cases: exported to a program, the prompt given in inputs of one or another length, then tokens one by
//! one; the tokenizer and template that travel inside, where there are any. `conformance/CHECKPOINTS.md` describes the files.

use super::case::{self, Kind, Tensors};
use super::judge::{self, Tolerance};
use super::rounding;
use super::run::{Manner, Outcome, Source, round_trip};
use super::set::Set;
use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_format::pte::Pte;
use pteron_llm::Voice;
use pteron_llm::tokenizer::Ends;
use pteron_runtime::{Program, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use serde::Deserialize;
use std::ops::Range;

/// Longer than any prompt of a case.
const MOST_TOKENS: usize = 1 << 16;

/// A `case.json` of kind checkpoint, of the keys that running it needs.
#[derive(Clone, Debug, Deserialize)]
struct CheckpointCase {
    atol: f64,
    rtol: f64,
    prompt: Vec<i64>,
    decode: Vec<i64>,
    greedy: Vec<i64>,
    /// Where the checkpoint has a tokenizer: a text with its tokens, and messages with theirs.
    text: Option<String>,
    #[serde(default)]
    text_ids: Vec<u32>,
    chat: Option<Vec<serde_json::Value>>,
    #[serde(default)]
    chat_text: String,
    #[serde(default)]
    chat_ids: Vec<u32>,
}

impl CheckpointCase {
    fn parse(text: &[u8]) -> Result<CheckpointCase, String> {
        let case: CheckpointCase =
            serde_json::from_slice(text).map_err(|error| format!("case.json: {error}"))?;
        let tolerances = [case.atol, case.rtol];
        if tolerances.iter().any(|tolerance| !tolerance.is_finite() || *tolerance < 0.0) {
            return Err(format!("case.json: {tolerances:?} are not tolerances"));
        }
        if case.prompt.is_empty() || case.positions() > MOST_TOKENS {
            return Err(format!("case.json: {} tokens to run", case.positions()));
        }
        Ok(case)
    }

    /// Positions that the longer of the two continuations reaches.
    fn positions(&self) -> usize {
        self.prompt.len() + self.decode.len().max(self.greedy.len())
    }
}

/// Whether a case is a checkpoint.
pub(crate) fn is_one(set: &Set, name: &str) -> bool {
    set.read(name, "case.json").is_ok_and(|text| case::kind(&text) == Ok(Kind::Checkpoint))
}

/// Exports the case's checkpoint with f32 activations and caches and holds its logits and greedy tokens against those
/// that are stored.
pub(super) fn judge(
    set: &Set,
    name: &str,
    text: &[u8],
    tensors: &Tensors,
    manner: &Manner,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let Source::Checkpoint { chunk } = manner.from else {
        return Err("it is a checkpoint; `--from checkpoint` exports and runs it".into());
    };
    let case = CheckpointCase::parse(text)?;
    let folder = set.subfolder(name, "checkpoint")?;
    let checkpoint = Checkpoint::open(folder.path()).map_err(|error| error.to_string())?;
    let chunks = chunk.map_or_else(|| vec![case.prompt.len(), 3, 1], |chunk| vec![chunk]);
    for chunk in chunks {
        let chunk = chunk.min(case.prompt.len());
        let here = |problem: String| format!("inputs of {chunk}: {problem}");
        let file = exported(&checkpoint, &case, chunk, manner).map_err(here)?;
        voice(&case, &file, manner).map_err(here)?;
        let program = Program::load("model.pte", file, &[], &manner.options);
        let program = program.map_err(|error| here(error.to_string()))?;
        let run = CheckpointRun { case: &case, tensors, manner, program: &program, chunk };
        run.logits(outcome).map_err(here)?;
        run.greedy(outcome).map_err(here)?;
    }
    Ok(())
}

/// The program's file.
fn exported(
    checkpoint: &Checkpoint,
    case: &CheckpointCase,
    chunk: usize,
    manner: &Manner,
) -> Result<Bytes, String> {
    let options = ExportOptions {
        activations: DType::F32,
        context: Some(case.positions()),
        chunk: Some(chunk),
        ..ExportOptions::default()
    };
    let mut file = Vec::new();
    Export::new(checkpoint, &options)
        .and_then(|export| export.write(&mut file, &mut |_| ()))
        .map_err(|error| format!("export: {error}"))?;
    let mut bytes = Bytes::copy_of(&file);
    if manner.round_trip {
        bytes =
            round_trip(bytes, &manner.options.limits).map_err(|problem| format!("round trip: {problem}"))?;
    }
    if manner.rounded {
        bytes = rounding::rounded(bytes, &manner.options.limits)?;
    }
    Ok(bytes)
}

/// Whether the tokenizer and the template inside the program give the stored tokens.
fn voice(case: &CheckpointCase, file: &Bytes, manner: &Manner) -> Result<(), String> {
    if case.text.is_none() && case.chat.is_none() {
        return Ok(());
    }
    let pte = Pte::read(file.clone(), &manner.options.limits).map_err(|error| error.to_string())?;
    let tokenizer = Voice::tokenizer_inside(&pte).map_err(|error| error.to_string())?;
    let mut voice = Voice::new(tokenizer.ok_or("the program carries no tokenizer")?);
    voice.template = Voice::template_inside(&pte).map_err(|error| error.to_string())?;
    if let Some(text) = &case.text {
        let ids = voice.tokenizer.encode(text, Ends::None).map_err(|error| error.to_string())?;
        if ids != case.text_ids {
            return Err(format!("the text gives tokens {ids:?}, want {:?}", case.text_ids));
        }
    }
    if let Some(messages) = &case.chat {
        let prompt = voice.chat(messages).map_err(|error| error.to_string())?;
        if (&prompt.text, &prompt.tokens) != (&case.chat_text, &case.chat_ids) {
            return Err(format!("the chat gives {prompt:?}, want {:?} {:?}", case.chat_text, case.chat_ids));
        }
    }
    Ok(())
}

/// One program of a case.
struct CheckpointRun<'a> {
    case: &'a CheckpointCase,
    tensors: &'a Tensors,
    manner: &'a Manner,
    program: &'a Program,
    chunk: usize,
}

impl CheckpointRun<'_> {
    /// All logits of the prompt, then those after each further token.
    fn logits(&self, outcome: &mut Outcome) -> Result<(), String> {
        let mut session = self.session()?;
        let mut rows: Vec<f32> = Vec::new();
        for (part, start) in self.prompt() {
            rows.extend(call(&mut session, part, start, 0..part.len())?.1);
        }
        self.compare("logits.prefill", rows, outcome)?;
        for (step, token) in self.case.decode.iter().enumerate() {
            let start = self.case.prompt.len() + step;
            let (_, row) = call(&mut session, std::slice::from_ref(token), start, 0..1)?;
            self.compare(&format!("logits.decode.{step}"), row, outcome)?;
        }
        Ok(())
    }

    /// The most likely tokens after the prompt, each fed back.
    fn greedy(&self, outcome: &mut Outcome) -> Result<(), String> {
        let mut session = self.session()?;
        let mut logits = None;
        for (part, start) in self.prompt() {
            logits = Some(call(&mut session, part, start, part.len() - 1..part.len())?.0);
        }
        for (step, wanted) in self.case.greedy.iter().enumerate() {
            let picked = judge::greedy(&logits.take().ok_or("there are no logits to pick a token from")?)?;
            outcome.tokens += 1;
            if picked != *wanted {
                outcome.missed += 1;
                if self.manner.judges_tokens() {
                    return Err(format!("greedy token {step} is {picked}, want {wanted}"));
                }
            }
            let start = self.case.prompt.len() + step;
            logits = Some(call(&mut session, std::slice::from_ref(wanted), start, 0..1)?.0);
        }
        Ok(())
    }

    fn session(&self) -> Result<Session, String> {
        self.program.session().map_err(|error| error.to_string())
    }

    /// The prompt in parts, each with its position.
    fn prompt(&self) -> impl Iterator<Item = (&[i64], usize)> {
        let parts = self.case.prompt.chunks(self.chunk).enumerate();
        parts.map(|(number, part)| (part, number * self.chunk))
    }

    fn compare(&self, key: &str, got: Vec<f32>, outcome: &mut Outcome) -> Result<(), String> {
        let want = case::tensor(self.tensors, key)?;
        let here = |problem: String| format!("{key}: {problem}");
        if got.len() != want.len() {
            return Err(here(format!("got {} logits, want {}", got.len(), want.len())));
        }
        let got =
            HostTensor::from_slice(want.shape().to_vec(), &got).map_err(|error| here(error.to_string()))?;
        let tolerance = Tolerance { atol: self.case.atol, rtol: self.case.rtol, share: self.manner.share };
        let verdict =
            judge::compare(&Value::Tensor(got), &Value::Tensor(want.clone()), tolerance).map_err(here)?;
        outcome.used = outcome.used.max(verdict.used);
        verdict.problem.map_or(Ok(()), |problem| Err(here(problem)))
    }
}

/// Gives tokens at a position; the logits of some of them, and all their numbers.
fn call(
    session: &mut Session,
    tokens: &[i64],
    start: usize,
    wanted: Range<usize>,
) -> Result<(Value, Vec<f32>), String> {
    let failed = |error: pteron_tensor::TensorError| error.to_string();
    let rows: Vec<i64> = wanted.map(|row| row as i64).collect();
    let inputs: [Value; 3] = [
        HostTensor::from_slice(vec![1, tokens.len()], tokens).map_err(failed)?.into(),
        Value::Int(start as i64),
        HostTensor::from_slice(vec![rows.len()], &rows).map_err(failed)?.into(),
    ];
    let outputs = session.run("forward", &inputs).map_err(|error| error.to_string())?;
    let logits = outputs.first().map(Value::to_tensor).transpose().map_err(|error| error.to_string())?;
    let logits = logits.flatten().ok_or("`forward` gives no tensor")?;
    let numbers = logits.as_slice::<f32>().map_err(failed)?.to_vec();
    Ok((Value::Tensor(logits), numbers))
}
