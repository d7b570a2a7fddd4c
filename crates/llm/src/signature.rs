//! How one method of a language model is called: tokens and their positions in, logits or a token out. Read off the
//! types that the file declares, since names differ from exporter to exporter.

use crate::Result;
use pteron_runtime::{ArgumentKind, Bound, MethodInfo, Value};
use pteron_tensor::{DType, HostTensor};

/// The call of one method.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The method's name.
    pub method: String,
    /// Tokens of the largest input that the file declares; `None` where it sets no bound.
    pub longest: Option<usize>,
    /// What it gives.
    pub gives: Gives,
    /// Tokens that logits are over, where the file says it.
    pub vocab: Option<usize>,
    tokens: DType,
    position: Position,
    /// The dtypes of top-k and seed, where it draws tokens itself.
    draws: Option<(DType, DType)>,
    /// The dtype of row numbers, where it is told of which tokens it shall give logits.
    selects: Option<DType>,
}

/// What a call gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Logits of the last token given.
    LastLogits,
    /// Logits of every token given.
    AllLogits,
    /// A token, drawn by the program itself.
    Token,
}

/// What the position input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The first token's, as a tensor of that rank.
    Start(DType, usize),
    /// The first token's, as a number.
    StartNumber,
    /// Every token's, as a tensor of that rank.
    Each(DType, usize),
}

/// How a program that draws tokens itself shall do it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Of how many of the most likely tokens; `None` for all.
    pub top_k: Option<usize>,
    /// Of how much of the probability; 1 for all.
    pub top_p: f32,
    /// Where the random generator starts; the position is added, so that every step has its own.
    pub seed: u64,
}

impl Default for Draw {
    fn default() -> Draw {
        Draw { temperature: 0.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

impl Signature {
    /// The method's call, or why it is not a language model's.
    pub(crate) fn of(method: &MethodInfo) -> Result<Signature, String> {
        let inputs = || {
            let all: Vec<String> = method.inputs.iter().map(|input| describe(&input.kind)).collect();
            if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
        };
        let other = || {
            format!("`{}` takes {}, not tokens [1, T] and a position, both integers", method.name, inputs())
        };
        let [tokens, position, rest @ ..] = method.inputs.as_slice() else { return Err(other()) };
        let (token_dtype, longest) = token_input(&tokens.kind).ok_or_else(other)?;
        let position = position_input(&position.kind).ok_or_else(other)?;
        let selects = match rest {
            [rows] => row_numbers(&rows.kind),
            _ => None,
        };
        let draws = match rest {
            [] => None,
            [_] if selects.is_some() => None,
            [temperature, top_k, top_p, seed] => {
                let scalars = [temperature, top_k, top_p, seed].map(|input| scalar(&input.kind));
                let [Some(DType::F32), Some(top_k), Some(DType::F32), Some(seed)] = scalars else {
                    return Err(format!(
                        "`{}` takes further inputs that are not temperature, top-k, top-p and seed",
                        method.name
                    ));
                };
                Some((top_k, seed))
            }
            more => return Err(format!("`{}` takes {} further inputs", method.name, more.len())),
        };
        let (gives, vocab) = output(method)?;
        let gives = match (gives, selects) {
            // The last token's, unless somebody wants more.
            (Gives::AllLogits | Gives::LastLogits, Some(_)) => Gives::LastLogits,
            (gives, _) => gives,
        };
        if (gives == Gives::Token) != draws.is_some() {
            return Err(format!(
                "`{}` draws tokens and is not told how, or the other way round",
                method.name
            ));
        }
        Ok(Signature {
            method: method.name.clone(),
            longest,
            gives,
            vocab,
            tokens: token_dtype,
            position,
            draws,
            selects,
        })
    }

    /// The same call for the logits of every token, where it can be asked for them.
    pub(crate) fn for_all_logits(&self) -> Option<Signature> {
        match (self.gives, self.selects) {
            (Gives::AllLogits, _) | (Gives::LastLogits, Some(_)) => {
                Some(Signature { gives: Gives::AllLogits, ..self.clone() })
            }
            _ => None,
        }
    }

    /// Whether tokens of several texts can be told apart, and each one's logits be had.
    pub(crate) fn takes_several_texts(&self) -> bool {
        let gives_rows = self.gives == Gives::AllLogits || self.selects.is_some();
        matches!(self.position, Position::Each(..)) && gives_rows && self.draws.is_none()
    }

    /// The dtype of tokens.
    pub(crate) fn token_dtype(&self) -> DType {
        self.tokens
    }

    /// What a call with these tokens takes. `inputs` are those of an earlier call, whose memory is used again.
    pub(crate) fn inputs(
        &self,
        tokens: &[u32],
        start: usize,
        draw: &Draw,
        inputs: &mut Vec<Value>,
    ) -> Result<()> {
        inputs.resize(self.input_count(), Value::None);
        let [ids, position, further @ ..] = inputs.as_mut_slice() else { return Ok(()) };
        integers(ids, self.tokens, &[1, tokens.len()], tokens.iter().map(|&token| token.into()))?;
        match self.position {
            Position::StartNumber => *position = Value::Int(start as i64),
            Position::Start(dtype, rank) => {
                integers(position, dtype, &[1; 2][..rank], std::iter::once(start as i64))?;
            }
            Position::Each(dtype, rank) => {
                let each = (start..start + tokens.len()).map(|at| at as i64);
                integers(position, dtype, &[1, tokens.len()][2 - rank..], each)?;
            }
        }
        if let (Some((top_k_dtype, seed_dtype)), [temperature, top_k, top_p, seed]) =
            (self.draws, &mut *further)
        {
            let most = draw.top_k.and_then(|k| i64::try_from(k).ok()).unwrap_or(i64::MAX);
            let last = (start + tokens.len()).saturating_sub(1) as u64;
            // The generator takes what the sign bit leaves.
            let number = (draw.seed.wrapping_add(last) & i64::MAX as u64) as i64;
            *temperature = fraction(draw.temperature)?;
            integers(top_k, top_k_dtype, &[], std::iter::once(most))?;
            *top_p = fraction(draw.top_p)?;
            integers(seed, seed_dtype, &[], std::iter::once(number))?;
        }
        if let (Some(dtype), [rows]) = (self.selects, further) {
            let first = if self.gives == Gives::AllLogits { 0 } else { tokens.len().saturating_sub(1) };
            integers(rows, dtype, &[tokens.len() - first], (first..tokens.len()).map(|row| row as i64))?;
        }
        Ok(())
    }

    /// What a call with tokens of several texts takes: of each, its tokens and where they begin; and of which rows of all of
    /// them logits are wanted, at least one. Says where the logits of each of those are among what the call gives.
    pub(crate) fn flat_inputs(
        &self,
        texts: &[(&[u32], usize)],
        wanted: &[usize],
        inputs: &mut Vec<Value>,
    ) -> Result<Vec<usize>> {
        inputs.resize(self.input_count(), Value::None);
        let [ids, position, further @ ..] = inputs.as_mut_slice() else { return Ok(Vec::new()) };
        let count: usize = texts.iter().map(|(tokens, _)| tokens.len()).sum();
        let tokens = texts.iter().flat_map(|(tokens, _)| tokens.iter().map(|&token| token.into()));
        integers(ids, self.tokens, &[1, count], tokens)?;
        if let Position::Each(dtype, rank) = self.position {
            let each = texts.iter().flat_map(|&(tokens, start)| start..start + tokens.len());
            integers(position, dtype, &[1, count][2 - rank..], each.map(|at| at as i64))?;
        }
        match (self.selects, further) {
            (Some(dtype), [rows]) => {
                integers(rows, dtype, &[wanted.len()], wanted.iter().map(|&row| row as i64))?;
                Ok((0..wanted.len()).collect())
            }
            _ => Ok(wanted.to_vec()),
        }
    }

    fn input_count(&self) -> usize {
        match (self.draws, self.selects) {
            (Some(_), _) => 6,
            (None, Some(_)) => 3,
            (None, None) => 2,
        }
    }
}

/// The dtype of a list of rows whose logits are wanted.
fn row_numbers(kind: &ArgumentKind) -> Option<DType> {
    match kind {
        ArgumentKind::Tensor { dtype: dtype @ (DType::I64 | DType::I32), dims } => match dims.as_slice() {
            [rows] if rows.max != Some(rows.min) || rows.max == Some(1) => Some(*dtype),
            _ => None,
        },
        _ => None,
    }
}

/// Dtype of tokens `[1, T]`, and the bound of T. Of a text that grows, one token must be a possible input; least sizes
/// are overstated by exporters, but a size that is fixed is fixed.
fn token_input(kind: &ArgumentKind) -> Option<(DType, Option<usize>)> {
    let ArgumentKind::Tensor { dtype: dtype @ (DType::I64 | DType::I32), dims } = kind else { return None };
    let [batch, length] = dims.as_slice() else { return None };
    let takes_one = |dim: &Bound| dim.max.is_none_or(|max| max == 1 || dim.min < max);
    (takes_one(batch) && takes_one(length)).then_some((*dtype, length.max))
}

fn position_input(kind: &ArgumentKind) -> Option<Position> {
    match kind {
        ArgumentKind::Int => Some(Position::StartNumber),
        ArgumentKind::Tensor { dtype: dtype @ (DType::I64 | DType::I32), dims } => match dims.as_slice() {
            [] => Some(Position::Start(*dtype, 0)),
            [.., last] if dims.len() <= 2 => Some(match last.max {
                Some(1) => Position::Start(*dtype, dims.len()),
                _ => Position::Each(*dtype, dims.len()),
            }),
            _ => None,
        },
        _ => None,
    }
}

fn scalar(kind: &ArgumentKind) -> Option<DType> {
    match kind {
        ArgumentKind::Tensor { dtype: dtype @ (DType::F32 | DType::I64 | DType::I32), dims }
            if dims.is_empty() =>
        {
            Some(*dtype)
        }
        _ => None,
    }
}

fn output(method: &MethodInfo) -> Result<(Gives, Option<usize>), String> {
    let tensor = method.outputs.iter().find_map(|output| match &output.kind {
        ArgumentKind::Tensor { dtype, dims } => Some((*dtype, dims.as_slice())),
        _ => None,
    });
    let Some((dtype, dims)) = tensor else { return Err(format!("`{}` gives no tensor", method.name)) };
    if matches!(dtype, DType::I64 | DType::I32) {
        return Ok((Gives::Token, None));
    }
    let gives = match dims {
        [_] => Gives::LastLogits,
        [rows, _] if rows.max == Some(1) => Gives::LastLogits,
        [_, _] | [_, _, _] => Gives::AllLogits,
        _ => return Err(format!("`{}` gives a tensor of {} dims", method.name, dims.len())),
    };
    match dtype {
        DType::F32 | DType::BF16 | DType::F16 => Ok((gives, dims.last().and_then(|dim| dim.max))),
        other => Err(format!("`{}` gives {other}, neither logits nor a token", method.name)),
    }
}

/// Puts a tensor of integers into a place, in the memory that the one there has where that fits.
fn integers(
    place: &mut Value,
    dtype: DType,
    shape: &[usize],
    numbers: impl Iterator<Item = i64>,
) -> Result<()> {
    let failed = pteron_runtime::Error::from;
    let fits = match place {
        Value::Tensor(tensor) => tensor.reuse(dtype, shape).is_some(),
        _ => false,
    };
    if !fits {
        *place = Value::Tensor(HostTensor::zeros(dtype, shape.to_vec()).map_err(failed)?);
    }
    let Value::Tensor(tensor) = place else { return Ok(()) };
    if dtype == DType::I32 {
        let narrow = tensor.as_mut_slice::<i32>().map_err(failed)?.iter_mut();
        narrow
            .zip(numbers)
            .for_each(|(to, number)| *to = number.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
    } else {
        let wide = tensor.as_mut_slice::<i64>().map_err(failed)?.iter_mut();
        wide.zip(numbers).for_each(|(to, number)| *to = number);
    }
    Ok(())
}

fn fraction(value: f32) -> Result<Value> {
    Ok(HostTensor::from_slice(vec![], &[value]).map_err(pteron_runtime::Error::from)?.into())
}

/// `i64 [1, 1..=256]`.
fn describe(kind: &ArgumentKind) -> String {
    let size = |dim: &Bound| match dim.max {
        Some(max) if max == dim.min => max.to_string(),
        Some(max) => format!("{}..={max}", dim.min),
        None => "?".to_owned(),
    };
    match kind {
        ArgumentKind::Tensor { dtype, dims } => {
            format!("{dtype} [{}]", dims.iter().map(size).collect::<Vec<_>>().join(", "))
        }
        ArgumentKind::Int => "an integer".to_owned(),
        ArgumentKind::Fixed(value) => value.clone(),
    }
}
