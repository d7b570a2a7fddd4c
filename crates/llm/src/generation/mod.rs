//! An answer as a state machine: what follows the text so far goes in, the token that is to be read next, or the end,
//! comes out. Between the two lie log probabilities, biases, grammars, penalties, the draw itself, and the text that may be
//! shown.
//!
//! It has no loop and no session: rounds of [`generate`](crate::generate()), with one session, and of the
//! [`Scheduler`](crate::Scheduler), with many, drive it.

mod choose;
mod likelihood;
mod text;

pub use likelihood::Likelihood;

use crate::constrain::Constraint;
use crate::generate::{Answer, FinishReason, GenerateOptions};
use crate::sampler::Sampler;
use crate::signature::Draw;
use crate::stats::{Clock, Stats};
use crate::tokenizer::Tokenizer;
use crate::{LanguageModel, LlmError, Next, Result};
use choose::Chooser;
use text::Text;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This token is part of the answer; what follows it is wanted.
    Read(u32),
    /// The answer has ended.
    End(FinishReason),
}

/// An answer that is being written.
#[derive(Debug)]
pub struct Generation<'c> {
    chooser: Chooser,
    draw: Draw,
    /// What is added to the scores of some tokens.
    bias: Vec<(u32, f32)>,
    /// How many of the likeliest tokens are told beside the chosen one; `None` where nobody asks.
    likeliest: Option<usize>,
    constraint: Option<Bound<'c>>,
    end_tokens: Vec<u32>,
    text: Text,
    /// The prompt, then the answer.
    history: Vec<u32>,
    prompt: usize,
    budget: usize,
    clock: Clock,
    stats: Stats,
    /// What may be shown since the last token, and how likely that was.
    piece: String,
    likelihood: Option<Likelihood>,
    /// Whether what was taken last made the answer longer.
    grew: bool,
}

/// A constraint of its own, or one that is lent.
#[derive(Debug)]
enum Bound<'c> {
    Own(Box<Constraint>),
    Lent(&'c mut Constraint),
}

impl Bound<'_> {
    fn get(&mut self) -> &mut Constraint {
        match self {
            Bound::Own(constraint) => constraint,
            Bound::Lent(constraint) => constraint,
        }
    }
}

impl<'c> Generation<'c> {
    /// The answer to a prompt, before its first token. `context` is how many positions prompt and answer have together.
    ///
    /// # Errors
    /// When the prompt is empty or leaves no room, or the model cannot choose tokens as the options want it.
    pub fn new(
        model: &LanguageModel,
        tokenizer: Option<&Tokenizer>,
        prompt: &[u32],
        context: Option<usize>,
        options: &GenerateOptions,
    ) -> Result<Generation<'c>> {
        let clock = Clock::default();
        let stats = Stats { start: clock.now(), prompt_tokens: prompt.len(), ..Stats::default() };
        let (chooser, draw) = Chooser::new(model, options, prompt.len())?;
        let room = match context {
            Some(context) if prompt.len() >= context => {
                return Err(LlmError::PromptTooLong { tokens: prompt.len(), context });
            }
            Some(context) => context - prompt.len(),
            None => usize::MAX,
        };
        if prompt.is_empty() {
            return Err(LlmError::EmptyPrompt);
        }
        Ok(Generation {
            chooser,
            draw,
            bias: Vec::new(),
            likeliest: None,
            constraint: None,
            end_tokens: options.end_tokens.clone(),
            text: Text::new(tokenizer, &options.stop),
            history: prompt.to_vec(),
            prompt: prompt.len(),
            budget: options.max_new.map_or(room, |most| most.min(room)),
            clock,
            stats,
            piece: String::new(),
            likelihood: None,
            grew: false,
        })
    }

    /// The same under a grammar or a schema.
    ///
    /// # Errors
    /// When the program draws its tokens itself.
    pub fn constrained(self, constraint: Constraint) -> Result<Generation<'c>> {
        self.bound(Bound::Own(Box::new(constraint)))
    }

    /// The same under a grammar or a schema of which the caller will see how far it came.
    ///
    /// # Errors
    /// As [`Generation::constrained`].
    pub fn constrained_by(self, constraint: &'c mut Constraint) -> Result<Generation<'c>> {
        self.bound(Bound::Lent(constraint))
    }

    fn bound(self, bound: Bound<'c>) -> Result<Generation<'c>> {
        self.needs_scores("a grammar")?;
        Ok(Generation { constraint: Some(bound), ..self })
    }

    /// The same with something added to the scores of some tokens before one is chosen.
    ///
    /// # Errors
    /// When the program draws its tokens itself.
    pub fn biased(self, bias: Vec<(u32, f32)>) -> Result<Generation<'c>> {
        if !bias.is_empty() {
            self.needs_scores("biases")?;
        }
        Ok(Generation { bias, ..self })
    }

    /// The same, with the log probability of each token told, and those of so many of the likeliest.
    ///
    /// # Errors
    /// When the program draws its tokens itself.
    pub fn told_likelihoods(self, likeliest: Option<usize>) -> Result<Generation<'c>> {
        if likeliest.is_some() {
            self.needs_scores("log probabilities")?;
        }
        Ok(Generation { likeliest, ..self })
    }

    /// The same with some special tokens shown as the vocabulary spells them: they mean something to the reader.
    pub fn spelling(mut self, marks: &[u32]) -> Generation<'c> {
        self.text.marks = marks.to_vec();
        self
    }

    fn needs_scores(&self, what: &'static str) -> Result<()> {
        match self.chooser {
            Chooser::Program => Err(LlmError::DrawsItself { what }),
            Chooser::Scores(_) => Ok(()),
        }
    }

    /// How a program that draws tokens itself shall do it.
    pub fn draw(&self) -> &Draw {
        &self.draw
    }

    /// Whether it takes the likeliest token whatever follows, and looks at nothing else.
    pub fn takes_likeliest(&self) -> bool {
        let plain = self.constraint.is_none() && self.bias.is_empty() && self.likeliest.is_none();
        plain && self.chooser.takes_likeliest()
    }

    /// Whether a token that comes now would be read too, unless it ends the answer.
    pub fn goes_on(&self) -> bool {
        self.answer().len() + 1 < self.budget
    }

    /// Tokens that it may have at most.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// The prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.history[..self.prompt]
    }

    /// Its tokens so far.
    pub fn answer(&self) -> &[u32] {
        &self.history[self.prompt..]
    }

    /// The prompt, then its tokens so far.
    pub fn history(&self) -> &[u32] {
        &self.history
    }

    /// Whether a token would end it.
    pub(crate) fn ends_with(&self, token: u32) -> bool {
        self.end_tokens.contains(&token)
    }

    /// What chooses its tokens, where the program does not.
    pub(crate) fn sampler(&self) -> Option<&Sampler> {
        self.chooser.sampler()
    }

    /// Adds the biases to scores.
    pub(crate) fn add_bias(&self, scores: &mut [f32]) {
        add_bias(&self.bias, scores);
    }

    /// What it takes; whoever drives it notes here what was in the caches and what was not read.
    pub fn stats(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// A call of the model begins whose result will be taken, or which reads a part of the prompt.
    pub fn call_begins(&mut self) {
        self.stats.call_start = self.clock.now();
    }

    /// That call has ended. [`Generation::take`] notes it itself.
    pub fn call_ends(&mut self) {
        self.stats.call_end = self.clock.now();
        self.stats.calls += self.stats.call_end - self.stats.call_start;
    }

    /// Takes what follows the prompt, or the last token. What may be shown then is [`Generation::piece`].
    ///
    /// # Errors
    /// When no token can be chosen. The answer so far can still be had.
    pub fn take(&mut self, next: Next<'_>) -> Result<Step> {
        self.call_ends();
        self.piece.clear();
        (self.likelihood, self.grew) = (None, false);
        if self.stats.prompt_end == 0.0 {
            self.stats.prompt_end = self.stats.call_end;
        }
        if self.answer().len() >= self.budget {
            return Ok(Step::End(FinishReason::Length));
        }
        let token = self.choose(next)?;
        let chosen = self.clock.now();
        self.stats.sampling += chosen - self.stats.call_end;
        if self.stats.first_token == 0.0 {
            self.stats.first_token = chosen;
        }
        if self.end_tokens.contains(&token) {
            self.likelihood = None;
            return Ok(Step::End(FinishReason::Stop));
        }
        self.history.push(token);
        self.grew = true;
        if self.text.push(token, &mut self.piece) {
            return Ok(Step::End(FinishReason::Stop));
        }
        if let Some(bound) = &mut self.constraint {
            let constraint = bound.get();
            constraint.accept(token)?;
            if constraint.is_done() {
                return Ok(Step::End(FinishReason::Stop));
            }
        }
        match self.answer().len() >= self.budget {
            true => Ok(Step::End(FinishReason::Length)),
            false => Ok(Step::Read(token)),
        }
    }

    fn choose(&mut self, next: Next<'_>) -> Result<u32> {
        match (next, &mut self.chooser) {
            (Next::Token(token), _) => Ok(token),
            (Next::Scores(scores), Chooser::Scores(sampler)) => {
                // The model's own, before anybody has a say in them.
                let own = self.likeliest.map(|_| scores.clone());
                add_bias(&self.bias, scores);
                if let Some(bound) = &mut self.constraint {
                    bound.get().mask(scores)?;
                }
                let token = sampler.sample(scores, &self.history)?;
                if let (Some(own), Some(most)) = (own, self.likeliest) {
                    self.likelihood = Some(Likelihood::of(token, &own, most));
                }
                Ok(token)
            }
            // The model's kind and the chooser's come from the same question.
            (Next::Scores(_), Chooser::Program) => Err(LlmError::DrawsItself { what: "logits" }),
        }
    }

    /// Whether what was taken last made the answer longer; the token that ends one does not, where it is no part of it.
    pub fn grew(&self) -> bool {
        self.grew
    }

    /// What may be shown since the last token was taken; it will not change any more.
    pub fn piece(&self) -> &str {
        &self.piece
    }

    /// How likely the last token was, where that is asked for; `None` too where that token ended the answer.
    pub fn likelihood(&mut self) -> Option<Likelihood> {
        self.likelihood.take()
    }

    /// The whole answer, and what of its text was held back until now.
    pub fn finish(mut self, finish_reason: FinishReason) -> (Answer, String) {
        let (text, rest, stop) = self.text.finish();
        let mut stats = self.stats;
        stats.end = self.clock.now();
        if stats.prompt_end == 0.0 {
            stats.prompt_end = stats.end;
        }
        let tokens = self.history.split_off(self.prompt);
        stats.generated_tokens = tokens.len();
        (Answer { tokens, text, finish_reason, stop, stats }, rest)
    }
}

fn add_bias(bias: &[(u32, f32)], scores: &mut [f32]) {
    for &(token, more) in bias {
        if let Some(score) = scores.get_mut(token as usize) {
            *score += more;
        }
    }
}
