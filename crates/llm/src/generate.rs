//! An answer, token by token: the prompt is read in chunks, a token is chosen, its text is shown, until something ends
//! it: an end token, a stop string, the budget, the user.
//!
//! A [`Decoder`] and the tokens of a prompt flow in, an [`Answer`] flows out, its text already shown piece by piece.

use crate::constrain::Constraint;
use crate::sampler::{Sampler, SamplerSettings};
use crate::signature::Draw;
use crate::stats::{Clock, Stats};
use crate::stop::StopStrings;
use crate::stream::TextStream;
use crate::tokenizer::Tokenizer;
use crate::{Decoder, LanguageModel, LlmError, Next, Result};
use pteron_runtime::RunControl;
use serde::Serialize;
use std::ops::ControlFlow;

/// What an answer shall be like.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Tokens at most; `None` goes on to the end of the context.
    pub max_new: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplerSettings,
    /// Where the random generator starts.
    pub seed: u64,
    /// Strings that end the answer and are no part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer and are no part of it.
    pub end_tokens: Vec<u32>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model ended it, or a stop string came, or a grammar allows no more.
    Stop,
    /// The budget was spent or the context was full.
    Length,
    /// It was interrupted.
    Cancelled,
}

/// What a model said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its tokens, without the one that ended it.
    pub tokens: Vec<u32>,
    /// Its text, without the string that ended it.
    pub text: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What it took.
    pub stats: Stats,
}

/// How the next token is found: from scores, or by the program itself.
enum Chooser {
    Scores(Box<Sampler>),
    Program,
}

impl Chooser {
    /// Whether it takes the likeliest token, whatever came before.
    fn takes_likeliest(&self) -> bool {
        matches!(self, Chooser::Scores(sampler) if sampler.settings().takes_likeliest())
    }

    fn new(
        model: &LanguageModel,
        options: &GenerateOptions,
        prompt: usize,
        constrained: bool,
    ) -> Result<(Chooser, Draw)> {
        let sampling = &options.sampling;
        // Also where the program draws: the settings are checked.
        let sampler = Sampler::new(sampling.clone(), options.seed)?.after_prompt(prompt);
        if !model.draws_itself() {
            return Ok((Chooser::Scores(Box::new(sampler)), Draw::default()));
        }
        let penalties = sampling.frequency_penalty != 0.0
            || sampling.presence_penalty != 0.0
            || sampling.repetition_penalty != 1.0;
        let refused = [(constrained, "a grammar"), (penalties, "penalties"), (sampling.min_p > 0.0, "min-p")];
        if let Some((_, what)) = refused.into_iter().find(|(asked, _)| *asked) {
            return Err(LlmError::DrawsItself { what });
        }
        let draw = Draw {
            temperature: sampling.temperature as f32,
            top_k: Some(sampling.top_k).filter(|&k| k > 0),
            top_p: sampling.top_p as f32,
            seed: options.seed,
        };
        Ok((Chooser::Program, draw))
    }
}

/// Answers a prompt: all of its tokens, of which those that the decoder holds already are not read again. `show` gets
/// every piece of text as soon as it will not change any more, and may end the answer.
pub fn generate(
    decoder: &mut Decoder,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    options: &GenerateOptions,
    mut constraint: Option<&mut Constraint>,
    show: &mut dyn FnMut(&str) -> ControlFlow<()>,
    control: &RunControl,
) -> Result<Answer> {
    let clock = Clock::default();
    let mut run = Stats { start: clock.now(), prompt_tokens: prompt.len(), ..Stats::default() };
    let (mut chooser, draw) = Chooser::new(decoder.model(), options, prompt.len(), constraint.is_some())?;
    let greedy = constraint.is_none() && chooser.takes_likeliest();
    let room = match decoder.context() {
        Some(context) if prompt.len() >= context => {
            return Err(LlmError::PromptTooLong { tokens: prompt.len(), context });
        }
        Some(context) => context - prompt.len(),
        None => usize::MAX,
    };
    let budget = options.max_new.map_or(room, |most| most.min(room));
    let reuse = decoder.begin_at_call(prompt)?;
    (run.reused_tokens, run.restored) = (reuse.kept, reuse.restored);
    decoder.mark()?;

    let mut text = Text::new(tokenizer, &options.stop);
    let (mut history, mut answer) = (prompt.to_vec(), Vec::new());
    let mut unread: &[u32] = &prompt[reuse.kept..];
    let mut last;
    let finish_reason = loop {
        run.call_start = clock.now();
        let next = if greedy {
            decoder.read_greedily(unread, answer.len() + 1 < budget, control)
        } else {
            decoder.read(unread, &draw, control)
        };
        let next = match next {
            Err(LlmError::Run(pteron_runtime::Error::Cancelled | pteron_runtime::Error::Deadline)) => {
                break FinishReason::Cancelled;
            }
            next => next?,
        };
        run.call_end = clock.now();
        run.calls += run.call_end - run.call_start;
        if run.prompt_end == 0.0 {
            run.prompt_end = run.call_end;
        }
        if answer.len() >= budget {
            break FinishReason::Length;
        }
        let token = choose(&mut chooser, next, &history, constraint.as_deref_mut())?;
        let chosen = clock.now();
        run.sampling += chosen - run.call_end;
        if run.first_token == 0.0 {
            run.first_token = chosen;
        }
        if options.end_tokens.contains(&token) {
            break FinishReason::Stop;
        }
        answer.push(token);
        history.push(token);
        if text.push(token, show) {
            break FinishReason::Stop;
        }
        if text.closed {
            break FinishReason::Cancelled;
        }
        if let Some(constraint) = constraint.as_deref_mut() {
            constraint.accept(token)?;
            if constraint.is_done() {
                break FinishReason::Stop;
            }
        }
        if answer.len() >= budget {
            break FinishReason::Length;
        }
        last = [token];
        unread = &last;
    };
    run.generated_tokens = answer.len();
    // An interrupt may have come while the prompt was read.
    run.unread_tokens = prompt.len().saturating_sub(decoder.tokens().len());
    let text = text.finish(show);
    run.end = clock.now();
    if run.prompt_end == 0.0 {
        run.prompt_end = run.end;
    }
    Ok(Answer { tokens: answer, text, finish_reason, stats: run })
}

fn choose(
    chooser: &mut Chooser,
    next: Next<'_>,
    history: &[u32],
    constraint: Option<&mut Constraint>,
) -> Result<u32> {
    match (next, chooser) {
        (Next::Token(token), _) => Ok(token),
        (Next::Scores(scores), Chooser::Scores(sampler)) => {
            if let Some(constraint) = constraint {
                constraint.mask(scores)?;
            }
            Ok(sampler.sample(scores, history)?)
        }
        // The model's kind and the chooser's come from the same question.
        (Next::Scores(_), Chooser::Program) => Err(LlmError::DrawsItself { what: "logits" }),
    }
}

/// The text of an answer as it grows: shown as far as it will not change.
struct Text<'t> {
    tokenizer: Option<&'t Tokenizer>,
    characters: Option<TextStream>,
    stops: StopStrings,
    shown: String,
    /// A stop string has come: what follows is no part of the answer.
    stopped: bool,
    /// Nobody listens any more.
    closed: bool,
}

impl<'t> Text<'t> {
    fn new(tokenizer: Option<&'t Tokenizer>, stops: &[String]) -> Text<'t> {
        Text {
            tokenizer,
            characters: tokenizer.map(Tokenizer::stream),
            stops: StopStrings::new(stops),
            shown: String::new(),
            stopped: false,
            closed: false,
        }
    }

    /// Takes a token; whether a stop string has come with it.
    fn push(&mut self, token: u32, show: &mut dyn FnMut(&str) -> ControlFlow<()>) -> bool {
        // Turn marks and the like are structure, not text.
        if self.tokenizer.is_none_or(|tokenizer| tokenizer.is_special(token)) {
            return false;
        }
        let text = self.characters.as_mut().map(|characters| characters.push(token)).unwrap_or_default();
        let (more, stopped) = self.stops.push(&text);
        self.stopped = stopped;
        self.show(&more, show);
        stopped
    }

    fn show(&mut self, text: &str, show: &mut dyn FnMut(&str) -> ControlFlow<()>) {
        if text.is_empty() {
            return;
        }
        self.shown += text;
        self.closed |= show(text).is_break();
    }

    /// What was held back comes out; the whole text.
    fn finish(mut self, show: &mut dyn FnMut(&str) -> ControlFlow<()>) -> String {
        if !self.stopped {
            let rest = self.characters.take().map(TextStream::finish).unwrap_or_default();
            let (mut more, stopped) = self.stops.push(&rest);
            if !stopped {
                more += &std::mem::take(&mut self.stops).finish();
            }
            self.show(&more, show);
        }
        self.shown
    }
}
