//! Messages, what answers shall be like, and answers, as records.

use crate::error::{PteronError, Result};
use crate::open::size;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A message: who says what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, uniffi::Record)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Tools that an assistant has called, as a list in JSON.
    #[uniffi(default = None)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<String>,
}

impl Message {
    pub(crate) fn facade(self) -> Result<pteron::Message> {
        let mut message = json!({"role": self.role, "content": self.content});
        if let Some(calls) = self.tool_calls {
            message["tool_calls"] = parsed("tool_calls", &calls)?;
        }
        Ok(pteron::Message::from_json(message)?)
    }

    pub(crate) fn of(message: &pteron::Message) -> Message {
        let calls = message.as_json().get("tool_calls").filter(|calls| !calls.is_null());
        Message {
            role: message.role().to_owned(),
            content: message.content().to_owned(),
            tool_calls: calls.map(Value::to_string),
        }
    }
}

/// JSON of a record's field.
pub(crate) fn parsed(field: &str, json: &str) -> Result<Value> {
    serde_json::from_str(json)
        .map_err(|error| PteronError::invalid(format_args!("`{field}` is no JSON: {error}")))
}

/// What an answer shall be like. What is not chosen is as the model's publisher suggests it, or as is usual.
#[derive(Clone, Debug, Default, Deserialize, uniffi::Record)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Tokens of an answer at most; without, what the context has room for.
    #[uniffi(default = None)]
    pub max_tokens: Option<u64>,
    /// How freely tokens are chosen; 0 takes the most likely one.
    #[uniffi(default = None)]
    pub temperature: Option<f64>,
    /// Chooses among the k most likely tokens; 0 for all.
    #[uniffi(default = None)]
    pub top_k: Option<u64>,
    /// Chooses among the most likely tokens that make up this much of the probability; 1 for all.
    #[uniffi(default = None)]
    pub top_p: Option<f64>,
    /// Leaves out tokens less likely than this part of the most likely one.
    #[uniffi(default = None)]
    pub min_p: Option<f64>,
    /// Divides the scores of tokens that have come before, in the prompt too; 1 does nothing.
    #[uniffi(default = None)]
    pub repetition_penalty: Option<f64>,
    /// Takes this from a token's score for each time that the answer has it.
    #[uniffi(default = None)]
    pub frequency_penalty: Option<f64>,
    /// Takes this from the scores of tokens that the answer has.
    #[uniffi(default = None)]
    pub presence_penalty: Option<f64>,
    /// Where the random generator starts: the same seed gives the same answer.
    #[uniffi(default = None)]
    pub seed: Option<u64>,
    /// Texts that end the answer and are no part of it.
    #[uniffi(default = [])]
    pub stop: Vec<String>,
    /// Whether it goes on when the model wants to end its answer.
    #[uniffi(default = false)]
    pub ignore_end: bool,
    /// A JSON schema: the answer is JSON that it allows, and nothing else.
    #[uniffi(default = None)]
    pub schema: Option<String>,
    /// A grammar in Lark's notation: the answer is a text of it, and nothing else.
    #[uniffi(default = None)]
    pub grammar: Option<String>,
    /// So many answers to one prompt, each with a seed of its own; for `Generation.generate`.
    #[uniffi(default = None)]
    pub answers: Option<u64>,
}

impl GenerateOptions {
    pub(crate) fn facade(self) -> Result<pteron::GenerateOptions> {
        let mut options = pteron::GenerateOptions::default().stop(self.stop).ignore_end(self.ignore_end);
        if let Some(tokens) = self.max_tokens {
            options = options.max_tokens(size(tokens));
        }
        if let Some(temperature) = self.temperature {
            options = options.temperature(temperature);
        }
        if let Some(k) = self.top_k {
            options = options.top_k(size(k));
        }
        if let Some(p) = self.top_p {
            options = options.top_p(p);
        }
        if let Some(p) = self.min_p {
            options = options.min_p(p);
        }
        if let Some(penalty) = self.repetition_penalty {
            options = options.repetition_penalty(penalty);
        }
        if let Some(penalty) = self.frequency_penalty {
            options = options.frequency_penalty(penalty);
        }
        if let Some(penalty) = self.presence_penalty {
            options = options.presence_penalty(penalty);
        }
        if let Some(seed) = self.seed {
            options = options.seed(seed);
        }
        if let Some(schema) = self.schema {
            options = options.schema(parsed("schema", &schema)?);
        }
        if let Some(grammar) = self.grammar {
            options = options.grammar(grammar);
        }
        Ok(match self.answers {
            Some(answers) => options.answers(size(answers)),
            None => options,
        })
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, uniffi::Enum)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model ended it, or a stop string came, or a grammar allows no more.
    Stop,
    /// The budget was spent or the context was full.
    Length,
    /// It was interrupted.
    Cancelled,
}

/// A tool that a model wants to be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct ToolCall {
    /// Which.
    pub name: String,
    /// An object, as JSON.
    pub arguments: String,
}

/// What an answer took.
#[derive(Clone, Debug, PartialEq, Serialize, uniffi::Record)]
pub struct Stats {
    /// Tokens of the whole prompt.
    pub prompt_tokens: u64,
    /// Of these, tokens that were in the caches already.
    pub reused_tokens: u64,
    /// Tokens of the answer.
    pub generated_tokens: u64,
    /// Milliseconds from the prompt to the first token; none without one.
    pub time_to_first_token: Option<f64>,
    /// Tokens read in a second.
    pub prefill_rate: Option<f64>,
    /// Tokens written in a second.
    pub decode_rate: Option<f64>,
    /// All of it under the names that ExecuTorch's runners publish, as JSON.
    pub published: String,
}

/// What a model said.
#[derive(Clone, Debug, PartialEq, Serialize, uniffi::Record)]
pub struct Answer {
    /// Its text, without the string that ended it.
    pub text: String,
    /// Its tokens, without the one that ended it.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// Tools that it calls, of those that the model was told of.
    pub tool_calls: Vec<ToolCall>,
    /// What it took.
    pub stats: Stats,
}

impl Answer {
    /// An answer of a model that was told of these tools.
    pub(crate) fn of(answer: pteron::Answer, model: &pteron::Model, tools: &Value) -> Result<Answer> {
        let calls = if tools.is_null() { vec![] } else { model.tool_calls(&answer.text, tools)? };
        let stats = &answer.stats;
        let stats = Stats {
            prompt_tokens: stats.prompt_tokens as u64,
            reused_tokens: stats.reused_tokens as u64,
            generated_tokens: stats.generated_tokens as u64,
            time_to_first_token: stats.time_to_first_token(),
            prefill_rate: stats.prefill_rate(),
            decode_rate: stats.decode_rate(),
            published: serde_json::to_string(stats).map_err(PteronError::run)?,
        };
        let call = |call: pteron::ToolCall| ToolCall { name: call.name, arguments: call.arguments };
        Ok(Answer {
            text: answer.text,
            tokens: answer.tokens,
            finish_reason: match answer.finish_reason {
                pteron::FinishReason::Stop => FinishReason::Stop,
                pteron::FinishReason::Length => FinishReason::Length,
                pteron::FinishReason::Cancelled => FinishReason::Cancelled,
            },
            stop: answer.stop,
            tool_calls: calls.into_iter().map(call).collect(),
            stats,
        })
    }
}

/// Who gets an answer piece by piece, on the thread that asked for it.
#[uniffi::export(with_foreign)]
pub trait PieceListener: Send + Sync {
    /// More of the answer, which will not change any more; whether it shall go on.
    fn piece(&self, text: String) -> Result<bool, PteronError>;
}

/// Lets a listener hear an answer that `answer` gives piece by piece. Where the listener fails, the answer ends there and the
/// failure is the error.
pub(crate) fn heard<T>(
    listener: Option<Arc<dyn PieceListener>>,
    is_unwanted: impl Fn() -> bool,
    answer: impl FnOnce(&mut dyn FnMut(&str) -> ControlFlow<()>) -> pteron::Result<T>,
) -> Result<T> {
    let mut failure = None;
    let answered = answer(&mut |piece| {
        if is_unwanted() {
            return ControlFlow::Break(());
        }
        match listener.as_ref().map(|listener| listener.piece(piece.to_owned())) {
            None | Some(Ok(true)) => ControlFlow::Continue(()),
            Some(Ok(false)) => ControlFlow::Break(()),
            Some(Err(error)) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(answered?),
    }
}
