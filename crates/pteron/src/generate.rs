//! Answers without a conversation: a prompt flows in, texts flow out, and nothing is kept in between.

use crate::error::{Error, Lack, Result};
use crate::message::{Message, Messages};
use crate::model::Model;
use crate::options::setters;
use crate::progress::Cancel;
use crate::speculate::Speculate;
use pteron_llm::constrain::Constraint;
use pteron_llm::sampler::{SamplerOrder, SamplerSettings};
use pteron_llm::{
    Answer, Decoder, Event, LlmError, Refused, Request, Round, ScheduleOptions, Scheduler, SpecialTokens,
    Voice,
};
use pteron_runtime::RunControl;
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use web_time::{SystemTime, UNIX_EPOCH};

/// How free an answer is where neither the caller nor the model's publisher says it.
const USUAL_TEMPERATURE: f64 = 0.7;

/// Answers that are written at the same time.
const MOST_TOGETHER: usize = 16;

/// What an answer shall be like. What is not chosen is as the model's publisher suggests it, or as is usual.
///
/// ```
/// use pteron::GenerateOptions;
///
/// let options = GenerateOptions::default().max_tokens(64).temperature(0.2).seed(7).stop(["\n\n"]);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GenerateOptions {
    max_tokens: Option<usize>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    frequency_penalty: f64,
    presence_penalty: f64,
    pub(crate) seed: Option<u64>,
    stop: Vec<String>,
    ignores_end: bool,
    pub(crate) special_tokens: Option<SpecialTokens>,
    schema: Option<Value>,
    grammar: Option<String>,
    answers: Option<usize>,
    pub(crate) speculate: Speculate,
}

setters! { GenerateOptions:
    /// Tokens of an answer at most; without, what the context has room for.
    max_tokens(tokens: usize) max_tokens = Some(tokens), "64";
    /// How freely tokens are chosen; 0 takes the most likely one.
    temperature(temperature: f64) temperature = Some(temperature), "0.0";
    /// Chooses among the k most likely tokens; 0 for all.
    top_k(k: usize) top_k = Some(k), "40";
    /// Chooses among the most likely tokens that make up this much of the probability; 1 for all.
    top_p(p: f64) top_p = Some(p), "0.9";
    /// Leaves out tokens less likely than this part of the most likely one.
    min_p(p: f64) min_p = Some(p), "0.05";
    /// Divides the scores of tokens that have come before, in the prompt too; 1 does nothing.
    repetition_penalty(penalty: f64) repetition_penalty = Some(penalty), "1.1";
    /// Takes this from a token's score for each time that the answer has it.
    frequency_penalty(penalty: f64) frequency_penalty = penalty, "0.5";
    /// Takes this from the scores of tokens that the answer has.
    presence_penalty(penalty: f64) presence_penalty = penalty, "0.5";
    /// Where the random generator starts: the same seed gives the same answer. Without, another each time.
    seed(seed: u64) seed = Some(seed), "7";
    /// Texts that end the answer and are no part of it.
    stop(texts: impl IntoIterator<Item = impl Into<String>>) stop = texts.into_iter().map(Into::into).collect(), "[\"\\n\\n\"]";
    /// Whether it goes on when the model wants to end its answer.
    ignore_end(ignore: bool) ignores_end = ignore, "true";
    /// What special tokens are that texts spell: text like any other, or the tokens themselves.
    special_tokens(special: SpecialTokens) special_tokens = Some(special), "pteron::SpecialTokens::Text";
    /// Answers with JSON that this schema allows, and nothing else.
    schema(schema: Value) schema = Some(schema), "serde_json::json!({\"type\": \"boolean\"})";
    /// Answers with a text of this grammar (Lark's notation), and nothing else.
    grammar(grammar: impl Into<String>) grammar = Some(grammar.into()), "\"start: \\\"yes\\\" | \\\"no\\\"\"";
    /// So many answers to one prompt, each with a seed of its own.
    answers(answers: usize) answers = Some(answers), "3";
    /// How tokens are guessed ahead, for [`Model::stream`] and chats; they are chosen as without.
    speculate(speculate: Speculate) speculate = speculate, "pteron::Speculate::Off";
}

impl GenerateOptions {
    /// As the layer below takes them: what the caller says over what the model's publisher says over what is usual.
    pub(crate) fn resolved(&self, model: &Model) -> pteron_llm::GenerateOptions {
        let usual = SamplerSettings {
            temperature: USUAL_TEMPERATURE,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            order: SamplerOrder::default(),
            ..SamplerSettings::default()
        };
        let usual = model.suggested().over(usual);
        pteron_llm::GenerateOptions {
            max_new: self.max_tokens,
            sampling: SamplerSettings {
                temperature: self.temperature.unwrap_or(usual.temperature),
                top_k: self.top_k.unwrap_or(usual.top_k),
                top_p: self.top_p.unwrap_or(usual.top_p),
                min_p: self.min_p.unwrap_or(usual.min_p),
                repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
                ..usual
            },
            seed: self.seed.unwrap_or_else(moment),
            stop: self.stop.clone(),
            end_tokens: if self.ignores_end { Vec::new() } else { model.end_tokens() },
        }
    }

    /// Whether a model can answer like that.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use serde_json::json;
    ///
    /// let options = pteron::GenerateOptions::default();
    /// options.clone().schema(json!({"type": "string", "maxLength": 8})).check(&model)?;
    /// assert!(options.schema(json!({"type": "unheard of"})).check(&model).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the schema or the grammar cannot be kept.
    pub fn check(&self, model: &Model) -> Result<()> {
        self.constraint(model).map(drop)
    }

    /// What the schema or the grammar allows; `None` without either.
    pub(crate) fn constraint(&self, model: &Model) -> Result<Option<Constraint>> {
        let made = match (&self.schema, &self.grammar) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("a schema and a grammar, where one can be kept"));
            }
            (Some(schema), None) => Constraint::json_schema(&model.voice()?.tokenizer, schema),
            (None, Some(grammar)) => Constraint::grammar(&model.voice()?.tokenizer, grammar),
            (None, None) => return Ok(None),
        };
        Ok(Some(made.map_err(LlmError::from)?))
    }
}

/// A number that is another one each time.
fn moment() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// What is to be answered.
///
/// ```
/// use pteron::{Message, Prompt};
///
/// let asked: Prompt = "Why is the sky blue?".into();
/// let continued = Prompt::Raw("Once upon a time".to_owned());
/// let conversation: Prompt = vec![Message::system("Be brief."), Message::user("Hello")].into();
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Prompt {
    /// What a user asks, in the model's chat template; as it is where the model has none.
    Ask(String),
    /// A text that the model goes on from.
    Raw(String),
    /// A conversation up to the model's turn.
    Messages(Messages),
    /// Tokens.
    Tokens(Vec<u32>),
    /// What [`Model::tokens`] gave: tokens, and the images that some of them stand for.
    Ready(pteron_llm::Prompt),
}

impl From<pteron_llm::Prompt> for Prompt {
    fn from(prompt: pteron_llm::Prompt) -> Prompt {
        Prompt::Ready(prompt)
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::Ask(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Ask(text)
    }
}

impl From<Vec<Message>> for Prompt {
    fn from(messages: Vec<Message>) -> Prompt {
        Prompt::Messages(messages.into())
    }
}

impl From<Messages> for Prompt {
    fn from(messages: Messages) -> Prompt {
        Prompt::Messages(messages)
    }
}

/// What a listener to pieces of an answer gives back: nothing, or whether the answer shall go on.
///
/// ```
/// use pteron::Flow;
/// use std::ops::ControlFlow;
///
/// assert!(().flow().is_continue());
/// assert!(ControlFlow::<()>::Break(()).flow().is_break());
/// ```
pub trait Flow {
    /// Whether the answer shall go on.
    fn flow(self) -> ControlFlow<()>;
}

impl Flow for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Flow for ControlFlow<()> {
    fn flow(self) -> ControlFlow<()> {
        self
    }
}

impl Model {
    /// Answers a prompt, as often as [`GenerateOptions::answers`] asks for.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// use pteron::{GenerateOptions, Model};
    ///
    /// let model = Model::open(path.as_path(), Default::default())?;
    /// let options = GenerateOptions::default().max_tokens(8).answers(3).seed(1);
    /// let answers = model.generate("Name a colour.", &options)?;
    /// assert_eq!(answers.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the prompt does not fit the context or the model, an option makes no sense, or a run fails.
    pub fn generate(&self, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Result<Vec<Answer>> {
        let prompt = self.tokens(prompt, options)?;
        let resolved = options.resolved(self);
        let constraint = options.constraint(self)?;
        let answers = options.answers.unwrap_or(1);
        let all = match self.language().draws_itself() {
            true => self.answers_in_turn(&prompt, resolved, answers)?,
            false => self.answers_together(prompt, &resolved, constraint.as_ref(), answers)?,
        };
        Ok(all.into_iter().map(|answer| self.timed(answer)).collect())
    }

    /// Answers of a program that draws its tokens itself, one after the other in one session.
    fn answers_in_turn(
        &self,
        prompt: &pteron_llm::Prompt,
        mut options: pteron_llm::GenerateOptions,
        answers: usize,
    ) -> Result<Vec<Answer>> {
        let mut decoder = self.decoder(options.seed)?;
        let mut all = Vec::new();
        for _ in 0..answers {
            let show = &mut |_: &str| ControlFlow::Continue(());
            all.push(self.answer(&mut decoder, prompt, &options, None, show, &RunControl::default())?);
            options.seed = options.seed.wrapping_add(1);
        }
        Ok(all)
    }

    /// Answers by a scheduler on this thread: the prompt is read once, and they are written at the same time.
    fn answers_together(
        &self,
        prompt: pteron_llm::Prompt,
        options: &pteron_llm::GenerateOptions,
        constraint: Option<&Constraint>,
        answers: usize,
    ) -> Result<Vec<Answer>> {
        let mut schedule = ScheduleOptions::default();
        schedule.parallel = answers.clamp(1, MOST_TOGETHER);
        schedule.queue = answers.div_ceil(MOST_TOGETHER).max(1);
        schedule.context = self.given_context();
        // Nobody else waits for a round to end.
        schedule.chunk = usize::MAX;
        let tokenizer = self.voice().ok().map(|voice| &voice.tokenizer);
        let named = |error: LlmError| self.named(error);
        let (mut scheduler, handle) = Scheduler::new(self.language(), tokenizer, schedule).map_err(named)?;
        let (sender, ended) = channel();
        for first in (0..answers).step_by(MOST_TOGETHER) {
            let own = pteron_llm::GenerateOptions {
                seed: options.seed.wrapping_add(first as u64),
                ..options.clone()
            };
            let mut request = Request::new(prompt.tokens.clone(), own);
            request.images.clone_from(&prompt.images);
            request.answers = (answers - first).min(MOST_TOGETHER);
            request.constraint = constraint.cloned();
            let sender = sender.clone();
            let listener = move |event| {
                if let Event::Ended { answer, outcome, .. } = event {
                    // Whoever receives outlives the scheduler.
                    let _ = sender.send((first + answer, outcome));
                }
                ControlFlow::Continue(())
            };
            handle.submit(request, Box::new(listener)).map_err(|refused| match refused {
                Refused::Request(error) => named(error),
                other => Error::invalid(other),
            })?;
        }
        while scheduler.run_round() == Round::Worked {}
        let mut all: Vec<_> = ended.try_iter().collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, outcome)| outcome.map_err(named)).collect()
    }

    /// Answers a prompt once; the listener gets every piece of text as soon as it will not change any more, and may end the
    /// answer, as [`Cancel::cancel`] may from another thread.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// use pteron::{Cancel, GenerateOptions, Model};
    ///
    /// let model = Model::open(path.as_path(), Default::default())?;
    /// let options = GenerateOptions::default().max_tokens(8);
    /// let answer = model.stream("Why?", &options, &Cancel::default(), |piece: &str| print!("{piece}"))?;
    /// println!("\n{}", answer.stats.summary());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::generate`].
    pub fn stream<F: Flow>(
        &self,
        prompt: impl Into<Prompt>,
        options: &GenerateOptions,
        cancel: &Cancel,
        mut listener: impl FnMut(&str) -> F,
    ) -> Result<Answer> {
        let prompt = self.tokens(prompt, options)?;
        let resolved = options.resolved(self);
        let constraint = options.constraint(self)?;
        let mut decoder = self.decoder(resolved.seed)?;
        decoder.set_speculator(options.speculate.speculator(self)?);
        let show = &mut |piece: &str| listener(piece).flow();
        let control = RunControl { cancel: Some(cancel.flag()), ..RunControl::default() };
        self.answer(&mut decoder, &prompt, &resolved, constraint, show, &control)
    }

    fn answer(
        &self,
        decoder: &mut Decoder,
        prompt: &pteron_llm::Prompt,
        options: &pteron_llm::GenerateOptions,
        mut constraint: Option<Constraint>,
        show: &mut dyn FnMut(&str) -> ControlFlow<()>,
        control: &RunControl,
    ) -> Result<Answer> {
        let tokenizer = self.voice().ok().map(|voice| &voice.tokenizer);
        let constraint = constraint.as_mut();
        let answer = pteron_llm::generate(decoder, tokenizer, prompt, options, constraint, show, control);
        Ok(self.timed(answer.map_err(|error| self.named(error))?))
    }

    /// The tokens of a prompt, and the text that they stand for.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// use pteron::{GenerateOptions, Model, Prompt};
    ///
    /// let model = Model::open(path.as_path(), Default::default())?;
    /// let prompt = model.tokens(Prompt::Raw("abc".to_owned()), &GenerateOptions::default())?;
    /// assert_eq!(prompt.tokens.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the model has no tokenizer, or no chat template where one is needed, or the template refuses the messages.
    pub fn tokens(&self, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Result<pteron_llm::Prompt> {
        let special_tokens = options.special_tokens.unwrap_or_default();
        let voice = || Ok::<_, Error>(Voice { special_tokens, ..self.voice()?.clone() });
        let messages = match prompt.into() {
            Prompt::Tokens(tokens) => return Ok(pteron_llm::Prompt { tokens, ..Default::default() }),
            Prompt::Ready(prompt) => return Ok(prompt),
            Prompt::Raw(text) => {
                return Ok(voice()?.alone(&text, options.special_tokens.unwrap_or(SpecialTokens::Parse))?);
            }
            Prompt::Ask(text) if self.voice()?.template.is_none() => {
                return Ok(voice()?.alone(&text, special_tokens)?);
            }
            Prompt::Ask(text) => Messages::from(vec![Message::user(text)]),
            Prompt::Messages(messages) => messages,
        };
        let voice = voice()?;
        if voice.template.is_none() {
            return Err(Error::lacks(self.name(), Lack::Template));
        }
        let images = match messages.images() {
            files if files.is_empty() => Vec::new(),
            files => voice.eyes.as_ref().ok_or_else(|| self.is_blind())?.images(files)?,
        };
        Ok(voice.chat_showing(&messages.values(), &messages.tools, &images, "")?)
    }

    /// The same answer, with what loading took.
    pub(crate) fn timed(&self, mut answer: Answer) -> Answer {
        (answer.stats.load_start, answer.stats.load_end) = self.load_times();
        answer
    }
}
