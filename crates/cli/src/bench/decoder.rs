//! A language-model program as a benchmark drives it: tokens in, greedy tokens out, chunks and bounds by the program's
//! own metadata, whatever vocabulary they are in.

use crate::failure::Failure;
use pteron_runtime::{ArgumentKind, MethodInfo, Program, RunControl, Session, Value};
use pteron_tensor::{DType, HostTensor};

/// What a program says about being driven.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    method: String,
    /// Tokens of the largest input.
    pub(crate) chunk: usize,
    /// Positions there are; `None` where the program does not say.
    pub(crate) context: Option<usize>,
    vocab: Option<usize>,
    position: Position,
}

/// What the second input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The position of the first token.
    Start,
    /// The position of every token.
    Each,
}

impl Manner {
    pub(crate) fn of(program: &Program) -> Result<Manner, Failure> {
        let method = program.method("forward").map_err(|_| {
            let name = program.name();
            Failure::usage(format!(
                "{name} has no method `forward`, so that it is no language model of the usual kind"
            ))
        })?;
        let (tokens, positions) = arguments(method).ok_or_else(|| {
            let inputs: Vec<String> = method.inputs.iter().map(|input| describe(&input.kind)).collect();
            Failure::usage(format!("`forward` takes {}, not tokens [1, T] and a position", inputs.join(", ")))
                .hint("a program is measured if it takes token ids and their position, both i64")
        })?;
        let number = |name: &str| {
            let value = program.metadata_value(name).and_then(Value::as_int)?;
            usize::try_from(value).ok().filter(|&value| value > 0)
        };
        let bounds = ["get_prefill_chunk_size", "get_max_prefill_chunk", "get_max_seq_len"];
        let useful = program.backend().1.useful_input_length;
        let chunk = bounds.iter().filter_map(|name| number(name)).chain(tokens).chain(useful).min();
        let contexts = ["get_max_context_len", "get_max_ctx_len", "get_max_seq_len"];
        Ok(Manner {
            method: method.name.clone(),
            chunk: chunk.unwrap_or(1).max(1),
            context: contexts.iter().find_map(|name| number(name)),
            vocab: number("get_vocab_size"),
            position: positions,
        })
    }

    /// Whether a session can go back to an earlier position by naming it.
    pub(crate) fn can_rewind(&self) -> bool {
        self.position == Position::Start
    }

    /// Token ids that every vocabulary has, never twice the same in a row.
    pub(crate) fn text(&self, tokens: usize) -> Vec<i64> {
        let ids = self.vocab.map_or(32, |vocab| vocab.min(20_000)) as i64;
        (0..tokens as i64).map(|at| (at * 7919 + 13) % ids).collect()
    }
}

/// `i64 [1, 256]`, with the largest sizes.
fn describe(kind: &ArgumentKind) -> String {
    match kind {
        ArgumentKind::Tensor { dtype, dims } => {
            let sizes = dims.iter().map(|dim| dim.max.map_or_else(|| "?".to_owned(), |max| max.to_string()));
            format!("{dtype} [{}]", sizes.collect::<Vec<_>>().join(", "))
        }
        ArgumentKind::Int => "an integer".to_owned(),
        ArgumentKind::Fixed(value) => value.clone(),
    }
}

/// The bound of the token input, and what the position input is; `None` for a method of another kind.
fn arguments(method: &MethodInfo) -> Option<(Option<usize>, Position)> {
    let [tokens, position] = method.inputs.as_slice() else { return None };
    let dims = |kind: &ArgumentKind| match kind {
        ArgumentKind::Tensor { dtype: DType::I64, dims } => Some(dims.clone()),
        _ => None,
    };
    let (tokens, position) = (dims(&tokens.kind)?, dims(&position.kind)?);
    let ([_, length], [places]) = (tokens.as_slice(), position.as_slice()) else { return None };
    let kind = if places.max == Some(1) { Position::Start } else { Position::Each };
    Some((length.max, kind))
}

/// A session with the position that it is at.
pub(crate) struct Decoder<'p> {
    manner: &'p Manner,
    session: Session,
    pub(crate) position: usize,
}

impl<'p> Decoder<'p> {
    pub(crate) fn new(program: &Program, manner: &'p Manner) -> Result<Decoder<'p>, Failure> {
        Ok(Decoder { manner, session: program.session()?, position: 0 })
    }

    /// Gives a text in the largest chunks there are; the next token.
    pub(crate) fn prefill(&mut self, text: &[i64], control: &RunControl) -> Result<i64, Failure> {
        let mut next = 0;
        for part in text.chunks(self.manner.chunk) {
            next = self.step(part, control)?;
        }
        Ok(next)
    }

    /// Gives tokens at the position; the token after them.
    pub(crate) fn step(&mut self, tokens: &[i64], control: &RunControl) -> Result<i64, Failure> {
        let places: Vec<i64> = match self.manner.position {
            Position::Start => vec![self.position as i64],
            Position::Each => (self.position..self.position + tokens.len()).map(|at| at as i64).collect(),
        };
        let inputs: [Value; 2] = [
            HostTensor::from_slice(vec![1, tokens.len()], tokens).map_err(Failure::new)?.into(),
            HostTensor::from_slice(vec![places.len()], &places).map_err(Failure::new)?.into(),
        ];
        let outputs = self.session.run_with(&self.manner.method, &inputs, control)?;
        self.position += tokens.len();
        let output = outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let output = output.ok_or_else(|| Failure::new("`forward` gives no tensor"))?;
        greedy(&output)
    }

    /// Goes back to a position whose past is still in the caches, or was: for timing either will do.
    pub(crate) fn rewind(&mut self, position: usize) {
        self.position = position;
    }
}

/// The most likely token of the last row; a program that samples gives the token itself.
fn greedy(output: &HostTensor) -> Result<i64, Failure> {
    let wrong = |error| Failure::new(format!("`forward` gives {error}"));
    if output.dtype() == DType::I64 {
        return output
            .as_slice::<i64>()
            .map_err(wrong)?
            .last()
            .copied()
            .ok_or_else(|| Failure::new("no token"));
    }
    let row = output.shape().last().copied().unwrap_or(0);
    let start = output.len().saturating_sub(row);
    Ok(match output.dtype() {
        DType::F32 => largest(&output.as_slice::<f32>().map_err(wrong)?[start..], |x| *x),
        DType::BF16 => largest(&output.as_slice::<half::bf16>().map_err(wrong)?[start..], |x| x.to_f32()),
        DType::F16 => largest(&output.as_slice::<half::f16>().map_err(wrong)?[start..], |x| x.to_f32()),
        other => return Err(Failure::new(format!("`forward` gives {other}, neither logits nor a token"))),
    })
}

fn largest<T>(row: &[T], value: impl Fn(&T) -> f32) -> i64 {
    let mut best = (0, f32::NEG_INFINITY);
    for (at, element) in row.iter().enumerate() {
        let element = value(element);
        if element > best.1 {
            best = (at as i64, element);
        }
    }
    best.0
}
