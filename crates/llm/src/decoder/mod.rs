//! A session that reads tokens: it knows which text its caches hold, takes more of it in chunks, and goes back. Where tokens stand
//! for the rows of an image, it reads those.
//!
//! Tokens and a text that the caches shall hold flow in; logits, or a token that the program drew, flow out. Strings
//! never come here.

mod ahead;
mod flat;
mod guessed;
mod images;
mod marks;
mod rewind;
mod together;

pub use rewind::Reuse;
pub use together::Reading;

use ahead::Ahead;

use crate::seeing::Shown;
use crate::signature::{Draw, Gives, Signature};
use crate::speculate::{NoSpeculation, Speculator};
use crate::{LanguageModel, LlmError, Result};
use marks::Marks;
use pteron_runtime::{RunControl, Session, SessionOptions, Value};
use pteron_tensor::{DType, HostTensor};
use std::ops::Range;

/// Tokens that a decoder makes room for when it is opened, at most.
const MOST_RESERVED: usize = 1 << 16;

/// A text in the caches of a session.
pub struct Decoder {
    model: LanguageModel,
    session: Session,
    context: Option<usize>,
    /// What the caches hold.
    tokens: Vec<u32>,
    /// The images that some of these and of those to come stand for, in order.
    images: Vec<Shown>,
    /// What the program was told that is added to positions; `None` where that may have changed.
    shift: Option<i64>,
    /// How long the program was told that this text is, when its reading began.
    told: usize,
    /// The most positions that were written since the caches were last known whole; rings have lost what lies a round
    /// before these.
    high: usize,
    marks: Marks,
    /// What was read many tokens at a time: the places of the calls, in order.
    calls: Vec<Range<usize>>,
    scores: Vec<f32>,
    /// Of the last call, whose memory the next one uses.
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// A call that has been handed over before the token that it reads was known here.
    ahead: Option<Ahead>,
    /// What guesses the tokens of its answers, and why nothing does where somebody wants it.
    speculator: Option<Box<Speculator>>,
    no_speculation: Option<NoSpeculation>,
    /// What the last call that read guesses gave, whose memory the next one uses.
    guessed: Vec<Value>,
}

/// How a decoder is opened.
#[derive(Clone, Debug, Default)]
pub struct DecoderOptions {
    /// Positions to have at most; `None` takes what the model has.
    pub context: Option<usize>,
    /// Where the random generator of programs that draw without a seed starts.
    pub seed: u64,
}

/// What follows a text.
#[derive(Debug)]
pub enum Next<'d> {
    /// How likely each token is; free to be changed.
    Scores(&'d mut Vec<f32>),
    /// The token that the program drew.
    Token(u32),
}

impl Decoder {
    /// A decoder with empty caches.
    pub fn new(model: &LanguageModel, options: &DecoderOptions) -> Result<Decoder> {
        let program = model.program();
        let free = model.context_is_free();
        if let (Some(asked), Some(has)) = (options.context, model.longest_context())
            && asked > has
        {
            return Err(match free {
                true => LlmError::LongContext { asked, longest: has },
                false => LlmError::Context { file: program.name().to_owned(), asked, has },
            });
        }
        let context = options.context.or(model.context());
        let cache = if free { options.context } else { None };
        let options = SessionOptions { cache: None, context: cache, seed: options.seed };
        Ok(Decoder {
            session: program.session_with(&options)?,
            model: model.clone(),
            context,
            tokens: Vec::with_capacity(context.unwrap_or(0).min(MOST_RESERVED)),
            images: Vec::new(),
            shift: Some(0),
            told: 0,
            high: 0,
            marks: Marks::default(),
            calls: Vec::new(),
            scores: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            ahead: None,
            speculator: None,
            no_speculation: None,
            guessed: Vec::new(),
        })
    }

    /// The model.
    pub fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// The text that the caches hold.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions there are.
    pub fn context(&self) -> Option<usize> {
        self.context
    }

    /// Positions that are still free.
    pub fn room(&self) -> usize {
        self.context.map_or(usize::MAX, |context| context.saturating_sub(self.tokens.len()))
    }

    /// Bytes that the session holds, copies for going back included.
    pub fn bytes(&self) -> u64 {
        let images: u64 = self.images.iter().map(|shown| shown.image.bytes()).sum();
        self.session.state_bytes() + self.marks.bytes() + images
    }

    /// Reads more of the text, in chunks; what follows. After an error the decoder holds what it had read until then.
    pub fn read(&mut self, tokens: &[u32], draw: &Draw, control: &RunControl) -> Result<Next<'_>> {
        self.drop_ahead()?;
        let model = self.model.clone();
        let signature = self.read_chunks(&model, tokens, draw, control)?;
        self.scores_of(signature)
    }

    /// Reads all of it, in chunks; how the last one was called.
    fn read_chunks<'m>(
        &mut self,
        model: &'m LanguageModel,
        tokens: &[u32],
        draw: &Draw,
        control: &RunControl,
    ) -> Result<&'m Signature> {
        self.check(tokens)?;
        self.tell_length(tokens.len())?;
        let mut last = Err(LlmError::EmptyPrompt);
        let mut rest = tokens;
        while !rest.is_empty() {
            let (count, image) = self.next_part(rest);
            let (part, later) = rest.split_at(count);
            let signature = if part.len() == 1 { model.decode() } else { model.prefill() };
            match image {
                Some(image) => self.read_rows(image, part, control)?,
                None => self.call(signature, part, draw, control)?,
            }
            (last, rest) = (Ok(signature), later);
        }
        last
    }

    /// What follows the last call.
    fn scores_of(&mut self, signature: &Signature) -> Result<Next<'_>> {
        let output = output_of(signature, &mut self.outputs)?;
        if signature.gives == Gives::Token {
            return drawn(signature, output).map(Next::Token);
        }
        let row = row_length(signature, output)?;
        let rows = output.len() / row;
        copy_row(signature, output, rows - 1, row, &mut self.scores)?;
        self.give_up_large_outputs();
        Ok(Next::Scores(&mut self.scores))
    }

    /// Reads more of the text and shows the scores after each of its tokens, with the token's number in `tokens`.
    /// Models that give the last scores only read token by token.
    pub fn read_all(
        &mut self,
        tokens: &[u32],
        control: &RunControl,
        mut visit: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.drop_ahead()?;
        let model = self.model.clone();
        if model.draws_itself() {
            return Err(LlmError::DrawsItself { what: "looking at probabilities" });
        }
        self.check(tokens)?;
        self.tell_length(tokens.len())?;
        let (signature, chunk) = match model.all_logits() {
            Some(signature) => (signature, model.chunk().min(signature.longest.unwrap_or(usize::MAX))),
            None => (model.decode(), 1),
        };
        let mut scores = std::mem::take(&mut self.scores);
        for (number, part) in tokens.chunks(chunk.max(1)).enumerate() {
            self.call(signature, part, &Draw::default(), control)?;
            let output = output_of(signature, &mut self.outputs)?;
            let row = row_length(signature, output)?;
            for at in 0..output.len() / row {
                copy_row(signature, output, at, row, &mut scores)?;
                visit(number * chunk + at, &scores)?;
            }
        }
        self.give_up_large_outputs();
        self.scores = scores;
        Ok(())
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        if let Some(context) = self.context.filter(|_| tokens.len() > self.room()) {
            return Err(LlmError::PromptTooLong { tokens: self.tokens.len() + tokens.len(), context });
        }
        let unknown =
            |vocab: usize| tokens.iter().find(|&&token| token as usize >= vocab).map(|&t| (t, vocab));
        match self.model.vocab().and_then(unknown) {
            Some((token, vocab)) => Err(LlmError::UnknownToken { token, vocab }),
            None => Ok(()),
        }
    }

    /// Tells the program how long a text is whose reading begins, since its first chunks cannot see where it ends. What is
    /// generated later counts for itself, as it does where a text is read in one call.
    fn tell_length(&mut self, length: usize) -> Result<()> {
        if !self.tokens.is_empty() {
            return Ok(());
        }
        let model = self.model.clone();
        for buffer in model.length_buffers() {
            let number = HostTensor::from_slice(vec![1], &[length as i64]);
            self.session.write(buffer, &number.map_err(pteron_runtime::Error::from)?)?;
        }
        self.told = length;
        Ok(())
    }

    fn call(
        &mut self,
        signature: &Signature,
        tokens: &[u32],
        draw: &Draw,
        control: &RunControl,
    ) -> Result<()> {
        self.tell_shift()?;
        signature.inputs(tokens, self.tokens.len(), draw, &mut self.inputs)?;
        self.session.run_into(&signature.method, &self.inputs, control, &mut self.outputs)?;
        self.note(tokens);
        Ok(())
    }

    /// Notes what a call has read.
    fn note(&mut self, tokens: &[u32]) {
        if tokens.len() > 1 {
            self.calls.push(self.tokens.len()..self.tokens.len() + tokens.len());
        }
        self.append(tokens);
    }

    /// Lets go of outputs that are larger than those of one token: memory that is not used again while it decodes.
    fn give_up_large_outputs(&mut self) {
        let bytes = |value: &Value| value.as_tensor().map_or(0, |tensor| tensor.bytes().len());
        let row = self.scores.len() * size_of::<f32>();
        if self.outputs.iter().map(bytes).sum::<usize>() > row {
            self.outputs.clear();
        }
    }

    /// Another decoder that goes on from here.
    pub fn fork(&self) -> Result<Decoder> {
        let mut fork = Decoder {
            model: self.model.clone(),
            session: self.session.fork()?,
            context: self.context,
            tokens: self.tokens.clone(),
            images: self.images.clone(),
            shift: self.shift,
            told: self.told,
            high: self.high,
            marks: self.marks.clone(),
            calls: self.calls.clone(),
            scores: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            ahead: None,
            speculator: self.speculator.as_ref().map(|own| own.fork().map(Box::new)).transpose()?,
            no_speculation: self.no_speculation,
            guessed: Vec::new(),
        };
        if self.ahead.is_some() {
            fork.take_back_one()?;
        }
        Ok(fork)
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("session", &self.session)
            .field("position", &self.tokens.len())
            .finish()
    }
}

/// The first tensor among the outputs, brought to the host.
fn output_of<'o>(signature: &Signature, outputs: &'o mut [Value]) -> Result<&'o HostTensor> {
    for output in outputs {
        if let Value::Device(tensor) = output {
            *output = Value::Tensor(tensor.to_host()?);
        }
        if let Value::Tensor(tensor) = output {
            return Ok(tensor);
        }
    }
    Err(LlmError::Output { method: signature.method.clone(), found: "no tensor".to_owned() })
}

/// Logits of one token; an error where a tensor has none.
fn row_length(signature: &Signature, output: &HostTensor) -> Result<usize> {
    match output.shape().last().copied() {
        Some(row) if row > 0 && !output.is_empty() => Ok(row),
        _ => Err(wrong(signature, output)),
    }
}

fn copy_row(
    signature: &Signature,
    output: &HostTensor,
    at: usize,
    row: usize,
    scores: &mut Vec<f32>,
) -> Result<()> {
    let range = at * row..(at + 1) * row;
    let failed = |error| LlmError::Run(pteron_runtime::Error::Tensor(error));
    scores.clear();
    match output.dtype() {
        DType::F32 => scores.extend_from_slice(&output.as_slice::<f32>().map_err(failed)?[range]),
        DType::BF16 => {
            let row = &output.as_slice::<half::bf16>().map_err(failed)?[range];
            // Their bits are the upper half of a float's: what is no number stays none, and no score needs a branch.
            scores.extend(row.iter().map(|score| f32::from_bits(u32::from(score.to_bits()) << 16)));
        }
        DType::F16 => {
            let row = &output.as_slice::<half::f16>().map_err(failed)?[range];
            scores.extend(row.iter().map(|score| score.to_f32()));
        }
        _ => return Err(wrong(signature, output)),
    }
    Ok(())
}

fn drawn(signature: &Signature, output: &HostTensor) -> Result<u32> {
    let last = match (output.as_slice::<i64>(), output.as_slice::<i32>()) {
        (Ok(tokens), _) => tokens.last().copied(),
        (_, Ok(tokens)) => tokens.last().map(|&token| token.into()),
        _ => None,
    };
    last.and_then(|token| u32::try_from(token).ok()).ok_or_else(|| wrong(signature, output))
}

fn wrong(signature: &Signature, output: &HostTensor) -> LlmError {
    let found = format!("{} {:?}", output.dtype(), output.shape());
    LlmError::Output { method: signature.method.clone(), found }
}
