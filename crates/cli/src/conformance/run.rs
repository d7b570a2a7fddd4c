//! One case from its files to its outcome: load the program, open one session, run the steps in order, judge
//! every output.

use super::case::{self, Case, Kind, Rule, Step, Tensors};
use super::judge::{self, Tolerance, Verdict};
use super::set::Set;
use super::{from_checkpoint, from_pt2, rounding};
use crate::rewrite;
use crate::tensors::read_safetensors;
use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_runtime::{DataFile, Options, Precision, Program, Session, SessionOptions, Value};
use pteron_tensor::Bytes;

/// What came of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Why it failed; `None` if it passed.
    pub(crate) problem: Option<String>,
    /// The largest share of the tolerance that an element took, as far as the case ran.
    pub(crate) used: f64,
    /// Greedy tokens that were picked, and how many of them were not the right ones.
    pub(crate) tokens: usize,
    pub(crate) missed: usize,
}

/// What `--precision fast` may miss by, as a share of the output's largest magnitude, whatever the case.
pub(crate) const FAST_SHARE: f64 = 0.02;

/// How much more than rounding alone costs a case `fast` may miss by. Both are largest errors out of some thousands, drawn by
/// the same law, so that they are near each other and not equal.
const FAST_SPREAD: f64 = 1.5;

/// How cases are run.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) options: Options,
    /// Whether programs are taken through the graph and back first.
    pub(crate) round_trip: bool,
    pub(crate) from: Source,
    /// A share of an output's largest magnitude that it may miss by, where its case allows less.
    pub(crate) share: f64,
    /// Whether inputs of products are rounded to 8 bits by the program itself.
    pub(crate) rounded: bool,
}

impl Manner {
    /// Rounding activations further may turn a close choice; how often is reported.
    pub(super) fn judges_tokens(&self) -> bool {
        self.options.precision == Precision::Exact && !self.rounded
    }
}

/// What programs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The case's own `model.pte`.
    Program,
    /// What `torch.export.save` wrote.
    Pt2,
    /// A checkpoint, given in inputs of so many tokens, or in several ways where that is open.
    Checkpoint { chunk: Option<usize> },
}

/// Runs a case of a set. Where `fast` misses by more than its share, it is held to what rounding alone costs the case.
pub(crate) fn run(set: &Set, name: &str, manner: &Manner) -> Outcome {
    let outcome = attempt(set, name, manner);
    if outcome.problem.is_none() || manner.options.precision != Precision::Fast {
        return outcome;
    }
    match cost_of_rounding(set, name, manner).map(|cost| FAST_SPREAD * cost) {
        Some(share) if share > manner.share => attempt(set, name, &Manner { share, ..manner.clone() }),
        _ => outcome,
    }
}

/// What a case misses by, as a share of an output's largest magnitude, when all is exact but for inputs of products that are
/// rounded to 8 bits.
fn cost_of_rounding(set: &Set, name: &str, manner: &Manner) -> Option<f64> {
    let options = Options { precision: Precision::Exact, ..manner.options.clone() };
    let exact = Manner { options, share: 0.0, ..manner.clone() };
    // A case that fails without any rounding says nothing about it.
    if attempt(set, name, &exact).problem.is_some() {
        return None;
    }
    let outcome = attempt(set, name, &Manner { share: 1.0, rounded: true, ..exact });
    outcome.problem.is_none().then_some(outcome.used)
}

fn attempt(set: &Set, name: &str, manner: &Manner) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.problem = judge_case(set, name, manner, &mut outcome).err();
    outcome
}

fn judge_case(set: &Set, name: &str, manner: &Manner, outcome: &mut Outcome) -> Result<(), String> {
    let text = set.read(name, "case.json")?;
    let tensors = read_safetensors(&set.read(name, "io.safetensors")?)
        .map_err(|problem| format!("io.safetensors: {problem}"))?;
    if case::kind(&text)? == Kind::Checkpoint {
        return from_checkpoint::judge(set, name, &text, &tensors, manner, outcome);
    }
    let case = Case::parse(&text)?;
    let program = load(set, name, &case, manner)?;
    let options = SessionOptions { cache: case.cache()?, ..SessionOptions::default() };
    let mut session = program.session_with(&options).map_err(|error| error.to_string())?;
    let mut before = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let here = |problem: String| match case.steps.len() {
            1 => problem,
            _ => format!("step {number}: {problem}"),
        };
        let outputs = run_step(&mut session, number, step, &tensors).map_err(here)?;
        let share = manner.share;
        let judge = StepJudge { case: &case, number, step, tensors: &tensors, before: &before, share };
        judge.outputs(&outputs, &mut outcome.used).map_err(here)?;
        if let Some(Some(token)) = case.greedy.get(number) {
            outcome.tokens += 1;
            let judged = judge.greedy(&outputs, *token);
            outcome.missed += usize::from(judged.is_err());
            if manner.judges_tokens() {
                judged.map_err(here)?;
            }
        }
        before = outputs;
    }
    Ok(())
}

pub(super) fn load(set: &Set, name: &str, case: &Case, manner: &Manner) -> Result<Program, String> {
    let compiled = manner.from == Source::Pt2;
    let mut bytes = match compiled {
        true => from_pt2::compile(set, name, case, &manner.options.limits)
            .map_err(|problem| format!("compile: {problem}"))?,
        false => set.read(name, "model.pte")?,
    };
    if manner.round_trip {
        bytes =
            round_trip(bytes, &manner.options.limits).map_err(|problem| format!("round trip: {problem}"))?;
    }
    if manner.rounded {
        bytes = rounding::rounded(bytes, &manner.options.limits)?;
    }
    let read = |file: &String| Ok(DataFile { name: file.clone(), bytes: set.read(name, file)? });
    // A compiled program holds its own data.
    let files = if compiled { &[][..] } else { &case.data };
    let data = files.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    Program::load("model.pte", bytes, &data, &manner.options).map_err(|error| error.to_string())
}

/// Read, lift, emit, write; whoever loads the result reads it again.
pub(super) fn round_trip(bytes: Bytes, limits: &Limits) -> Result<Bytes, String> {
    let pte = Pte::read(bytes, limits).map_err(|error| error.to_string())?;
    let rewritten = rewrite::through_graph(&pte, limits)?;
    let mut file = Vec::new();
    rewritten.write(&mut file).map_err(|error| error.to_string())?;
    Ok(Bytes::copy_of(&file))
}

pub(super) fn run_step(
    session: &mut Session,
    number: usize,
    step: &Step,
    tensors: &Tensors,
) -> Result<Vec<Value>, String> {
    let inputs = step.inputs(number, tensors)?;
    let outputs = session.run(&step.method, &inputs).map_err(|error| error.to_string())?;
    let fetch = |value: Value| match value.to_tensor() {
        Ok(tensor) => Ok(tensor.map_or(value, Value::Tensor)),
        Err(error) => Err(error.to_string()),
    };
    outputs.into_iter().map(fetch).collect()
}

/// What a step's outputs are held against.
struct StepJudge<'a> {
    case: &'a Case,
    number: usize,
    step: &'a Step,
    tensors: &'a Tensors,
    /// The outputs of the step before.
    before: &'a [Value],
    share: f64,
}

impl StepJudge<'_> {
    fn outputs(&self, outputs: &[Value], used: &mut f64) -> Result<(), String> {
        let wanted = self.step.outputs(self.number, self.tensors)?;
        if outputs.len() != wanted.len() {
            return Err(format!("got {} outputs, want {}", outputs.len(), wanted.len()));
        }
        for (position, (got, want)) in outputs.iter().zip(&wanted).enumerate() {
            let here = |problem: String| match wanted.len() {
                1 => problem,
                _ => format!("output {position}: {problem}"),
            };
            let verdict = self.output(position, got, want).map_err(here)?;
            *used = used.max(verdict.used);
            if let Some(problem) = verdict.problem {
                return Err(here(problem));
            }
        }
        Ok(())
    }

    fn output(&self, position: usize, got: &Value, want: &Value) -> Result<Verdict, String> {
        let rule = self.step.rule;
        match rule {
            Rule::Close | Rule::Exact => {
                let tolerance = Tolerance::of(rule, self.case.atol, self.case.rtol);
                let share = if rule == Rule::Close { self.share } else { 0.0 };
                judge::compare(got, want, Tolerance { share, ..tolerance })
            }
            Rule::OneOf => {
                judge::same_type(got, want)?;
                let key = format!("{}.allowed.{position}", self.number);
                judge::one_of(got, case::tensor(self.tensors, &key)?)
            }
            Rule::Repeat => {
                judge::same_type(got, want)?;
                let before = self.before.get(position).ok_or("there is no step before to repeat")?;
                judge::compare(got, before, Tolerance::NONE)
            }
        }
    }

    fn greedy(&self, outputs: &[Value], token: i64) -> Result<(), String> {
        let logits = outputs.first().ok_or("there are no logits to pick a token from")?;
        match judge::greedy(logits)? {
            picked if picked == token => Ok(()),
            picked => Err(format!("the greedy token is {picked}, want {token}")),
        }
    }
}
